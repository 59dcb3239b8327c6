"""What comes back of a deleted file: in the guest's file system, in the image, on the device."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Check, Direction, Sample
from vdisklab.units import KIB, MIB
from vdisklab.workload import program

_FILL_RATE = 20 * MIB  # random bytes a second, in an emulated guest
_SETTLED = 6.0  # seconds
_TIMEOUT = 3600.0
_SPARE = 16 * MIB

_USED = re.compile(r"^used ([0-9]{1,15}) ([0-9]{1,15})$", re.MULTILINE)
# util-linux says "128 MiB (134217728 bytes) trimmed", busybox "134217728 bytes trimmed".
_TRIMMED = re.compile(r"\b([0-9]{1,18}) bytes\)? trimmed")
_REFUSED = re.compile(r"not supported", re.IGNORECASE)


class DiscardSettings(program.Settings):
    """Settings of a deletion: how many MiB are deleted, and whether fstrim follows."""

    mib: Annotated[int, Field(ge=4, le=1 << 24)] = 128
    trim: bool = False


class Discard(program.Workload):
    """rm, and fstrim."""

    needs_directory = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Writes a file, and deletes it while the image and the devices are watched."""
        settings = program.read_settings(plan, DiscardSettings)
        mib = max(4, round(settings.mib * timing.scale))
        program.require_room(plan, mib * MIB + _SPARE, subject.room_for_files)
        text = program.shell_script("discard")
        return program.Script(
            ("sh", "-s", "--", "delete", subject.path, *(("trim",) if settings.trim else ())),
            _SETTLED,
            _TIMEOUT,
            stdin=text,
            prepare=(program.step(text, "fill", subject.path, str(mib), timeout=_TIMEOUT),),
            observe=("freed_image", "freed_device"),
            before=mib * MIB / _FILL_RATE + _SETTLED,
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Bytes freed in the guest; what fstrim trimmed, as a state.

        Raises WorkloadError if the file system has no more room than before, and for an fstrim that
        failed; one that the disk does not support is no failure, but a result.
        """
        used, said = _USED.search(output.stdout), output.stdout.strip()
        if used is None or int(used[1]) <= int(used[2]):
            raise WorkloadError(
                "deleting the file freed nothing in the guest; the last line was: "
                f"{(said or 'nothing').splitlines()[-1][:200]}"
            )
        freed = (int(used[1]) - int(used[2])) * KIB
        checks: tuple[Check, ...] = ()
        if program.read_settings(plan, DiscardSettings).trim:
            trimmed = _TRIMMED.search(said)
            if trimmed is None and not _REFUSED.search(said):
                raise WorkloadError(f"fstrim failed: {said.splitlines()[0][:200]}")
            checks = (Check(f"{plan.name}.trimmed", None, trimmed[1] if trimmed else "refused"),)
        return program.ProgramResult(
            (Sample("freed_guest", Direction.TRIM, float(freed)),), None, None, checks=checks
        )

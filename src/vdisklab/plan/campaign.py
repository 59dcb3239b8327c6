"""The plan of a campaign: which cells, in how many rounds, with which programs, where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import Bus
from vdisklab.plan.age import NEW, Age
from vdisklab.plan.destination import Destination
from vdisklab.plan.guest import GuestPlan, Qemu
from vdisklab.plan.profile import Profile
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import NO_BASELINE, Request, identity
from vdisklab.value import Value, field, replace

_HOW_OFTEN = (
    "seed", "rounds", "race", "requested", "left_out", "no_baseline", "guest_boot", "diskspd",
)  # fmt: skip


class Dropped(Value):
    """A path of the matrix that is not measured: why, and what to write instead.

    `asked` is False for what nobody asked for by name, such as the warm state of a path whose cold
    one is measured, and for what the user's own terms leave out.
    """

    path: str
    reason: str
    instead: str
    asked: bool = True


class CampaignPlan(Value):
    """Everything that decides what is measured; nothing that is known only after measuring."""

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    profile: Profile
    rounds: int
    """The number of rounds; the most, with a `race`."""
    seed: int
    size_bytes: int
    """The size of the disk that the guest sees."""
    runtime: float
    """Seconds of each timed measurement."""
    ramp: float
    """Seconds before each timed measurement that are not counted."""
    directory: Path
    baseline: DiskPath
    """The path that scores relate to."""
    guest: GuestPlan = field(default_factory=GuestPlan)
    backing: BackingDevices = WORK_DIRECTORY
    label: str = ""
    scale: float = 1.0
    """The fraction of the full work that untimed measurements do."""
    qemus: tuple[Qemu, ...] = ()
    """The QEMUs that paths name."""
    settings: Request = field(default_factory=Request)
    """The request with all defaults, for options that need no field of their own here."""
    race: RaceTerms | None = None
    destination: Destination | None = None
    """Where operations copy to; None for a file beside the image."""
    requested: tuple[Cell, ...] = ()
    """The cells before the survey of this host dropped some."""
    template_state: str = ""
    """Size and time of the user's template; empty for the default one."""

    @property
    def searches_guests(self) -> bool:
        """True if it measures only as many guests as a search of each path's capacity needs."""
        return self.settings.searches_guests

    @property
    def guest_buses(self) -> frozenset[Bus]:
        """The buses that the plan's guests need drivers for; empty without guests."""
        if self.profile.without_guests:
            return frozenset()
        return frozenset(cell.path.attachment.bus for cell in self.cells if not cell.path.on_host)

    def as_json(self) -> dict[str, Any]:
        """The parts that identify the plan, as plain JSON values.

        Dropped paths are excluded, and so is the number of rounds: more rounds continue the same
        campaign.
        """
        return {
            "cells": [cell.label for cell in self.cells],
            "profile": self.profile.name,
            "measurements": [
                {"name": m.name, "program": m.program, "settings": dict(m.settings)}
                | ({"filesystem": m.filesystem} if m.filesystem else {})
                | ({"neighbour": dict(m.neighbour.settings)} if m.neighbour else {})
                for m in self.profile.measurements
            ],
            "seed": self.seed,
            "size_bytes": self.size_bytes,
            "runtime": self.runtime,
            "ramp": self.ramp,
            "directory": str(self.directory),
            **self.backing.as_json(),
            "baseline": self.baseline.canonical,
            **identity(self.settings),
            **({"template_state": self.template_state} if self.template_state else {}),
            **({"qemu": _named(self.qemus)} if self.qemus else {}),
            "guest": {
                "cpus": self.guest.cpus,
                "memory_bytes": self.guest.memory_bytes,
                "accelerator": self.guest.accelerator,
                "kernel": self.guest.kernel,
                **(self.guest.user.as_json() if self.guest.user else {}),
            },
        }

    def stored_json(self) -> dict[str, Any]:
        """The plan as the database stores it.

        That is the identifying parts, how often is measured, how to start the guest, whether no
        baseline was wanted, and the cells that were requested, if the host's survey dropped some,
        with the reasons.
        """
        user = self.guest.user
        requested = [cell.label for cell in self.requested or self.cells]
        often = {"rounds": self.rounds} if self.race is None else {"race": self.race.as_json()}
        stored = self.as_json() | often | ({} if user is None else user.how_to_start())
        if self.settings.baseline == NO_BASELINE:
            stored["no_baseline"] = True  # the first path is the reference, and nobody's own
        if requested == stored["cells"]:
            return stored
        paths = {cell.path.canonical for cell in self.requested}
        reasons = {each.path: each.reason for each in self.dropped if each.path in paths}
        return stored | {"requested": requested, "left_out": reasons}

    def as_begun(self, stored: Mapping[str, Any]) -> CampaignPlan:
        """This plan with the cells of the stored plan, if both come from the same request.

        Cells that the host could not serve when the stored plan began are dropped, for the reasons
        of then, which older plans lack.
        """
        measured = stored.get("cells", [])
        if stored.get("requested", measured) != [cell.label for cell in self.cells]:
            return self
        parsed = map(MeasuredCell.parse, measured)
        cells = tuple(Cell(each.path, each.page_cache) for each in parsed if each.path is not None)
        left_out = dict.fromkeys(c.path.canonical for c in self.cells if c.label not in measured)
        began, reasons = "when the campaign began", stored.get("left_out", {})
        dropped = (
            Dropped(
                path,
                f"{reasons[path]} ({began})"
                if path in reasons
                else f"this host could not measure it {began}",
                "add --new to try it again",
            )
            for path in left_out
        )
        baselines = {cell.path.canonical: cell.path for cell in cells}
        return replace(
            self,
            cells=cells,
            dropped=(*self.dropped, *dropped),
            baseline=baselines.get(str(stored.get("baseline")), self.baseline),
            seed=self.seed if self.settings.seed is not None else stored.get("seed", 0),
            requested=self.cells,
        )

    def with_reasons(self, refused: Mapping[DiskPath, Impossible]) -> CampaignPlan:
        """The plan with these reasons why paths are dropped."""
        reasons = {path.canonical: reason for path, reason in refused.items()}
        dropped = tuple(
            replace(
                dropped_path,
                reason=reasons[dropped_path.path].reason,
                instead=reasons[dropped_path.path].instead,
            )
            if dropped_path.path in reasons
            else dropped_path
            for dropped_path in self.dropped
        )
        return replace(self, dropped=dropped)

    def qemu(self, name: str | None) -> Qemu | None:
        """The QEMU of that name; None for the installed one. Raises KeyError if unknown."""
        return None if name is None else {qemu.name: qemu for qemu in self.qemus}[name]

    @property
    def age(self) -> Age:
        """How images and file systems are aged before measuring."""
        return self.settings.age or NEW

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the plan; `run` continues the campaign with them."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _named(qemus: tuple[Qemu, ...]) -> dict[str, dict[str, str]]:
    """The QEMUs by name, with their versions: after an upgrade it is another QEMU."""
    return {qemu.name: {"binary": str(qemu.binary), "version": qemu.version} for qemu in qemus}


def what_is_measured(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a stored plan that are equal when it is measured again.

    The order, the number of rounds and what the host could not serve may differ.
    """
    cells = stored.get("requested", stored.get("cells", []))
    return {key: value for key, value in stored.items() if key not in _HOW_OFTEN} | {"cells": cells}

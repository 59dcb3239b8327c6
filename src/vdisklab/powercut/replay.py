"""Rebuilds one state of a kept recording, lets it recover, and leaves it mounted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import PowercutError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.host.syscalls import attach_loop
from vdisklab.powercut.cutting.cuts import parse_cut
from vdisklab.powercut.judging.daemonkeeper import keep_daemon
from vdisklab.powercut.judging.examine import open_examiner
from vdisklab.powercut.judging.verdict import Judged
from vdisklab.powercut.recording.recording import Recording, open_recording
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import open_site
from vdisklab.units import GIB


@dataclass(frozen=True, slots=True)
class Replayed:
    """A state that stands again. `mountpoint` is None when it does not recover."""

    judged: Judged
    recording: Recording
    device: str
    mountpoint: Path | None

    @property
    def image(self) -> Path | None:
        """The disk image as it is after the cut."""
        if self.mountpoint is None:
            return None
        return self.mountpoint / self.recording.trace.image


def split_case(case: str) -> tuple[str, str]:
    """The verdict's id and the cut of a case such as `3f2a9c01/12-3f`. Raises PowercutError."""
    name, slash, cut = case.partition("/")
    if not slash or not name.isalnum():
        raise PowercutError(
            f"{case!r} names no case", hint="a verdict shows its case: ID/EPOCH-BITS"
        )
    return name, cut


@contextmanager
def replayed(
    host: Host, ledger: Ledger, directory: Path, kept: Path, case: str
) -> Iterator[Replayed]:
    """The state of a case, judged once more and then mounted, until the block ends.

    `kept` holds the recordings of losses. Raises PowercutError when the case is not there.
    """
    name, cut = split_case(case)
    recording = open_recording(kept / name)
    with (
        open_site(host, ledger, directory) as outer,
        tmpfs(outer, "memory", 2 * GIB) as memory,
        open_site(host, ledger, memory.path) as site,
        keep_daemon(ledger, site.directory, f"vdisklab-{ledger.run_id}") as daemon,
        open_examiner(site, recording, daemon) as examiner,
    ):
        parsed = parse_cut(cut)
        judged = examiner.judge(parsed)
        state = examiner.rebuilder.build(examiner.epoch(parsed), parsed)
        device = attach_loop(state)  # noted by the examiner
        if examiner.recovery.recover(device) is not None:
            yield Replayed(judged, recording, device, None)
            return
        try:
            yield Replayed(judged, recording, device, examiner.recovery.files())
        finally:
            examiner.recovery.release()

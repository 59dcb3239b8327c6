"""Judges states of one recording: build, mount (which replays the journal), read, compare.

The kernel does here what it does at the next boot. No process is started for a state: loop
devices and mounts are system calls, the image is read by ourselves, and QEMU's storage daemon,
for the afterlife, is one for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.errors import PowercutError
from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import attach_loop, detach_loop
from vdisklab.powercut.cutting.cuts import TEAR_BYTES, Cut, Epoch, epochs_between
from vdisklab.powercut.cutting.rebuild import Rebuilder, open_rebuilder
from vdisklab.powercut.judging.daemonkeeper import DaemonKeeper
from vdisklab.powercut.judging.databasejudge import GuestFileSystem, committed_at, guest_file_system
from vdisklab.powercut.judging.imagereader import OWN_FORMATS, BadImageError, Contents, read_image
from vdisklab.powercut.judging.judge import Due, Expectation, judge_state
from vdisklab.powercut.judging.post_recovery import Living, image_disk, live_on, read_sectors
from vdisklab.powercut.judging.recovery import Recovery, open_recovery
from vdisklab.powercut.judging.verdict import Judged, Outcome
from vdisklab.powercut.recording.log import read_log
from vdisklab.powercut.recording.recording import Recording
from vdisklab.powercut.recording.trace import FIRST_VERSION, Trace
from vdisklab.powercut.sectors import SECTOR, Numbers, judge_sectors
from vdisklab.storage.site import Site


@dataclass(slots=True)
class Stages:
    """Seconds of each stage of one state."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def done(self, stage: str) -> None:
        """The time since the last stage belongs to this one."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass(slots=True)
class Examiner:
    """Judges one recording's states, one after another."""

    trace: Trace
    epochs: Sequence[Epoch]
    expectation: Expectation
    rebuilder: Rebuilder
    recovery: Recovery
    daemon: DaemonKeeper | None
    guest: GuestFileSystem | None = None

    def judge(self, cut: Cut, *, lives_on: bool = False) -> Judged:
        """What came of a cut. Raises FutureVersionError, and DirtyHostError when a state sticks."""
        stages = Stages()
        epoch = self.epoch(cut)
        due = self.expectation.at(epoch.end)
        state = self.rebuilder.build(epoch, cut)
        stages.done("build")
        device = attach_loop(state)
        stages.done("loop")
        try:
            judged = self._judge_device(device, cut, due, stages, lives_on=lives_on)
        finally:
            detach_loop(device)
            self.recovery.forget()
            stages.done("loop")
        self.rebuilder.require_room()
        return judged

    def epoch(self, cut: Cut) -> Epoch:
        """The epoch of a cut. Raises PowercutError when the recording has none."""
        if cut.epoch >= len(self.epochs) or cut.kept | cut.torn > self.epochs[cut.epoch].all:
            raise PowercutError(
                f"the recording has no case {cut}",
                hint="name a case as `vdisklab powercut` printed it: RECORDING/CUT",
            )
        return self.epochs[cut.epoch]

    def _judge_device(
        self, device: str, cut: Cut, due: Due, stages: Stages, *, lives_on: bool
    ) -> Judged:
        repaired = False
        refused = self.recovery.recover(device)
        if refused is not None and cut.torn and cut.unit < TEAR_BYTES:
            repaired = self.recovery.repair(device)
            stages.done("repair")
            refused = self.recovery.recover(device)
        stages.done("mount")
        if refused is not None:
            return Judged(
                str(cut), Outcome.UNMOUNTABLE, refused, repaired=repaired, seconds=stages.seconds
            )
        try:
            return self._judge_files(cut, due, stages, lives_on=lives_on, repaired=repaired)
        finally:
            self.recovery.release()
            stages.done("unmount")

    def _judge_files(
        self, cut: Cut, due: Due, stages: Stages, *, lives_on: bool, repaired: bool
    ) -> Judged:
        image = self.recovery.files() / self.trace.image
        try:
            contents = self._read(image)
        except (OSError, BadImageError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            stages.done("read")
            return Judged(str(cut), Outcome.UNREADABLE, f"the image: {said}",
                          repaired=repaired, seconds=stages.seconds)  # fmt: skip
        stages.done("read")
        if self.guest is None:
            outcome, detail = self._compare(contents, due)
        else:
            outcome, detail = self._judge_database(self.guest, contents, cut)
        stages.done("verify")
        lives_on = self.daemon is not None and (lives_on or contents.dirty) and self.guest is None
        if lives_on and outcome is Outcome.KEPT:
            outcome, detail = self._live_on(image, due)
            stages.done("afterlife")
        return Judged(
            str(cut), outcome, detail, contents.leaked, repaired, lives_on, stages.seconds
        )

    def _read(self, image: Path) -> Contents:
        """The sectors: read by ourselves where we know the format, else by QEMU."""
        numbers = self._asked_for()
        if self.trace.image_format in OWN_FORMATS:
            return read_image(image, self.trace.image_format, numbers)
        if self.daemon is None:
            raise PowercutError(f"{self.trace.image_format} is read by QEMU, which was not started")
        os.stat(image)  # noqa: PTH116 - a missing file is the state's, not QEMU's
        disk = image_disk(image, self.trace.image_format, self.trace.image_size)
        return self.daemon.with_disk(disk, lambda opened: Contents(read_sectors(opened, numbers)))

    def _asked_for(self) -> Numbers:
        """The sectors to read: those that were written, or all of a disk with a file system."""
        if self.guest is None:
            return self.expectation.sectors
        return np.arange(self.trace.image_size // SECTOR, dtype=np.int64)

    def _judge_database(
        self, guest: GuestFileSystem, contents: Contents, cut: Cut
    ) -> tuple[Outcome, str]:
        if contents.problems:
            return Outcome.DAMAGED, "; ".join(contents.problems)
        due = committed_at(self.trace, self.epoch(cut).end)
        return guest.judge(contents.sectors, FIRST_VERSION, due)

    def _compare(self, contents: Contents, due: Due) -> tuple[Outcome, str]:
        found = judge_sectors(contents.sectors, self.expectation.sectors)
        fault = judge_state(self.expectation.sectors, found, due)
        if fault is not None:
            return fault.outcome, str(fault)
        if contents.problems:
            return Outcome.DAMAGED, "; ".join(contents.problems)
        return Outcome.KEPT, ""

    def _live_on(self, image: Path, due: Due) -> tuple[Outcome, str]:
        assert self.daemon is not None  # noqa: S101 - the caller asked
        living = Living(
            image, self.trace.image_format, self.trace.image_size,
            self.expectation.sectors, due.promised,
        )  # fmt: skip
        wrong = live_on(self.daemon, living, seed=1)
        return (Outcome.KEPT, "") if wrong is None else (Outcome.AFTERLIFE, wrong)


@contextmanager
def open_examiner(
    site: Site, recording: Recording, daemon: DaemonKeeper | None, *, sharers: int = 1
) -> Iterator[Examiner]:
    """An examiner of a recording, with its files in the site's directory, which is in memory.

    `sharers` examine side by side in the same memory. Raises PowercutError when log and trace do
    not belong together.
    """
    trace = recording.trace
    log = read_log(recording.log)
    epochs = epochs_between(log.entries, trace.begin, trace.end)
    if trace.writes and max(w.first + w.count for w in trace.writes) * SECTOR > trace.image_size:
        raise PowercutError("the recording is damaged: it writes behind the end of its disk")
    if any(entry.offset + entry.length > trace.disk_size for entry in log.entries):
        raise PowercutError("the recording is damaged: its log is of a larger disk")
    with (
        _guest(site, trace) as guest,
        open_rebuilder(site.directory, log, trace.disk_size, sharers=sharers) as rebuilder,
        site.tracked(Kind.LOOP, rebuilder.state_file),
        open_recovery(site, trace) as recovery,
    ):
        yield Examiner(trace, epochs, Expectation(trace), rebuilder, recovery, daemon, guest)


def _guest(site: Site, trace: Trace) -> AbstractContextManager[GuestFileSystem | None]:
    if not trace.client.is_database:
        return nullcontext()
    return guest_file_system(site, site.directory)

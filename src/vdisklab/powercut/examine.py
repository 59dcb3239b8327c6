"""Judges states of one recording: build, mount (which replays the journal), read, compare.

The kernel does here what it does at the next boot. No process is started for a state: loop
devices and mounts are system calls, the image is read by ourselves, and QEMU's storage daemon,
for the afterlife, is one for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vdisklab.errors import DirtyHostError, PowercutError
from vdisklab.guest.storagedaemon import StorageDaemon
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import (
    attach_loop,
    detach_loop,
    forget_btrfs_devices,
    mount,
    unmount,
)
from vdisklab.powercut.afterlife import Living, live_on
from vdisklab.powercut.cuts import Cut, Epoch, epochs_between
from vdisklab.powercut.imagereader import BadImageError, Contents, read_image
from vdisklab.powercut.judge import Due, Expectation, judge_state
from vdisklab.powercut.log import read_log
from vdisklab.powercut.rebuild import Rebuilder, open_rebuilder
from vdisklab.powercut.recording import Recording
from vdisklab.powercut.sectors import SECTOR, judge_sectors
from vdisklab.powercut.trace import Trace
from vdisklab.powercut.verdict import Judged, Outcome
from vdisklab.storage.site import Site

_FSCK_SECONDS = 120.0
_FSCK = {
    "ext4": ("e2fsck", "-f", "-y"),
    "xfs": ("xfs_repair",),
    "btrfs": ("btrfs", "check", "--repair", "--force"),
}


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
    mountpoint: Path
    host: Host
    daemon: StorageDaemon | None

    def judge(self, cut: Cut, *, lives_on: bool = False) -> Judged:
        """What came of a cut. Raises FutureVersionError, and DirtyHostError when a state sticks."""
        stages = Stages()
        epoch = self._epoch(cut)
        due = self.expectation.at(epoch.end)
        state = self.rebuilder.build(epoch, cut)
        stages.done("build")
        device = attach_loop(state)
        stages.done("loop")
        try:
            judged = self._judge_device(device, cut, due, stages, lives_on=lives_on)
        finally:
            detach_loop(device)
            if self.trace.filesystem == "btrfs":
                forget_btrfs_devices()
            stages.done("loop")
        return judged

    def _epoch(self, cut: Cut) -> Epoch:
        if cut.epoch >= len(self.epochs) or cut.kept | cut.torn > self.epochs[cut.epoch].all:
            raise PowercutError(f"the recording has no case {cut}")
        return self.epochs[cut.epoch]

    def _judge_device(
        self, device: str, cut: Cut, due: Due, stages: Stages, *, lives_on: bool
    ) -> Judged:
        repaired = False
        refused = self._mount(device)
        if refused is not None and cut.torn and cut.unit < 4096:
            repaired = self._repair(device)
            refused = self._mount(device)
        stages.done("mount")
        if refused is not None:
            detail = f"the kernel refuses to mount it: {refused}"
            return Judged(
                str(cut), Outcome.UNMOUNTABLE, detail, repaired=repaired, seconds=stages.seconds
            )
        try:
            return self._judge_mounted(cut, due, stages, lives_on=lives_on, repaired=repaired)
        finally:
            try:
                unmount(self.mountpoint)
            except OSError as error:
                raise DirtyHostError(
                    f"{self.mountpoint} cannot be unmounted: {error.strerror}",
                    hint="run `vdisklab clean`",
                ) from error
            stages.done("unmount")

    def _mount(self, device: str) -> str | None:
        try:
            mount(device, self.mountpoint, self.trace.filesystem, mount_options(self.trace))
        except OSError as error:
            return error.strerror
        return None

    def _repair(self, device: str) -> bool:
        """Lets the file system's own program repair it; status 0 to 3 of e2fsck: it could."""
        done = self.host.run(
            *_FSCK[self.trace.filesystem], device, timeout=_FSCK_SECONDS, allowed=range(256)
        )
        return done.status < 4

    def _judge_mounted(
        self, cut: Cut, due: Due, stages: Stages, *, lives_on: bool, repaired: bool
    ) -> Judged:
        image = self.mountpoint / self.trace.image
        try:
            contents = read_image(image, self.trace.image_format, self.expectation.sectors)
        except (OSError, BadImageError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            stages.done("read")
            return Judged(str(cut), Outcome.UNREADABLE, f"the image: {said}",
                          repaired=repaired, seconds=stages.seconds)  # fmt: skip
        stages.done("read")
        outcome, detail = self._compare(contents, due)
        stages.done("verify")
        lives_on = self.daemon is not None and (lives_on or contents.dirty)
        if lives_on and outcome is Outcome.KEPT:
            outcome, detail = self._live_on(image, due)
            stages.done("afterlife")
        return Judged(
            str(cut), outcome, detail, contents.leaked, repaired, lives_on, stages.seconds
        )

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


def mount_options(trace: Trace) -> str:
    """How a state is mounted: as the file system was; XFS may meet its own identity twice."""
    extra = ("nouuid",) if trace.filesystem == "xfs" else ()
    return ",".join((*trace.mount_options, *extra))


@contextmanager
def open_examiner(
    site: Site, bench: Path, recording: Recording, daemon: StorageDaemon | None
) -> Iterator[Examiner]:
    """An examiner of a recording, with its files on `bench`: a directory on XFS with reflinks.

    Raises PowercutError when log and trace do not belong together.
    """
    trace = recording.trace
    log = read_log(recording.log)
    epochs = epochs_between(log.entries, trace.begin, trace.end)
    if trace.writes and max(w.first + w.count for w in trace.writes) * SECTOR > trace.image_size:
        raise PowercutError("the recording is damaged: it writes behind the end of its disk")
    mountpoint = site.directory / "recovered"
    with (
        site.made(Kind.DIRECTORY, mountpoint),
        open_rebuilder(bench, log, trace.disk_size) as rebuilder,
        site.made(Kind.LOOP, rebuilder.state_file),
        site.made(Kind.MOUNT, mountpoint),
    ):
        os.mkdir(mountpoint)  # noqa: PTH102
        rebuilder.state_file.touch()
        yield Examiner(trace, epochs, Expectation(trace), rebuilder, mountpoint, site.host, daemon)

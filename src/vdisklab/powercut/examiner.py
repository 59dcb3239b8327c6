"""Judges the states of one recording: build, mount (which replays the journal), read, compare.

The kernel does the same as at the host's next boot. No process is started for a state: loop devices
and mounts are system calls, raw and qcow2 images are read directly, and one QEMU storage daemon
serves the post-recovery writes of all states.

Post-recovery writes are a separate test: QEMU opens the image for writing, and the guest continues.
Reading shows the data on the disk, but damaged metadata of an image format causes losses only
later, when QEMU allocates and overwrites clusters that it wrongly considers free.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.errors import PowercutError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk, ImageParts
from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import attach_loop, detach_loop
from vdisklab.path.disk_path import Attachment
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.path.segments import CacheMode
from vdisklab.powercut import image_reader, nbd, rebuild
from vdisklab.powercut.client import FIRST_VERSION, NO_FILESYSTEM, SHARED, Trace
from vdisklab.powercut.crash_states import (
    KEPT,
    TEAR_BYTES,
    CrashState,
    DueVersions,
    Epoch,
    Expectation,
    JudgedState,
    RecoveredState,
    epoch_of,
    epochs_between,
    judge_sectors,
)
from vdisklab.powercut.file_sequences import judge_sequences
from vdisklab.powercut.guest_clients import (
    DATABASE,
    GuestFileSystem,
    due_transactions,
    guest_file_system,
    judge_database,
)
from vdisklab.powercut.postgresql import REACHABLE, ClusterJudge
from vdisklab.powercut.recordings import KEY_NAME, Recording
from vdisklab.powercut.recovery import Recovery, open_recovery
from vdisklab.powercut.sectors import Bytes, NoVersion, Numbers, read_versions
from vdisklab.storage import write_log
from vdisklab.storage.qcow2_header import BadImageError
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Directory
from vdisklab.units import SECTOR
from vdisklab.value import replace

_LATER_WRITES = 48
_LATER_SECTORS = 8
_LATER_VERSION = 1 << 40
"""Larger than any version in a recorded run."""
_LATER_SEED = 1
_SERIAL = "later"


@dataclass(slots=True)
class StageTimes:
    """Seconds of each stage of one state."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def done(self, stage: str) -> None:
        """Adds the time since the last call to this stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass(slots=True)
class Examiner:
    """Judges one recording's states, one after another."""

    trace: Trace
    epochs: Sequence[Epoch]
    expectation: Expectation
    rebuilder: rebuild.Rebuilder
    recovery: Recovery
    daemon: nbd.RestartingDaemon | None
    recording: Path
    guest: GuestFileSystem | None = None

    def judge(self, cut: CrashState, *, write_after: bool = False) -> JudgedState:
        """Builds and judges the state of a cut.

        Raises FutureVersionError, and DirtyHostError when a state cannot be unmounted.
        """
        times = StageTimes()
        epoch = self.epoch(cut)
        state = self.rebuilder.build(epoch, cut)
        times.done("build")
        device = attach_loop(state)
        times.done("loop")
        try:
            judged = self._judge_device(device, cut, times, write_after=write_after)
        finally:
            detach_loop(device)
            self.recovery.forget()
            times.done("loop")
        self.rebuilder.require_room()
        return judged

    def epoch(self, cut: CrashState) -> Epoch:
        """The epoch of a cut. Raises PowercutError when the recording has none."""
        epoch = epoch_of(cut, self.epochs, self.rebuilder.entries, self.trace.end)
        if epoch is None:
            raise PowercutError(
                f"the recording has no case {cut}",
                hint="name a case as `vdisklab powercut` printed it: RECORDING/CUT",
            )
        return epoch

    def _judge_device(
        self, device: str, cut: CrashState, times: StageTimes, *, write_after: bool
    ) -> JudgedState:
        judged = JudgedState(str(cut), StateOutcome.UNMOUNTABLE, seconds=times.seconds)
        refusal = self.recovery.recover(device)
        if refusal is not None and cut.torn and cut.unit < TEAR_BYTES:
            judged = replace(judged, repaired=self.recovery.repair(device))
            times.done("repair")
            refusal = self.recovery.recover(device)
        times.done("mount")
        if refusal is not None:
            return replace(judged, detail=refusal)
        try:
            return self._judge_files(judged, self.epoch(cut).end, times, write_after=write_after)
        finally:
            self.recovery.release()
            times.done("unmount")

    def _judge_files(
        self, judged: JudgedState, position: int, times: StageTimes, *, write_after: bool
    ) -> JudgedState:
        if self.trace.image_format == SHARED:
            outcome, detail = self._judge_share(position)
            times.done("verify")
            return replace(judged, outcome=outcome, detail=detail)
        parts = self._parts(position)
        images = self.trace.images_at(position)
        image, form = self.recovery.files() / images.image, images.format
        form = form or self.trace.image_format
        try:
            sectors = self._read(image, form, parts, self.trace.size_at(position))
        except VdisklabError:  # one that QEMU did not answer in time is an OSError, too
            raise
        except (OSError, BadImageError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            times.done("read")
            detail = f"the image: {reason}"
            return replace(judged, outcome=StateOutcome.UNREADABLE, detail=detail)
        times.done("read")
        due = self.expectation.due_at(position)
        if self.guest is None:
            outcome, detail = self._compare(sectors, due, self.trace.due_size(position))
        else:
            outcome, detail = self._judge_database(self.guest, sectors, position)
        times.done("verify")
        writes = (write_after or sectors.dirty) and self.guest is None
        if writes and self.daemon is not None:
            judged = replace(judged, written_after=True)
            if outcome is StateOutcome.KEPT:
                outcome, detail = self._write_after_recovery(
                    self.daemon, self._writable(image, form, parts), due, sectors.size
                )
                times.done("later-writes")
        return replace(judged, outcome=outcome, detail=detail, leaked=sectors.leaked)

    def _read(
        self, image: Path, form: str, parts: ImageParts, size: int
    ) -> image_reader.ImageSectors:
        """The sectors to judge: read directly if the format is known, otherwise by QEMU.

        Sectors beyond `size` hold nothing: the guest does not know them.
        """
        if self.guest is not None:  # the whole disk: it holds a file system
            return self._read_known(image, form, parts, np.arange(size // SECTOR, dtype=np.int64))
        numbers = self.expectation.sectors
        inside = numbers[: np.searchsorted(numbers, size // SECTOR)]
        sectors = self._read_known(image, form, parts, inside)
        if len(inside) == len(numbers):
            return sectors
        beyond = np.zeros((len(numbers) - len(inside)) * SECTOR, np.uint8)
        return replace(sectors, content=np.concatenate((sectors.content, beyond)))

    def _read_known(
        self, image: Path, form: str, parts: ImageParts, numbers: Numbers
    ) -> image_reader.ImageSectors:
        checked = image_reader.ImageSectors(np.zeros(0, np.uint8))
        if form in image_reader.PARSED_FORMATS:
            checked = image_reader.read_image(
                image,
                form,
                numbers[:0] if self.trace.encrypted else numbers,
                backing=tuple(map(Path, parts.backing)),
                backing_format=parts.backing_format,
                data_file=None if parts.data_file is None else Path(parts.data_file),
            )
            if not self.trace.encrypted:
                return checked
        if self.daemon is None:
            raise PowercutError(f"{form} can only be read with QEMU, which was not started")
        os.stat(image)  # noqa: PTH116 - a missing file is the state's fault, not QEMU's
        self.recovery.allow_writes()
        content = self.daemon.with_disk(
            self._writable(image, form, parts), lambda disk: nbd.read_through(disk, numbers)
        )
        return replace(checked, content=content)

    def _judge_share(self, position: int) -> RecoveredState:
        """The outcome of the database in a directory; SQLite's own recovery writes."""
        try:
            self.recovery.allow_writes()
        except OSError as error:
            return StateOutcome.UNMOUNTABLE, _refused_writes(error)
        file = self.recovery.files() / self.trace.image / DATABASE
        return judge_database(file, FIRST_VERSION, due_transactions(self.trace, position))

    def _judge_database(
        self, guest: GuestFileSystem, sectors: image_reader.ImageSectors, position: int
    ) -> RecoveredState:
        if sectors.problems:
            return StateOutcome.DAMAGED, "; ".join(sectors.problems)
        return guest.judge(sectors.content, FIRST_VERSION, due_transactions(self.trace, position))

    def _compare(
        self, sectors: image_reader.ImageSectors, due: DueVersions, due_size: int
    ) -> RecoveredState:
        versions = self._versions(sectors.content, self.expectation.sectors)
        judged = judge_sectors(self.expectation.sectors, versions, due)
        if judged != KEPT:
            return judged
        if sectors.size is not None and sectors.size < due_size:
            return StateOutcome.LOST, (
                f"the disk must have {due_size} bytes and has {sectors.size}"
            )
        if sectors.problems:
            return StateOutcome.DAMAGED, "; ".join(sectors.problems)
        return KEPT

    def _versions(self, content: Bytes, numbers: Numbers) -> Numbers:
        versions = read_versions(content, numbers)
        if self.trace.encrypted and not self.trace.filled:  # a hole is decrypted, too
            versions[versions == NoVersion.GARBAGE] = NoVersion.EMPTY
        return versions

    def _write_after_recovery(
        self, daemon: nbd.RestartingDaemon, image: Disk, due: DueVersions, size: int | None
    ) -> RecoveredState:
        """Writes to the image through QEMU, then reads all old and new sectors back.

        `size` is that of the image, if it is known.
        """
        size = size or self.trace.image_size
        due_versions = zip(self.expectation.sectors.tolist(), due.oldest.tolist(), strict=True)
        oldest = {number: version for number, version in due_versions if number < size // SECTOR}
        try:
            self.recovery.allow_writes()
        except OSError as error:
            return StateOutcome.UNMOUNTABLE, _refused_writes(error)
        try:
            problem = daemon.with_disk(
                image, lambda disk: _write_and_compare(disk, size, oldest, self._versions)
            )
        except BadImageError as error:
            problem = str(error)
        return KEPT if problem is None else (StateOutcome.CORRUPT_LATER, problem)

    def _writable(self, image: Path, form: str, parts: ImageParts) -> Disk:
        """The image as QEMU opens it at the guest's next boot, for writing."""
        return Disk(
            _SERIAL, self.trace.image_size, Directory(image.parent).node(image),
            form, CacheMode.WRITEBACK, Attachment(), parts,
        )  # fmt: skip

    def _parts(self, position: int) -> ImageParts:
        """The other files of the image after a cut at a log position."""
        images, data_file = self.trace.images_at(position), self.trace.data_file
        without_host = self.trace.filesystem == NO_FILESYSTEM
        root = self.recording if without_host else self.recovery.files()
        beside = (root / images.image).parent
        return ImageParts(
            backing=tuple(str(root / name) for name in images.backing),
            backing_format=None if images.format is None else self.trace.image_format,
            data_file=None if data_file is None else str(beside / data_file),
            key_file=str(self.recording / KEY_NAME) if self.trace.encrypted else None,
        )


def _refused_writes(error: OSError) -> str:
    return f"the kernel refuses to mount it for writing: {error.strerror}"


def _write_and_compare(
    disk: nbd.NbdDisk, size: int, due: dict[int, int], read: Callable[[Bytes, Numbers], Numbers]
) -> str | None:
    """The sectors lost after new writes, as a sentence; `due` are the oldest possible versions.

    `read` returns the versions of sectors with these contents and numbers.
    """
    rng = random.Random(_LATER_SEED)  # noqa: S311 - reproducible, not secret
    new: dict[int, int] = {}
    for number in range(_LATER_WRITES):
        first = rng.randrange(size // SECTOR // _LATER_SECTORS) * _LATER_SECTORS
        version = _LATER_VERSION + number
        disk.write(first, _LATER_SECTORS, version, fua=False)
        disk.await_one()
        new |= dict.fromkeys(range(first, first + _LATER_SECTORS), version)
    disk.sync()
    numbers = np.array(sorted(due | new), dtype=np.int64)
    versions = read(nbd.read_through(disk, numbers), numbers)
    lost = [
        (number, version)
        for number, version in zip(numbers.tolist(), versions.tolist(), strict=True)
        if (version != new[number] if number in new else version < due[number])
    ]
    if not lost:
        return None
    number, version = lost[0]
    kind = "new" if number in new else "old"
    return (
        f"{len(lost)} sectors are lost after QEMU wrote to the recovered image; {kind} sector "
        f"{number} must hold version {new.get(number, due.get(number))} and holds "
        f"{version}"
    )


def guest_disk(site: Site, trace: Trace) -> AbstractContextManager[GuestFileSystem | None]:
    """The judge of a database on the guest's own disk; None for other clients."""
    if trace.client is ClientKind.POSTGRESQL:
        return guest_file_system(site, ClusterJudge(site.host), below=REACHABLE)
    if trace.client is ClientKind.FILES:
        return guest_file_system(site, judge_sequences)
    on_guests_disk = trace.client.is_database and trace.image_format != SHARED
    return guest_file_system(site) if on_guests_disk else nullcontext()


@contextmanager
def open_examiner(
    site: Site, recording: Recording, daemon: nbd.RestartingDaemon | None, *, sharers: int = 1
) -> Iterator[Examiner]:
    """An examiner of a recording, with its files in the site's directory, which is in memory.

    `sharers` is the number of examiners in the same memory. Raises PowercutError when log and trace
    do not belong together.
    """
    trace = recording.trace
    log = write_log.read_log(recording.log)
    epochs = epochs_between(log.entries, trace.begin, trace.end, trace.stops)
    if trace.writes and max(w.first + w.count for w in trace.writes) * SECTOR > trace.last_size:
        raise PowercutError("the recording is damaged: it writes beyond the end of its disk")
    if any(entry.offset + entry.length > trace.disk_size for entry in log.entries):
        raise PowercutError("the recording is damaged: its log belongs to a larger disk")
    with (
        guest_disk(site, trace) as guest,
        rebuild.open_rebuilder(site.directory, log, trace.disk_size, sharers=sharers) as rebuilder,
        site.tracked(Kind.LOOP, rebuilder.state_file),
        open_recovery(site, trace) as recovery,
    ):
        expectation = Expectation(trace)
        yield Examiner(
            trace, epochs, expectation, rebuilder, recovery, daemon, recording.directory, guest
        )  # fmt: skip

"""One run: a guest writes, the storage below its disk fails and recovers; what is left is judged.

The image's own file fails, whatever file system it would lie on. When the failure is over,
vdisklab does what an administrator would: storage that was full has been grown, and a guest that
QEMU has paused is continued. Then the guest must go on; its file system is unmounted, checked on
the host, and compared with all that the guest's program was told.
"""

from __future__ import annotations

import dataclasses
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk, ImageParts, format_options, mount_command
from vdisklab.host import syscalls
from vdisklab.host.ledger import Kind
from vdisklab.host.waiting import patience
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.path.segments import GuestFsKind, ImageFormat, LayerKind
from vdisklab.powercut.failing_clients import FAILING_CLIENTS, FailingClient, SyncingProgram
from vdisklab.powercut.guest_clients import MOUNTPOINT
from vdisklab.powercut.kept_runs import KEPT
from vdisklab.powercut.kernel_messages import kernel_messages
from vdisklab.powercut.recovery import unmount_state
from vdisklab.powercut.storage_failures import FailingPart, StorageFailure
from vdisklab.powercut.synced_files import FileAnswer, lost_files
from vdisklab.storage.failing_disk import StorageOrder, StorageRequest, TouchedRequest
from vdisklab.storage.failing_file import FailingFile, failing_file
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Directory
from vdisklab.units import MIB
from vdisklab.value import Value, field

_MKFS: Mapping[GuestFsKind, tuple[str, ...]] = {
    GuestFsKind.EXT4: (
        "mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0",
    ),
    GuestFsKind.XFS: ("mkfs.xfs", "-q", "-f"),
    # Its own choice may be a page of the host's, which a guest with smaller pages cannot mount.
    GuestFsKind.BTRFS: ("mkfs.btrfs", "-q", "-f", "--sectorsize", "4096"),
}  # fmt: skip
_CHECKS: Mapping[GuestFsKind, tuple[str, ...]] = {
    GuestFsKind.EXT4: ("e2fsck", "-fn"),
    GuestFsKind.XFS: ("xfs_repair", "-n"),
    GuestFsKind.BTRFS: ("btrfs", "check", "--readonly"),
}
_BEFORE = (5, 15)
"""The failure begins after a random number of acknowledged files."""
_AFTER = 5
"""Files that are requested after the failure is over."""
_LATEST = 0.03  # seconds from the request of a file to the failure
_USUAL_SECONDS = 30.0
_RECOVERY_SECONDS = 60.0
"""How long a guest may take to go on after the failure; later it hangs."""
_PAUSED_LONG_ENOUGH = 0.3
_LOOK_SECONDS = 0.05
_EVENT_SECONDS = 0.005  # in which QEMU's events are taken in
_MARK = "vdisklab: the storage fails from here on"
_AGENT_SECONDS = 60.0
_PAUSED = ("io-error", "paused")
_EVENTS = ("STOP", "BLOCK_IO_ERROR")
_STOPPED = frozenset({"file system read-only", "journal aborted"})
"""What a kernel logs of a file system to which it writes no more."""
_NAMED = 5
_LEAKED = 3
"""qemu-img(1), check: there are leaked clusters, but the image is not corrupted."""

Ranges = tuple[tuple[int, int], ...]
"""Bytes of a disk: where each range begins, and where it has ended."""
PluggedGuest = Callable[[Disk], AbstractContextManager[tuple[Machine, str, Mapping[str, str]]]]
"""Gives a guest the disk: its machine, the disk's name there, and what was read back."""


class FailingRun(Value):
    """What one run showed. Seconds count from the first request that the storage failed."""

    outcome: RunOutcome
    acknowledged: int
    """Files that the program was told are durable."""
    lost: int
    """Those of them that are not there, or damaged."""
    told: int
    """Files of which the program was told that they failed."""
    failed: int
    """QEMU's requests that the storage did not answer as usual."""
    failed_flushes: int
    paused_after: float | None = None
    told_after: float | None = None
    resumed: bool = False
    """True if vdisklab had to continue the guest."""
    error: str = ""
    """The first error that the program was told: `fsync: EIO`."""
    again: int = 0
    """Files whose second fsync succeeded after the first one had failed."""
    again_lost: int = 0
    """Those of them that are not there, or damaged."""
    kernel: Mapping[str, int] = field(default_factory=dict)
    """Lines that the guest's kernel logged, by kind."""
    detail: str = ""
    observed: Mapping[str, str] = field(default_factory=dict)


class FailingImage(Value):
    """The image that every run of a path begins with: a new file system of the guest's, or a new
    disk for a client that needs none."""

    path: DiskPath
    client: ClientKind
    filesystem: GuestFsKind | None
    """None for a client that writes to the disk itself."""
    image: ImageFile
    size: int
    ranges: Mapping[FailingPart, Ranges]
    """The bytes of the disk's parts, if its file system is ext4."""

    @property
    def file_size(self) -> int:
        """Bytes of the file: a qcow2 image has room for its tables."""
        is_raw = self.image.format == ImageFormat.RAW
        return self.size if is_raw else 2 * self.size + 4 * MIB


@contextmanager
def failing_image(
    site: Site, path: DiskPath, name: str, client: ClientKind = ClientKind.FILES
) -> Iterator[FailingImage]:
    """The image of a path for a client, for as many runs as are wanted."""
    facts = FAILING_CLIENTS[client]
    kind = GuestFsKind(path.attachment.guest_fs or GuestFsKind.EXT4)
    size, source = facts.disk_bytes(kind), site.directory / f"{name}.fs"
    assert path.image is not None  # noqa: S101 - not_failable refuses a device
    with site.tracked(Kind.FILE, source):
        site.new_file(source)
        site.run("truncate", "--size", str(size), source)
        if facts.has_filesystem:
            site.run(*_MKFS[kind], source)
        is_ext4 = facts.has_filesystem and kind is GuestFsKind.EXT4
        ranges = _parts_of_ext4(site, source) if is_ext4 else {}
        with image_file(
            site, Directory(site.directory), path.image, size=size, name=name, source=source
        ) as image:
            filesystem = kind if facts.has_filesystem else None
            yield FailingImage(path, client, filesystem, image, size, ranges)


def _parts_of_ext4(site: Site, source: Path) -> Mapping[FailingPart, Ranges]:
    """The bytes of ext4's journal, which is inode 8, as debugfs(8) prints its extents; and those
    that are free, as dumpe2fs(8) prints them for each group."""
    extents = site.run("debugfs", "-R", "stat <8>", source).stdout.partition("EXTENTS:")[2]
    journal = re.findall(r"\(\d+(?:-\d+)?\):(\d+)(?:-(\d+))?", extents)
    groups = site.run("dumpe2fs", source).stdout
    lines = re.findall(r"^  Free blocks: (.+)$", groups, re.MULTILINE)
    free = [found for line in lines for found in re.findall(r"(\d+)(?:-(\d+))?", line)]
    return {FailingPart.JOURNAL: _in_bytes(journal), FailingPart.NEW_DATA: _in_bytes(free)}


def _in_bytes(blocks: Sequence[tuple[str, str]]) -> Ranges:
    """Ranges of blocks of 4096 bytes, whose last one is empty for a single block."""
    return tuple((4096 * int(a), 4096 * (int(b or a) + 1)) for a, b in blocks)


Keeper = Callable[[Path, FailingImage, FailingRun], None]
"""(the guest's image, what it was made from, what was found) -> keeps it for `--replay`."""


class _Found(Value):
    """What the host finds on a guest's disk."""

    lost: tuple[str, ...] = ()
    again_lost: tuple[str, ...] = ()
    damaged: bool = False
    detail: str = ""
    refused: str = ""
    """Why a database refuses its file."""


class _HangingGuestError(GuestError):
    """The guest cannot be used any more, which is a result."""


@dataclass(slots=True)
class _RunUnderWay:
    """A run under way: the answers of its program, QEMU's events, what the guest's kernel said."""

    site: Site
    image: FailingImage
    file: FailingFile
    name: str
    answers: list[FileAnswer] = dataclasses.field(default_factory=list)
    events: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    resumed: bool = False
    mounts: str = ""
    log: str = ""
    stuck: str = ""
    """Why the guest cannot be used any more."""

    @property
    def paused_at(self) -> float | None:
        """When QEMU first paused the guest."""
        return next((moment for event, moment in self.events if event == "STOP"), None)

    @property
    def disk(self) -> Disk:
        """The guest's disk, whose file fails."""
        return Disk(
            serial=self.name[-20:],
            size=self.image.size,
            source={"driver": "file", "filename": str(self.file.path)},
            driver=self.image.image.format,
            cache=self.image.path.cache,
            attachment=self.image.path.attachment,
            parts=ImageParts(format_options=format_options(self.image.path.image)),
        )

    def in_guest(
        self, machine: Machine, device: str, failure: StorageFailure, chance: random.Random
    ) -> None:
        """The part in the guest. Raises _HangingGuestError if the guest does not go on."""
        agent = machine.agent
        kind, options = self.image.filesystem, self.image.path.attachment.guest_mount
        if kind is not None:
            agent.run(mount_command(device, kind, options, MOUNTPOINT), timeout=_AGENT_SECONDS)
        agent.run(("sh", "-c", f"echo {_MARK} > /dev/kmsg"), timeout=_AGENT_SECONDS)
        with (
            self.client.begin(machine, device, f"{self.name}-port") as client,
            machine.monitor.noting(_EVENTS) as noted,
        ):
            for _ in range(chance.randint(*_BEFORE)):
                if not self.take(client, _USUAL_SECONDS * patience()):
                    raise GuestError("the guest did not write before the storage failed")
            client.request_next()
            time.sleep(chance.uniform(0, _LATEST))
            within = self.image.ranges.get(failure.part, ())
            order = StorageOrder(failure.behaviour, failure.kinds, within, failure.most)
            with self.file.failing(order) as began:
                end = began + failure.seconds
                while time.time() < end and not failure.is_over(self.file.failed):
                    self.take(client, min(_LOOK_SECONDS, max(0.0, end - time.time())))
                    machine.monitor.pause(_EVENT_SECONDS)
                    self.events += noted()
                    paused = self.paused_at
                    if paused is not None and time.time() > paused + _PAUSED_LONG_ENOUGH:
                        break  # a paused guest asks for nothing more
            state = machine.query("query-status")
            self.events += noted()
            if state.get("status") in _PAUSED:
                machine.thaw()
                self.resumed = True
            self._after_it(client)
            self.events += noted()
        self._leave(machine)

    @property
    def client(self) -> FailingClient:
        """The guest's program that makes its data durable."""
        return FAILING_CLIENTS[self.image.client]

    def _after_it(self, client: SyncingProgram) -> None:
        """Asks for a few things once the storage is good again.

        A server that starts again may refuse for a while.
        """
        end = time.monotonic() + self.client.restart_seconds * patience()
        taken = 0
        while taken < _AFTER:
            if not self.take(client, _RECOVERY_SECONDS * patience()):
                raise _HangingGuestError(
                    f"no answer within {_RECOVERY_SECONDS:.0f} s after the storage was good"
                )
            if self.answers[-1].acknowledged or time.monotonic() > end:
                taken += 1

    def take(self, client: SyncingProgram, seconds: float) -> bool:
        """Waits for the answer of a file, requested now unless it was before; True if it came."""
        if client.pending is None:
            client.request_next()
        answer = client.answer(seconds)
        if answer is not None:
            self.answers.append(answer)
        return answer is not None

    def _leave(self, machine: Machine) -> None:
        agent = machine.agent
        try:
            self.mounts = agent.run(("cat", "/proc/mounts"), timeout=_AGENT_SECONDS).stdout
            log = agent.run(("dmesg",), timeout=_AGENT_SECONDS).stdout
            self.log = log.rpartition(_MARK)[2]
            if self.image.filesystem is not None:
                agent.run(("umount", MOUNTPOINT), timeout=_AGENT_SECONDS)
        except WorkloadError as error:
            raise _HangingGuestError(
                f"the guest cannot unmount its disk: {error.message}"
            ) from error

    def judged(self, observed: Mapping[str, str]) -> FailingRun:
        """What the run showed, after the guest has left its disk."""
        touched = self.file.touched()
        acknowledged = [answer.version for answer in self.answers if answer.acknowledged]
        again = [answer.version for answer in self.answers if answer.acknowledged_again]
        refused = [answer for answer in self.answers if not answer.acknowledged]
        found = self._on_host(acknowledged, again)
        first = touched[0].seconds if touched else None
        paused = [] if self.paused_at is None else [self.paused_at]
        return FailingRun(
            outcome=self._outcome(found, touched),
            acknowledged=len(acknowledged),
            lost=len(found.lost),
            told=len(refused),
            failed=len(touched),
            failed_flushes=sum(request.kind is StorageRequest.FLUSH for request in touched),
            paused_after=_after(first, paused),
            told_after=_after(first, [answer.seconds for answer in refused]),
            resumed=self.resumed,
            error=refused[0].error if refused else "",
            again=len(again),
            again_lost=len(found.again_lost),
            kernel=kernel_messages(self.log),
            detail=self.stuck or found.refused or found.detail or _named_lost(found.lost),
            observed=observed,
        )

    def _outcome(self, found: _Found, touched: Sequence[TouchedRequest]) -> RunOutcome:
        """The worst that happened."""
        happened = {
            RunOutcome.LOST: bool(found.lost),
            RunOutcome.DATABASE: bool(found.refused),
            RunOutcome.HANGS: bool(self.stuck),
            RunOutcome.REPAIR: found.damaged,
            RunOutcome.READ_ONLY: self._is_read_only,
            RunOutcome.RESTART: not self.answers[-1].acknowledged,
            RunOutcome.PAUSED: self.resumed and bool(touched),
        }
        return next((outcome for outcome, it_did in happened.items() if it_did), RunOutcome.GOES_ON)

    @property
    def _is_read_only(self) -> bool:
        """True if the guest's kernel has stopped writing to its file system.

        XFS is shut down instead, and still mounted read-write.
        """
        if self.image.filesystem is None:
            return False
        is_shut = bool(_STOPPED.intersection(kernel_messages(self.log)))
        return _is_read_only(self.mounts) or (is_shut and not self.answers[-1].acknowledged)

    def _on_host(self, acknowledged: Sequence[str], again: Sequence[str]) -> _Found:
        """Reads the image as it is now: its format, the file system's recovery, the files."""
        site, form = self.site, self.image.image.format
        content = site.directory / f"{self.name}.raw"
        with site.tracked(Kind.FILE, content):
            site.new_file(content)
            if form != ImageFormat.RAW:
                check = ("qemu-img", "check", "-q", "-f", form, self.file.path)
                if site.host.run(*check, allowed=range(256)).status not in (0, _LEAKED):
                    return _Found(tuple(acknowledged), tuple(again), True, "the image is damaged")
            site.run("qemu-img", "convert", "-f", form, "-O", "raw", self.file.path, content)
            if self.image.filesystem is not None:
                return self._in_filesystem(self.image.filesystem, content, acknowledged, again)
            kept = self.client.kept(site.host, content, acknowledged)
            return _Found(kept.lost, self.client.kept(site.host, content, again).lost)

    def _in_filesystem(
        self,
        filesystem: GuestFsKind,
        content: Path,
        acknowledged: Sequence[str],
        again: Sequence[str],
    ) -> _Found:
        """What the guest's file system holds, once it has recovered."""
        site = self.site
        mountpoint = (self.client.below or site.directory) / f"{site.directory.name}-{self.name}"
        with (
            site.tracked(Kind.DIRECTORY, mountpoint),
            site.tracked(Kind.LOOP, content),
            site.tracked(Kind.MOUNT, mountpoint),
        ):
            mountpoint.mkdir()
            device = syscalls.attach_loop(content)
            refused = self._mounted(device, mountpoint, filesystem)
            if refused is not None and not self._mounts_once_repaired(
                device, mountpoint, filesystem
            ):
                return _Found(tuple(acknowledged), tuple(again), True, refused)
            try:
                kept = self.client.kept(site.host, mountpoint, acknowledged)
                again_lost = lost_files(mountpoint, again)
            finally:
                unmount_state(mountpoint)
            program = _CHECKS[filesystem]
            checked = site.host.run(*program, device, allowed=range(256))
            problem = f"{program[0]}: {_first_problem(checked.stdout)}" if checked.status else ""
            damaged = refused is not None or checked.status != 0
            return _Found(kept.lost, again_lost, damaged, refused or problem, kept.refused)

    def _mounted(self, device: str, mountpoint: Path, filesystem: GuestFsKind) -> str | None:
        """Mounts the guest's file system, which replays its journal; None, or why that failed."""
        try:
            # Disks of runs side by side may have the same UUID.
            options = "nouuid" if filesystem is GuestFsKind.XFS else ""
            syscalls.mount(device, mountpoint, filesystem, options)
        except OSError as error:
            return f"the kernel refuses to mount it: {error.strerror}"
        return None

    def _mounts_once_repaired(self, device: str, mountpoint: Path, filesystem: GuestFsKind) -> bool:
        recovery = LayerKind(filesystem.value).facts.recovery
        for command, _ in () if recovery is None else recovery.repairs:
            self.site.host.run(*command, device, allowed=range(256))
        return self._mounted(device, mountpoint, filesystem) is None


def run_failure(
    site: Site,
    plugged: PluggedGuest,
    image: FailingImage,
    failure: StorageFailure,
    *,
    name: str,
    seed: int,
    keep_as: Keeper | None = None,
) -> FailingRun:
    """Runs a failure once and judges what is left. Raises GuestError if it could not begin.

    `keep_as` copies the guest's disk if something was lost or damaged.
    """
    observed: dict[str, str] = {}
    content = image.image.on_host
    sparse = image.path.image is not None and image.path.image.is_thin
    with failing_file(site, name, content, image.file_size, sparse=sparse) as file:
        run = _RunUnderWay(site, image, file, name)
        try:
            with plugged(run.disk) as (machine, device, read_back):
                observed |= read_back
                chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
                run.in_guest(machine, device, failure, chance)
        except _HangingGuestError as error:
            run.stuck = error.message
        found = run.judged(observed)
        if keep_as is not None and found.outcome in KEPT:
            keep_as(file.path, image, found)
        return found


def _after(first: float | None, moments: Sequence[float]) -> float | None:
    return None if first is None or not moments else max(0.0, min(moments) - first)


def _named_lost(lost: Sequence[str]) -> str:
    """The first of what is lost, by number."""
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return f"gone or damaged: {', '.join(lost[:_NAMED])}{more}" if lost else ""


def _is_read_only(mounts: str) -> bool:
    """True if the kernel has made the disk's file system read-only (/proc/mounts)."""
    for line in mounts.splitlines():
        columns = line.split()
        if len(columns) > 3 and columns[1] == MOUNTPOINT:
            return "ro" in columns[3].split(",")
    return False


def _first_problem(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    problems = [line for line in lines if not line.startswith(("Pass ", "e2fsck "))]
    return (problems or lines or ["it printed nothing"])[0][:120]

"""The recovery of a host's file system after a power cut, for each kind of file system.

Mounting ext4, xfs and btrfs replays their journals. Importing a ZFS pool rolls it back to its last
transaction group and replays the intent log.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError, PowercutError, memory_full
from vdisklab.host.blockdevice import record_devices
from vdisklab.host.command import Completed, Host, PathArg
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import mounts_below, still_mounted
from vdisklab.host.syscalls import MS_RDONLY, MS_REMOUNT, forget_btrfs_devices, mount, unmount
from vdisklab.host.waiting import wait_until
from vdisklab.path.rules import JUDGED
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.client import NO_FILESYSTEM, Trace
from vdisklab.storage import zfs
from vdisklab.storage.site import Site

_FSCK_SECONDS = 50.0
_POOL_SECONDS = 90.0


POOL = "zfs.pool"
"""Key of the pool's name among the properties of a recorded stack."""

ALONE = frozenset(
    kind for kind in JUDGED if kind.facts.recovery is not None and kind.facts.recovery.alone
)
"""File systems of which one state is judged at a time."""


def unmount_state(mountpoint: Path) -> None:
    """Unmounts the file system of a state. Raises DirtyHostError when it stays mounted."""
    try:
        unmount(mountpoint)
    except OSError as error:
        raise DirtyHostError(
            f"{mountpoint} cannot be unmounted: {error.strerror}", hint="run `vdisklab clean`"
        ) from error


@dataclass(slots=True)
class Recovery:
    """Makes the files of a state readable, and releases the state.

    This base class serves the image alone, as the host's kernel holds it: no file system recovers.
    """

    directory: Path

    def recover(self, device: str) -> str | None:
        """The reason why the state cannot be used; None if its files can be read."""

    def allow_writes(self) -> None:
        """Makes the recovered files writable. Raises OSError when the kernel refuses."""

    def repair(self, device: str) -> bool:  # noqa: ARG002 - of file systems that have such a program
        """Runs the file system's repair program; True when it reports success."""
        return False

    def files(self) -> Path:
        """The directory of the recovered files."""
        return self.directory

    def release(self) -> None:
        """Unmounts or exports the recovered state. Raises DirtyHostError when that fails."""

    def forget(self) -> None:
        """Makes the kernel forget the state's device, after the device has been removed."""


@dataclass(slots=True)
class KernelFilesystem(Recovery):
    """A file system that the kernel mounts on the directory."""

    host: Host
    kind: LayerKind
    options: str

    def recover(self, device: str) -> str | None:
        """Mounts the device read-only, which replays the journal; returns why that failed, or None.

        The unmount of a writable file system takes longer than all else.
        """
        try:
            mount(device, self.directory, self.kind, self.options, MS_RDONLY)
        except OSError as error:
            if error.errno == errno.ENOMEM:  # an error of this kernel, not of the state
                raise memory_full("mounting a state") from error
            return f"the kernel refuses to mount it: {error.strerror}"
        return None

    def allow_writes(self) -> None:
        """Mounts it again, writable."""
        mount("none", self.directory, self.kind, self.options, MS_REMOUNT)

    def repair(self, device: str) -> bool:
        """Runs fsck.

        By e2fsck(8), status 0 to 3 means repaired. xfs_repair(8) ends with 2 if the log was not
        replayed; since the kernel refused the mount, the log is then discarded (-L), the manual's
        last resort. btrfs check(8) ends with 0.
        """
        facts = self.kind.facts.recovery
        return facts is not None and any(
            self.host.run(*command, device, timeout=_FSCK_SECONDS, allowed=range(256)).status
            in repaired
            for command, repaired in facts.repairs
        )

    def release(self) -> None:
        """Unmounts it."""
        unmount_state(self.directory)

    def forget(self) -> None:
        """Makes the kernel forget a btrfs, because all states have the same UUID."""
        if self.kind is LayerKind.BTRFS:
            forget_btrfs_devices()


@dataclass(slots=True)
class ZfsPool(Recovery):
    """A pool of one device, by the kernel's ZFS or by zfs-fuse, whose programs are the same.

    It is imported writable, has no program that repairs it, and is gone when it is exported.
    """

    site: Site
    pool: str
    _entry: ExitStack | None = None
    """Holds the ledger entry of a pool that may exist."""

    def recover(self, device: str) -> str | None:
        """Imports the pool.

        Raises CommandTimeoutError when its programs do not answer in time, and PowercutError when
        ZFS itself no longer answers. Neither is a verdict on the state.
        """
        self.abandon()  # an attempt before may have ended without an answer
        devices = self.directory / "devices"
        link = devices / "disk"
        link.unlink(missing_ok=True)
        link.symlink_to(device)
        # Recorded before the import: the pool keeps the name that it was created with.
        members = record_devices((Path(device),))
        entry = self.site.ledger.entry(zfs.POOL.kind, self.pool, devices=members)
        self._entry = ExitStack()
        self._entry.enter_context(entry)
        try:
            refusal = self._import(devices)
        except HostError:
            with suppress(HostError, DirtyHostError):  # the next attempt tries again
                self.abandon()
            raise
        if refusal is not None:
            self.abandon()
        return refusal

    def abandon(self) -> None:
        """Exports the pool if it may exist; after that its ledger entry is removed."""
        self._close_entry(self._export_if_present)

    def _import(self, devices: Path) -> str | None:
        imported = self._run(
            "zpool", "import", "-f", "-d", devices, "-o", "cachefile=none", "-R",
            self.directory / "files", self.pool,
        )  # fmt: skip
        if imported.status != 0:
            self._require_zfs()
            lines = imported.stderr.strip().splitlines()
            return f"the pool cannot be imported: {lines[0] if lines else 'no reason was given'}"
        if not mounts_below(self.directory / "files"):
            return "the pool was imported, but its dataset was not mounted"
        return None

    def _run(self, *argv: PathArg) -> Completed:
        return self.site.host.run(*argv, timeout=_POOL_SECONDS, allowed=range(256))

    def _require_zfs(self) -> None:
        """Raises PowercutError if ZFS does not answer, which is not a verdict on a state."""
        if self._run("zpool", "list").status != 0:
            raise PowercutError(
                "ZFS no longer answers, so this state cannot be judged",
                hint="start it again (service zfs-fuse start), and run the same command",
            )

    def _export_if_present(self) -> None:
        """Exports the pool if it is listed; after the end of zfs-fuse none is."""
        if self.pool in self._run("zpool", "list", "-H", "-o", "name").stdout.split():
            self._export()

    def _export(self) -> None:
        """Exports the pool, with retries: it is busy while another mount namespace holds a copy."""
        try:
            wait_until(self._is_exported, timeout=_POOL_SECONDS, what=f"export of {self.pool}")
        except HostError as error:
            held = still_mounted(f"the pool {self.pool}", f"{self.pool}/{zfs.DATASET}")
            raise DirtyHostError(
                f"the pool {self.pool} cannot be exported: {held or error}",
                hint="run `vdisklab clean`",
            ) from held or error

    def _is_exported(self) -> bool:
        exported = self._run("zpool", "export", "-f", self.pool)
        if exported.status != 0 and "busy" not in exported.stderr:
            raise HostError(exported.stderr.strip())
        return exported.status == 0

    def files(self) -> Path:
        """The mount point of the pool's dataset."""
        (mounted,) = mounts_below(self.directory / "files")
        return mounted.mountpoint

    def release(self) -> None:
        """Exports the pool."""
        self._close_entry(self._export)

    def _close_entry(self, export: Callable[[], None]) -> None:
        """Exports a pool that may exist; after an error `abandon` tries again."""
        if self._entry is None:
            return
        with self._entry:
            export()
        self._entry = None


Opener = Callable[[Site, Trace, Path], AbstractContextManager[Recovery]]


@contextmanager
def _kernel_filesystem(site: Site, trace: Trace, place: Path) -> Iterator[Recovery]:
    with site.tracked(Kind.MOUNT, place):
        kind = LayerKind(trace.filesystem)
        yield KernelFilesystem(place, site.host, kind, mount_options(trace))


@contextmanager
def _zfs_pool(site: Site, trace: Trace, place: Path) -> Iterator[Recovery]:
    for name in ("devices", "files"):
        (place / name).mkdir()
    recovery = ZfsPool(place, site, trace.observed[POOL])
    try:
        yield recovery
    finally:
        recovery.abandon()
        (place / "devices" / "disk").unlink(missing_ok=True)


_OF_ITS_OWN: Mapping[LayerKind, Opener] = {LayerKind.ZFS: _zfs_pool}
"""What is not recovered by a mount."""

RECOVERIES: Mapping[LayerKind, Opener] = {
    kind: _OF_ITS_OWN.get(kind, _kernel_filesystem) for kind in JUDGED
}
"""The file systems whose recovery is implemented."""


@contextmanager
def open_recovery(site: Site, trace: Trace) -> Iterator[Recovery]:
    """The recovery of a recording's file system, in a new directory of the site.

    Raises PowercutError for an unknown file system.
    """
    if trace.filesystem == NO_FILESYSTEM:
        yield Recovery(site.directory)
        return
    if trace.filesystem not in RECOVERIES:
        raise PowercutError(
            f"vdisklab does not know how {trace.filesystem!r} recovers",
            hint="name a case that `vdisklab powercut` of this version printed",
        )
    place = site.directory / "recovered"
    with site.tracked(Kind.DIRECTORY, place):
        place.mkdir()
        with RECOVERIES[LayerKind(trace.filesystem)](site, trace, place) as recovery:
            yield recovery


def mount_options(trace: Trace) -> str:
    """The recorded mount options; for XFS also the one that allows a duplicate UUID."""
    extra = ("nouuid",) if trace.filesystem == LayerKind.XFS else ()
    return ",".join((*trace.mount_options, *extra))

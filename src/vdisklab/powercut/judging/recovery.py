"""What a host does with its disk after a power cut, before anything can be read: one way each.

The kernel mounts ext4, xfs and btrfs, which replays their journals; a ZFS pool is imported, which
rolls back to its last transaction group and replays the intent log.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vdisklab.errors import DirtyHostError, HostError, PowercutError
from vdisklab.host.blockdevice import note
from vdisklab.host.command import Host
from vdisklab.host.deadline import wait_until
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import mounts_below
from vdisklab.host.syscalls import forget_btrfs_devices, mount, unmount
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.cutting.memory import memory_full
from vdisklab.powercut.recording.trace import Trace
from vdisklab.storage.site import Site

_FSCK_SECONDS = 50.0
_POOL_SECONDS = 40.0


def leave(mountpoint: Path) -> None:
    """Unmounts the file system of a state. Raises DirtyHostError when it sticks."""
    try:
        unmount(mountpoint)
    except OSError as error:
        raise DirtyHostError(
            f"{mountpoint} cannot be unmounted: {error.strerror}",
            hint="run `vdisklab clean`",
        ) from error


class Recovery(Protocol):
    """Makes the files of a state readable, and lets go of it."""

    def recover(self, device: str) -> str | None:
        """Why the state cannot be used, in words; None when its files are there."""

    def repair(self, device: str) -> bool:
        """Lets the file system's own program repair the state; True when it says that it could."""

    def files(self) -> Path:
        """Where the files of the recovered state are."""

    def release(self) -> None:
        """Lets go of the recovered state. Raises DirtyHostError when it sticks."""

    def forget(self) -> None:
        """After the device is gone: makes the kernel forget it, where it would not by itself."""


@dataclass(slots=True)
class KernelFilesystem:
    """A file system that the kernel mounts."""

    host: Host
    kind: LayerKind
    options: str
    mountpoint: Path

    def recover(self, device: str) -> str | None:
        """See `Recovery.recover`."""
        try:
            mount(device, self.mountpoint, self.kind, self.options)
        except OSError as error:
            if error.errno == errno.ENOMEM:  # the kernel's, and not the state's
                raise memory_full("the mount of a state") from error
            return f"the kernel refuses to mount it: {error.strerror}"
        return None

    def repair(self, device: str) -> bool:
        """See `Recovery.repair`.

        e2fsck(8): 0 to 3 is repaired, 4 and more is not. xfs_repair(8) refuses a log that is not
        replayed with 2; as the kernel has refused the mount, the log is thrown away then (-L),
        which its page calls the last resort. btrfs check(8) ends with 0.
        """
        return any(
            self.host.run(*command, device, timeout=_FSCK_SECONDS, allowed=range(256)).status
            in repaired
            for command, repaired in _FSCK[self.kind]
        )

    def files(self) -> Path:
        """See `Recovery.files`."""
        return self.mountpoint

    def release(self) -> None:
        """See `Recovery.release`."""
        leave(self.mountpoint)

    def forget(self) -> None:
        """See `Recovery.forget`: all states of a btrfs carry the same identity."""
        if self.kind is LayerKind.BTRFS:
            forget_btrfs_devices()


_FSCK: Mapping[LayerKind, tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]] = {
    LayerKind.EXT4: ((("e2fsck", "-f", "-y"), (0, 1, 2, 3)),),
    LayerKind.XFS: ((("xfs_repair",), (0,)), (("xfs_repair", "-L"), (0,))),
    LayerKind.BTRFS: ((("btrfs", "check", "--repair", "--force"), (0,)),),
}


@dataclass(slots=True)
class ZfsPool:
    """A pool of one device, by the kernel's ZFS or by zfs-fuse: both have the same programs."""

    site: Site
    pool: str
    root: Path
    _entry: ExitStack | None = None
    """Holds the line of the ledger that says that the pool may be there."""

    def recover(self, device: str) -> str | None:
        """See `Recovery.recover`. Raises PowercutError when ZFS itself no longer answers."""
        look = self.root / "devices"
        link = look / "disk"
        link.unlink(missing_ok=True)
        link.symlink_to(device)
        # Noted before the import: the state's pool has the name that it was recorded under.
        entry = self.site.ledger.entry(Kind.POOL, self.pool, devices=note((Path(device),)))
        self._entry = ExitStack()
        self._entry.enter_context(entry)
        refused = self._import(look)
        if refused is not None:
            self.abandon()
        return refused

    def abandon(self) -> None:
        """Exports the pool if it may be there, and lets its line in the ledger go only then."""
        self._let_go(self._export_if_there)

    def _import(self, look: Path) -> str | None:
        try:
            done = self.site.host.run(
                "zpool", "import", "-f", "-d", look, "-o", "cachefile=none", "-R",
                self.root / "files", self.pool, timeout=_POOL_SECONDS, allowed=range(256),
            )  # fmt: skip
        except HostError as error:
            self._require_zfs()
            return f"the pool cannot be imported: {error}"
        if done.status != 0:
            self._require_zfs()
            lines = done.stderr.strip().splitlines()
            return f"the pool cannot be imported: {lines[0] if lines else 'no reason is given'}"
        if not mounts_below(self.root / "files"):
            return "the pool was imported, and its dataset was not mounted"
        return None

    def _require_zfs(self) -> None:
        """That ZFS itself is gone is no verdict on a state."""
        listed = self.site.host.run("zpool", "list", timeout=_POOL_SECONDS, allowed=range(256))
        if listed.status != 0:
            raise PowercutError(
                "ZFS no longer answers, so nothing can be said of this state",
                hint="start it again (service zfs-fuse start), and run the same command",
            )

    def _export_if_there(self) -> None:
        """A ZFS that does not answer, zfs-fuse that ended, holds no pool either."""
        listed = self.site.host.run(
            "zpool", "list", "-H", "-o", "name", timeout=_POOL_SECONDS, allowed=range(256)
        )
        if self.pool in listed.stdout.split():
            self._export()

    def _export(self) -> None:
        """Under a deadline: while another mount namespace holds a copy it is said to be busy."""
        try:
            wait_until(self._is_exported, timeout=_POOL_SECONDS, what=f"export of {self.pool}")
        except HostError as error:
            raise DirtyHostError(
                f"the pool {self.pool} cannot be exported: {error}", hint="run `vdisklab clean`"
            ) from error

    def _is_exported(self) -> bool:
        done = self.site.host.run(
            "zpool", "export", "-f", self.pool, timeout=_POOL_SECONDS, allowed=range(256)
        )
        if done.status != 0 and "busy" not in done.stderr:
            raise HostError(done.stderr.strip())
        return done.status == 0

    def repair(self, device: str) -> bool:
        """See `Recovery.repair`: ZFS has no fsck."""
        del device
        return False

    def files(self) -> Path:
        """See `Recovery.files`."""
        (mounted,) = mounts_below(self.root / "files")
        return mounted.mountpoint

    def release(self) -> None:
        """See `Recovery.release`."""
        self._let_go(self._export)

    def _let_go(self, export: Callable[[], None]) -> None:
        """What fails here is tried once more by `abandon`; nothing where no pool may be there."""
        if self._entry is None:
            return
        with self._entry:
            export()
        self._entry = None

    def forget(self) -> None:
        """See `Recovery.forget`: nothing is left."""


Opener = Callable[[Site, Trace, Path], AbstractContextManager[Recovery]]


@contextmanager
def _kernel_filesystem(site: Site, trace: Trace, place: Path) -> Iterator[Recovery]:
    with site.tracked(Kind.MOUNT, place):
        yield KernelFilesystem(site.host, LayerKind(trace.filesystem), mount_options(trace), place)


@contextmanager
def _zfs_pool(site: Site, trace: Trace, place: Path) -> Iterator[Recovery]:
    for name in ("devices", "files"):
        (place / name).mkdir()
    recovery = ZfsPool(site, trace.seen[POOL], place)
    try:
        yield recovery
    finally:
        recovery.abandon()
        (place / "devices" / "disk").unlink(missing_ok=True)


POOL = "zfs.pool"
"""Key of the pool's name among what was seen while it was recorded."""

RECOVERIES: Mapping[LayerKind, Opener] = {
    LayerKind.EXT4: _kernel_filesystem,
    LayerKind.XFS: _kernel_filesystem,
    LayerKind.BTRFS: _kernel_filesystem,
    LayerKind.ZFS: _zfs_pool,
}
"""The file systems whose recovery is known; adding one is one line."""

ALONE = frozenset({LayerKind.BTRFS, LayerKind.ZFS})
"""They know a file system by its identity, which all states share: one state at a time."""


@contextmanager
def open_recovery(site: Site, trace: Trace) -> Iterator[Recovery]:
    """The way in which a recording's file system recovers, in a new directory of the site.

    Raises PowercutError for one that is not known.
    """
    if trace.filesystem not in RECOVERIES:
        raise PowercutError(
            f"how {trace.filesystem!r} recovers is not known",
            hint="name a case that `vdisklab powercut` of this version printed",
        )
    place = site.directory / "recovered"
    with site.tracked(Kind.DIRECTORY, place):
        place.mkdir()
        with RECOVERIES[LayerKind(trace.filesystem)](site, trace, place) as recovery:
            yield recovery


def mount_options(trace: Trace) -> str:
    """How a state is mounted: as the file system was; XFS may meet its own identity twice."""
    extra = ("nouuid",) if trace.filesystem == LayerKind.XFS else ()
    return ",".join((*trace.mount_options, *extra))

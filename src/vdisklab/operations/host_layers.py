"""What is done below a running guest, by the host's own layers: snapshots and scrubs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import HostError, OperationError
from vdisklab.operations.operation import DiskAccess, OperationKind, RunningOperation
from vdisklab.operations.relief import EVERYWHERE, Felt, Relief, none
from vdisklab.operations.volume_commands import (
    Argv,
    thin_snapshot,
    volume_removed,
    zfs_destroyed,
    zfs_snapshot,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import NeedKind
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind
from vdisklab.value import Value

_NAME = "during"
_FORGET = 'rm -f "/var/lib/btrfs/scrub.status.$(findmnt -no UUID --target "$0")"'
"""btrfs-scrub(8), FILES: the record of the last scrub of a file system."""


class _Layer(Value):
    """`thing` is what the image lies on, as the layer's programs call it, found by the image."""

    thing: Callable[[DiskAccess, Path], str]
    make: Callable[[str], Argv]
    remove: Callable[[str], Argv]


def _directory(access: DiskAccess, image: Path) -> str:
    del access
    return str(image.parent)


def _volume(access: DiskAccess, _image: Path) -> str:
    """The dataset or volume that the image lies on: the host's layers know its name."""
    if not access.volume:
        raise OperationError("the image lies on no volume", hint="put it on a layer that makes one")
    return access.volume


_ZFS_SNAPSHOT = _Layer(
    _volume,
    lambda name: zfs_snapshot(name, _NAME),
    lambda name: zfs_destroyed(f"{name}@{_NAME}"),
)
_SNAPSHOTS: Mapping[LayerKind, _Layer] = {
    LayerKind.BTRFS: _Layer(
        _directory,
        lambda place: ("btrfs", "subvolume", "snapshot", "-r", place, f"{place}/{_NAME}"),
        lambda place: ("btrfs", "subvolume", "delete", f"{place}/{_NAME}"),
    ),
    LayerKind.ZFS: _ZFS_SNAPSHOT,
    LayerKind.ZVOL: _ZFS_SNAPSHOT,
    LayerKind.LVMTHIN: _Layer(
        _volume,
        lambda name: thin_snapshot(name, _beside(name)),
        lambda name: volume_removed(f"{name.partition('/')[0]}/{_beside(name)}"),
    ),
}


def _beside(volume: str) -> str:
    return f"{volume.partition('/')[2]}-{_NAME}"


class HostSnapshot(RunningOperation):
    """A snapshot by the layer that the image lies on, which the guest does not know of."""

    _thing: str | None = None

    def finish(self) -> None:
        """Makes it. Raises HostError if the layer's program fails."""
        layer = _SNAPSHOTS[self.access.layers[-1]]
        self._thing = layer.thing(self.access, self.image)
        self.access.on_host(*layer.make(self._thing))

    def undo(self) -> None:
        """Removes it."""
        if self._thing is not None:
            remove = _SNAPSHOTS[self.access.layers[-1]].remove(self._thing)
            self._thing = None
            self.access.on_host(*remove)


class DeletedHostSnapshot(HostSnapshot):
    """The removal of one that was made before the load began."""

    def prepare(self) -> None:
        """Makes the snapshot."""
        super().finish()

    def finish(self) -> None:
        """Removes it."""
        super().undo()


class Reflink(RunningOperation):
    """A copy of the image that shares its blocks (`cp --reflink`, FICLONE)."""

    @property
    def left_files(self) -> tuple[Path, ...]:
        """The copy."""
        return (self.new_file,)

    def finish(self) -> None:
        """Copies."""
        self.access.on_host("cp", "--reflink=always", str(self.image), str(self.new_file))


class Scrub(RunningOperation):
    """All blocks of the layer are read and checked, by the layer itself, until it is done."""

    _thing: str | None = None

    def start(self) -> None:
        """Begins it."""
        kind, run = _scrubbed(self.access.layers), self.access.on_host
        self._thing = _SCRUBS[kind].thing(self.access, self.image)
        self._forget(self._thing)
        run(*_SCRUBS[kind].start(self._thing))

    def ready(self) -> bool:
        """Asks whether it is done. Raises OperationError if that is not said."""
        kind, run = _scrubbed(self.access.layers), self.access.on_host
        if self._thing is None:
            raise OperationError("the scrub was not begun")
        return _SCRUBS[kind].over(run(*_SCRUBS[kind].ask(self._thing)))

    def finish(self) -> None:
        """Leaves no record of it: it is done."""
        if self._thing is not None:
            self._forget(self._thing)
            self._thing = None

    def undo(self) -> None:
        """Ends one that still runs."""
        if self._thing is not None:
            with suppress(HostError):  # it has ended meanwhile
                self.access.on_host(*_SCRUBS[_scrubbed(self.access.layers)].stop(self._thing))
            self._forget(self._thing)
            self._thing = None

    def _forget(self, thing: str) -> None:
        """The record of an earlier scrub would say that this one is done already."""
        forget = _SCRUBS[_scrubbed(self.access.layers)].forget
        if forget is not None:
            self.access.on_host(*forget(thing))


class _Scrubbing(Value):
    thing: Callable[[DiskAccess, Path], str]
    start: Callable[[str], Argv]
    ask: Callable[[str], Argv]
    over: Callable[[str], bool]
    stop: Callable[[str], Argv]
    forget: Callable[[str], Argv] | None = None


def _finished(said: str) -> bool:
    """What `btrfs scrub status` says; "no stats available" just after the start."""
    if "aborted" in said or "interrupted" in said:
        raise OperationError("btrfs did not check all blocks", hint="look at the kernel's log")
    return "finished" in said


def _pool(access: DiskAccess, image: Path) -> str:
    return _volume(access, image).partition("/")[0]


def _array(access: DiskAccess, image: Path) -> str:
    """The array below a file system or device: `md127` (lsblk(8))."""
    run, source = access.on_host, str(image)
    if not source.startswith("/dev/"):
        source = run("df", "--output=source", str(image.parent)).split()[-1]
    lines = run("lsblk", "--inverse", "--noheadings", "--list", "--output=NAME,TYPE", source)
    arrays = [line.split()[0] for line in lines.splitlines() if " raid" in line]
    if not arrays:
        raise OperationError(f"{source} is on no md array", hint="write md: in the path")
    return arrays[0]


def _action(array: str) -> str:
    return f"/sys/block/{array}/md/sync_action"


_ZPOOL = _Scrubbing(
    _pool,
    lambda pool: ("zpool", "scrub", pool),
    lambda pool: ("zpool", "status", pool),
    lambda said: "scrub in progress" not in said,
    lambda pool: ("zpool", "scrub", "-s", pool),
)
_SCRUBS: Mapping[LayerKind, _Scrubbing] = {
    LayerKind.BTRFS: _Scrubbing(
        _directory,
        lambda place: ("btrfs", "scrub", "start", place),
        lambda place: ("btrfs", "scrub", "status", place),
        _finished,
        lambda place: ("btrfs", "scrub", "cancel", place),
        lambda place: ("sh", "-c", _FORGET, place),
    ),
    LayerKind.ZFS: _ZPOOL,
    LayerKind.ZVOL: _ZPOOL,
    LayerKind.MD: _Scrubbing(
        _array,
        lambda array: ("sh", "-c", f"echo check > {_action(array)}"),
        lambda array: ("cat", _action(array)),
        lambda said: said.strip() == "idle",
        lambda array: ("sh", "-c", f"echo idle > {_action(array)}"),
    ),
}


def _scrubbed(layers: Sequence[LayerKind]) -> LayerKind:
    return next(kind for kind in reversed(layers) if kind in _SCRUBS)


def _theirs(path: DiskPath) -> Impossible | None:
    if path.target is not None:
        return Impossible(
            "lies on storage of yours, of which nothing but the disk is touched",
            "let vdisklab build the layer: leave out the name of the target",
        )
    return None


def _no_snapshot(path: DiskPath) -> Impossible | None:
    if path.layers and path.layers[-1].kind in _SNAPSHOTS:
        return _theirs(path)
    names = ", ".join(_SNAPSHOTS)
    return Impossible("has no host layer that makes snapshots", f"put it on {names}")


def _no_reflink(path: DiskPath) -> Impossible | None:
    top = path.layers[-1].kind if path.layers else None
    if path.image is None or (top is not None and top not in (LayerKind.XFS, LayerKind.BTRFS)):
        return Impossible(
            "has no file whose blocks could be shared", "put it on xfs or btrfs, as xfs/raw"
        )
    if path.layers and dict(path.layers[-1].options).get("reflink") is False:
        return Impossible("has reflink=off", "leave it out")
    return _theirs(path)


def _no_scrub(path: DiskPath) -> Impossible | None:
    if any(layer.kind in _SCRUBS for layer in path.layers):
        return _theirs(path)
    return Impossible("has no layer that checks its blocks", f"put it on {', '.join(_SCRUBS)}")


_SLOWER: Mapping[LayerKind, tuple[str, str]] = {
    LayerKind.BTRFS: (
        "btrfs, since kernel 5.14", "echo 50m > /sys/fs/btrfs/UUID/devinfo/1/scrub_speed_max",
    ),
    LayerKind.MD: ("md", "echo 50000 > /sys/block/md0/md/sync_speed_max"),
    LayerKind.ZFS: ("ZFS", "echo 1 > /sys/module/zfs/parameters/zfs_vdev_scrub_max_active"),
}  # fmt: skip
"""btrfs-scrub(8), "Bandwidth and IO limiting"; admin-guide/md, in KiB/s; zfs(4), 3 by default."""


def _relief(felt: Felt) -> Iterator[Relief]:
    """A slower scrub of the path's own layer: what runs the guest has no part in it."""
    kind = _scrubbed(tuple(layer.kind for layer in felt.path.layers))
    label, line = _SLOWER[LayerKind.ZFS if kind is LayerKind.ZVOL else kind]
    yield Relief(f"the host of {EVERYWHERE}, {label}", line)


_QUIET = none(
    "the host's layer does it in one step, which has no setting: order it when the guest is quiet"
)


HOST_SNAPSHOT = OperationKind(
    "host-snapshot",
    "a snapshot by the host's layer (btrfs, ZFS, thin LVM)",
    HostSnapshot,
    _no_snapshot,
    need=NeedKind.SNAPSHOTS,
    relief=_QUIET,
    keeps_old=True,
)
DELETE_HOST_SNAPSHOT = OperationKind(
    "host-snapshot:delete",
    "a snapshot by the host's layer is removed",
    DeletedHostSnapshot,
    _no_snapshot,
    noun="removal of the host's snapshot",
    keeps_old=True,
    relief=_QUIET,
)
REFLINK = OperationKind(
    "reflink",
    "a copy of the image that shares its blocks (xfs, btrfs)",
    Reflink,
    _no_reflink,
    relief=_QUIET,
)
SCRUB = OperationKind(
    "scrub",
    "all blocks of the host's layer are checked (btrfs, ZFS, md)",
    Scrub,
    _no_scrub,
    relief=_relief,
)

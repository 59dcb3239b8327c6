"""Volumes and datasets beside a stack's own, which hold a template and the disks cloned from it.

One row for each layer that clones: where a volume appears, how a template's is made and sealed, how
much it occupies, and how it is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.counters import device_below
from vdisklab.host.waiting import patience, wait_until
from vdisklab.operations.volume_commands import GOLDEN, LVM_QUIETLY, Argv, zfs_snapshot
from vdisklab.path.segments import LayerKind
from vdisklab.storage import lvm, zfs
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Remote, Target, Volume
from vdisklab.storage.undo import Removable
from vdisklab.units import parse_size
from vdisklab.value import Value

_NODE_SECONDS = 30.0
_PROGRAM_SECONDS = 300.0
_SECTOR = 512
_STATUS = re.compile(r" thin-pool \d+ \d+/\d+ (\d+)/(\d+) ")
_TABLE = re.compile(r" thin-pool \S+ \S+ (\d+) ")


class PoolUse(Value):
    """The chunks of a thin pool: bytes of each, how many are used, how many there are."""

    chunk: int
    used: int
    total: int


def parse_pool(status: str, table: str) -> PoolUse:
    """The answers of `dmsetup status` and `dmsetup table` for a thin pool
    (Documentation/admin-guide/device-mapper/thin-provisioning.rst). Raises HostError."""
    counted, made = _STATUS.search(status), _TABLE.search(table)
    if counted is None or made is None:
        raise HostError(
            f"the thin pool does not say how full it is: {status.strip() or 'no answer'}",
            hint="a pool that has failed says so in the kernel's log (dmesg)",
        )
    return PoolUse(int(made[1]) * _SECTOR, int(counted[1]), int(counted[2]))


def pool_use(host: Host, group: str) -> PoolUse:
    """How full the thin pool of a group is. Raises HostError."""
    name = f"{group.replace('-', '--')}-{lvm.POOL}-tpool"
    return parse_pool(
        host.run("dmsetup", "status", name).stdout, host.run("dmsetup", "table", name).stdout
    )


def _thin_used(host: Host, volume: Volume, _names: Sequence[str]) -> int:
    use = pool_use(host, volume.container)
    return use.used * use.chunk


def _thin_free(host: Host, volume: Volume) -> int:
    use = pool_use(host, volume.container)
    return (use.total - use.used) * use.chunk


def _zfs_used(host: Host, _volume: Volume, names: Sequence[str]) -> int:
    """A clone's `used` is what it shares with nothing (zfsprops(7))."""
    there = set(host.run("zfs", "list", "-H", "-t", "all", "-o", "name").stdout.split())
    found = [name for name in names if name in there]
    if not found:
        return 0
    text = host.run("zfs", "get", "-H", "-p", "-o", "value", "used", *found).stdout
    return sum(map(int, text.split()))


def _zfs_free(host: Host, volume: Volume) -> int:
    get = ("zfs", "get", "-H", "-p", "-o", "value", "available", volume.container)
    return int(host.run(*get).stdout)


class CloneLayer(Value):
    """How a layer clones.

    `place` is where the volume of a name appears, `named` how the layer names it. `create` makes
    the template's, of so many bytes, and `seal` follows when it is filled. `used` are the bytes of
    the named volumes alone, or of the whole pool; `unit` is the property with the bytes that are
    shared or copied as a whole; `sync` makes it count all that was written.
    """

    place: Callable[[Target, Volume, str], Path]
    named: Callable[[Volume, str], str]
    create: Callable[[Volume, str, int], Argv]
    removes: Removable
    used: Callable[[Host, Volume, Sequence[str]], int]
    free: Callable[[Host, Volume], int]
    unit: str
    seal: Callable[[str, str], Argv] | None = None
    sync: Callable[[Volume], Argv] | None = None
    gives_device: bool = True


def _in_container(volume: Volume, name: str) -> str:
    return f"{volume.container}/{name}"


def _synced(volume: Volume) -> Argv:
    return ("zpool", "sync", volume.container)


CLONE_LAYERS: Mapping[LayerKind, CloneLayer] = {
    LayerKind.LVMTHIN: CloneLayer(
        lambda _target, volume, name: Path("/dev") / volume.container / name,
        _in_container,
        lambda volume, name, size: (
            "lvcreate", *LVM_QUIETLY, "--yes", "--name", name, "--virtualsize", f"{size}b",
            "--thin", f"{volume.container}/{lvm.POOL}",
        ),
        lvm.LOGICAL_VOLUME,
        _thin_used,
        _thin_free,
        "lvmthin.chunk_size",
    ),
    LayerKind.ZVOL: CloneLayer(
        lambda _target, volume, name: Path("/dev/zvol") / volume.container / name,
        _in_container,
        # Sparse: a snapshot of a volume with reserved room needs the room once more.
        lambda volume, name, size: (
            "zfs", "create", "-s", "-V", str(size), f"{volume.container}/{name}",
        ),
        zfs.DATASET_BESIDE,
        _zfs_used,
        _zfs_free,
        "zvol.volblocksize",
        zfs_snapshot,
        _synced,
    ),
    LayerKind.ZFS: CloneLayer(
        lambda target, _volume, name: target.on_host / name,
        # Below the stack's own dataset, so that mount point and properties are inherited.
        lambda volume, name: f"{volume.name}/{name}",
        lambda volume, name, _size: ("zfs", "create", f"{volume.name}/{name}"),
        zfs.DATASET_BESIDE,
        _zfs_used,
        _zfs_free,
        "zfs.recordsize",
        zfs_snapshot,
        _synced,
        gives_device=False,
    ),
}  # fmt: skip


class Clones(Value):
    """The volumes beside one stack's."""

    site: Site
    target: Target
    volume: Volume
    layer: CloneLayer

    @property
    def devices(self) -> tuple[tuple[int, int], ...]:
        """The numbers of the group's or pool's devices."""
        return devices_of(self.volume)

    @property
    def unit(self) -> int | None:
        """Bytes that the layer shares or copies as a whole, as read back from it; None if it was
        not told."""
        text = (
            None if isinstance(self.target, Remote) else self.target.properties.get(self.layer.unit)
        )
        return None if text is None else int(parse_size(text))

    def place(self, name: str) -> Path:
        """Where the volume of a name is: its node, or the directory that it is mounted on."""
        return self.layer.place(self.target, self.volume, name)

    def named(self, name: str) -> str:
        """The volume of a name as the layer names it."""
        return self.layer.named(self.volume, name)

    @contextmanager
    def tracked(self, name: str) -> Iterator[None]:
        """Removes the volume of a name at the end, or after a crash, if it is there."""
        with self.site.tracked_on(self.volume.members, self.layer.removes, self.named(name)):
            yield

    @contextmanager
    def template(self, name: str, size: int, fill: Callable[[Path], None]) -> Iterator[Path]:
        """The template's volume, which `fill` fills through its node or directory."""
        with self.tracked(name):
            self.site.run(*self.layer.create(self.volume, name, size), timeout=_PROGRAM_SECONDS)
            place = self.place(name)
            self.await_node(place)
            fill(place)
            self.sync()
            if self.layer.seal is not None:
                self.site.run(*self.layer.seal(self.named(name), GOLDEN))
            yield place

    def await_node(self, place: Path) -> None:
        """Waits until udev has made the node of a volume. Raises HostError."""
        what, seconds = f"device {place}", _NODE_SECONDS * patience()
        self.site.check(lambda: wait_until(place.exists, timeout=seconds, what=what, interval=0.01))

    def used(self, names: Sequence[str]) -> int:
        """Bytes that the volumes of these names occupy alone, or those of the whole pool."""
        return self.layer.used(self.site.host, self.volume, [self.named(name) for name in names])

    def free(self) -> int:
        """Free bytes of the pool."""
        return self.layer.free(self.site.host, self.volume)

    def sync(self) -> None:
        """Makes the pool count all that was written."""
        if self.layer.sync is not None:
            # zfs-fuse has no such command: it ends with 2, and the pool counts a moment later.
            self.site.host.run(
                *self.layer.sync(self.volume), timeout=_PROGRAM_SECONDS, allowed=(0, 2)
            )


def devices_of(volume: Volume) -> tuple[tuple[int, int], ...]:
    """The numbers of the devices of a volume's group or pool."""
    found = (device_below(member) for member in volume.members)
    return tuple(number for number in found if number is not None)


def clones_beside(site: Site, target: Target, kind: LayerKind) -> Clones:
    """The volumes beside those of a stack with the layer `kind` on top."""
    volume = None if isinstance(target, Remote) else target.volume
    if volume is None:
        raise TypeError(f"{kind} has made no volume")
    return Clones(site, target, volume, CLONE_LAYERS[kind])

"""A stack of host layers: built from the bottom, removed from the top. One row per layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from vdisklab.errors import HostError
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices, in_memory
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.device import whole_devices
from vdisklab.storage.filesystem import filesystem, tmpfs
from vdisklab.storage.loop import loop_device, side_by_side, zram
from vdisklab.storage.luks import encrypted_device
from vdisklab.storage.lvm import another_logical_volume, logical_volume
from vdisklab.storage.md import array
from vdisklab.storage.room import capacity_above, require_room, size_for
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Directory, Target
from vdisklab.storage.zfs import another_volume, dataset, limited_arc, volume

_ZFS = (LayerKind.ZFS, LayerKind.ZVOL)


@contextmanager
def build_stack(
    site: Site,
    layers: tuple[Layer, ...],
    capacity: int,
    name: str,
    *,
    backing: BackingDevices = WORK_DIRECTORY,
    allocate: bool = True,
    guests: int = 1,
) -> Iterator[Target]:
    """The target on top of `layers`, with room for `capacity` bytes.

    On a layer that divides, each of several guests gets a volume with its share of the capacity.

    Without layers the target is the site's directory, or the first backing device. After an error
    the built part is removed. With `allocate` False the slices are thin, for trials that write
    almost nothing.
    """
    with ExitStack() as built:
        target = _bottom(built, site, layers, capacity, name, backing=backing, allocate=allocate)
        if backing.arc_bytes is not None and any(layer.kind in _ZFS for layer in layers):
            built.enter_context(limited_arc(site, backing.arc_bytes))
        for number, layer in enumerate(layers):
            if layer.kind.is_memory:
                continue
            if not isinstance(target, Device):
                raise HostError(f"{layer} needs a block device, and {target.path} holds files")
            volumes = guests if layer.kind.divides and number == len(layers) - 1 else 1
            needed = capacity_above(layers, number, capacity // volumes)
            below, own = target, f"{name}-{number}"
            target = built.enter_context(BUILDERS[layer.kind](site, below, layer, own, needed))
            if volumes > 1:
                more = [
                    built.enter_context(
                        MORE_VOLUMES[layer.kind](site, below, layer, own, size=needed, guest=guest)
                    )
                    for guest in range(2, volumes + 1)
                ]
                target = replace(
                    below.device(target.path, target.properties), volumes=(target.path, *more)
                )
        yield target


def _bottom(
    built: ExitStack,
    site: Site,
    layers: tuple[Layer, ...],
    capacity: int,
    name: str,
    *,
    backing: BackingDevices,
    allocate: bool,
) -> Target:
    disks = backing.disks_for(layers)
    size = size_for(layers, capacity, disks)
    if backing.on_devices(layers):
        return built.enter_context(whole_devices(site, backing, disks, size))
    if not layers:
        return Directory(site.directory)
    if layers[0].kind is LayerKind.ZRAM:
        return built.enter_context(zram(site, size, layers[0]))
    if in_memory(layers):
        return built.enter_context(tmpfs(site, f"{name}-tmpfs", size, layers[0]))
    if allocate:
        what = f"the stack {'/'.join(map(str, layers))}"
        site.check(lambda: require_room(site.directory, size * disks, what))
    slices = [
        built.enter_context(loop_device(site, slice_name, size, allocate=allocate))
        for slice_name in ([name] if disks == 1 else [f"{name}.{n}" for n in range(disks)])
    ]
    return side_by_side(slices)


Builder = Callable[[Site, Device, Layer, str, int], AbstractContextManager[Target]]
"""(site, target below, layer, a free name in the site, capacity in bytes) -> the target above.

The target exists while the context is open.
"""

BUILDERS: Mapping[LayerKind, Builder] = {
    LayerKind.EXT4: filesystem,
    LayerKind.XFS: filesystem,
    LayerKind.BTRFS: filesystem,
    LayerKind.LVM: logical_volume,
    LayerKind.LVMTHIN: logical_volume,
    LayerKind.MD: array,
    LayerKind.LUKS: encrypted_device,
    LayerKind.ZFS: dataset,
    LayerKind.ZVOL: volume,
}


class AnotherVolume(Protocol):
    """Makes the volume of guest 2 or higher, beside the one that the layer's builder made."""

    def __call__(
        self, site: Site, below: Device, layer: Layer, name: str, *, size: int, guest: int
    ) -> AbstractContextManager[Path]:
        """The device, of `size` bytes. `name` is the one that the builder got."""


MORE_VOLUMES: Mapping[LayerKind, AnotherVolume] = {
    LayerKind.LVM: another_logical_volume,
    LayerKind.LVMTHIN: another_logical_volume,
    LayerKind.ZVOL: another_volume,
}

"""A stack of host layers: built from the bottom, removed from the top. One row per layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from vdisklab.errors import HostError
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices, capacity_above, size_for
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage import device, io_limits, luks, lvm, md, remote, undo, zfs
from vdisklab.storage.filesystem import filesystem, tmpfs
from vdisklab.storage.given import given_target
from vdisklab.storage.site import Site, require_room
from vdisklab.storage.targets import Device, Directory, Target
from vdisklab.storage.zram import ZRAM, zram
from vdisklab.value import Value, replace

Builder = Callable[[Site, Device, Layer, str, int], AbstractContextManager[Target]]
"""(site, target below, layer, a free name in the site, capacity in bytes) -> the target above.

The target exists while the context is open.
"""

Bottom = Callable[[Site, str, int, Layer], AbstractContextManager[Target]]
"""(site, a free name in the site, bytes, layer) -> the lowest target of a stack in memory."""

IN_MEMORY: Mapping[LayerKind, Bottom] = {LayerKind.TMPFS: tmpfs, LayerKind.ZRAM: zram}
"""The layers with nothing below."""

_NOT_OF_LAYERS = (ZRAM, device.DEVICE, io_limits.CGROUP, remote.DISK, remote.FILE)


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
    spare: int = 0,
) -> Iterator[Target]:
    """The target on top of `layers`, with room for `capacity` bytes.

    If a layer divides, each of several guests gets a volume with its share of the capacity. `spare`
    bytes more are in the group or pool, for volumes beside these.

    Without layers the target is the site's directory, or the first backing device. After an error
    the built part is removed. With `allocate` False the slices are thin, for trials that write
    almost nothing.
    """
    with ExitStack() as built:
        whole = capacity + spare
        target = _bottom(built, site, layers, whole, name, backing=backing, allocate=allocate)
        if backing.arc_bytes is not None and any(zfs.uses_zfs(layer) for layer in layers):
            built.enter_context(zfs.limited_arc(site, backing.arc_bytes))
        for number, layer in enumerate(layers):
            if layer.kind.facts.in_memory or layer.kind.facts.target is not None:
                continue
            if not isinstance(target, Device):
                raise HostError(f"{layer} needs a block device, and {target.identity()} is none")
            host_layer, below, layer_name = HOST_LAYERS[layer.kind], target, f"{name}-{number}"
            is_top = number == len(layers) - 1
            another = host_layer.another if is_top else None
            volumes = 1 if another is None else guests
            needed = capacity_above(layers, number, capacity // volumes if is_top else whole)
            target = built.enter_context(host_layer.build(site, below, layer, layer_name, needed))
            if another is not None and isinstance(target, Device) and volumes > 1:
                more = [
                    built.enter_context(
                        another(site, below, layer, layer_name, size=needed, guest=guest)
                    )
                    for guest in range(2, volumes + 1)
                ]
                target = replace(target, volumes=(target.path, *more))
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
    named = backing.target_of(layers)
    if named is not None:
        return built.enter_context(given_target(site, named, backing, size))
    if backing.on_devices(layers):
        return built.enter_context(device.whole_devices(site, backing, disks, size))
    if not layers:
        return Directory(site.directory)
    if layers[0].kind in IN_MEMORY:
        disk_name = f"{name}-{layers[0].kind}"
        return built.enter_context(IN_MEMORY[layers[0].kind](site, disk_name, size, layers[0]))
    if allocate:
        what = f"the stack {'/'.join(map(str, layers))}"
        site.check(lambda: require_room(site.directory, size * disks, what))
    slices = [
        built.enter_context(device.loop_device(site, slice_name, size, allocate=allocate))
        for slice_name in ([name] if disks == 1 else [f"{name}.{n}" for n in range(disks)])
    ]
    return device.side_by_side(slices)


class AnotherVolume(Protocol):
    """Makes the volume of guest 2 or higher, beside the one that the layer's builder made."""

    def __call__(
        self, site: Site, below: Device, layer: Layer, name: str, *, size: int, guest: int
    ) -> AbstractContextManager[Path]:
        """The device, of `size` bytes. `name` is the name that the builder got."""


class HostLayer(Value):
    """How a layer is built on the layers below.

    `removes` are the kinds of things that only this layer creates; `another` is for layers that
    divide.
    """

    build: Builder
    removes: tuple[undo.Removable, ...] = ()
    another: AnotherVolume | None = None


HOST_LAYERS: Mapping[LayerKind, HostLayer] = {
    LayerKind.EXT4: HostLayer(filesystem),
    LayerKind.XFS: HostLayer(filesystem),
    LayerKind.BTRFS: HostLayer(filesystem),
    LayerKind.ZFS: HostLayer(zfs.dataset, zfs.REMOVES),
    LayerKind.ZVOL: HostLayer(zfs.volume, zfs.REMOVES, zfs.another_volume),
    LayerKind.LVM: HostLayer(lvm.logical_volume, lvm.REMOVES, lvm.another_logical_volume),
    LayerKind.LVMTHIN: HostLayer(lvm.logical_volume, lvm.REMOVES, lvm.another_logical_volume),
    LayerKind.MD: HostLayer(md.array, (md.ARRAY,)),
    LayerKind.LUKS: HostLayer(luks.encrypted_device),
}


UNDO: Mapping[str, undo.Undo] = {
    **undo.SIMPLE_UNDO,
    **{thing.kind: thing.undo for layer in HOST_LAYERS.values() for thing in layer.removes},
    **{thing.kind: thing.undo for thing in _NOT_OF_LAYERS},
}
"""Removes a thing if it is there, by its kind in the ledger."""

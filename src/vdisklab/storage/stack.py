"""A pile of host layers, built from the bottom, taken down from the top."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices, in_memory
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.arc import limited_arc
from vdisklab.storage.device import whole_devices
from vdisklab.storage.loop import loop_device, side_by_side
from vdisklab.storage.registry import BUILDERS
from vdisklab.storage.room import capacity_above, require_room, size_for
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target
from vdisklab.storage.tmpfs import tmpfs

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
) -> Iterator[Target]:
    """The target on top of `layers`, with room for `capacity` bytes.

    No layers: the site's directory itself, or the first device of the ground. Half a stack is
    taken down before an error leaves. `allocate` False makes thin slices below, for trials that
    write next to nothing.
    """
    with ExitStack() as built:
        target = _bottom(built, site, layers, capacity, name, backing=backing, allocate=allocate)
        if backing.arc_bytes is not None and any(layer.kind in _ZFS for layer in layers):
            built.enter_context(limited_arc(site, backing.arc_bytes))
        for number, layer in enumerate(layers):
            if layer.kind is LayerKind.TMPFS:
                continue
            wanted = capacity_above(layers, number, capacity)
            made = BUILDERS[layer.kind](site, target, layer, f"{name}-{number}", wanted)
            target = built.enter_context(made)
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
        return Target(site.directory, is_block=False)
    if in_memory(layers):
        return built.enter_context(tmpfs(site, f"{name}-tmpfs", size))
    if allocate:
        require_room(site.directory, size * disks, f"the stack {'/'.join(map(str, layers))}")
    slices = [
        built.enter_context(loop_device(site, slice_name, size, allocate=allocate))
        for slice_name in ([name] if disks == 1 else [f"{name}.{n}" for n in range(disks)])
    ]
    return side_by_side(slices)

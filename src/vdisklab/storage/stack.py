"""A pile of host layers, built from the bottom, taken down from the top."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vdisklab.errors import PlanError
from vdisklab.plan.path import Layer
from vdisklab.plan.segments import LayerKind
from vdisklab.storage.loop import loop_device
from vdisklab.storage.registry import BUILDERS
from vdisklab.storage.room import require_room, size_for
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target
from vdisklab.storage.tmpfs import tmpfs


@contextmanager
def build_stack(
    site: Site, layers: tuple[Layer, ...], capacity: int, name: str, *, allocate: bool = True
) -> Iterator[Target]:
    """The target on top of `layers`, with room for `capacity` bytes.

    No layers: the site's directory itself. Half a stack is taken down before an error leaves.
    `allocate` False makes a thin slice below, for trials that write next to nothing.
    """
    with ExitStack() as built:
        target = _bottom(built, site, layers, capacity, name, allocate=allocate)
        for number, layer in enumerate(layers):
            if layer.kind is LayerKind.TMPFS:
                continue
            if layer.kind not in BUILDERS:
                raise PlanError(f"host layer {layer.kind} cannot be built by this version")
            builder = BUILDERS[layer.kind]
            target = built.enter_context(builder(site, target, layer, f"{name}-{number}"))
        yield target


def _bottom(
    built: ExitStack,
    site: Site,
    layers: tuple[Layer, ...],
    capacity: int,
    name: str,
    *,
    allocate: bool,
) -> Target:
    if not layers:
        return Target(site.directory, is_block=False)
    size = size_for(layers, capacity)
    if layers[0].kind is LayerKind.TMPFS:
        return built.enter_context(tmpfs(site, f"{name}-tmpfs", size))
    if allocate:
        require_room(site.directory, size, f"the stack {'/'.join(map(str, layers))}")
    return built.enter_context(loop_device(site, name, size, allocate=allocate))

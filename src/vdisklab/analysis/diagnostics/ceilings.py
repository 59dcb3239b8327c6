"""Doubts by what bounds a cell: the guest with no disk below, the device with no guest above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vdisklab.analysis.compare import paired_ratios
from vdisklab.analysis.diagnostics.doubt import DeviceCeiling, GuestCeiling
from vdisklab.analysis.observations import MeasureKey, Observations, split_label
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better

CEILING_SHARE = 0.95
GUEST_CEILING_SHARE = 0.8


def ceiling_findings(
    observations: Observations, measure: MeasureKey, cached: Iterable[str]
) -> tuple[GuestCeiling | DeviceCeiling, ...]:
    """Guests that are limited by the virtual machine or by the device, not by their path.

    The null device (`null/…`) shows what the guest can do with no disk below, `host` what the
    device can do without a guest. Cells whose numbers are the page cache's (`cached`) are not
    held against the device.
    """
    found: list[GuestCeiling | DeviceCeiling] = []
    nulls = [cell for cell in observations.cells if is_null(cell)]
    hosts = [cell for cell in observations.cells if is_on_host(cell)]
    for ceiling in nulls:
        bus = ceiling.split("/")[2:]
        others = [
            cell
            for cell in observations.cells
            if cell not in (*nulls, *hosts) and _bus_of(cell) == bus
        ]
        near = _reaching(observations, measure, others, ceiling, GUEST_CEILING_SHARE)
        if near:
            found.append(GuestCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    memory = set(cached)
    for ceiling in hosts:
        stack = ceiling.split("/")[:-1]
        others = [
            cell
            for cell in observations.cells
            if cell not in (*nulls, *hosts, *memory)
            and split_label(cell)[1] != PageCache.WARM
            and _layers_of(cell) == stack
        ]
        near = _reaching(observations, measure, others, ceiling, CEILING_SHARE)
        if near:
            found.append(DeviceCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    return tuple(found)


def is_null(label: str) -> bool:
    """A null-co disk has no device below; nothing can reach it."""
    return any(segment.partition(":")[0] == "null" for segment in label.split("/"))


def is_on_host(label: str) -> bool:
    """True for a cell that is measured without a guest."""
    return label.rsplit("/", maxsplit=1)[-1] == "host"


_NOT_LAYERS = {"raw", "qcow2", "vmdk", "vdi", "vhdx", "qed", "null"}
_CACHE_MODES = {"default", "none", "writeback", "writethrough", "directsync", "unsafe"}


def _bus_of(label: str) -> list[str]:
    """The segments after the cache mode: nothing for virtio."""
    parts = split_label(label)[0].split("/")
    at = next((place for place, part in enumerate(parts) if part in _CACHE_MODES), len(parts))
    return parts[at + 1 :]


def _layers_of(label: str) -> list[str]:
    """The segments before format and cache mode."""
    parts = split_label(label)[0].split("/")
    stop = _NOT_LAYERS | _CACHE_MODES
    at = next(
        (place for place, part in enumerate(parts) if part.partition(":")[0] in stop), len(parts)
    )
    return parts[:at]


def _reaching(
    observations: Observations,
    measure: MeasureKey,
    cells: Sequence[str],
    ceiling: str,
    least: float,
) -> dict[str, float]:
    """Cells whose goodness is `least` of the ceiling's or more, by ratios within blocks.

    A cell better than the ceiling (above 1.05) is not limited by it and is left out.
    """
    if not cells:
        return {}
    grid = observations.grid(measure)
    places = [observations.place[cell] for cell in cells]
    base = observations.place[ceiling]
    ratios = paired_ratios(grid[places], grid[base : base + 1], forecast=False)
    higher = measure.quantity.better is Better.HIGHER
    shares = {
        cell: ratio.ratio if higher else 1 / ratio.ratio
        for cell, ratio in zip(cells, ratios, strict=True)
        if ratio.ratio is not None and ratio.pairs
    }
    return {cell: share for cell, share in shares.items() if least <= share <= 1.05}

"""Doubts by what bounds a cell: the guest with no disk below, the device with no guest above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vdisklab.analysis.compare import paired_ratios
from vdisklab.analysis.diagnostics.doubt import DeviceCeiling, GuestCeiling
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, Layer
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better

CEILING_SHARE = 0.95
GUEST_CEILING_SHARE = 0.8


def ceiling_findings(
    observations: Observations, measure: MeasureKey, cached: Iterable[MeasuredCell]
) -> tuple[GuestCeiling | DeviceCeiling, ...]:
    """Guests that are limited by the virtual machine or by the device, not by their path.

    The null device (`null/…`) shows what the guest can do with no disk below, `host` what the
    device can do without a guest. Cells whose numbers are the page cache's (`cached`) are not
    held against the device.
    """
    found: list[GuestCeiling | DeviceCeiling] = []
    nulls = [cell for cell in observations.cells if cell.is_null]
    hosts = [cell for cell in observations.cells if cell.on_host]
    disks = [
        cell
        for cell in observations.cells
        if cell.path is not None and not cell.is_null and not cell.on_host
    ]
    for ceiling in nulls:
        others = [cell for cell in disks if _attachment(cell) == _attachment(ceiling)]
        near = _reaching(observations, measure, others, ceiling, GUEST_CEILING_SHARE)
        if near:
            found.append(GuestCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    memory = set(cached)
    for ceiling in hosts:
        others = [
            cell
            for cell in disks
            if cell not in memory
            and cell.page_cache is not PageCache.WARM
            and _layers(cell) == _layers(ceiling)
        ]
        near = _reaching(observations, measure, others, ceiling, CEILING_SHARE)
        if near:
            found.append(DeviceCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    return tuple(found)


def _attachment(cell: MeasuredCell) -> Attachment | None:
    return None if cell.path is None else cell.path.attachment


def _layers(cell: MeasuredCell) -> tuple[Layer, ...]:
    return () if cell.path is None else cell.path.layers


def _reaching(
    observations: Observations,
    measure: MeasureKey,
    cells: Sequence[MeasuredCell],
    ceiling: MeasuredCell,
    least: float,
) -> dict[MeasuredCell, float]:
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

"""Loads that leave every disk idle: equal numbers then say nothing about the paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import CellSums
from vdisklab.units import in_percent

IDLE_BELOW = 0.5
"""A path that had a request in less than this share of the time was idle most of it."""


class LoadTooSmall(Diagnostic):
    """No path is shown to differ, and all of them were idle most of the time."""

    measurements: tuple[str, ...]
    busiest: Annotated[float, "the share of the time in which any path had a request, at most"]
    fixed: Annotated[bool, "true for a load that sends requests at a given rate"]

    def __str__(self) -> str:
        more = (
            "Raise --load"
            if self.fixed
            else "Ask for more requests at a time (iodepth, --clients), or more of the guest "
            "(--guest-cpus)"
        )
        return (
            "The load was too small to show a difference: every path had a request in at most "
            f"{in_percent(self.busiest)} of the time ({', '.join(self.measurements)}). {more}."
        )


def idle_diagnostics(
    sums: Iterable[CellSums],
    cells: Mapping[str, MeasuredCell],
    ranked: Collection[MeasuredCell],
    measurements: Collection[str],
    *,
    fixed: bool,
) -> Iterator[LoadTooSmall]:
    """One diagnostic if all ranked cells were idle most of the time in all these measurements.

    QEMU's times of its requests, added up, are at least the time in which it had any. Nothing is
    said if these times are unknown for a cell. `cells` are by fingerprint.
    """
    busy = {
        (cells[cell_sums.cell], cell_sums.measurement): cell_sums.busy_seconds / cell_sums.busy_of
        for cell_sums in sums
        if cell_sums.busy_seconds is not None and cell_sums.busy_of
    }
    wanted = [(cell, name) for cell in ranked for name in measurements]
    shares = [busy[key] for key in wanted if key in busy]
    if wanted and len(shares) == len(wanted) and max(shares) < IDLE_BELOW:
        yield LoadTooSmall(tuple(sorted(measurements)), max(shares), fixed)

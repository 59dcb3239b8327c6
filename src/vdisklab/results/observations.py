"""All samples of some campaigns as columns: what the analysis computes with.

A value per sample and dataclass would take gigabytes; here a sample costs 32 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Failure, Origin, Series

Codes = npt.NDArray[np.int32]
Wide = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunOutline:
    """A run, measured or failed, without its numbers: cheap to load for a whole campaign."""

    id: str
    campaign: str
    cell: str
    path: str
    page_cache: PageCache
    block: int
    position: int
    origin: Origin
    started: datetime
    accelerator: str | None
    medium: str | None
    failure: Failure | None
    wall_seconds: float | None

    @property
    def measured_cell(self) -> MeasuredCell:
        """Path and page-cache state as one value."""
        return MeasuredCell(self.path, self.page_cache)


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """One entry per sample of a measured run, in all arrays at the same index.

    `campaign`, `run`, `cell` and `measure` hold indices into the vocabularies of the plural
    name; `block` and `position` are the run's own numbers, from 1. Blocks of different
    campaigns are different blocks. A measure is spelled `measurement name/direction/metric`.
    """

    campaigns: tuple[str, ...]
    runs: tuple[str, ...]
    cells: tuple[str, ...]
    measures: tuple[str, ...]
    campaign: Codes
    run: Codes
    cell: Codes
    block: Codes
    position: Codes
    measure: Codes
    value: Values

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.value)


class _Codebook:
    """Numbers words in the order of their first appearance."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def encode(self, words: Iterable[Any]) -> Codes:
        codes = self._codes
        return np.fromiter((codes.setdefault(word, len(codes)) for word in words), np.int32)

    @property
    def words(self) -> tuple[Any, ...]:
        return tuple(self._codes)


def collect(
    runs: Sequence[Sequence[Any]],
    names: Sequence[str],
    measurements: Values,
    quantities: Sequence[tuple[str, str]],
    samples: Values,
) -> Observations:
    """The columns of runs, of their measurements, and of the samples of those.

    A run is `(key, id, campaign, cell, block, position)`; `measurements` has rows of a key, a
    place in `names` and the run's key; `samples` of a measurement's key, a place in `quantities`
    (direction and metric), and a value. All three are in ascending order of their keys, which
    are exact in a float up to 2**53.
    """
    run_keys, ids, campaigns, cells, blocks, positions = (
        zip(*runs, strict=True) if runs else ((),) * 6
    )
    books = {"campaign": _Codebook(), "cell": _Codebook()}
    inner = _owners(samples[:, 0], measurements[:, 0])
    outer = np.searchsorted(np.array(run_keys, np.float64), measurements[:, 2])[inner]
    measure, measures = _measures(
        measurements[inner, 1].astype(np.int64), names, samples[:, 1].astype(np.int64), quantities
    )
    return Observations(
        campaign=books["campaign"].encode(campaigns)[outer],
        run=outer.astype(np.int32),
        cell=books["cell"].encode(cells)[outer],
        block=np.array(blocks, np.int32)[outer],
        position=np.array(positions, np.int32)[outer],
        measure=measure,
        value=np.ascontiguousarray(samples[:, 2]),
        campaigns=books["campaign"].words,
        runs=tuple(ids),
        cells=books["cell"].words,
        measures=measures,
    )


def _owners(children: Values, parents: Values) -> npt.NDArray[np.intp]:
    """The place among the parents of each child; both ascend, and children stand in groups."""
    first = np.flatnonzero(np.diff(children, prepend=np.nan))
    sizes = np.diff(first, append=len(children))
    return np.repeat(np.searchsorted(parents, children[first]), sizes)


def _measures(
    name: Wide, names: Sequence[str], quantity: Wide, quantities: Sequence[tuple[str, str]]
) -> tuple[Codes, tuple[str, ...]]:
    """The measure of each sample as a code, and the vocabulary: only the pairs that occur."""
    width = max(len(quantities), 1)
    pair = name * width + quantity
    pairs = np.flatnonzero(np.bincount(pair))  # small numbers: no need to sort millions
    spelled = tuple(
        "/".join((names[pair // width], *quantities[pair % width])) for pair in pairs.tolist()
    )
    return np.searchsorted(pairs, pair).astype(np.int32), spelled


@dataclass(frozen=True, slots=True)
class CellTally:
    """What was counted over all runs of a cell in one measurement; None: nobody counted.

    `operations`, `flushes` and `asked_bytes` are QEMU's counts, or the program's own where there
    was no guest; `device_*` those of the host's device.
    """

    cell: str
    measurement: str
    operations: int | None
    flushes: int | None
    device_flushes: int | None
    asked_bytes: int | None
    device_bytes: int | None
    cpu_seconds: float | None


@dataclass(frozen=True, slots=True)
class Example:
    """One run of a cell, the newest measured, with what a person wants to see of it."""

    cell: str
    run: str
    block: int
    started: datetime
    accelerator: str | None
    medium: str | None
    commands: tuple[str, ...]
    checks: tuple[tuple[str, str | None, str], ...]
    measurements: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RunCourse:
    """How the bandwidth of one measurement of one run went; `cell` is the fingerprint."""

    campaign: str
    cell: str
    block: int
    measurement: str
    series: Series

"""What analysis works on: one number per cell, block and measure, as columns of numpy arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import METRICS, Better, Direction, Metric, Run

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

SCORE_METRICS: Mapping[str, Metric] = {
    name: Metric(name, "B/s", Better.HIGHER)
    for name in ("weighted_read", "weighted_write", "weighted_overall")
} | {"weighted_mix": Metric("weighted_mix", "1", Better.HIGHER)}
"""The scores of `analysis.score`: computed from measurements, then treated like any metric."""


@dataclass(frozen=True, slots=True, order=True)
class MeasureKey:
    """One quantity of one measurement in one direction: `randread-4k-q1/read/iops`."""

    name: str
    direction: Direction
    metric: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key that `str` spells. Raises PlanError for anything else."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not parts[0] or parts[1] not in set(Direction):
            raise PlanError(
                f"{text!r} is not a measure",
                hint="write MEASUREMENT/DIRECTION/METRIC, such as randread-4k-q1/read/iops",
            )
        return cls(parts[0], Direction(parts[1]), parts[2])

    @property
    def quantity(self) -> Metric:
        """Unit and good direction. Raises PlanError for a metric that this version lacks."""
        metric = METRICS.get(self.metric) or SCORE_METRICS.get(self.metric)
        if metric is None:
            raise PlanError(f"unknown metric {self.metric!r}", hint=f"known: {', '.join(METRICS)}")
        return metric

    def __str__(self) -> str:
        return f"{self.name}/{self.direction}/{self.metric}"


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Columns of equal length; the codes index the vocabularies. What is missing has no row.

    `blocks` are names that are unique over campaigns: block 1 of two campaigns is two blocks.
    Values are in the metric's SI unit.
    """

    cell: Codes
    block: Codes
    measure: Codes
    value: Floats
    cells: tuple[MeasuredCell, ...]
    blocks: tuple[str, ...]
    measures: tuple[MeasureKey, ...]
    place: Mapping[MeasuredCell, int] = field(init=False, repr=False)
    """Where each cell stands in `cells`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", {cell: at for at, cell in enumerate(self.cells)})
        if len({len(self.cell), len(self.block), len(self.measure), len(self.value)}) != 1:
            raise ValueError("the columns differ in length")

    def grid(self, measure: MeasureKey) -> Floats:
        """Values as cells x blocks, NaN where nothing was measured.

        Raises ValueError when a cell has two values in one block: the run is the unit of
        replication, and which of the two would win must not hang on the order of the rows.
        """
        shape = (len(self.cells), len(self.blocks))
        grid = np.full(shape, np.nan)
        if measure not in self.measures:
            return grid
        rows = np.flatnonzero(self.measure == self.measures.index(measure))
        place = self.cell[rows].astype(np.int64) * shape[1] + self.block[rows]
        if np.bincount(place, minlength=1).max(initial=0) > 1:
            raise ValueError(f"two values of {measure} for one cell in one block")
        grid.ravel()[place] = self.value[rows]
        return grid

    @property
    def used(self) -> tuple[MeasureKey, ...]:
        """The measures that have any value."""
        counts = np.bincount(self.measure, minlength=len(self.measures))
        return tuple(itertools.compress(self.measures, counts))

    def blocks_of(self) -> npt.NDArray[np.int64]:
        """In how many blocks each cell was measured at all."""
        pairs = np.unique(self.cell.astype(np.int64) * max(1, len(self.blocks)) + self.block)
        return np.bincount(pairs // max(1, len(self.blocks)), minlength=len(self.cells))


def observe(runs: Iterable[Run]) -> Observations:
    """The numbers of all runs that did not fail; of a repeated run, those of the later one.

    A failed run may carry samples of the measurements before the failure. They are left out:
    a cell whose state is in doubt has no numbers. Values that are not finite are left out too.
    """
    latest: dict[tuple[MeasuredCell, str, int], Run] = {}
    for run in runs:
        if run.failure is None:
            key = (run.measured_cell, run.campaign, run.block)
            known = latest.get(key)
            if known is None or (known.started, known.id) < (run.started, run.id):
                latest[key] = run
    numbers: dict[tuple[MeasuredCell, str, MeasureKey], float] = {}
    for (cell, campaign, block), run in latest.items():
        for measurement in run.measurements:
            for sample in measurement.samples:
                if math.isfinite(sample.value):
                    measure = MeasureKey(measurement.name, sample.direction, sample.metric)
                    numbers[cell, f"{campaign}/{block:04d}", measure] = sample.value
    return from_numbers(numbers)


def from_numbers(numbers: Mapping[tuple[MeasuredCell, str, MeasureKey], float]) -> Observations:
    """Observations of (cell, block name, measure) -> value, with sorted vocabularies."""
    cells = tuple(sorted({cell for cell, _, _ in numbers}))
    blocks = tuple(sorted({block for _, block, _ in numbers}))
    measures = tuple(sorted({measure for _, _, measure in numbers}))
    cell_code = {cell: code for code, cell in enumerate(cells)}
    block_code = {block: code for code, block in enumerate(blocks)}
    measure_code = {measure: code for code, measure in enumerate(measures)}
    return Observations(
        cell=np.array([cell_code[cell] for cell, _, _ in numbers], dtype=np.int32),
        block=np.array([block_code[block] for _, block, _ in numbers], dtype=np.int32),
        measure=np.array([measure_code[measure] for _, _, measure in numbers], dtype=np.int32),
        value=np.array(list(numbers.values()), dtype=np.float64),
        cells=cells,
        blocks=blocks,
        measures=measures,
    )


def narrowed(observations: Observations, cells: Iterable[MeasuredCell]) -> Observations:
    """The observations of some cells alone; names that were not measured are passed over."""
    wanted = set(cells)
    kept = [place for place, cell in enumerate(observations.cells) if cell in wanted]
    new = np.full(len(observations.cells), -1, dtype=np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    rows = new[observations.cell] >= 0
    return Observations(
        cell=new[observations.cell][rows],
        block=observations.block[rows],
        measure=observations.measure[rows],
        value=observations.value[rows],
        cells=tuple(observations.cells[place] for place in kept),
        blocks=observations.blocks,
        measures=observations.measures,
    )


class Columns(Protocol):
    """What `result.store` gives for some campaigns; block numbers start anew in each campaign."""

    @property
    def campaigns(self) -> tuple[str, ...]:
        """Ids that `campaign` indexes."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Fingerprints that `cell` indexes."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Spelled `measurement/direction/metric`; `measure` indexes them."""

    @property
    def campaign(self) -> Codes:
        """Codes of campaigns."""

    @property
    def cell(self) -> Codes:
        """Codes of cells."""

    @property
    def block(self) -> Codes:
        """Numbers from 1."""

    @property
    def measure(self) -> Codes:
        """Codes of measures."""

    @property
    def value(self) -> Floats:
        """Values in SI units."""


def from_columns(columns: Columns, cells: Mapping[str, MeasuredCell]) -> Observations:
    """The store's columns with sorted vocabularies; `cells` are by fingerprint.

    The order in which the database gave its
    rows leaves no trace.
    """
    measured = [cells[fingerprint] for fingerprint in columns.cells]
    keys = [MeasureKey.parse(measure) for measure in columns.measures]
    vocabulary, measures = tuple(sorted(set(measured))), tuple(sorted(set(keys)))
    place_of = {cell: place for place, cell in enumerate(vocabulary)}
    width = int(columns.block.max(initial=0)) + 1
    place = columns.campaign.astype(np.int64) * width + columns.block
    places = np.flatnonzero(np.bincount(place))  # small numbers: no need to sort millions
    blocks = (divmod(each, width) for each in places.tolist())
    finite = np.isfinite(columns.value)
    return Observations(
        cell=_recoded(columns.cell, [place_of[cell] for cell in measured])[finite],
        block=np.searchsorted(places, place[finite]).astype(np.int32),
        measure=_recoded(columns.measure, [measures.index(key) for key in keys])[finite],
        value=columns.value[finite],
        cells=vocabulary,
        blocks=tuple(f"{columns.campaigns[at]}/{number:04d}" for at, number in blocks),
        measures=measures,
    )


def _recoded(codes: Codes, new: list[int]) -> Codes:
    return np.array(new, dtype=np.int32)[codes] if new else codes


def logarithms(grid: Floats) -> Floats:
    """Natural logarithms; NaN for what is missing, and for zero, which has no ratio."""
    positive = np.isfinite(grid) & (grid > 0)
    return np.log(np.where(positive, grid, 1.0)) + np.where(positive, 0.0, np.nan)

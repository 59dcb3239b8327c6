"""The input of all analysis: one number per cell, round and measure, as columns in numpy arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vdisklab.as_text import AsText
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import (
    METRICS,
    Better,
    Direction,
    FailureKind,
    Metric,
    Run,
    RunOutline,
)
from vdisklab.value import Value, field, replace

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

SCORE_METRICS: Mapping[str, Metric] = {
    name: Metric(name, "B/s", Better.HIGHER)
    for name in ("weighted_read", "weighted_write", "weighted_overall")
} | {
    "weighted_mix": Metric("weighted_mix", "1", Better.HIGHER),
    **{
        name: Metric(name, "1", Better.HIGHER)
        for name in ("read_ratio", "write_ratio", "overall_ratio")
    },
    # The kernel counts CPU time in nanoseconds, but no operation takes less than this.
    "cpu_per_operation": Metric("cpu_per_operation", "s", Better.LOWER, step=1e-7),
}
"""Computed from measurements (`analysis.score`, `analysis.pareto`), then used like any metric."""


POSITIVE = Metric("", "1", Better.HIGHER)
"""A quantity that is above zero."""

SMALLEST = 1e-6
"""The value that a zero counts as for a metric without a step: less than any program measures."""


class MeasureKey(AsText, Value, order=True):
    """One quantity of one measurement in one direction: `randread-4k-q1/read/iops`."""

    name: str
    direction: Direction
    metric: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key from its text, the inverse of `str`. Raises PlanError for any other text."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not parts[0] or parts[1] not in set(Direction):
            raise PlanError(
                f"{text!r} is not a measure",
                hint="write MEASUREMENT/DIRECTION/METRIC, such as randread-4k-q1/read/iops",
            )
        return cls(parts[0], Direction(parts[1]), parts[2])

    @property
    def quantity(self) -> Metric:
        """Unit, and which way is better. Raises PlanError for a metric unknown to this version."""
        metric = METRICS.get(self.metric) or SCORE_METRICS.get(self.metric)
        if metric is None:
            raise PlanError(f"unknown metric {self.metric!r}", hint=f"known: {', '.join(METRICS)}")
        return metric

    def __str__(self) -> str:
        return f"{self.name}/{self.direction}/{self.metric}"


class Round(NamedTuple):
    """One round of one campaign, by its number from 1."""

    campaign: str
    number: int


class Observations(Value, eq=False, dict=True):
    """Columns of equal length; the codes index the vocabularies. A missing value has no row."""

    cell: Codes
    round: Codes
    measure: Codes
    value: Floats
    """In the metric's SI unit."""
    cells: tuple[MeasuredCell, ...]
    rounds: tuple[Round, ...]
    """Those of each campaign in the order of measurement."""
    measures: tuple[MeasureKey, ...]
    too_slow: tuple[tuple[MeasuredCell, Round], ...] = ()
    """The cells whose measurement did not end in time in a round: their values are unknown, but
    worse than those of the cells that ended.
    """
    parts: Mapping[MeasureKey, Mapping[MeasureKey, float]] = field(default_factory=dict)
    """For each computed measure the measures that it was made from, with their weights (of
    logarithms).
    """

    def __post_init__(self) -> None:
        if len({len(self.cell), len(self.round), len(self.measure), len(self.value)}) != 1:
            raise ValueError("the columns differ in length")

    @cached_property
    def place(self) -> Mapping[MeasuredCell, int]:
        """The index of each cell in `cells`."""
        return {cell: row for row, cell in enumerate(self.cells)}

    def grid(self, measure: MeasureKey) -> Floats:
        """Values as cells x rounds, NaN where nothing was measured.

        Raises ValueError when a cell has two values in one round: a round has one run of each
        cell, and the result must not depend on the order of the rows.
        """
        shape = (len(self.cells), len(self.rounds))
        grid = np.full(shape, np.nan)
        if measure not in self.measures:
            return grid
        rows = np.flatnonzero(self.measure == self.measures.index(measure))
        place = self.cell[rows].astype(np.int64) * shape[1] + self.round[rows]
        if np.bincount(place, minlength=1).max(initial=0) > 1:
            raise DatabaseError(
                f"the database is damaged: it has two values of {measure} for one cell in a round",
                hint="restore the database, or measure again into another one with --db",
            )
        grid.ravel()[place] = self.value[rows]
        return grid

    def stored_as(self, measure: MeasureKey) -> MeasureKey:
        """The measure under which these observations hold it.

        A stall is stored without a direction if a counter saw it, and with one if fio's log did.
        """
        if measure in self.measures:
            return measure
        without = replace(measure, direction=Direction.NONE)
        return without if without in self.measures else measure

    def logs(self, measure: MeasureKey) -> Floats:
        """The logarithms of `grid` that comparisons of this measure use."""
        return logarithms(self.grid(measure), measure.quantity)

    def resolution(self, measure: MeasureKey) -> Floats:
        """How far a true value may lie from a measured one, by cell, as a difference of logarithms.

        The distance is half of the metric's step, and the metric's rounding; 0 without both. A
        computed measure has the weighted sum of its parts' distances, for a score an estimate.
        """
        parts = self.parts.get(measure)
        if parts is None:
            return resolution_of(self.grid(measure), measure.quantity)
        zero = np.zeros(len(self.cells))
        return sum((weight * self.resolution(part) for part, weight in parts.items()), zero)

    def ranked_logs(self, measure: MeasureKey) -> Floats:
        """The logarithms for ranks: a cell that was too slow has its round's worst value, and a
        rate of zero has half of its round's lowest other rate.

        The true value of the former is censored: it is worse than all that ended in time. The worst
        measured value is the mildest number that says so; a missing value would say nothing. A zero
        is worse than the other rates, but its logarithm would swamp all other noise.
        """
        logs = self.logs(measure)
        higher = measure.quantity.better is Better.HIGHER
        worst = np.nanmin if higher else np.nanmax
        measured = np.isfinite(logs)
        if higher and measure.quantity.step is None and (logs <= math.log(SMALLEST)).any():
            zero = measured & (logs <= math.log(SMALLEST))
            lowest = np.where(measured & ~zero, logs, np.inf).min(axis=0)
            stands_for = np.where(np.isfinite(lowest), lowest - math.log(2), math.log(SMALLEST))
            logs = np.where(zero, stands_for, logs)
        column_of = {round: column for column, round in enumerate(self.rounds)}
        for cell, round in self.too_slow:
            row, column = self.place.get(cell), column_of.get(round)
            if row is None or column is None or not measured[:, column].any():
                continue
            if not measured[row, column]:
                logs[row, column] = worst(logs[measured[:, column], column])
        return logs

    @property
    def used(self) -> tuple[MeasureKey, ...]:
        """The measures that have any value."""
        counts = np.bincount(self.measure, minlength=len(self.measures))
        return tuple(itertools.compress(self.measures, counts))

    def rounds_of(self) -> npt.NDArray[np.int64]:
        """The number of rounds with any value of each cell."""
        rounds = max(1, len(self.rounds))
        pairs = self.cell.astype(np.int64) * rounds + self.round
        values = np.bincount(pairs, minlength=len(self.cells) * rounds)
        return np.asarray(np.count_nonzero(values.reshape(len(self.cells), rounds), axis=1))


def different(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The different values, ascending.

    numpy.unique does the same, and imports numpy.ma for it: a fiftieth of the start of `rank`.
    """
    ordered = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[is_new])


def median(values: npt.ArrayLike) -> float:
    """The median; NaN without values, or if any is NaN.

    numpy.median imports numpy.ma, as numpy.unique does.
    """
    ordered = np.sort(np.asarray(values, float), axis=None)  # NaN last
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    any_missing = len(ordered) == 0 or np.isnan(ordered[-1])
    return math.nan if any_missing else float(middle.mean())


def medians(grid: Floats) -> Floats:
    """The median of each row without its NaN; NaN for a row that has nothing else.

    Ten times as fast as numpy.nanmedian, which imports numpy.ma, too.
    """
    ordered = np.sort(grid, axis=1)  # NaN last
    rows, counts = np.arange(len(grid)), np.count_nonzero(~np.isnan(grid), axis=1)
    below, above = ordered[rows, (counts - 1) // 2], ordered[rows, counts // 2 - (counts == 0)]
    return np.asarray((below + above) / 2)


def observe(runs: Iterable[Run]) -> Observations:
    """The numbers of all successful runs; of a repeated run only the later one's.

    A failed run may have samples from before the failure. They are left out, because the state
    of that cell is unknown. Values that are not finite are left out too.
    """
    latest: dict[tuple[MeasuredCell, Round], Run] = {}
    for run in runs:
        if run.failure is None:
            key = (run.measured_cell, Round(run.campaign, run.round))
            earlier = latest.get(key)
            if earlier is None or (earlier.started, earlier.id) < (run.started, run.id):
                latest[key] = run
    numbers: dict[tuple[MeasuredCell, Round, MeasureKey], float] = {}
    for (cell, round), run in latest.items():
        for measurement in run.measurements:
            for sample in measurement.samples:
                if math.isfinite(sample.value):
                    measure = MeasureKey(measurement.name, sample.direction, sample.metric)
                    numbers[cell, round, measure] = sample.value
    return from_numbers(numbers)


def from_numbers(numbers: Mapping[tuple[MeasuredCell, Round, MeasureKey], float]) -> Observations:
    """Observations of (cell, round, measure) -> value, with sorted vocabularies."""
    cells = tuple(sorted({cell for cell, _, _ in numbers}))
    rounds = tuple(sorted({round for _, round, _ in numbers}))
    measures = tuple(sorted({measure for _, _, measure in numbers}))
    cell_code = {cell: code for code, cell in enumerate(cells)}
    round_code = {round: code for code, round in enumerate(rounds)}
    measure_code = {measure: code for code, measure in enumerate(measures)}
    return Observations(
        cell=np.array([cell_code[cell] for cell, _, _ in numbers], dtype=np.int32),
        round=np.array([round_code[round] for _, round, _ in numbers], dtype=np.int32),
        measure=np.array([measure_code[measure] for _, _, measure in numbers], dtype=np.int32),
        value=np.array(list(numbers.values()), dtype=np.float64),
        cells=cells,
        rounds=rounds,
        measures=measures,
    )


def narrowed(observations: Observations, cells: Iterable[MeasuredCell]) -> Observations:
    """Only the observations of these cells; cells that were not measured are ignored."""
    wanted = set(cells)
    places = [place for place, cell in enumerate(observations.cells) if cell in wanted]
    new = np.full(len(observations.cells), -1, dtype=np.int32)
    new[places] = np.arange(len(places), dtype=np.int32)
    cell = new[observations.cell]
    rows = cell >= 0
    return replace(
        observations,
        cell=cell[rows],
        round=observations.round[rows],
        measure=observations.measure[rows],
        value=observations.value[rows],
        cells=tuple(observations.cells[place] for place in places),
    )


def with_grid(
    observations: Observations,
    key: MeasureKey,
    grid: Floats,
    parts: Mapping[MeasureKey, float] | None = None,
) -> Observations:
    """The observations with one more measure, given as cells x rounds, and its parts if any."""
    rows, columns = np.nonzero(np.isfinite(grid))
    code = np.full(len(rows), len(observations.measures), dtype=np.int32)
    return replace(
        observations,
        cell=np.concatenate([observations.cell, rows.astype(np.int32)]),
        round=np.concatenate([observations.round, columns.astype(np.int32)]),
        measure=np.concatenate([observations.measure, code]),
        value=np.concatenate([observations.value, grid[rows, columns]]),
        measures=(*observations.measures, key),
        parts={**observations.parts, **({} if parts is None else {key: parts})},
    )


def cells_too_slow(runs: Iterable[RunOutline]) -> set[tuple[MeasuredCell, Round]]:
    """The cells and rounds whose measurement never ended in time, not even when repeated."""
    runs = tuple(runs)
    measured = {
        (run.measured_cell, Round(run.campaign, run.round)) for run in runs if run.failure is None
    }
    slow = {
        (run.measured_cell, Round(run.campaign, run.round))
        for run in runs
        if run.failure is not None and run.failure.kind is FailureKind.TOO_SLOW
    }
    return slow - measured


def with_too_slow(
    observations: Observations, too_slow: Iterable[tuple[MeasuredCell, Round]]
) -> Observations:
    """The observations with cells that were too slow in some rounds, perhaps in all of them."""
    slow_cells = tuple(sorted(set(too_slow)))
    cells = tuple(sorted({*observations.cells, *(cell for cell, _ in slow_cells)}))
    row_of = {cell: row for row, cell in enumerate(cells)}
    new = np.array([row_of[cell] for cell in observations.cells], dtype=np.int32)
    return replace(observations, cell=new[observations.cell], cells=cells, too_slow=slow_cells)


@np.errstate(invalid="raise")  # a damaged database's keys: an error, not a warning
def collect(
    runs: Sequence[Sequence[Any]],
    names: Sequence[str],
    measurements: Floats,
    quantities: Sequence[tuple[str, str]],
    samples: Floats,
) -> Observations:
    """Observations from database rows; the result does not depend on the order of the runs.

    A run is `(key, campaign, path, page-cache state, round)`. A row of `measurements` has a key, an
    index into `names` and the run's key; a row of `samples` has a measurement's key, an index into
    `quantities` (direction and metric), and a value. All three ascend by their keys, which are
    exact in a float up to 2**53, and finite values. A sample takes 20 bytes.
    """
    run_keys, campaign_of, paths, states, round_numbers = (
        zip(*runs, strict=True) if runs else ((),) * 5
    )
    cells_of_runs = [
        MeasuredCell(path, PageCache(state)) for path, state in zip(paths, states, strict=True)
    ]
    cells = tuple(sorted(set(cells_of_runs)))
    row_of = {cell: row for row, cell in enumerate(cells)}
    campaigns = tuple(dict.fromkeys(campaign_of))
    inner = _owners(samples[:, 0], measurements[:, 0])
    outer = np.searchsorted(np.array(run_keys, np.float64), measurements[:, 2])[inner]
    measure, measures = _measures(
        measurements[inner, 1].astype(np.int64), names, samples[:, 1].astype(np.int64), quantities
    )
    width = max(round_numbers, default=0) + 1
    place_of = {campaign: place * width for place, campaign in enumerate(campaigns)}
    places = np.array(
        [
            place_of[campaign] + round
            for campaign, round in zip(campaign_of, round_numbers, strict=True)
        ],
        np.int64,
    )[outer]
    used = np.flatnonzero(np.bincount(places))  # faster than sorting millions
    return Observations(
        cell=np.array([row_of[cell] for cell in cells_of_runs], np.int32)[outer],
        round=np.searchsorted(used, places).astype(np.int32),
        measure=measure,
        value=np.ascontiguousarray(samples[:, 2]),
        cells=cells,
        rounds=tuple(
            Round(campaigns[place], number)
            for place, number in (divmod(code, width) for code in used.tolist())
        ),
        measures=measures,
    )


def _owners(children: Floats, parents: Floats) -> npt.NDArray[np.intp]:
    """The index of each child's parent among the parents; both ascend, siblings are adjacent."""
    first = np.flatnonzero(np.diff(children, prepend=np.nan))
    sizes = np.diff(first, append=len(children))
    return np.repeat(np.searchsorted(parents, children[first]), sizes)


def _measures(
    name: npt.NDArray[np.int64],
    names: Sequence[str],
    quantity: npt.NDArray[np.int64],
    quantities: Sequence[tuple[str, str]],
) -> tuple[Codes, tuple[MeasureKey, ...]]:
    """The measure of each sample as a code, and the sorted list of measures that occur."""
    width = max(len(quantities), 1)
    pair = name * width + quantity
    pairs = np.flatnonzero(np.bincount(pair))
    keys = [
        MeasureKey(names[code // width], Direction(direction), metric)
        for code in pairs.tolist()
        for direction, metric in [quantities[code % width]]
    ]
    measures = tuple(sorted(set(keys)))
    new = np.array([measures.index(key) for key in keys], dtype=np.int32)
    codes = np.searchsorted(pairs, pair)
    return (new[codes] if keys else codes.astype(np.int32)), measures


def logarithms(grid: Floats, quantity: Metric = POSITIVE) -> Floats:
    """Natural logarithms of values; NaN for missing ones only, because a zero is a measured value.

    Values of a metric with a step become log(value + step), so differences of logarithms are ratios
    of value + step. Other metrics are zero only if nothing was done at all (0 IOPS) or below the
    program's resolution; such a value counts as SMALLEST.
    """
    observed = np.isfinite(grid)
    if quantity.step is None:
        return np.log(np.where(observed, np.maximum(grid, SMALLEST), np.nan))
    return np.log(np.where(observed, np.maximum(grid, 0.0) + quantity.step, np.nan))


def resolution_of(grid: Floats, quantity: Metric) -> Floats:
    """`Observations.resolution` for each row of a grid; 0 without values."""
    observed = np.isfinite(grid)
    rounded = np.where(observed.any(axis=1), math.log1p(quantity.rounding), 0.0)
    if quantity.step is None:
        return rounded
    value = np.where(observed, np.maximum(grid, 0.0), 0.0) + quantity.step
    half = quantity.step / 2
    error = np.maximum(
        np.log1p(half / value),
        # No true value is below zero.
        np.log(value / np.maximum(value - half, quantity.step)),
    )
    return np.asarray(
        rounded + (error * observed).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
    )

"""The cells that no other cell beats in all of several measures at once, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.additive import LEAST_ROUNDS, fit, usable
from vdisklab.analysis.best import CHALLENGERS, ahead, competitors, critical
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    Round,
    narrowed,
    with_grid,
)
from vdisklab.analysis.pair_noise import PairNoise, pair_noise
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better, Direction, RunSums
from vdisklab.value import Value

CPU = MeasureKey("host", Direction.NONE, "cpu_per_operation")


class Standing(StrEnum):
    """Where a cell stands among the others."""

    FRONT = "front"  # by its means, no other beats it in all measures
    MAY_BE = "may-be"  # by its means another does, but the tests do not show it in all
    BEATEN = "beaten"  # another is shown to beat it in all measures


class ShareOfBest(Value):
    """A cell's mean as a share of the best cell's, with its 95 % interval.

    A zero of a quantity without a step makes the share unknown (None), as in a `Ratio`; there
    is no interval then.
    """

    share: Annotated[float | None, "null if a zero makes it unknown"] = None
    low: Annotated[float | None, "null with a zero rate"] = None
    high: float | None = None


class Placed(Value):
    """One cell and its standing; `by` is a cell that beats it, and each measure has its share."""

    cell: MeasuredCell
    standing: Standing
    by: MeasuredCell | None
    shares: tuple[ShareOfBest, ...]


class Front(Value):
    """The cells by their standing. `left_out` lack a measure in three rounds.

    With confidence 1 - `alpha`, no cell is called beaten that truly is not.
    """

    measures: tuple[MeasureKey, ...]
    alpha: float
    cells: tuple[Placed, ...]
    left_out: tuple[MeasuredCell, ...]


def pareto_front(
    observations: Observations, measures: Sequence[MeasureKey], alpha: float = 0.05
) -> Front:
    """The standing of the competitors that have all measures in three rounds.

    One cell beats another in all measures only if it does in each, so each is tested at the full
    level (intersection-union test: Berger, Technometrics 24, 1982), corrected for the number of
    other cells as in `best`.
    """
    wanted = [observations.cells[place] for place in competitors(observations.cells)]
    part = narrowed(observations, wanted)
    complete = set(part.cells)
    for measure in measures:
        chosen = usable(part.ranked_logs(measure), LEAST_ROUNDS)
        complete &= {part.cells[row] for row in chosen.rows}
    left_out = tuple(cell for cell in part.cells if cell not in complete)
    part = narrowed(part, complete)
    if not complete:
        return Front(tuple(measures), alpha, (), left_out)
    goodness, noises, columns = [], [], []
    for measure in measures:
        logs = part.ranked_logs(measure)
        measured = logs == part.logs(measure)
        model = fit(logs, usable(logs, LEAST_ROUNDS), part.resolution(measure), measured)
        sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
        goodness.append(sign * np.round(model.effect, 12))
        noises.append(pair_noise(model, np.arange(len(part.cells))))
        columns.append(_shares(part, measure, goodness[-1], noises[-1], alpha))
    values = np.array(goodness)
    front = _unbeaten(values)
    # Whatever is beaten is beaten by a cell of the front.
    challengers = front[:CHALLENGERS]
    ahead = np.array([np.all(values[:, [place]] > values, axis=0) for place in challengers])
    shown = ahead & _shown(noises, values, challengers, alpha)
    cells = []
    for place, cell in enumerate(part.cells):
        by = shown[:, place] if shown[:, place].any() else ahead[:, place]
        if place in set(front.tolist()) or not by.any():
            standing = Standing.FRONT
        else:
            standing = Standing.BEATEN if shown[:, place].any() else Standing.MAY_BE
        rival = (
            part.cells[challengers[int(by.argmax())]] if standing is not Standing.FRONT else None
        )
        shares = tuple(column[place] for column in columns)
        cells.append(Placed(cell, standing, rival, shares))
    order = list(Standing)
    cells.sort(
        key=lambda placed: (
            order.index(placed.standing),
            -sum(share.share or 0.0 for share in placed.shares),
            placed.cell,
        )
    )
    return Front(tuple(measures), alpha, tuple(cells), left_out)


def _unbeaten(values: Floats) -> npt.NDArray[np.intp]:
    """The places that no other beats in all rows; those with the best sums first."""
    order = np.argsort(-values.sum(axis=0), kind="stable")
    front: list[int] = []
    for place in order.tolist():
        # A cell that beats another in all rows has the larger sum, so it came first.
        if not front or not np.all(values[:, front] > values[:, [place]], axis=0).any():
            front.append(place)
    return np.array(front, dtype=np.intp)


def _shares(
    observations: Observations,
    measure: MeasureKey,
    goodness: Floats,
    noise: PairNoise,
    alpha: float,
) -> list[ShareOfBest]:
    """Each cell's share of the best one, and the interval of that share."""
    cells = np.arange(len(goodness))
    best = int(goodness.argmax())
    error, freedom = noise.between(np.full_like(cells, best), cells)
    # The data chose the best one, so the limits hold for all cells at once (Dunnett, two-sided).
    limits = [critical(alpha / 2, max(1, len(cells) - 1), int(of), noise.rounds) for of in freedom]
    reach = np.array(limits) * error + noise.rounded(np.full_like(cells, best), cells)
    reach[best] = 0.0
    share = goodness - goodness[best]
    with np.errstate(over="ignore", under="ignore"):
        columns = np.exp([share, share - reach, share + reach]).T.tolist()
    measured = np.asarray(np.isfinite(observations.grid(measure)).any(axis=1))
    zero = np.zeros(len(cells), dtype=np.bool_)
    if measure.quantity.step is None:
        zero = (observations.grid(measure) == 0).any(axis=1)
    answer: list[ShareOfBest] = []
    for place, (of_best, low, high) in enumerate(columns):
        has_zero = place != best and (zero[place] or zero[best])
        unknown = has_zero or not measured[place]
        answer.append(ShareOfBest() if unknown else ShareOfBest(of_best, low, high))
    return answer


def _shown(
    noises: Sequence[PairNoise], values: Floats, challengers: npt.NDArray[np.intp], alpha: float
) -> npt.NDArray[np.bool_]:
    """By challenger and cell, whether the challenger is shown to be better in every measure."""
    count = values.shape[1]
    shown = np.ones((len(challengers), count), dtype=np.bool_)
    if count < 2:
        return ~shown
    for row, noise in enumerate(noises):
        shown &= ahead(values[row], noise, challengers, alpha)
    return shown


def add_metric_mean(observations: Observations, metric: str) -> tuple[Observations, MeasureKey]:
    """Adds the geometric mean of all measures of a metric, in the rounds that have all of them.

    The mean is zero if one of them is, unless the metric has a step.
    """
    parts = [measure for measure in observations.measures if measure.metric == metric]
    key = MeasureKey("mean", Direction.NONE, metric)
    logs = sum(observations.logs(measure) for measure in parts) / max(1, len(parts))
    grid = np.exp(np.asarray(logs)) - (key.quantity.step or 0.0)
    if key.quantity.step is None:
        for part in parts:
            grid[np.isfinite(grid) & (observations.grid(part) == 0)] = 0.0
    return with_grid(observations, key, grid, dict.fromkeys(parts, 1 / max(1, len(parts)))), key


def add_cpu(
    observations: Observations, runs: Iterable[RunSums], cells: Mapping[str, MeasuredCell]
) -> Observations:
    """Adds the host's CPU seconds per operation of each run; `cells` are by fingerprint."""
    grid = np.full((len(observations.cells), len(observations.rounds)), np.nan)
    column_of: Mapping[Round, int] = {
        round: column for column, round in enumerate(observations.rounds)
    }
    for run in runs:
        row = observations.place.get(cells[run.cell])
        column = column_of.get(Round(run.campaign, run.round))
        if run.operations and row is not None and column is not None:
            grid[row, column] = run.cpu_seconds / run.operations
    return with_grid(observations, CPU, grid)

"""Finds the best path with few runs: which cells to measure next, and when to stop.

The first round is a balanced fraction of the cells. After each round the model of `path_model`
says how probable it is that the leader is the best within the margin; if that is not enough, the
next round measures the leader and the cells that were best in random draws of the model (Thompson
sampling: Russo et al., A Tutorial on Thompson Sampling, 2018; the leader is always among them as
in Russo's top-two sampling, Operations Research 68, 2020). At the end the leader and its rivals are
measured in three rounds, and compared without the model.

Pure: values in, the next cells out. The same values give the same answer, so an interrupted search
continues from the database.

Matrices are cells x rounds of logarithms, negated for latencies so that more is better; NaN where
nothing was measured. Cells are named by their rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vdisklab.analysis.additive import fit, usable
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.path_model import PathModel, Runs
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.factors import Levels
from vdisklab.results.model import Better

DRAWS = 400
"""Number of draws from the model; with it a probability of 95 % has a standard error of 1 %."""

RIVALS = 3
"""Maximum number of cells that are compared with the leader at the end."""

RIVAL_CHANCE = 0.005
"""A cell is a rival if it is better by more than the margin with this probability."""

PER_PARAMETER = 2
"""Runs of the first round for each level of a factor that the model has to estimate."""

SMALLEST_ROUND = 6
GROWTH = 6
"""A round after the first has SMALLEST_ROUND cells, or 1/GROWTH of the runs so far if more."""

HOPELESS = 100.0
"""Values that are worse than the best by this factor or more count as equally bad."""

ATTEMPTS = 3
"""Number of failed cells of a level after which its other cells are not tried."""


class Ended(StrEnum):
    """The reason why a search has ended."""

    FOUND = "found"  # probably the best, and no rival is shown to be better in three rounds
    OUT_OF_BUDGET = "out-of-budget"
    OUT_OF_ROUNDS = "out-of-rounds"


@dataclass(frozen=True, slots=True)
class Rules:
    """`margin` is a share (0.03): a cell worse than the best by no more than this is good enough.

    `alpha` is the accepted probability of an answer that is worse than that. With `every_cell` no
    cell is left unmeasured: the model cannot foresee a cell that is better than its segments
    suggest.
    """

    margin: float = 0.03
    alpha: float = 0.05
    every_cell: bool = False


@dataclass(frozen=True, slots=True)
class LeaderComparison:
    """The leader compared with its rivals in at least three rounds each, without the model.

    Rivals are shown to be `worse`, may be better by no more than the margin (`near`), or
    `undecided`: better by up to the share `gap`, 0 without undecided rivals. `contradicts` is True
    if a rival is shown to be better.
    """

    worse: tuple[int, ...]
    near: tuple[int, ...]
    undecided: tuple[int, ...]
    gap: float
    contradicts: bool


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state after some rounds. `leader`, `rivals` and `challengers` are rows.

    `probability`: no cell is better than the leader by more than the margin. `rivals` are the cells
    that most probably are. `challengers` are the cells to measure next, if the search goes on.
    `unmeasured` are the cells that the rules still require once. `lacking` is the number of runs
    until the comparison of leader and rivals.
    """

    leader: int
    probability: float
    rivals: tuple[int, ...]
    challengers: tuple[int, ...]
    unmeasured: tuple[int, ...]
    lacking: int
    comparison: LeaderComparison | None
    alpha: float

    @property
    def probable(self) -> bool:
        """True if the leader is probably good enough."""
        return self.probability >= 1 - self.alpha

    @property
    def ended(self) -> bool:
        """True if nothing is left to measure."""
        agreed = self.comparison is not None and not self.comparison.contradicts
        return not self.rivals or (self.probable and agreed and not self.unmeasured)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search.

    With `probability` no path is better than `best` by more than `margin`. `best` was then compared
    with `rivals` other cells without the model (0 if there were too few rounds): those in `as_good`
    are better by at most `margin`, those in `undecided` may be better by up to `gap`. Of the
    `cells` that compete, `measured` have numbers and `failed` were given up. `step` is the metric's
    step if the margin is that step. `predicted` is True if `best` was not measured itself.
    """

    best: MeasuredCell
    probability: float
    rivals: int
    as_good: tuple[MeasuredCell, ...]
    undecided: tuple[MeasuredCell, ...]
    gap: float
    ended: Ended
    rounds: int
    margin: float
    cells: int
    measured: int
    failed: int
    step: float | None = None
    predicted: bool = False

    @property
    def alone(self) -> bool:
        """True if the search came to its end, and all rivals are shown to be worse."""
        return self.ended is Ended.FOUND and not self.as_good and not self.undecided


def first_cells(levels: Levels, affordable: float) -> tuple[int, ...]:
    """The cells of the first round: each level of each factor about equally often.

    PER_PARAMETER for each parameter of the factors, but at most half of the `affordable` runs,
    and at least two; none if not even these are affordable.
    """
    if affordable < min(2, len(levels)):
        return ()
    cells, factors = levels.shape
    sizes = levels.max(axis=0, initial=0) + 1
    wanted = min(PER_PARAMETER * (1 + int((sizes - 1).sum())), affordable / 2)
    order = np.random.default_rng(0).permutation(cells)
    cost = np.zeros(cells)
    chosen: list[int] = []
    while len(chosen) < min(max(2, int(wanted)), cells):
        row = int(order[np.argmin(cost[order])])
        chosen.append(row)
        cost[row] = math.inf
        for factor in range(factors):
            cost[levels[:, factor] == levels[row, factor]] += sizes[factor]
    return tuple(chosen)


def search_state(
    model: PathModel, logs: Floats, rules: Rules, failed: Collection[int] = ()
) -> SearchState:
    """The state after the measured rounds. `failed` cells cannot be the answer.

    Raises ValueError when nothing was measured.
    """
    runs = Runs.of(logs)
    if not len(runs.value):
        raise ValueError("no round has been measured yet")
    draws = model.draws(runs, DRAWS, np.random.default_rng(len(runs.value)))
    draws[list(failed)] = -math.inf
    margin = math.log1p(rules.margin)
    leader = int(np.argmax(draws.mean(axis=1)))
    better = (draws > draws[leader] + margin).mean(axis=1)
    order = np.lexsort((-draws.mean(axis=1), -better)).tolist()
    competing = [row for row in order if row != leader and row not in failed]
    rivals = [row for row in competing[:RIVALS] if better[row] >= RIVAL_CHANCE] or competing[:1]
    winners = dict.fromkeys(draws.argmax(axis=0).tolist())
    first = max(SMALLEST_ROUND, len(winners), int((better > 0).sum()))
    counts = np.isfinite(logs).sum(axis=1)
    lacking = np.maximum(0, MIN_ROUNDS - counts[[leader, *rivals]])
    unmeasured = (row for row in competing if not counts[row]) if rules.every_cell else ()
    return SearchState(
        leader=leader,
        probability=float((draws.max(axis=0) <= draws[leader] + margin).mean()),
        rivals=tuple(rivals),
        challengers=tuple(
            row for row in list(dict.fromkeys([*winners, *competing]))[:first] if row != leader
        ),
        unmeasured=tuple(unmeasured),
        lacking=int(lacking.max()) * (1 + len(rivals)),
        comparison=None if lacking.any() else compare(logs, leader, rivals, rules),
        alpha=rules.alpha,
    )


def compare(
    logs: Floats, leader: int, rivals: Collection[int], rules: Rules
) -> LeaderComparison | None:
    """The leader against each rival by t-tests at the level alpha, divided by their number.

    None if they have too few rounds in common with others.
    """
    chosen = usable(logs)
    place = {row: at for at, row in enumerate(chosen.rows.tolist())}
    if not {leader, *rivals} <= place.keys():
        return None
    estimate = fit(logs, chosen)
    first = place[leader]
    may: dict[int, float] = {}
    contradicts = False
    for row in rivals:
        at = place[row]
        limit = t_isf(rules.alpha / len(rivals), min(estimate.freedom[first], estimate.freedom[at]))
        lead = estimate.effect[at] - estimate.effect[first]
        reach = limit * np.hypot(estimate.error[first], estimate.error[at])
        may[row] = float(lead + reach)
        contradicts |= bool(lead > reach)
    margin = math.log1p(rules.margin)
    undecided = tuple(row for row in rivals if may[row] > margin)
    return LeaderComparison(
        worse=tuple(row for row in rivals if may[row] < 0),
        near=tuple(row for row in rivals if 0 <= may[row] <= margin),
        undecided=undecided,
        gap=math.expm1(max((may[row] for row in undecided), default=0.0)),
        contradicts=contradicts,
    )


def next_cells(state: SearchState, runs: int, affordable: float) -> tuple[int, ...]:
    """The cells of the next round after `runs` runs; none when the search is over.

    They are the leader and the cells that may be the best; once the leader is probably good enough,
    the leader and the cells that must still be measured; at the end, or when the `affordable` runs
    suffice for nothing else, leader and rivals.
    """
    if state.ended or affordable < 2:
        return ()
    finalists = (state.leader, *state.rivals)
    spare = affordable - state.lacking
    if spare < 2 or (state.probable and not state.unmeasured):
        return finalists[: int(min(affordable, len(finalists)))]
    if state.probable:
        return (state.leader, *state.unmeasured[: int(min(spare - 1, len(state.unmeasured)))])
    size = int(min(max(SMALLEST_ROUND, runs // GROWTH), spare))
    return (state.leader, *state.challengers[: size - 1])


def given_up(levels: Levels, tried: Collection[int], failed: Collection[int]) -> frozenset[int]:
    """The `failed` cells, and all cells with a level whose tried cells all failed.

    A level is given up after ATTEMPTS cells. `failed` is a subset of `tried`.
    """
    out = set(failed)
    worked = sorted(set(tried) - out)
    for column in levels.T:
        lost = np.bincount(column[sorted(failed)], minlength=int(column.max()) + 1) >= ATTEMPTS
        lost[column[worked]] = False
        out |= set(np.flatnonzero(lost[column]).tolist())
    return frozenset(out)


def goodness(observations: Observations, measure: MeasureKey) -> Floats:
    """Logarithms in which more is better, cells x rounds.

    Values that are HOPELESS times as bad as the best are set to that: how bad they are does not
    matter, and a cell that did nothing at all would be infinitely bad.
    """
    logs = observations.logs(measure)
    signed: Floats = logs if measure.quantity.better is Better.HIGHER else -logs
    return np.maximum(signed, np.nanmax(signed, initial=-math.inf) - math.log(HOPELESS))


def margin_with_resolution(margin: float, logs: Floats, resolution: Floats) -> float:
    """The margin, or twice the `resolution` of the best cell's values if that is more.

    Smaller differences, such as one step of the metric, cannot be told apart. `logs` are those of
    `goodness`; both have a row for each cell.
    """
    measured = np.flatnonzero(np.isfinite(logs).any(axis=1))
    if not len(measured):
        return margin
    best = measured[np.nanmean(logs[measured], axis=1).argmax()]
    return max(margin, 2 * float(resolution[best]))

"""Jim Salter's weighted scores (jrs-s.net 2013, "Benchmarking Windows Guests on KVM").

    weighted read  = (sequential read + k * 4 KiB random read) / 2
    k              = sequential read / 4 KiB random read, of the baseline
    overall        = (weighted read + weighted write) / 2

On the baseline, small random reads therefore weigh as much as large sequential ones. Both are
bandwidths in B/s, and so is the score. k comes from the baseline in the same round. So the score
is the baseline's sequential bandwidth times the mean of two ratios within a round, and drift
cancels as in every other comparison.

A profile without these four measurements has one score instead: the geometric mean of the ratios
to the baseline of all its rates (`MEAN`). A rate of zero was measured, so the mean is zero; the
ratio to a baseline's zero is unknown, so such a rate is not part of the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import (
    SCORE_METRICS,
    Floats,
    MeasureKey,
    Observations,
    with_grid,
)
from vdisklab.analysis.paired_ratios import main_measures
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better, Direction


class Role(StrEnum):
    """The part of a score that a measurement supplies."""

    SEQUENTIAL_READ = "sequential read"
    RANDOM_READ = "4 KiB random read"
    SEQUENTIAL_WRITE = "sequential write"
    RANDOM_WRITE = "4 KiB random write"


@dataclass(frozen=True, slots=True)
class RoleSet:
    """The measure of each role; the measures of one set can be compared."""

    name: str
    title: str
    measures: Mapping[Role, MeasureKey]


def _fio(depth: int) -> Mapping[Role, MeasureKey]:
    read, write = Direction.READ, Direction.WRITE
    return {
        Role.SEQUENTIAL_READ: MeasureKey(f"seqread-1m-q{depth}", read, "bandwidth"),
        Role.RANDOM_READ: MeasureKey(f"randread-4k-q{depth}", read, "bandwidth"),
        Role.SEQUENTIAL_WRITE: MeasureKey(f"seqwrite-1m-q{depth}", write, "bandwidth"),
        Role.RANDOM_WRITE: MeasureKey(f"randwrite-4k-q{depth}", write, "bandwidth"),
    }


def _crystaldiskmark(random: str) -> Mapping[Role, MeasureKey]:
    read, write = Direction.READ, Direction.WRITE
    return {
        Role.SEQUENTIAL_READ: MeasureKey("seq1m-q1t1-read", read, "bandwidth"),
        Role.RANDOM_READ: MeasureKey(f"{random}-read", read, "bandwidth"),
        Role.SEQUENTIAL_WRITE: MeasureKey("seq1m-q1t1-write", write, "bandwidth"),
        Role.RANDOM_WRITE: MeasureKey(f"{random}-write", write, "bandwidth"),
    }


ROLE_SETS: tuple[RoleSet, ...] = (
    # One request at a time comes first: that is how the article's tool worked, and where the
    # guest's own cost per request shows. A profile with other names adds its set here.
    RoleSet("q1", "one request at a time", _fio(1)),
    RoleSet("q32", "32 requests at a time", _fio(32)),
    RoleSet("cdm", "CrystalDiskMark's Q1T1 tests", _crystaldiskmark("rnd4k-q1t1")),
)


class Score(StrEnum):
    """The three scores, by the names of their metrics."""

    READ = "weighted_read"
    WRITE = "weighted_write"
    OVERALL = "weighted_overall"

    @property
    def key(self) -> MeasureKey:
        """The key of the score among the observations."""
        return MeasureKey("score", Direction.NONE, SCORE_METRICS[self.value].name)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that the score is computed from."""
        return _ROLES[self]


_READ = (Role.SEQUENTIAL_READ, Role.RANDOM_READ)
_WRITE = (Role.SEQUENTIAL_WRITE, Role.RANDOM_WRITE)
_ROLES: Mapping[Score, tuple[Role, ...]] = {
    Score.READ: _READ,
    Score.WRITE: _WRITE,
    Score.OVERALL: _READ + _WRITE,
}


@dataclass(frozen=True, slots=True)
class NoScore(Diagnostic):
    """The reason why a cell has no score: the roles or rates that it or the baseline lacks.

    `baseline_zero` are those that are zero at the baseline in every round: a ratio to them is
    unknown. `zero` are the parts of a mix that are zero in some rounds, where the mix is therefore
    unknown. If all are empty, cell and baseline were never measured in the same round. `score` is
    the name of the score's metric.
    """

    cell: MeasuredCell
    score: str
    lacking: tuple[str, ...]
    baseline_lacking: tuple[str, ...]
    baseline_zero: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()

    @property
    def key(self) -> MeasureKey:
        """The key of the score among the observations."""
        return MeasureKey("score", Direction.NONE, self.score)

    def __str__(self) -> str:
        name = self.score.replace("_", " ")
        if self.zero:
            everywhere = "; no other path has one either, because this is the baseline" * bool(
                self.baseline_zero
            )
            return (
                f"{self.cell}: no {name} in the rounds in which its {', '.join(self.zero)} is "
                f"zero, because a ratio to zero is unknown{everywhere}. `vdisklab rank --metric "
                f"{self.zero[0]}` counts them."
            )
        if self.baseline_lacking:
            lacking = ", ".join(self.baseline_lacking)
            return (
                f"{self.cell}: no {name}, as the baseline lacks {lacking}. One measure alone can "
                "be ranked: `vdisklab rank --metric MEASUREMENT/DIRECTION/METRIC`."
            )
        if self.baseline_zero:
            return (
                f"{self.cell}: no {name}, because the baseline's {', '.join(self.baseline_zero)} "
                "is zero: a ratio to zero is unknown. Name another baseline: `vdisklab rank "
                "--baseline CELL`."
            )
        if self.lacking:
            return f"{self.cell}: no {name}, as it lacks {', '.join(self.lacking)}."
        return f"{self.cell}: no {name}, as no round holds all its measures and the baseline's."


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The observations with scores as further measures, and the scores that are missing.

    `roles` is None if no set of roles fits the measurements. If no measurement has one of the
    roles, `rates` has the measures whose mean is the score instead.
    """

    observations: Observations
    baseline: MeasuredCell
    roles: RoleSet | None
    missing: tuple[NoScore, ...]
    rates: tuple[MeasureKey, ...] = ()

    @property
    def overall(self) -> MeasureKey | None:
        """The measure that decides if the user names none; None if there is no score."""
        if self.rates:
            return MEAN
        return None if self.roles is None else Score.OVERALL.key


def role_set(observations: Observations) -> RoleSet | None:
    """The set with the most measured roles, the first if equal; None if no role was measured."""
    measured = set(observations.measures)
    best = max(ROLE_SETS, key=lambda role_set: len(measured & set(role_set.measures.values())))
    return best if measured & set(best.measures.values()) else None


def add_scores(observations: Observations, baseline: MeasuredCell) -> Scored:
    """Adds the scores, per cell and round, as three more measures.

    A score needs all its roles of cell and baseline in the same round. Without numbers of the
    baseline no cell has a score. If a role was not measured at all, the mean of all rates is
    added.
    """
    chosen = role_set(observations)
    rates = _rates_of(observations, baseline, chosen)
    without_mean: list[NoScore] = []
    if rates:
        observations = add_mix(observations, baseline, dict.fromkeys(rates, 1.0), MEAN)
        without_mean = _without_mean(observations, rates)
    if chosen is None:
        return Scored(observations, baseline, None, tuple(without_mean), rates)
    row = observations.place.get(baseline)
    grids = {role: observations.grid(key) for role, key in chosen.measures.items()}
    scores = {score: _score(grids, row, score) for score in (Score.READ, Score.WRITE)}
    scores[Score.OVERALL] = (scores[Score.READ] + scores[Score.WRITE]) / 2
    for score, grid in scores.items():
        # On the baseline, all roles weigh the same.
        parts = {chosen.measures[role]: 1 / len(score.roles) for role in score.roles}
        observations = with_grid(observations, score.key, grid, parts)
    return Scored(
        observations=observations,
        baseline=baseline,
        roles=chosen,
        missing=(*without_mean, *_missing(observations.cells, grids, row, scores)),
        rates=rates,
    )


def _rates_of(
    observations: Observations, baseline: MeasuredCell, roles: RoleSet | None
) -> tuple[MeasureKey, ...]:
    """The rates whose mean is the score: none if every role was measured, or no baseline.

    A rate counts if the baseline has it, above zero, and most cells have it, so that one odd run or
    import does not take the score away from all.
    """
    used = set(observations.used)
    row = observations.place.get(baseline)
    if row is None or (roles is not None and used.issuperset(roles.measures.values())):
        return ()
    grids = {key: observations.grid(key) for key in sorted(main_measures(used))}
    measured = {key: _any(grid) for key, grid in grids.items() if (grid[row] > 0).any()}
    if not measured:
        return ()
    of_any = np.any(list(measured.values()), axis=0)
    return tuple(key for key, cells in measured.items() if cells[of_any].mean() > 0.5)


def _without_mean(observations: Observations, rates: Sequence[MeasureKey]) -> list[NoScore]:
    """Why cells have no mean: the rates that each lacks."""
    measured = {key: _any(observations.grid(key)) for key in rates}
    return [
        NoScore(
            observations.cells[row],
            MEAN.metric,
            tuple(str(key) for key, cells in measured.items() if not cells[row]),
            (),
        )
        for row in np.flatnonzero(~_any(observations.grid(MEAN)))
    ]


def _score(grids: Mapping[Role, Floats], baseline: int | None, score: Score) -> Floats:
    sequential, small = (grids[role] for role in score.roles)
    if baseline is None:
        return np.full_like(sequential, np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = sequential[baseline] / small[baseline]
        usable = np.isfinite(factor) & (factor > 0)
        answer: Floats = (sequential + small * np.where(usable, factor, np.nan)) / 2
    return answer


def _missing(
    cells: tuple[MeasuredCell, ...],
    grids: Mapping[Role, Floats],
    baseline: int | None,
    scores: Mapping[Score, Floats],
) -> list[NoScore]:
    measured = {role: _any(grid) for role, grid in grids.items()}
    missing: list[NoScore] = []
    for score in Score:
        at_baseline = tuple(
            role for role in score.roles if baseline is None or not measured[role][baseline]
        )
        zero = () if at_baseline else _zero_in(grids, score.roles, baseline)
        for row in np.flatnonzero(~_any(scores[score])):
            lacking = tuple(role for role in score.roles if not measured[role][row])
            missing.append(NoScore(cells[row], score, lacking, at_baseline, zero))
    return missing


def _zero_in(
    grids: Mapping[Role, Floats], roles: Sequence[Role], row: int | None
) -> tuple[Role, ...]:
    """The roles whose rate is zero in every round in which this cell was measured."""
    return tuple(role for role in roles if row is not None and not (grids[role][row] > 0).any())


def _any(grid: Floats) -> npt.NDArray[np.bool_]:
    """For each cell, True if it was measured in any round."""
    return np.asarray(np.isfinite(grid).any(axis=1))


MIX = MeasureKey("score", Direction.NONE, "weighted_mix")
MEAN = MeasureKey("score", Direction.NONE, "overall_ratio")


def add_mix(
    observations: Observations,
    baseline: MeasuredCell,
    weights: Mapping[MeasureKey, float],
    key: MeasureKey = MIX,
) -> Observations:
    """Adds a weighted mix as one more measure, `key`; only cells with all its parts have it.

        mix = product of (value / baseline in the same round) ** (weight / sum of weights)

    The order of this weighted geometric mean of ratios depends neither on units nor on the
    baseline (Fleming & Wallace, Communications of the ACM 29, 1986). Where less is better, the
    ratio is inverted. A part of zero makes the mix zero where more is better, and unknown where
    less is; it is unknown, too, if the baseline's part is zero. A metric with a step is compared by
    value + step, which is never zero.

    `baseline` must be one of the cells, and the sum of the weights above zero.
    """
    row = observations.place[baseline]
    total = sum(weights.values())
    mixed = np.zeros((len(observations.cells), len(observations.rounds)))
    is_zero = np.zeros(mixed.shape, dtype=np.bool_)
    for measure, weight in weights.items():
        logs = observations.logs(measure)
        higher = measure.quantity.better is Better.HIGHER
        if weight and measure.quantity.step is None:
            zero = observations.grid(measure) == 0
            is_zero |= zero
            logs[zero if not higher else zero & (np.arange(len(zero)) == row)[:, None]] = np.nan
        mixed += (1.0 if higher else -1.0) * weight / total * (logs - logs[row])
    with np.errstate(over="ignore"):
        grid = np.where(is_zero & np.isfinite(mixed), 0.0, np.exp(mixed))
    parts = {measure: weight / total for measure, weight in weights.items()}
    return with_grid(observations, key, grid, parts)


def without_mix(
    observations: Observations, baseline: MeasuredCell, weights: Iterable[MeasureKey]
) -> tuple[NoScore, ...]:
    """The cells without a mix: no round of theirs has all its measures, or a measure is zero."""
    has_mix, row = _any(observations.grid(MIX)), observations.place[baseline]
    lacking: list[list[str]] = [[] for _ in observations.cells]
    zero: list[list[str]] = [[] for _ in observations.cells]
    for measure in weights:
        grid = observations.grid(measure)
        higher = measure.quantity.better is Better.HIGHER
        is_zero = (grid == 0).any(axis=1) & (measure.quantity.step is None)
        for at in np.flatnonzero(~_any(grid) & ~has_mix):
            lacking[at].append(str(measure))
        for at in np.flatnonzero(is_zero):
            if not higher or at == row:
                zero[at].append(str(measure))
    return tuple(
        NoScore(
            cell,
            MIX.metric,
            tuple(lacking[at]),
            (),
            baseline_zero=tuple(zero[at]) if at == row else (),
            zero=tuple(zero[at]),
        )
        for at, cell in enumerate(observations.cells)
        if zero[at] or lacking[at]
    )

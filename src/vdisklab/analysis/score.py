"""Scores: how a path compares with the baseline in all measures that count.

    read, write  = geometric mean of the two ratios of sequential and 4 KiB random requests
    overall      = geometric mean of all four ratios

Each ratio is that of a bandwidth to the baseline's in the same round, so drift cancels as in every
other comparison, and a path that is 20 % slower in one measure loses the same whichever it is: the
order depends neither on units nor on the baseline (Fleming & Wallace, Communications of the ACM 29,
1986). Writes count as what lasts (`sustained`), if that was measured.

If no baseline was measured, the path in the middle takes its place.

A profile without these four measurements has one score: the geometric mean of all its rates. A rate
of zero was measured, so the mean is zero; the ratio to a baseline's zero is unknown, so such a rate
is not part of the mean.

Jim Salter's weighted scores (jrs-s.net 2013, "Benchmarking Windows Guests on KVM") are measures of
their own, as his article has them: of what fio saw, in B/s.

    weighted read  = (sequential read + k * 4 KiB random read) / 2
    k              = sequential read / 4 KiB random read, of the baseline in the same round
    overall        = (weighted read + weighted write) / 2

They add bandwidths, so the faster direction decides: where writes run at a seventh of the speed of
reads, most winners by this score are more than 10 % behind in writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
from vdisklab.value import Value, replace

MIX = MeasureKey("score", Direction.NONE, "weighted_mix")


class Role(StrEnum):
    """The part of a score that a measurement supplies."""

    SEQUENTIAL_READ = "sequential read"
    RANDOM_READ = "4 KiB random read"
    SEQUENTIAL_WRITE = "sequential write"
    RANDOM_WRITE = "4 KiB random write"


class RoleSet(Value):
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


class _OfRoles(StrEnum):
    @property
    def key(self) -> MeasureKey:
        """The key of the score among the observations."""
        return MeasureKey("score", Direction.NONE, SCORE_METRICS[self.value].name)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that the score is computed from."""
        return _ROLES[self.name]


class Score(_OfRoles):
    """The scores that rank, by the names of their metrics."""

    READ = "read_ratio"
    WRITE = "write_ratio"
    OVERALL = "overall_ratio"


DEFAULT_METRIC = "overall"
SCORES = {DEFAULT_METRIC: Score.OVERALL, "read": Score.READ, "write": Score.WRITE}
"""The scores by the names under which a user asks for them."""


class Weighted(_OfRoles):
    """Salter's scores, by the names of their metrics."""

    READ = "weighted_read"
    WRITE = "weighted_write"
    OVERALL = "weighted_overall"


_READ = (Role.SEQUENTIAL_READ, Role.RANDOM_READ)
_WRITE = (Role.SEQUENTIAL_WRITE, Role.RANDOM_WRITE)
_ROLES: Mapping[str, tuple[Role, ...]] = {
    "READ": _READ,
    "WRITE": _WRITE,
    "OVERALL": _READ + _WRITE,
}

MEAN = Score.OVERALL.key
"""The measure that ranks if the user names none."""


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


class Scored(Value, eq=False):
    """The observations with scores as further measures, and the scores that are missing.

    `roles` is None if no set of roles fits the measurements; its writes are sustained ones if these
    were measured. `rates` has the measures whose mean the overall score is, empty without one.
    """

    observations: Observations
    baseline: MeasuredCell
    roles: RoleSet | None
    missing: tuple[NoScore, ...]
    rates: tuple[MeasureKey, ...] = ()

    @property
    def overall(self) -> MeasureKey | None:
        """The measure that decides if the user names none; None if there is no score."""
        return MEAN if self.rates or self.roles is not None else None


def role_set(observations: Observations) -> RoleSet | None:
    """The set with the most measured roles, the first if equal; None if no role was measured."""
    measured = set(observations.measures)
    best = max(ROLE_SETS, key=lambda role_set: len(measured & set(role_set.measures.values())))
    return best if measured & set(best.measures.values()) else None


def _sustained(roles: RoleSet, used: Collection[MeasureKey]) -> RoleSet:
    """The roles, with the sustained rate of each write that has one."""
    lasting = {
        role: replace(key, metric="sustained")
        for role, key in roles.measures.items()
        if replace(key, metric="sustained") in used
    }
    return replace(roles, measures={**roles.measures, **lasting})


def add_scores(observations: Observations, baseline: MeasuredCell) -> Scored:
    """Adds the scores as further measures, per cell and round: those that rank, and Salter's.

    A score needs all its roles of cell and baseline in the same round. Without numbers of the
    baseline no cell has a score. If a role was not measured at all, the overall score is the mean
    of all rates.
    """
    measured = role_set(observations)
    chosen = None if measured is None else _sustained(measured, set(observations.used))
    rates = _rates_of(observations, baseline, chosen)
    missing: list[NoScore] = []
    if rates:
        observations = add_mix(observations, baseline, dict.fromkeys(rates, 1.0), MEAN)
        missing += _without_mean(observations, rates)
    if measured is None or chosen is None:
        return Scored(observations, baseline, None, tuple(missing), rates)
    row = observations.place.get(baseline)
    for score in Score:
        measures = {chosen.measures[role]: 1.0 for role in score.roles}
        if score is not Score.OVERALL or not rates:
            if row is not None:
                observations = add_mix(observations, baseline, measures, score.key)
            missing += _missing(observations, chosen, row, score)
    grids = {role: observations.grid(key) for role, key in measured.measures.items()}
    weighted = {score: _score(grids, row, score) for score in (Weighted.READ, Weighted.WRITE)}
    weighted[Weighted.OVERALL] = (weighted[Weighted.READ] + weighted[Weighted.WRITE]) / 2
    for salters, grid in weighted.items():
        # On the baseline, all roles weigh the same.
        parts = {measured.measures[role]: 1 / len(salters.roles) for role in salters.roles}
        observations = with_grid(observations, salters.key, grid, parts)
        missing += _missing(observations, measured, row, salters)
    every = tuple(chosen.measures.values())
    is_complete = row is not None and set(observations.used).issuperset(every)
    return Scored(
        observations=observations,
        baseline=baseline,
        roles=chosen,
        missing=tuple(missing),
        rates=rates or (every if is_complete else ()),
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


def _score(grids: Mapping[Role, Floats], baseline: int | None, score: Weighted) -> Floats:
    sequential, small = (grids[role] for role in score.roles)
    if baseline is None:
        return np.full_like(sequential, np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = sequential[baseline] / small[baseline]
        usable = np.isfinite(factor) & (factor > 0)
        answer: Floats = (sequential + small * np.where(usable, factor, np.nan)) / 2
    return answer


def _missing(
    observations: Observations, roles: RoleSet, baseline: int | None, score: Score | Weighted
) -> list[NoScore]:
    """The cells without a score, and why."""
    grids = {role: observations.grid(roles.measures[role]) for role in score.roles}
    measured = {role: _any(grid) for role, grid in grids.items()}
    at_baseline = tuple(
        role for role in score.roles if baseline is None or not measured[role][baseline]
    )
    zero = () if at_baseline else _zero_in(grids, score.roles, baseline)
    missing = []
    for row in np.flatnonzero(~_any(observations.grid(score.key))):
        lacking = tuple(role for role in score.roles if not measured[role][row])
        cell = observations.cells[row]
        missing.append(NoScore(cell, score, lacking, at_baseline, zero))
    return missing


def _zero_in(
    grids: Mapping[Role, Floats], roles: Sequence[Role], row: int | None
) -> tuple[Role, ...]:
    """The roles whose rate is zero in every round in which this cell was measured."""
    return tuple(role for role in roles if row is not None and not (grids[role][row] > 0).any())


def middle_path(observations: Observations, among: Collection[MeasuredCell]) -> MeasuredCell | None:
    """What scores relate to if no baseline was measured: the path in the middle, by the mean of all
    rates. None for fewer than two paths with every rate.

    Paths that lack rounds are left out, because a score needs its reference in the same round. The
    order of paths does not depend on the reference.
    """
    rows = [observations.place[cell] for cell in among if cell in observations.place]
    rates = sorted(main_measures(observations.used))
    grids = [observations.logs(key)[rows] for key in rates]
    if len(rows) < 2 or not grids:
        return None
    rounds = np.min([np.isfinite(grid).sum(axis=1) for grid in grids], axis=0)
    whole = np.flatnonzero((rounds == rounds.max()) & (rounds > 0))
    if len(whole) < 2:
        return None
    levels = np.zeros(len(whole))
    for key, grid in zip(rates, grids, strict=True):
        part = np.where(np.isfinite(grid[whole]), grid[whole], np.nan)
        sign = 1.0 if key.quantity.better is Better.HIGHER else -1.0
        levels += sign * np.nanmean(part, axis=1)
    order = np.argsort(levels, kind="stable")
    middle = int(whole[order[(len(order) - 1) // 2]])
    return observations.cells[rows[middle]]


def _any(grid: Floats) -> npt.NDArray[np.bool_]:
    """For each cell, True if it was measured in any round."""
    return np.asarray(np.isfinite(grid).any(axis=1))


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
        for lacking_row in np.flatnonzero(~_any(grid) & ~has_mix):
            lacking[lacking_row].append(str(measure))
        for lacking_row in np.flatnonzero(is_zero):
            if not higher or lacking_row == row:
                zero[lacking_row].append(str(measure))
    return tuple(
        NoScore(
            cell,
            MIX.metric,
            tuple(lacking[place]),
            (),
            baseline_zero=tuple(zero[place]) if place == row else (),
            zero=tuple(zero[place]),
        )
        for place, cell in enumerate(observations.cells)
        if zero[place] or lacking[place]
    )

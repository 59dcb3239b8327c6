"""Tests whether a claim holds here: is the paired ratio of two sets of cells in the stated range?

In each round that has every pair of the claim in every measure, the logarithms of left/right are
averaged. The means of the rounds give Student's t interval. There is one number per round, so
pairs that share a cell, or measures that are nearly the same number, do not count twice. Rounding
errors may all have the same sign, so they are averaged as they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
)
from vdisklab.analysis.paired_ratios import PRECISION, holm, rounds_needed
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.results.model import Origin, RanUnder, RunOutline
from vdisklab.units import counted


class ClaimVerdict(StrEnum):
    """The numbers' verdict on a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not-measured"


class ClaimStatus(StrEnum):
    """The result of a claim: its verdict, or why there is none."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not-measured"
    VOID = "void"


class Void(StrEnum):
    """The reason why a claim says nothing about this machine. `EMULATED_HOST` voids every claim,
    the others void claims of guest against host.
    """

    EMULATION = "emulation"
    EMULATED_HOST = "emulated-host"
    LAB = "lab"

    def __str__(self) -> str:
        return {
            Void.EMULATION: "emulation",
            Void.EMULATED_HOST: "an emulated host",
            Void.LAB: "measured in a lab",
        }[self]


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A claim and its verdict; a field without numbers is None, never NaN.

    `ratio` is left/right with its 95 % interval for this claim alone. `p_adjusted` is corrected
    for all claims answered together (Holm) and decides. `more_rounds` are needed to decide with
    80 % power; None if the claim is decided, or if 1000 rounds would not do. `missing` are the
    cells to measure together, in one campaign: all cells of the claim, or none. `failures` says
    why earlier attempts to measure them failed.
    """

    claim: Claim
    verdict: ClaimVerdict
    rounds: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    more_rounds: int | None = None
    void: Void | None = None
    missing: tuple[Cell, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def status(self) -> ClaimStatus:
        """The claim's status; a void claim has no valid verdict."""
        settled = self.verdict in (ClaimVerdict.HOLDS, ClaimVerdict.FAILS)
        void = settled and self.void is not None
        return ClaimStatus.VOID if void else ClaimStatus(self.verdict)

    @property
    def words(self) -> str:
        """`holds`, `inconclusive (4 more rounds)`, `void: emulation (here it fails)`."""
        match self.verdict:
            case ClaimVerdict.INCONCLUSIVE:
                if self.more_rounds is None:
                    return "inconclusive (1000 rounds would not decide)"
                return f"inconclusive ({counted(self.more_rounds, 'more round')})"
            case ClaimVerdict.NOT_MEASURED:
                return "not measured"
            case verdict if self.void is None:
                return verdict.value
            case verdict:
                return f"void: {self.void} (here it {verdict.value})"


def judge_claims(
    claims: Sequence[Claim],
    observations: Observations,
    runs: Sequence[RunOutline],
    alpha: float = 0.05,
) -> tuple[ClaimAnswer, ...]:
    """An answer to each claim, in their order, corrected for the number of answerable claims."""
    grids = _Grids(observations)
    voids = _voids(runs)
    failed = _failures(runs)
    measured = [_measured(claim, grids, voids, failed, alpha) for claim in claims]
    tested = [place for place, (answer, _) in enumerate(measured) if answer.p is not None]
    adjusted = holm(np.array([measured[place][0].p for place in tested], dtype=np.float64))
    answers = [answer for answer, _ in measured]
    for order, place in enumerate(tested):
        answer, ratios = measured[place]
        answers[place] = _decided(answer, ratios, float(adjusted[order]), alpha, len(tested))
    return tuple(answers)


@dataclass(frozen=True, slots=True, eq=False)
class _RoundRatios:
    """The mean log ratio of each complete round; `resolution` is the largest error of their mean
    from rounded values. With a `zero` the ratio is unknown.
    """

    logs: Floats
    resolution: float
    zero: bool = False

    @property
    def mean(self) -> float:
        return float(self.logs.mean())

    @property
    def deviation(self) -> float:
        return max(float(self.logs.std(ddof=1)), PRECISION)

    @property
    def freedom(self) -> int:
        return len(self.logs) - 1

    def error(self, alpha: float) -> float:
        """The standard error; the interval at this level is not narrower than the resolution."""
        least = self.resolution / float(t_isf(alpha / 2, self.freedom))
        return max(self.deviation / math.sqrt(len(self.logs)), least)


class _Grids:
    """The logarithms of each measure as cells x rounds, computed once."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._rows = observations.place
        self._logs: dict[MeasureKey, Floats] = {}
        self._resolutions: dict[MeasureKey, Floats] = {}

    def row(self, cell: Cell, measure: MeasureKey) -> Floats | None:
        """The cell's logarithms by round; None if it has no value of the measure."""
        measure = self._observations.stored_as(measure)
        if measure not in self._logs:
            self._logs[measure] = self._observations.logs(measure)
        row = self._rows.get(cell.measured)
        if row is None:
            return None
        logs: Floats = self._logs[measure][row]
        return logs if np.isfinite(logs).any() else None

    def resolution(self, cell: Cell, measure: MeasureKey) -> float:
        """The largest error of the cell's values from rounding."""
        measure = self._observations.stored_as(measure)
        if measure not in self._resolutions:
            self._resolutions[measure] = self._observations.resolution(measure)
        return float(self._resolutions[measure][self._rows[cell.measured]])

    def zeros(self, cell: Cell, measure: MeasureKey) -> npt.NDArray[np.bool_]:
        """By round, True for a zero of a quantity that has no step: a run that did nothing."""
        measure = self._observations.stored_as(measure)
        if measure.quantity.step is not None:
            return np.zeros(len(self._observations.rounds), dtype=np.bool_)
        zero: npt.NDArray[np.bool_] = (
            self._observations.grid(measure)[self._rows[cell.measured]] == 0
        )
        return zero

    def measured(self, cell: Cell, name: str) -> bool:
        """True if the cell has any number of the measurement with that name."""
        keys = (key for key in self._observations.measures if key.name == name)
        return any(self.row(cell, key) is not None for key in keys)


def _measured(
    claim: Claim,
    grids: _Grids,
    voids: Mapping[MeasuredCell, set[Void]],
    failed: Mapping[MeasuredCell, str],
    alpha: float,
) -> tuple[ClaimAnswer, _RoundRatios]:
    """The claim with its ratio, still undecided, and the ratios of its complete rounds."""
    nothing = _RoundRatios(np.array([], dtype=np.float64), 0.0)
    missing = _missing(claim, grids)
    void = _void(claim, voids)
    ratios = nothing if missing else _whole_rounds(claim, grids)
    rounds = len(ratios.logs)
    if not rounds:
        lacking = missing or claim.cells
        failures = tuple(failed[cell.measured] for cell in lacking if cell.measured in failed)
        failures += _without_number(claim, grids)
        answer = ClaimAnswer(claim, ClaimVerdict.NOT_MEASURED, missing=lacking, failures=failures)
        return answer, nothing
    answer = ClaimAnswer(
        claim,
        ClaimVerdict.INCONCLUSIVE,
        rounds=rounds,
        ratio=None if ratios.zero else math.exp(ratios.mean),
        more_rounds=max(1, MIN_ROUNDS - rounds),
        void=void,
    )
    if rounds < MIN_ROUNDS:
        return answer, ratios
    error = ratios.error(alpha)
    half = float(t_isf(alpha / 2, ratios.freedom)) * error
    return replace(
        answer,
        low=None if ratios.zero else math.exp(ratios.mean - half),
        high=None if ratios.zero else math.exp(ratios.mean + half),
        p=_p_value(claim, ratios.mean, error, ratios.freedom),
    ), ratios


def _missing(claim: Claim, grids: _Grids) -> tuple[Cell, ...]:
    """The cells to measure: all of the claim if one is missing, as a ratio needs a common round."""
    lacks = any(grids.row(cell, key) is None for cell in claim.cells for key in claim.measures)
    return claim.cells if lacks else ()


def _without_number(claim: Claim, grids: _Grids) -> tuple[str, ...]:
    """Cells that were measured but lack the number: another run would not give it either."""
    return tuple(
        f"{cell.label}: {key.name} was measured but has no {key.direction}/{key.metric}"
        for cell in claim.cells
        for key in claim.measures
        if grids.row(cell, key) is None and grids.measured(cell, key.name)
    )


def _whole_rounds(claim: Claim, grids: _Grids) -> _RoundRatios:
    """The mean log ratio of each round that has all cells of the claim."""
    ratios: list[Floats] = []
    resolutions: list[float] = []
    zeros: list[npt.NDArray[np.bool_]] = []
    for left, right in claim.pairs:
        for measure in claim.measures:
            above, below = grids.row(left, measure), grids.row(right, measure)
            assert above is not None and below is not None  # noqa: S101, PT018 - none is missing
            ratios.append(above - below)
            resolutions += [grids.resolution(left, measure) + grids.resolution(right, measure)]
            zeros += [grids.zeros(left, measure), grids.zeros(right, measure)]
    means: Floats = np.mean(np.array(ratios), axis=0)  # NaN wherever a part is missing
    whole = np.isfinite(means)
    zero = bool(np.any(np.array(zeros)[:, whole]))
    return _RoundRatios(means[whole], float(np.mean(resolutions)), zero)


def _p_value(claim: Claim, mean: float, error: float, freedom: int) -> float:
    """Two-sided p of "inside the range" or of "outside the range", whichever is smaller.

    "Inside" is shown when the mean clears both ends (two one-sided tests, Schuirmann 1987),
    "outside" when it clears one. The result is twice the one-sided p: it is below 0.05 when the
    95 % interval lies wholly inside or wholly outside.
    """
    above_low = _upper_tail(mean - _log(claim.low), error, freedom)
    below_high = _upper_tail(_log(claim.high) - mean, error, freedom)
    inside = max(above_low, below_high)
    outside = min(
        _upper_tail(_log(claim.low) - mean, error, freedom),
        _upper_tail(mean - _log(claim.high), error, freedom),
    )
    return min(1.0, 2 * min(inside, outside))


def _upper_tail(distance: float, error: float, freedom: int) -> float:
    """The probability that the mean is this far beyond a bound by chance; 0 for an open end."""
    if math.isinf(distance):
        return 0.0 if distance > 0 else 1.0
    return float(t_sf(distance / error, freedom))


def _log(bound: float) -> float:
    return -math.inf if bound == 0 else math.log(bound)


def _decided(
    answer: ClaimAnswer, ratios: _RoundRatios, adjusted: float, alpha: float, tests: int
) -> ClaimAnswer:
    claim = answer.claim
    within = _log(claim.low) <= ratios.mean <= _log(claim.high)
    if adjusted <= alpha:
        verdict = ClaimVerdict.HOLDS if within else ClaimVerdict.FAILS
        return replace(answer, verdict=verdict, p_adjusted=adjusted, more_rounds=None)
    nearest = min(abs(ratios.mean - _log(end)) for end in (claim.low, claim.high))
    needed = float(
        rounds_needed(np.array([nearest]), np.array([ratios.deviation]), alpha / tests)[0]
    )
    # More rounds do not show a difference that rounding hides.
    possible = math.isfinite(needed) and nearest > ratios.resolution
    more = max(1, int(needed) - answer.rounds) if possible else None
    return replace(answer, p_adjusted=adjusted, more_rounds=more)


_VOID_UNDER: Mapping[RanUnder | None, Void] = {
    RanUnder.EMULATED_HOST: Void.EMULATED_HOST,
    RanUnder.TCG: Void.EMULATION,
}


def _voids(runs: Sequence[RunOutline]) -> dict[MeasuredCell, set[Void]]:
    """For each cell: whether any of its measured runs was emulated or ran in a lab."""
    voids: dict[MeasuredCell, set[Void]] = defaultdict(set)
    for run in runs:
        if run.failure is None:
            reasons = voids[run.measured_cell]
            if run.origin == Origin.LAB:
                reasons.add(Void.LAB)
            if run.ran_under in _VOID_UNDER:
                reasons.add(_VOID_UNDER[run.ran_under])
    return voids


def _void(claim: Claim, voids: Mapping[MeasuredCell, set[Void]]) -> Void | None:
    """The reason why the claim says nothing about this machine; None if it does. Numbers from an
    emulated host prove that code works, so they decide no claim at all.
    """
    reasons = set[Void]().union(*(voids.get(cell.measured, ()) for cell in claim.cells))
    order = (Void.LAB, Void.EMULATED_HOST, Void.EMULATION)
    counting = order if claim.absolute else (Void.EMULATED_HOST,)
    return next((reason for reason in counting if reason in reasons), None)


def _failures(runs: Sequence[RunOutline]) -> dict[MeasuredCell, str]:
    """For each cell: why its last failed run failed."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    return {
        cell: f"{cell}: {run.failure.sentence}"
        for run in ordered
        if run.failure is not None
        for cell in [run.measured_cell]
    }

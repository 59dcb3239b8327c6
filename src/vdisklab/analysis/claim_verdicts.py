"""Tests whether a claim holds here: is every pair's ratio in the stated range?

Each contrast of a claim (a pair of cells in a measure) has one number in each round that has the
whole claim: the logarithm of left/right, for a claim about all measures together their mean. So
measures that are nearly the same number do not count twice. Rounding errors may all have the same
sign: they are averaged as they are, and subtracted from each distance.

A claim about every pair holds if each pair is shown to be in the range; that needs no correction
(an intersection-union test: Berger, Technometrics 24, 1982). It fails if any pair is shown to be
outside, corrected for the number of pairs (Bonferroni).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.claimfile import Claim, ClaimedContrast
from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.measure_words import measure_words
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.paired_ratios import PRECISION, holm, rounds_needed
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import Origin, RunOutline
from vdisklab.units import counted
from vdisklab.value import Value, replace


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
    """The reason why a claim says nothing about this machine. `EMULATED` voids every claim,
    the others void claims of guest against host.
    """

    EMULATION = "emulation"
    EMULATED = "emulated-host"
    LAB = "lab"

    def __str__(self) -> str:
        return {
            Void.EMULATION: "emulation",
            Void.EMULATED: "an emulated host",
            Void.LAB: "measured in a lab",
        }[self]


class ClaimAnswer(Value):
    """A claim and its verdict; a field without numbers is None, never NaN."""

    claim: Claim
    verdict: ClaimVerdict
    rounds: int = 0
    decides: ClaimedContrast | None = None
    """The contrast that is outside the range most clearly or, if all are inside, the one that is so
    least clearly.
    """
    ratio: float | None = None
    """left/right of the contrast that decides; `low` and `high` are its 95 % interval."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    """Corrected for all claims answered together (Holm); it tells the verdict."""
    alone: ClaimVerdict | None = None
    """The verdict that `p` and the interval would give this claim alone, if the correction gives
    none."""
    among: int = 0
    """The claims that were answered together."""
    more_rounds: int | None = None
    """Needed for a verdict with 80 % power; None if the claim is decided or void, or if 1000 rounds
    would not do.
    """
    void: Void | None = None
    missing: tuple[Cell, ...] = ()
    """The cells to measure together, in one campaign: all cells of the claim, or none."""
    failures: tuple[str, ...] = ()
    """Why earlier attempts to measure them failed."""

    @property
    def status(self) -> ClaimStatus:
        """The claim's status. A claim is void whatever its numbers show, also if they do not decide
        it: more rounds of such numbers would say no more about this machine.
        """
        return ClaimStatus(self.verdict) if self.void is None else ClaimStatus.VOID

    @property
    def sentence(self) -> str:
        """`holds`, `inconclusive (4 more rounds)`, `void: emulation (here it fails)`."""
        if self.void is not None:
            is_open = "is " if self.verdict is ClaimVerdict.INCONCLUSIVE else ""
            return f"void: {self.void} (here it {is_open}{self.verdict.value}{self._where})"
        match self.verdict:
            case ClaimVerdict.INCONCLUSIVE:
                alone = f"alone it {self.alone}, not among {self.among} claims; "
                more = f"{counted(self.more_rounds or 0, 'more round')}"
                more = "1000 rounds would not decide" if self.more_rounds is None else more
                return f"inconclusive ({alone * (self.alone is not None)}{more})"
            case ClaimVerdict.NOT_MEASURED:
                return "not measured"
            case verdict:
                return f"{verdict.value}{self._where}"

    @property
    def _where(self) -> str:
        """The contrast in which a claim fails, as a clause; empty if there is only one, or none
        fails.
        """
        contrast = self.decides
        if self.verdict is not ClaimVerdict.FAILS or contrast is None:
            return ""
        pair = f" for {contrast.left.label} against {contrast.right.label}"
        several = self.claim.each_measure and len(self.claim.measures) > 1
        measure = f" in {measure_words(contrast.measures[0])}" if several else ""
        return (pair if len(self.claim.pairs) > 1 else "") + measure


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
        answer, contrasts = measured[place]
        answers[place] = _decided(answer, contrasts, float(adjusted[order]), alpha, len(tested))
    return tuple(answers)


class _RoundRatios(Value, eq=False):
    """The log ratio of a contrast in each complete round of the claim, with the ends of its range;
    `resolution` is the largest error of the mean from rounded values. With a `zero` the ratio is
    unknown. `step` is what a value's logarithm has added to the value; 0 for ratios.
    """

    contrast: ClaimedContrast
    logs: Floats
    resolution: float
    zero: bool
    low: float
    high: float
    step: float

    def shown(self, log: float) -> float | None:
        """The ratio or value with this logarithm."""
        return None if self.zero else max(0.0, math.exp(log) - self.step)

    @property
    def mean(self) -> float:
        return float(self.logs.mean())

    @property
    def deviation(self) -> float:
        return max(float(self.logs.std(ddof=1)), PRECISION)

    @property
    def inside(self) -> float:
        """How far the mean is from the nearer end of the range; negative outside."""
        return min(self.mean - self.low, self.high - self.mean)

    def half_width(self, alpha: float) -> float:
        """Half the interval's width: rounding is a bound, added to what the noise allows."""
        rounds = len(self.logs)
        quantile = float(t_isf(alpha / 2, rounds - 1))
        return quantile * self.deviation / math.sqrt(rounds) + self.resolution

    def chance(self, distance: float) -> float:
        """Twice the probability that the mean is this far beyond an end by chance.

        It is below 0.05 when the 95 % interval lies wholly on that side.
        """
        if math.isinf(distance):
            return 0.0 if distance > 0 else 1.0
        rounds = len(self.logs)
        beyond = (distance - self.resolution) / (self.deviation / math.sqrt(rounds))
        return min(1.0, 2 * float(t_sf(beyond, rounds - 1)))

    @property
    def p_inside(self) -> float:
        """The p-value of "the ratio is outside": two one-sided tests (Schuirmann 1987)."""
        return max(self.chance(self.mean - self.low), self.chance(self.high - self.mean))

    @property
    def p_outside(self) -> float:
        """The p-value of "the ratio is inside"."""
        return min(self.chance(self.low - self.mean), self.chance(self.mean - self.high))

    @property
    def clearly_inside(self) -> tuple[float, float]:
        """A key to sort by, from "outside for sure" to "inside for sure"."""
        if len(self.logs) < MIN_ROUNDS:
            return self.inside, 0.0
        p = self.p_outside - 1 if self.inside < 0 else 1 - self.p_inside
        return p, self.inside

    def more_rounds(self, distance: float, alpha: float) -> float:
        """The rounds that would show this distance to an end; infinite above 1000."""
        beyond = np.array([max(distance - self.resolution, 0.0)])
        needed = float(rounds_needed(beyond, np.array([self.deviation]), alpha)[0])
        return needed if math.isfinite(needed) else math.inf


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
) -> tuple[ClaimAnswer, tuple[_RoundRatios, ...]]:
    """The claim with its ratio, still undecided, and its contrasts."""
    missing = _missing(claim, grids)
    void = _void(claim, voids)
    contrasts = () if missing else _whole_rounds(claim, grids)
    rounds = len(contrasts[0].logs) if contrasts else 0
    if not rounds:
        lacking = missing or claim.cells
        failures = tuple(failed[cell.measured] for cell in lacking if cell.measured in failed)
        failures += _without_number(claim, grids)
        answer = ClaimAnswer(claim, ClaimVerdict.NOT_MEASURED, missing=lacking, failures=failures)
        return answer, ()
    first = min(contrasts, key=lambda contrast: contrast.clearly_inside)
    answer = ClaimAnswer(
        claim,
        ClaimVerdict.INCONCLUSIVE,
        rounds=rounds,
        decides=first.contrast,
        ratio=first.shown(first.mean),
        more_rounds=max(1, MIN_ROUNDS - rounds) if void is None else None,
        void=void,
    )
    if rounds < MIN_ROUNDS:
        return answer, contrasts
    half = first.half_width(alpha)
    inside = max(contrast.p_inside for contrast in contrasts)
    outside = len(contrasts) * min(contrast.p_outside for contrast in contrasts)
    return replace(
        answer,
        low=first.shown(first.mean - half),
        high=first.shown(first.mean + half),
        p=min(1.0, inside, outside),
    ), contrasts


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


def _whole_rounds(claim: Claim, grids: _Grids) -> tuple[_RoundRatios, ...]:
    """The mean log ratio of each contrast in each round that has all cells of the claim."""
    ratios: list[Floats] = []
    resolutions: list[float] = []
    zeros: list[npt.NDArray[np.bool_]] = []
    for contrast in claim.contrasts:
        of_pair: list[Floats] = []
        rounding, zero = 0.0, np.zeros(0, dtype=np.bool_)
        for measure in contrast.measures:
            above, below = (grids.row(cell, measure) for cell in (contrast.left, contrast.right))
            assert above is not None and below is not None  # noqa: S101, PT018 - none is missing
            of_pair.append(above if claim.of_value else above - below)
            for cell in dict.fromkeys((contrast.left, contrast.right)):
                rounding += grids.resolution(cell, measure) / len(contrast.measures)
                found = grids.zeros(cell, measure)
                zero = found if not len(zero) else zero | found
        ratios.append(np.mean(of_pair, axis=0))  # NaN wherever a part is missing
        resolutions.append(rounding)
        zeros.append(zero)
    whole = np.isfinite(ratios).all(axis=0)
    step = (claim.measures[0].quantity.step or 0.0) if claim.of_value else 0.0
    ends = (_log(claim.low, step), _log(claim.high, step))
    return tuple(
        _RoundRatios(contrast, logs[whole], rounding, bool(zero[whole].any()), *ends, step)
        for contrast, logs, rounding, zero in zip(
            claim.contrasts, ratios, resolutions, zeros, strict=True
        )
    )


def _log(bound: float, step: float) -> float:
    return -math.inf if bound == 0 else math.log(bound + step)


def _decided(
    answer: ClaimAnswer,
    contrasts: Sequence[_RoundRatios],
    adjusted: float,
    alpha: float,
    tests: int,
) -> ClaimAnswer:
    outside = [contrast for contrast in contrasts if contrast.inside < 0]
    if adjusted <= alpha:
        verdict = ClaimVerdict.FAILS if outside else ClaimVerdict.HOLDS
        return replace(answer, verdict=verdict, p_adjusted=adjusted, more_rounds=None)
    if answer.p is not None and answer.p <= alpha:
        alone = ClaimVerdict.FAILS if outside else ClaimVerdict.HOLDS
        answer = replace(answer, alone=alone, among=tests)
    if answer.void is not None:
        return replace(answer, p_adjusted=adjusted)
    level = alpha / tests
    if outside:
        needed = min(
            contrast.more_rounds(-contrast.inside, level / len(contrasts)) for contrast in outside
        )
    else:
        needed = max(contrast.more_rounds(contrast.inside, level) for contrast in contrasts)
    more = max(1, int(needed) - answer.rounds) if math.isfinite(needed) else None
    return replace(answer, p_adjusted=adjusted, more_rounds=more)


def _voids(runs: Sequence[RunOutline]) -> dict[MeasuredCell, set[Void]]:
    """For each cell: whether any of its measured runs was emulated or ran in a lab."""
    voids: dict[MeasuredCell, set[Void]] = defaultdict(set)
    for run in runs:
        if run.failure is None:
            reasons = voids[run.measured_cell]
            if run.origin == Origin.LAB:
                reasons.add(Void.LAB)
            under = run.ran_under
            if under is not None and under.emulated:
                reasons.add(Void.EMULATED)
            elif under is not None and under.accelerator == Accelerator.TCG:
                reasons.add(Void.EMULATION)
    return voids


def _void(claim: Claim, voids: Mapping[MeasuredCell, set[Void]]) -> Void | None:
    """The reason why the claim says nothing about this machine; None if it does. Numbers from an
    emulated host prove that code works, so they decide no claim at all.
    """
    reasons = set[Void]().union(*(voids.get(cell.measured, ()) for cell in claim.cells))
    order = (Void.LAB, Void.EMULATED, Void.EMULATION)
    counting = order if claim.absolute else (Void.EMULATED,)
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

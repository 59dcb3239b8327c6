"""Does a claim hold here? The paired ratio of two sets of cells against the range that is stated.

In each block that holds every pair of the claim in every measure, the logarithms of left/right are
averaged; over blocks that mean has Student's t interval. One number per block, so pairs that share
a cell, or measures that are nearly the same number, do not count twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.intervals import MIN_BLOCKS, t_isf, t_sf
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    logarithms,
)
from vdisklab.analysis.paired_ratios import PRECISION, blocks_needed, holm
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.plan.guest import Accelerator
from vdisklab.results.model import Origin
from vdisklab.results.outlines import RunOutline


class ClaimVerdict(StrEnum):
    """What the numbers say of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not-measured"


class ClaimStatus(StrEnum):
    """How a claim ended: its verdict, unless the claim is void."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not-measured"
    VOID = "void"


class Void(StrEnum):
    """Why a claim of guest against host says nothing about this machine."""

    EMULATION = "emulation"
    LAB = "lab"


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A claim and its verdict; a field is None if there are no numbers for it, never NaN.

    `ratio` is left/right with its 95 % interval for this claim alone, `p_adjusted` is corrected
    for all claims answered together (Holm) and decides. `more_blocks` would settle it with 80 %
    power; None when it is settled, or no thousand blocks would. `missing` are the cells that must
    be measured together, in one campaign: all of the claim, or none. `failures` is what went wrong
    when it was tried.
    """

    claim: Claim
    verdict: ClaimVerdict
    blocks: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    more_blocks: int | None = None
    void: Void | None = None
    missing: tuple[Cell, ...] = ()
    failures: tuple[str, ...] = ()


def answer_claims(
    claims: Sequence[Claim],
    observations: Observations,
    runs: Sequence[RunOutline],
    alpha: float = 0.05,
) -> tuple[ClaimAnswer, ...]:
    """An answer to each claim, in their order, corrected for the number that can be answered."""
    grids = _Grids(observations)
    voids = _voids(runs)
    failed = _failures(runs)
    found = [_measured(claim, grids, voids, failed, alpha) for claim in claims]
    tested = [place for place, (answer, _) in enumerate(found) if answer.p is not None]
    adjusted = holm(np.array([found[place][0].p for place in tested], dtype=np.float64))
    answers = [answer for answer, _ in found]
    for order, place in enumerate(tested):
        answer, logs = found[place]
        answers[place] = _decided(answer, logs, float(adjusted[order]), alpha, len(tested))
    return tuple(answers)


class _Grids:
    """The logarithms of each measure as cells x blocks, made once."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._rows = observations.place
        self._logs: dict[MeasureKey, Floats] = {}

    def row(self, cell: Cell, measure: MeasureKey) -> Floats | None:
        """The cell's logarithms by block; None when nothing of it was measured."""
        if measure not in self._logs:
            self._logs[measure] = logarithms(self._observations.grid(measure))
        row = self._rows.get(cell.measured)
        if row is None:
            return None
        logs: Floats = self._logs[measure][row]
        return logs if np.isfinite(logs).any() else None

    def measured(self, cell: Cell, name: str) -> bool:
        """True when a measurement of that name gave the cell any number."""
        keys = (key for key in self._observations.measures if key.name == name)
        return any(self.row(cell, key) is not None for key in keys)


def _measured(
    claim: Claim,
    grids: _Grids,
    voids: Mapping[MeasuredCell, Void],
    failed: Mapping[MeasuredCell, str],
    alpha: float,
) -> tuple[ClaimAnswer, Floats]:
    """The claim with its ratio, not decided yet, and the mean log ratio of each whole block."""
    nothing = np.array([], dtype=np.float64)
    missing = _missing(claim, grids)
    void = _void(claim, voids)
    logs = nothing if missing else _whole_blocks(claim, grids)
    if not len(logs):
        lacking = missing or claim.cells
        failures = tuple(failed[cell.measured] for cell in lacking if cell.measured in failed)
        failures += _without_number(claim, grids)
        answer = ClaimAnswer(claim, ClaimVerdict.NOT_MEASURED, missing=lacking, failures=failures)
        return answer, nothing
    answer = ClaimAnswer(
        claim,
        ClaimVerdict.INCONCLUSIVE,
        blocks=len(logs),
        ratio=float(np.exp(logs.mean())),
        more_blocks=max(1, MIN_BLOCKS - len(logs)),
        void=void,
    )
    if len(logs) < MIN_BLOCKS:
        return answer, logs
    mean, error, freedom = _estimate(logs)
    half = float(t_isf(alpha / 2, freedom)) * error
    return replace(
        answer,
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        p=_p_value(claim, mean, error, freedom),
    ), logs


def _missing(claim: Claim, grids: _Grids) -> tuple[Cell, ...]:
    """The cells to measure: all of a claim that lacks one, as its ratio needs them in one block."""
    lacks = any(grids.row(cell, key) is None for cell in claim.cells for key in claim.measures)
    return claim.cells if lacks else ()


def _without_number(claim: Claim, grids: _Grids) -> tuple[str, ...]:
    """Cells whose measurement was made, and does not give the number: no run would bring it."""
    return tuple(
        f"{cell.label}: {key.name} was measured and gives no {key.direction}/{key.metric}"
        for cell in claim.cells
        for key in claim.measures
        if grids.row(cell, key) is None and grids.measured(cell, key.name)
    )


def _whole_blocks(claim: Claim, grids: _Grids) -> Floats:
    """The mean log ratio of each block that holds the whole claim."""
    ratios: list[Floats] = []
    for left, right in claim.pairs:
        for measure in claim.measures:
            above, below = grids.row(left, measure), grids.row(right, measure)
            assert above is not None and below is not None  # noqa: S101, PT018 - none is missing
            ratios.append(above - below)
    means: Floats = np.mean(np.array(ratios), axis=0)  # NaN wherever a part is missing
    return means[np.isfinite(means)]


def _estimate(logs: Floats) -> tuple[float, float, int]:
    deviation = max(float(logs.std(ddof=1)), PRECISION)
    return float(logs.mean()), deviation / math.sqrt(len(logs)), len(logs) - 1


def _p_value(claim: Claim, mean: float, error: float, freedom: int) -> float:
    """Two-sided p of the better shown of "inside the range" and "outside of it".

    "Inside" is shown when both ends are cleared (two one-sided tests, Schuirmann 1987), "outside"
    when one end is. Twice the one-sided value, so that 0.05 is where the 95 % interval begins to
    lie wholly inside or wholly outside.
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
    """How likely the mean is so far beyond a bound by chance alone; 0 for an open end."""
    if math.isinf(distance):
        return 0.0 if distance > 0 else 1.0
    return float(t_sf(distance / error, freedom))


def _log(bound: float) -> float:
    return -math.inf if bound == 0 else math.log(bound)


def _decided(
    answer: ClaimAnswer, logs: Floats, adjusted: float, alpha: float, tests: int
) -> ClaimAnswer:
    claim = answer.claim
    mean, _, _ = _estimate(logs)
    within = _log(claim.low) <= mean <= _log(claim.high)
    if adjusted <= alpha:
        verdict = ClaimVerdict.HOLDS if within else ClaimVerdict.FAILS
        return replace(answer, verdict=verdict, p_adjusted=adjusted, more_blocks=None)
    ends = [abs(mean - _log(end)) for end in (claim.low, claim.high)]
    deviation = max(float(logs.std(ddof=1)), PRECISION)
    needed = float(blocks_needed(np.array([min(ends)]), np.array([deviation]), alpha / tests)[0])
    more = max(1, int(needed) - answer.blocks) if math.isfinite(needed) else None
    return replace(answer, p_adjusted=adjusted, more_blocks=more)


def _voids(runs: Sequence[RunOutline]) -> dict[MeasuredCell, Void]:
    """By cell: whether any of its measured runs was emulated or ran in a lab."""
    found: dict[MeasuredCell, Void] = {}
    for run in runs:
        if run.failure is None:
            cell = run.measured_cell
            if run.origin == Origin.LAB:
                found[cell] = Void.LAB
            elif run.accelerator == Accelerator.TCG:
                found.setdefault(cell, Void.EMULATION)
    return found


def _void(claim: Claim, voids: Mapping[MeasuredCell, Void]) -> Void | None:
    if not claim.absolute:
        return None
    found = [voids[cell.measured] for cell in claim.cells if cell.measured in voids]
    return (Void.LAB if Void.LAB in found else found[0]) if found else None


def _failures(runs: Sequence[RunOutline]) -> dict[MeasuredCell, str]:
    """By cell: why its last failed run failed."""
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    return {
        cell: f"{cell}: {run.failure.sentence}"
        for run in ordered
        if run.failure is not None
        for cell in [run.measured_cell]
    }

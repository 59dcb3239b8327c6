"""Compares two cells within rounds: their ratio, and whether the difference is shown."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum
from functools import cache, lru_cache, partial
from typing import Annotated

import numpy as np

from vdisklab.analysis.distributions import t_isf, t_sf
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.measure_words import RUNTIME
from vdisklab.analysis.observations import (
    POSITIVE,
    Floats,
    MeasureKey,
    Observations,
    different,
    logarithms,
    narrowed,
    resolution_of,
)
from vdisklab.analysis.summary import Summary, summarise, value_or_none
from vdisklab.documents import RARE
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better, Direction, Metric
from vdisklab.value import Value

PRECISION = 1e-9
"""Lower limit of a log ratio's standard deviation; anything smaller is rounding."""

MOST_ROUNDS = 1000
"""Maximum number of rounds in a forecast; with more, there is none."""


_RATES = {
    name: place
    for place, name in enumerate(
        (
            "overall_ratio",
            "weighted_overall",
            "sustained",
            "bandwidth",
            "transactions",
            "iops",
            "duration",
            "boot_time",
        )
    )
}


class Ratio(Value):
    """A / B within rounds; a field is None if there are too few pairs for it, never NaN.

    `ratio` is exp(mean of the log ratios). Its interval and `p` come from Student's t on the log
    ratios and need three pairs. `rounds_needed` is the total number of rounds that would show a
    difference of this size with a power of 80 %. A zero of a quantity without a step, in either
    of the two, makes the ratio unknown and leaves it without an interval, but `p` and `a_is_more`
    say which is better.
    """

    pairs: Annotated[int, "rounds in which both were measured; unpaired: runs of the rarer one"]
    ratio: Annotated[float | None, "A / B within rounds"] = None
    low: Annotated[float | None, "null with fewer than three pairs"] = None
    high: float | None = None
    p: Annotated[
        float | None, "for this ratio alone; if the data chose a path, for all it chose from"
    ] = None
    rounds_needed: Annotated[
        int | None,
        "rounds that would show a difference of this size with 80 % power; null above 1,000",
    ] = None
    a_is_more: bool = False


class Verdict(StrEnum):
    """The result of a comparison. "Better" follows the metric: more IOPS, less latency."""

    A_BETTER = "a-better"
    B_BETTER = "b-better"
    A_LIKELY = "a-likely-better"  # the interval excludes 1, but the corrected p-value is too large
    B_LIKELY = "b-likely-better"
    NONE_SHOWN = "no-difference-shown"
    TOO_FEW = "too-few-rounds"


class Comparison(Value):
    """One measure of two cells."""

    a_cell: MeasuredCell
    b_cell: MeasuredCell
    measure: MeasureKey
    unit: Annotated[str, "of both medians"]
    a: Summary
    b: Summary
    ratio: Ratio
    p_adjusted: Annotated[
        float | None,
        "corrected for the number of main measures, or of others (Holm); null with fewer than "
        "three pairs",
    ]
    verdict: Annotated[Verdict, "better in the metric's good direction"]
    main: Annotated[bool, "the score, or the rate of a measurement and direction"]
    a_better_on: Annotated[
        int | None, RARE, "with --hosts, for a main measure: hosts on which A is better"
    ] = None
    runtime: Annotated[float | None, RUNTIME] = None


def paired_ratios(
    a: Floats,
    b: Floats,
    quantity: Metric = POSITIVE,
    level: float = 0.95,
    *,
    forecast: bool = True,
    resolution: Floats | None = None,
) -> list[Ratio]:
    """For each row the ratio of `a` to `b` (cells x rounds, or one row against many).

    With logarithms, A/B and B/A are each other's inverse, and drift that slows both by the same
    share cancels (a two-sample t-test would count that drift as noise). Rounding may add the
    `resolution` of the two values together (logarithmic; None: that of these values): intervals
    are wider by it at both ends, and tests subtract it from the difference.
    """
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    logs_a, logs_b = logarithms(a, quantity), logarithms(b, quantity)
    logs = logs_a - logs_b
    pairs = np.isfinite(logs).sum(axis=1)
    safe = np.where(np.isfinite(logs), logs, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = safe.sum(axis=1) / pairs
        squares = np.where(np.isfinite(logs), (logs - mean[:, None]) ** 2, 0.0).sum(axis=1)
        deviation = np.maximum(np.sqrt(squares / (pairs - 1)), PRECISION)
        error = deviation / np.sqrt(pairs)
        quantile = t_isf((1 - level) / 2, pairs - 1)
        if resolution is None:
            resolution = resolution_of(a, quantity) + resolution_of(b, quantity)
        beyond = np.maximum(np.abs(mean) - resolution, 0.0)
        p = 2 * t_sf(beyond / error, pairs - 1)
        half = quantile * error + resolution
        low, high = np.exp(mean - half), np.exp(mean + half)
    ratio = np.exp(mean)
    needed = rounds_needed(beyond, deviation, 1 - level) if forecast else np.full(len(mean), np.nan)
    low, high, p = np.where(pairs >= MIN_ROUNDS, (low, high, p), np.nan)
    if quantity.step is None:
        zero = (((a == 0) | (b == 0)) & np.isfinite(logs)).any(axis=1)
        ratio, low, high, needed = np.where(zero, np.nan, (ratio, low, high, needed))
    numbers = [_or_none(column) for column in (ratio, low, high, p, needed)]
    return [
        Ratio(count, of_means, least, most, chance, None if rounds is None else int(rounds), more)
        for count, more, of_means, least, most, chance, rounds in zip(
            pairs.tolist(), (mean > 0).tolist(), *numbers, strict=True
        )
    ]


def unpaired_ratio(
    a: Floats, b: Floats, quantity: Metric, level: float = 0.95, *, resolution: float = 0.0
) -> Ratio:
    """The ratio of two cells that share no round, such as imports: Welch's t on the logarithms.

    Welch, Biometrika 34, 1947. `resolution` is that of `paired_ratios`; there is no forecast.
    """
    logs = [logarithms(values, quantity) for values in (a, b)]
    logs = [values[np.isfinite(values)] for values in logs]
    count = min(map(len, logs))
    if not count:
        return Ratio(count)
    has_zero = quantity.step is None and bool((a == 0).any() or (b == 0).any())
    mean = float(logs[0].mean() - logs[1].mean())
    ratio = None if has_zero else math.exp(mean)
    if count < MIN_ROUNDS:
        return Ratio(count, ratio, a_is_more=mean > 0)
    parts = [max(float(values.var(ddof=1)), PRECISION**2) / len(values) for values in logs]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, logs, strict=True)
    )
    error = math.sqrt(sum(parts))
    half = float(t_isf((1 - level) / 2, freedom)) * error + resolution
    low, high = math.exp(mean - half), math.exp(mean + half)
    p = 2 * float(t_sf(max(0.0, abs(mean) - resolution) / error, freedom))
    if ratio is None:
        return Ratio(count, p=p, a_is_more=mean > 0)
    return Ratio(count, ratio, low, high, p, a_is_more=mean > 0)


def _or_none(values: Floats) -> list[float | None]:
    """The values as a list, with None for each that is NaN or infinite."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def rounds_needed(mean: Floats, deviation: Floats, alpha: float, power: float = 0.8) -> Floats:
    """The least n with |mean| >= (t_alpha/2 + t_power) * deviation / sqrt(n); NaN above 1000.

    The usual sample size of a paired t-test (Cohen 1988), with t instead of normal quantiles.
    It takes the observed difference for the true one, so it is a hint, not a promise.
    """
    counts, most = _tried_rounds(), partial(_negative_effect, alpha=alpha, power=power)
    with np.errstate(invalid="ignore", divide="ignore"):
        effects = np.abs(mean) / deviation
    places = [bisect_left(counts, -effect, key=most) for effect in effects.tolist()]
    answer = np.array([*counts, np.nan])[places]
    return np.where(np.isfinite(effects), answer, np.nan)


@cache
def _tried_rounds() -> tuple[int, ...]:
    """The numbers of rounds that a forecast may name."""
    return tuple(different(np.geomspace(MIN_ROUNDS, MOST_ROUNDS, 200).astype(int)).tolist())


@lru_cache(maxsize=65536)
def _negative_effect(rounds: int, alpha: float, power: float) -> float:
    """The negative of the least effect that so many rounds show: it rises with them."""
    quantiles = t_isf(alpha / 2, rounds - 1) + t_isf(1 - power, rounds - 1)
    return -float(quantiles) / math.sqrt(rounds)


def holm(p: Floats) -> Floats:
    """P-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979).

    Controls the family-wise error under any dependence, which matters here: bandwidth, IOPS
    and latency of one measurement are nearly the same number.
    """
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def compare_cells(
    observations: Observations,
    a: MeasuredCell,
    b: MeasuredCell,
    alpha: float = 0.05,
    *,
    paired: bool = True,
) -> tuple[Comparison, ...]:
    """Every measure that both cells have: the main ones first, each group by name.

    Unless `paired`, a round of one cell has nothing to do with the same round of the other.

    Intervals are for each measure alone. The verdicts are corrected for all main measures, or for
    all others (Holm): bandwidth, IOPS and mean latency are one fact, and counting it three times
    would hide it. An interval may exclude 1 although the corrected p-value shows no difference;
    that is likely, not proven.
    """
    both = narrowed(observations, (a, b))
    row_a, row_b = both.place[a], both.place[b]
    comparisons: list[tuple[MeasureKey, Summary, Summary, Ratio]] = []
    # A mean of one rate is that rate.
    main = main_measures(both.used) - {key for key, of in both.parts.items() if len(of) == 1}
    for measure in sorted(
        both.measures, key=lambda key: (key not in main, key.name != "score", key)
    ):
        grid = both.grid(measure)
        summaries = summarise(both, measure)
        if a in summaries and b in summaries:
            resolution = both.resolution(measure)[[row_a]] + both.resolution(measure)[row_b]
            first, second, quantity = grid[row_a], grid[row_b], measure.quantity
            if paired:
                (ratio,) = paired_ratios(first, second, quantity, 1 - alpha, resolution=resolution)
            else:
                ratio = unpaired_ratio(
                    first, second, quantity, 1 - alpha, resolution=float(resolution[0])
                )
            comparisons.append((measure, summaries[a], summaries[b], ratio))
    p = np.array([np.nan if _too_few(r) or r.p is None else r.p for _, _, _, r in comparisons])
    is_main = np.array([measure in main for measure, *_ in comparisons], dtype=bool)
    adjusted = np.full(len(p), np.nan)
    for family in (is_main, ~is_main):
        known_p = family & np.isfinite(p)
        adjusted[known_p] = holm(p[known_p])
    return tuple(
        Comparison(
            a_cell=a,
            b_cell=b,
            measure=measure,
            unit=measure.quantity.unit,
            a=of_a,
            b=of_b,
            ratio=ratio,
            p_adjusted=value_or_none(adjusted, place),
            verdict=_verdict(measure, ratio, value_or_none(adjusted, place), alpha),
            main=measure in main,
        )
        for place, (measure, of_a, of_b, ratio) in enumerate(comparisons)
    )


def main_measures(measures: Iterable[MeasureKey]) -> set[MeasureKey]:
    """The overall score, and one rate of each measurement and direction.

    The rate is the first of `_RATES` that was measured; a measurement without any has no main one.
    """
    rates: dict[tuple[str, Direction], MeasureKey] = {}
    for key in sorted(measures, key=lambda key: _RATES.get(key.metric, 0)):
        if key.metric in _RATES:
            rates.setdefault((key.name, key.direction), key)
    return set(rates.values())


def against_baseline(
    observations: Observations, measure: MeasureKey, baseline: MeasuredCell, level: float = 0.95
) -> dict[MeasuredCell, Ratio]:
    """Each cell's ratio to the baseline within rounds, for the cells that share a round with it.

    The intervals are for each cell alone; `rank` shows which cells differ.
    """
    if baseline not in observations.place:
        return {}
    grid = observations.grid(measure)
    row = observations.place[baseline]
    resolution = observations.resolution(measure)
    ratios = paired_ratios(
        grid,
        grid[row : row + 1],
        measure.quantity,
        level,
        forecast=False,
        resolution=resolution + resolution[row],
    )
    return {
        cell: ratio
        for cell, ratio in zip(observations.cells, ratios, strict=True)
        if ratio.pairs and cell != baseline
    }


def _too_few(ratio: Ratio) -> bool:
    return ratio.pairs < MIN_ROUNDS


def _verdict(measure: MeasureKey, ratio: Ratio, p: float | None, alpha: float) -> Verdict:
    if _too_few(ratio) or p is None:
        return Verdict.TOO_FEW
    a_is_better = ratio.a_is_more == (measure.quantity.better is Better.HIGHER)
    if p <= alpha:
        return Verdict.A_BETTER if a_is_better else Verdict.B_BETTER
    if ratio.p is not None and ratio.p <= alpha:
        return Verdict.A_LIKELY if a_is_better else Verdict.B_LIKELY
    return Verdict.NONE_SHOWN

"""When did the level of a series of campaigns change: by steps, or step by step in a decline?

Three models of a series compete: a constant level, a level that shifts once, and a level that moves
by a straight line from some campaign on. Noise is normal and may last from campaign to campaign
(AR(1)), because load, temperature and wear last longer than a month. How long is not known, so all
models are averaged over `_LASTS`; places, sizes and the noise's scale are integrated out, too. The
ratio of two models' likelihoods is a Bayes factor (Kass & Raftery, Journal of the American
Statistical Association 90, 1995), here called odds. A priori most changes are steps, and losses. A
change is dated if the odds exceed `_least_odds`, chosen by simulation for monthly looks over two
years (`bench/trend.py`), and if they did not come with the newest campaign alone. Then both sides
of a step are searched in turn (binary segmentation).

A campaign without a number leaves a gap: the noise of its neighbours then has less in common.

Formulas: with R the covariance of AR(1) noise, u a regressor whose coefficient has the variance c
times that of the noise, the covariance is R + c u u'; its inverse follows from Sherman & Morrison
(1950). The level has a flat prior, the scale Jeffreys'. Sums from each place to the end make the
time linear in the campaigns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.paired_ratios import PRECISION
from vdisklab.value import Value, replace

DATED_FROM = 6
"""Fewest campaigns in which a change is looked for."""

_EDGE = 2
"""Fewest campaigns on either side of a step: one alone may be an outlier."""

_LASTS: Floats = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
"""What part of a campaign's noise the next campaign shares."""

_LASTS_PRIOR: Floats = np.array([0.5, 0.15, 0.12, 0.1, 0.08, 0.05])

_STEP_VARIANCES = (2.0, 50.0)
_LINE_VARIANCES = (8.0, 200.0)
"""A priori variances of a step, and of a line's change to the newest campaign, in variances of the
noise. With one variance the odds of a step have a limit, however large it is: few campaigns would
never show one of seven times the noise (Liang et al., Journal of the American Statistical
Association 103, 2008). So their likelihood is the mean over a small and a large variance."""

_STEPS = 0.9
"""A priori share of steps among changes: noise that lasts looks like a line more often. Which of
both a change is, the numbers alone decide."""

_LOSSES = 6 / 7
"""A priori share of losses among changes: a loss that is missed costs more, so a gain needs 6 times
the evidence. With equal shares, nine of ten steps of twice the noise in both directions are out of
reach of any rule that dates as few changes where noise lasts (`bench/trend.py --bound`)."""

_FEW = 56.0
_FLOOR = 0.85
_CEILING = 3.6
_OFFSET = -1.24
_SMALL = 2.0
"""The logarithm of the least odds is _OFFSET + _FEW / campaigns, at least _FLOOR and at most
_CEILING. A change below the size that matters needs _SMALL more."""

_BEFORE = 2.0
_AT_ONCE = 3.0
"""One campaign makes no lasting change: without the newest, the logarithm of the odds must have
come within _BEFORE of its least, unless it is now _AT_ONCE above."""

_STARTS_LATE = 3.0
"""A line begins later than the series only if that is e**3 = 20 times as likely."""

_LASTING = 0.4
_SURELY = 0.8


class ChangeKind(StrEnum):
    """How a level changes."""

    STEP = "step"
    LINE = "line"


class LevelChange(Value):
    """A ratio of levels, above 1 if the later one is better; None where it is unknown."""

    ratio: Annotated[float | None, "later / earlier level: 0.9 is 10 % worse"] = None
    low: Annotated[float | None, "interval of the ratio; its verb's page says which"] = None
    high: float | None = None

    @classmethod
    def of(cls, difference: float, half: float) -> LevelChange:
        """From a difference of logarithms and half the width of its interval."""
        return cls(*map(_ratio, (difference, difference - half, difference + half)))


class DatedChange(Value):
    """A lasting change of one series, by places of campaigns.

    A step is first seen at `start`, and its level lasts until `end`. A line moves from the level
    at its `start` to the level at its `end`; `each` is the ratio from one campaign to the next,
    None for a step. `odds`: how many times likelier the numbers are with changes than without.
    """

    kind: ChangeKind
    start: int
    end: int
    change: LevelChange
    each: float | None
    odds: float


def level_changes(level: Floats, *, matters: float = 0.0, doubt: float = 1.0) -> list[DatedChange]:
    """The changes of one series of logarithms, by time; NaN is a campaign without a number.

    A change whose size (a logarithm) is below what `matters` needs more evidence. All odds must be
    `doubt` times as high: the number of series that are searched.
    """
    places = np.flatnonzero(np.isfinite(level))
    found = sorted(_found(level, places, matters, math.log(doubt)), key=lambda change: change.start)
    return list(_sized(level, found))


def may_have_changed(levels: Floats, *, doubt: float = 1.0) -> npt.NDArray[np.bool_]:
    """The rows of series without gaps in which `level_changes` can date anything: its first
    search, of all rows at once."""
    places = np.arange(levels.shape[1])
    if len(places) < DATED_FROM:
        return np.zeros(len(levels), dtype=np.bool_)
    odds = np.logaddexp(*_Series.of(levels, places).odds())
    return np.asarray(odds >= _least_odds(len(places)) + math.log(doubt))


def noise_lasts(level: Floats) -> bool:
    """True if the numbers show that a campaign's noise lasts into the next, beside no change."""
    places = np.flatnonzero(np.isfinite(level))
    if len(places) < DATED_FROM:
        return False
    weight = _Series.of(level, places).none
    weight = np.exp(weight - weight.max())
    return bool(weight[_LASTS >= _LASTING].sum() > _SURELY * weight.sum())


def _found(
    level: Floats, places: np.ndarray[tuple[int], np.dtype[np.intp]], matters: float, doubt: float
) -> Iterator[DatedChange]:
    """The changes among some places; their sizes are those within the searched part."""
    count = len(places)
    if count < DATED_FROM:
        return
    series = _Series.of(level, places)
    odds_step, odds_line = series.odds()
    odds, least = float(np.logaddexp(odds_step, odds_line)), _least_odds(count) + doubt
    newest = places[-1] == np.flatnonzero(np.isfinite(level))[-1]
    if odds < least or (
        newest and odds < least + _AT_ONCE and not _nearly(level, places[:-1], doubt)
    ):
        return
    more_line = odds_line - odds_step + math.log(_STEPS / (1 - _STEPS))
    kind = ChangeKind.STEP if more_line <= 0 else ChangeKind.LINE
    if kind is ChangeKind.STEP:
        split = _EDGE + int(_by_place(series.step()).argmax())
    else:
        likely = _by_place(series.line())
        split = int(likely.argmax())
        split = 0 if likely[split] - likely[0] < _STARTS_LATE else split
    change, each = series.size(kind, split)
    if abs(math.log(change.ratio or 1.0)) < matters and odds < least + _SMALL:
        return
    last = int(places[-1])
    yield DatedChange(kind, int(places[split]), last, change, each, _ratio(odds))
    yield from _found(level, places[: split + (kind is ChangeKind.LINE)], matters, doubt)
    if kind is ChangeKind.STEP:
        yield from _found(level, places[split:], matters, doubt)


def _nearly(level: Floats, places: np.ndarray[tuple[int], np.dtype[np.intp]], doubt: float) -> bool:
    """True if a change of these places is dated, or nearly."""
    if len(places) < DATED_FROM:
        return False
    odds = float(np.logaddexp(*_Series.of(level, places).odds()))
    return odds >= _least_odds(len(places)) + doubt - _BEFORE


def _least_odds(campaigns: int) -> float:
    """The logarithm of the odds from which on a change is dated."""
    return min(_CEILING, max(_FLOOR, _OFFSET + _FEW / campaigns))


def _sized(level: Floats, found: Sequence[DatedChange]) -> Iterator[DatedChange]:
    """The changes with their sizes between their neighbours, which the search did not know."""
    measured = np.isfinite(level)
    for number, shift in enumerate(found):
        first = found[number - 1].start if number else 0
        end = found[number + 1].start if number + 1 < len(found) else shift.end + 1
        before_line = number + 1 < len(found) and found[number + 1].kind is ChangeKind.LINE
        places = np.flatnonzero(measured[first : end + before_line]) + first
        if shift.kind is ChangeKind.LINE or len(places) < DATED_FROM:
            yield replace(shift, end=min(shift.end, int(places[-1])))
            continue
        split = int((places < shift.start).sum())
        change, each = _Series.of(level, places).size(shift.kind, split)
        yield replace(shift, end=int(places[-1]), change=change, each=each)


def _ratio(difference: float) -> float:
    """Of a difference of logarithms, as far as floats reach."""
    return math.exp(min(max(difference, -700.0), 700.0))


def _total(logarithms: Floats) -> Floats:
    """The logarithm of the sum of all, over the last two axes."""
    largest = logarithms.max(axis=(-2, -1), keepdims=True)
    sums = np.log(np.exp(logarithms - largest).sum(axis=(-2, -1)))
    answer: Floats = largest[..., 0, 0] + sums
    return answer


def _by_place(logarithms: Floats) -> Floats:
    """The logarithm of the sum of each column."""
    largest = logarithms.max(axis=0)
    answer: Floats = largest + np.log(np.exp(logarithms - largest).sum(axis=0))
    return answer


def _sums_after(values: Floats) -> Floats:
    """For each column the sum of the columns after it."""
    answer = np.zeros_like(values)
    answer[..., :-1] = np.cumsum(values[..., :0:-1], axis=-1)[..., ::-1]
    return answer


class _Series(Value, eq=False):
    """Numbers in units of their spread, made independent for each of `_LASTS` (rows).

    `value`, `constant` and `time` are the numbers, a constant and the campaign's number after that;
    `share` is what a number has of noise of its own. Several series have an axis before these.
    """

    unit: Floats
    times: Floats
    value: Floats
    constant: Floats
    time: Floats
    share: Floats

    @classmethod
    def of(cls, level: Floats, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> _Series:
        centred = level[..., None, places]
        centred = centred - centred.mean(axis=-1, keepdims=True)
        unit = np.maximum(centred.std(axis=-1, keepdims=True), PRECISION)
        times = (places - places[0]).astype(np.float64)
        lasts = np.zeros((len(_LASTS), len(places)))
        lasts[:, 1:] = _LASTS[:, None] ** np.diff(times)
        share = np.sqrt(1 - lasts**2)

        def independent(values: Floats) -> Floats:
            before = np.zeros_like(values)
            before[..., 1:] = values[..., :-1]
            answer: Floats = (values - lasts * before) / share
            return answer

        value, constant, time = map(independent, (centred / unit, np.ones(len(places)), times))
        return cls(unit, times, value, constant, time, share)

    @property
    def _level_products(self) -> tuple[Floats, Floats, Floats]:
        value, constant = self.value, self.constant
        products = (value * value, value * constant, constant * constant)
        whole, cross, ones = (product.sum(axis=-1, keepdims=True) for product in products)
        return whole, cross, ones

    def _likelihood(self, spread: Floats | float, ones: Floats, squares: Floats) -> Floats:
        """The logarithm of the marginal likelihood with the prior of `_LASTS`."""
        count = self.value.shape[-1]
        squares = np.maximum(squares, count * (PRECISION / self.unit) ** 2)
        answer: Floats = -np.log(self.share).sum(axis=1, keepdims=True) - np.log(spread) / 2
        answer = answer - np.log(ones) / 2 - (count - 1) / 2 * np.log(squares)
        return answer + np.log(_LASTS_PRIOR)[:, None]

    @property
    def none(self) -> Floats:
        """The likelihood of a constant level, for each of `_LASTS`."""
        whole, cross, ones = self._level_products
        return self._likelihood(1.0, ones, whole - cross**2 / ones)

    def _with(self, products: tuple[Floats, Floats, Floats], variance: float) -> Floats:
        """The likelihood with a regressor: its products with the numbers, the constant, itself."""
        by_value, by_one, by_itself = products
        whole, cross, ones = self._level_products
        spread = 1 + variance * by_itself
        shrunk = variance / spread
        ones = ones - shrunk * by_one**2
        cross = cross - shrunk * by_value * by_one
        return self._likelihood(spread, ones, whole - shrunk * by_value**2 - cross**2 / ones)

    def _with_any(
        self, products: tuple[Floats, Floats, Floats], variances: Sequence[float]
    ) -> Floats:
        """The mean likelihood with a regressor over variances of its size."""
        likely: Floats = self._with(products, variances[0])
        for variance in variances[1:]:
            likely = np.logaddexp(likely, self._with(products, variance))
        mean: Floats = likely - math.log(len(variances))
        return mean

    def odds(self) -> tuple[Floats, Floats]:
        """The logarithms of the odds of a step and of a line, against none of both."""
        none, step, line = _total(self.none), self.step(), self.line()
        return (
            _total(step) - none + math.log(_STEPS / step.shape[-1]),
            _total(line) - none + math.log((1 - _STEPS) / line.shape[-1]),
        )

    def step(self) -> Floats:
        """Of a step at each place from `_EDGE` on, for each of `_LASTS`."""
        products = self._step_products()
        likely = self._with_any(products, _STEP_VARIANCES) + self._direction(products)
        return likely[..., _EDGE : self.value.shape[-1] - _EDGE + 1]

    def line(self) -> Floats:
        """Of a line from each place on, with three campaigns after it at least."""
        length = np.maximum(self.times[-1] - self.times, 1.0)
        by_value, by_one, by_itself = self._line_products()
        products = (by_value / length, by_one / length, by_itself / length**2)
        likely = self._with_any(products, _LINE_VARIANCES) + self._direction(products)
        return likely[..., :-3]

    def _direction(self, products: tuple[Floats, Floats, Floats]) -> Floats:
        """The logarithm of the prior of losses or of gains, as the numbers move, to their mean."""
        _, cross, ones = self._level_products
        loses = products[0] < products[1] * cross / ones
        return np.where(loses, math.log(2 * _LOSSES), math.log(2 * (1 - _LOSSES)))

    def _step_products(self) -> tuple[Floats, Floats, Floats]:
        """A step is the constant after its first number, and only its own noise at that."""
        return (
            _sums_after(self.constant * self.value) + self.value / self.share,
            _sums_after(self.constant**2) + self.constant / self.share,
            _sums_after(self.constant**2) + 1 / self.share**2,
        )

    def _line_products(self) -> tuple[Floats, Floats, Floats]:
        """A line is the time less its beginning, after its beginning."""
        ones, times = _sums_after(self.constant**2), _sums_after(self.constant * self.time)
        start = self.times
        return (
            _sums_after(self.time * self.value) - start * _sums_after(self.constant * self.value),
            times - start * ones,
            _sums_after(self.time**2) - 2 * start * times + start**2 * ones,
        )

    def size(self, kind: ChangeKind, place: int) -> tuple[LevelChange, float | None]:
        """The change at a place, and per campaign; 95 %, averaged over `_LASTS`."""
        stepped, unit = kind is ChangeKind.STEP, float(self.unit[0, 0])
        products = self._step_products() if stepped else self._line_products()
        by_value, by_one, by_itself = (product[:, [place]] for product in products)
        whole, cross, ones = self._level_products
        residual = np.maximum(by_itself - by_one**2 / ones, 1e-12)
        shown = by_value - by_one * cross / ones
        slope = (shown / residual)[:, 0]
        squares = whole - cross**2 / ones - shown**2 / residual
        freedom = self.value.shape[-1] - 2
        error = (np.maximum(squares, 1e-12) / freedom / residual)[:, 0]
        length = max(float(self.times[-1] - self.times[place]), 1.0)
        weight = self._with_any((by_value, by_one, by_itself), _STEP_VARIANCES)
        if not stepped:
            scaled = (by_value / length, by_one / length, by_itself / length**2)
            weight = self._with_any(scaled, _LINE_VARIANCES)
        weight = np.exp(weight[:, 0] - weight.max())
        weight /= weight.sum()
        mean = float(weight @ slope)
        variance = float(weight @ (error + (slope - mean) ** 2))
        half = float(t_isf(0.025, freedom)) * max(math.sqrt(variance) * unit, PRECISION)
        if stepped:
            return LevelChange.of(mean * unit, half), None
        whole_change = LevelChange.of(length * mean * unit, length * half)
        return whole_change, _ratio(mean * unit)

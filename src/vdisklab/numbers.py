"""Numbers for people: three significant digits, a unit, an interval."""

from __future__ import annotations

import math

from vdisklab.value import Value

MISSING = "–"
"""Shown for a missing number, which is never shown as zero."""

_UP = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
"""Of amounts, as images and disks have them; of rates as devices and fio's table, in 1000s."""
_DOWN = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


_WIDEST = 10.0
"""How many times its low end the high end of a ratio's interval may be: a wider one says nothing
about the ratio's size. Two or three noisy rounds give factors of thousands."""

EITHER_WAY = 2.0
"""An interval with both half and twice as good says nothing, either: no lead and no limit is named
then."""

NOT_KNOWN = "not known"
"""Shown for an interval of a ratio that tells nothing."""

_BY_SECOND = {"IOPS": " IOPS", "1/s": "/s"}
_GLUED = {
    f"{prefix}{suffix}".strip(): f"{prefix}{suffix}"
    for suffix in _BY_SECOND.values()
    for _, prefix in _UP
}


class Scale(Value):
    """A factor of the SI unit and its suffix; all numbers of a column use the same."""

    factor: float
    suffix: str
    glued: bool = False

    def value(self, number: float | None) -> str:
        """The number in this scale, without the unit."""
        return MISSING if number is None else digits(number / self.factor)

    def with_unit(self, number: float | None) -> str:
        """The number with its unit: `1.23 GB/s`, `12.3k IOPS`."""
        if number is None:
            return MISSING
        space = "" if self.glued or not self.suffix else " "
        return f"{self.value(number)}{space}{self.suffix}"

    def interval(self, low: float | None, high: float | None) -> str:
        """`1.10–1.30`, without the unit; a dash when there is none."""
        if low is None or high is None:
            return MISSING
        return f"{self.value(low)}–{self.value(high)}"


SET_BY_RANKS = "*"
"""Follows an end of an interval that the ranks set."""

RATIO = Scale(1.0, "")
"""The scale of a number without a unit, as ratios are."""


def digits(number: float) -> str:
    """Three significant digits without an exponent: `0.0123`, `1.20`, `85.0`, `12300`."""
    if not math.isfinite(number):
        return MISSING
    if number == 0:
        return "0"
    places = 2 - math.floor(math.log10(abs(number)))
    rounded = round(number, places)
    # 9.999 was rounded to 10.00: one decimal less.
    places = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{min(max(places, 0), 12)}f}"


def scale(number: float | None, unit: str) -> Scale:
    """The scale in which the number has one to three digits before the point."""
    size = abs(number) if number is not None and math.isfinite(number) else 0.0
    if unit == "s":
        factor, suffix = next(((f, s) for f, s in _DOWN if size >= f * 0.9995), (1e-9, "ns"))
        return Scale(factor, suffix) if size else Scale(1.0, "s")
    if unit == "1":
        return RATIO
    if unit == "B":
        return Scale(*next(((f, s) for f, s in _BYTES if size >= f * 0.9995), (1.0, "B")))
    factor, prefix = next(((f, p) for f, p in _UP if size >= f * 0.9995), (1.0, ""))
    if unit in _BY_SECOND:
        return Scale(factor, f"{prefix}{_BY_SECOND[unit]}", glued=True)
    return Scale(factor, f"{prefix}{unit}")


def value(number: float | None, unit: str) -> str:
    """`1.23 GB/s`, `12.3k IOPS`, `1.20k/s`, `85.0 µs`, or a dash for a missing number."""
    return scale(number, unit).with_unit(number)


def scaled(number: float, suffix: str) -> str:
    """A number in the scale of a stripped suffix, as the scale writes it: `12.3k IOPS`, `85.0 µs`;
    without a suffix the digits."""
    return f"{digits(number)}{_GLUED.get(suffix, f' {suffix}' if suffix else '')}"


def ratio(number: float | None) -> str:
    """`×1.23`."""
    return MISSING if number is None else f"×{digits(number)}"


def is_too_wide(low: float, high: float) -> bool:
    """True for an interval of a ratio that is too wide to be printed: `_WIDEST`, `EITHER_WAY`."""
    return high > _WIDEST * low or (low * EITHER_WAY <= 1 and high >= EITHER_WAY)


def interval(scale: Scale, low: float | None, high: float | None) -> str:
    """An interval in a scale, without the unit: that of a ratio as `ratio_interval`."""
    return ratio_interval(low, high) if scale == RATIO else scale.interval(low, high)


def ratio_interval(low: float | None, high: float | None) -> str:
    """`1.10–1.37`; of one that is too wide only the end next to 1: `above 2.00`, or `not known`. An
    end that is exactly 1 was set by the ranks, and has their mark: `0.83–1.00*`."""
    if low is None or high is None or not is_too_wide(low, high):
        text = RATIO.interval(low, high)
        if (low == 1) is (high == 1):
            return text
        return f"{text}{SET_BY_RANKS}" if high == 1 else text.replace("–", f"{SET_BY_RANKS}–")
    if low > 1:
        return f"above {digits(low)}"
    return f"below {digits(high)}" if high < 1 else NOT_KNOWN


def percent(change: float) -> str:
    """A change in percent as sentences round it, without the word for percent: `12`, `-3.4`."""
    size = abs(change)
    if size < 0.05:
        return "0"
    return f"{change:.0f}" if size >= 9.95 else f"{change:.1f}"


def percent_at_most(share: float, digits: int = 0, least: float = 0.0) -> str:
    """A limit from above in percent, rounded up, so that it holds: `10`, and never below `least`.

    There are three rules, for three kinds of percentages: a limit from above is rounded up, one
    from below down (`percent_at_least`), and an estimate to the nearest (`percent`; of shares
    `units.in_percent`).
    """
    # 1e-9: a limit of exactly 10 % may be stored as 0.1000000000000001.
    return f"{max(least, math.ceil(100 * share * 10**digits - 1e-9) / 10**digits):g}"


def percent_at_least(share: float) -> str:
    """A limit from below in whole percent, rounded down, so that it holds: `31`."""
    return f"{math.floor(100 * share)}"


def gain(number: float | None, low: float | None, high: float | None) -> str:
    """A ratio as a change in percent with its interval: `+35 % (12–60)`, `-3.1 % (-9.2 to 4.0)`.

    Of an interval that is too wide only the end next to no change: `+640 % (above 100)`; `not
    known` if it holds no change.
    """
    if number is None:
        return MISSING
    change = f"{'' if number < 1 else '+'}{percent((number - 1) * 100)} %"
    if low is None or high is None:
        return change
    if is_too_wide(low, high):
        if low <= 1 <= high:
            return NOT_KNOWN
        side, end = ("above", low) if low > 1 else ("below", high)
        return f"{change} ({side} {percent((end - 1) * 100)})"
    first, last = (percent((end - 1) * 100) for end in (low, high))
    return f"{change} ({first}–{last})" if low >= 1 else f"{change} ({first} to {last})"


def known_gain(number: float | None, low: float | None, high: float | None) -> str | None:
    """The same for a sentence; None if it would say nothing, so that the sentence is left out."""
    text = gain(number, low, high)
    return None if text in (MISSING, NOT_KNOWN) else text


def known_interval(low: float | None, high: float | None) -> str | None:
    """`ratio_interval` for a sentence; None if it would say nothing."""
    text = ratio_interval(low, high)
    return None if text in (MISSING, NOT_KNOWN) else text


def probability(p: float | None) -> str:
    """`0.03`, `<0.001`."""
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def place(best: int, worst: int) -> str:
    """`1`, or `2–4` for a tie."""
    return str(best) if best == worst else f"{best}–{worst}"

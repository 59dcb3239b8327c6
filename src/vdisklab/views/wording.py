"""Diagnostics as sentences: what limits a number, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from vdisklab import numbers
from vdisklab.analysis.best import NEGLIGIBLE, SHOWS_NOTHING, BestSet
from vdisklab.analysis.measure_words import measure_words
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Comparison, Ratio, Verdict
from vdisklab.analysis.rank_intervals import Ranked
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.units import counted, in_percent, runtime_text
from vdisklab.value import Value, replace

LEAST_NOISE = 0.0005
"""Noise below this would be shown as 0 %, such as that of zeros only."""


OTHER_VERB = (
    "`rank` and `compare` may disagree about a pair: `rank` corrects for all pairs and pools their "
    "noise, `compare` looks at that pair alone."
)
"""Why two verbs may disagree; both print it."""

WITH_STEP = (
    "Values that can be zero, such as stalls, are compared as value + step, so their ratios "
    "differ from those of the medians (`vdisklab method zero`)."
)

_MANY_TIMES = 10
"""A ratio of 1 to this or more is told as times, as 99 % slower says little."""


def margin_text(margin: float) -> str:
    """`2.5 %`: how much better another path may be than a race's winner, in up to 3 digits."""
    return f"{100 * margin:.3g} %"


def ends_at_one(ends: Iterable[tuple[float | None, float | None]]) -> Iterator[str]:
    """Why intervals end at 1, if one of these does."""
    if any(both.count(1.0) == 1 for both in ends):
        yield (
            f"1.00{numbers.SET_BY_RANKS}: the ranks set this end of an interval, as they compare "
            "all paths at once, and decide whether a difference is shown."
        )


def less_certain(rows: Sequence[tuple[MeasuredCell, Ranked]]) -> Iterator[str]:
    """Why a better number may have a worse rank, if one of these rows, best number first, has."""
    for (above, its_place), (below, place) in pairwise(rows):
        if its_place.best > place.best:
            yield (
                f"{above.label} has the better number and {below.label} the better rank: the "
                f"numbers of {below.label} are less certain, so it may still be better."
            )
            return


def measure_name(measure: MeasureKey) -> str:
    """`weighted overall` for a score, otherwise the measure's full name."""
    return measure.metric.replace("_", " ") if measure.name == "score" else str(measure)


def mean_sentence(
    rates: Sequence[MeasureKey], baseline: object, seconds: float | None = None
) -> str:
    """A sentence that explains the overall ratio of a profile without the usual score; each rate
    was measured for so many seconds, if that is known."""
    names = "; ".join(map(measure_words, rates))
    kind = "time" if all(key.quantity.better is Better.LOWER for key in rates) else "rate"
    each = "" if seconds is None else f" of {runtime_text(seconds)}{' each' * (len(rates) > 1)}"
    return (
        f"overall ratio: how many times as good as {baseline} in the same round, as the geometric "
        f"mean of {counted(len(rates), kind)}{each}: {names}."
    )


def compared(row: Comparison, of: str = "round") -> str:
    """How A compares with B in one measure: `between 43 % slower and 12 % faster`.

    An interval that includes 1 shows no difference. A difference is "likely" if the interval shows
    it, but not the test corrected for all rows.
    """
    if row.verdict is Verdict.TOO_FEW:
        return f"too few {of}s ({row.ratio.pairs})"
    likely = row.verdict in (Verdict.A_LIKELY, Verdict.B_LIKELY)
    if against_zero(row):
        return f"{_against_zero(row)}{', likely' * likely}"
    return difference_in(row.measure, row.ratio, of) + ", likely" * likely


def difference_in(measure: MeasureKey, ratio: Ratio, of: str = "round") -> str:
    """The words for a ratio of two values of a measure: `12 % faster`; of bytes and of other
    counts, which are not fast, `12 % less`."""
    if _is_amount(measure):
        return difference(ratio, _AMOUNT, of)
    return difference(above_is_better(ratio, measure), of=of)


def _is_amount(measure: MeasureKey) -> bool:
    """True for counts, which may be zero and so have a step: bytes, flushes, syncs."""
    return measure.quantity.step is not None and measure.quantity.unit in ("B", "1")


def against_zero(row: Comparison) -> bool:
    """True if one median is zero: the ratio is that of the metric's step, and says nothing."""
    return row.measure.quantity.step is not None and 0.0 in (row.a.median, row.b.median)


def _against_zero(row: Comparison) -> str:
    """The words where one median is zero: a ratio would be that of the metric's step."""
    if row.a.median == row.b.median:
        return "the same: both are zero"
    if row.verdict is Verdict.NONE_SHOWN:
        return "not shown to differ (one is zero, so there is no ratio)"
    more = row.a.median > row.b.median
    said = "more" if more else "less"
    if not _is_amount(row.measure):
        said = "better" if more is (row.measure.quantity.better is Better.HIGHER) else "worse"
    return f"{said} (one is zero, so there is no ratio)"


def above_is_better(ratio: Ratio, measure: MeasureKey) -> Ratio:
    """The ratio, inverted for a measure whose lower values are better."""
    return inverted(ratio) if measure.quantity.better is Better.LOWER else ratio


def inverted(ratio: Ratio) -> Ratio:
    """B / A of A / B."""
    size, high, low = (1 / end if end else None for end in (ratio.ratio, ratio.low, ratio.high))
    return Ratio(ratio.pairs, size, low, high)


class _Words(Value):
    """What a ratio above 1 and below 1 is called."""

    above: str
    below: str
    times: str

    def too_few(self, of: str) -> str:
        """The words for a ratio whose interval is too wide and holds no change."""
        return f"not shown to be {self.above} or {self.below}: so few {of}s tell nothing"


_SPEED = _Words("faster", "slower", "as fast")
_AMOUNT = _Words("more", "less", "as much")


def at_most(ratio: Ratio) -> str | None:
    """`at most 23 % faster`, if one end of the interval is 1: the ranks, which compare all paths at
    once, set that end, and show no difference. None for another interval."""
    ends = (ratio.low, ratio.high)
    far = next((end for end in ends if end is not None and end != 1), None)
    if 1.0 not in ends or far is None:
        return None
    return f"at most {difference(replace(ratio, ratio=far, low=None, high=None))}"


def difference(ratio: Ratio, called: _Words = _SPEED, of: str = "round") -> str:
    """The words for a ratio (above 1 is better): `between 43 % slower and 12 % faster`.

    Without an interval it is `12 % faster`; with one that tells nothing it says so, of rounds or
    hosts.
    """
    if ratio.ratio is None:
        return (
            "not comparable, as one value is zero" if ratio.pairs else "in no round with the other"
        )
    if ratio.low is None or ratio.high is None:
        return " ".join(_change(ratio.ratio, called))
    low, high = _change(ratio.low, called), _change(ratio.high, called)
    if numbers.is_too_wide(ratio.low, ratio.high):
        if ratio.low <= 1 <= ratio.high:
            return called.too_few(of)
        return f"at least {' '.join(low if ratio.low > 1 else high)}"
    if low == high:
        return " ".join(low)
    if low[1] == high[1] and ratio.high < 1:
        low, high = high, low  # the smaller number first
    return f"between {low[0] if low[1] == high[1] else ' '.join(low)} and {' '.join(high)}"


def _change(times: float, called: _Words) -> tuple[str, str]:
    """`("12", "% faster")`, `("3.2", "times as fast")`, `("15", "times slower")`."""
    if times < 1 / _MANY_TIMES:
        below = called.below
        return (_rounded(1 / times), f"times {below}") if times else ("infinitely", below)
    if times >= 2:
        return _rounded(times), f"times {called.times}"
    percent = abs(times - 1) * 100
    number = _rounded(percent) if percent >= 1 or not percent else f"{percent:.1f}"
    return (
        "under 0.1" if number == "0.0" else number
    ), f"% {called.below if times < 1 else called.above}"


def _rounded(number: float) -> str:
    """Two significant digits: `0.42`, `1.2`, `43`, `1200`."""
    rounded = float(f"{number:.1e}")
    size = 1 if rounded < 1e-6 else math.floor(math.log10(rounded))
    return f"{rounded:.{max(0, 1 - size)}f}"


def reach_sentence(best: BestSet) -> str | None:
    """The leads that the rounds can show; None without noise or anything to compare."""
    if best.shows is None or best.noise < LEAST_NOISE:
        return None
    race = (
        f" A race (no `--rounds`) needs the fewest runs for a path within {in_percent(NEGLIGIBLE)} "
        "of the best."
        if best.shows > NEGLIGIBLE and not best.alone
        else ""
    )
    rounds, noise = counted(best.rounds, "round"), math.expm1(best.noise)
    if best.shows >= SHOWS_NOTHING:
        return (
            None
            if best.alone
            else f"{rounds} are too few to show which path is the best: repeated runs of a path "
            f"differ by about {in_percent(noise)} here.{race}"
        )
    return (
        f"{rounds} usually show which path is the best if it is {in_percent(best.shows)} better "
        f"than the next or more: repeated runs of a path differ by about {in_percent(noise)} "
        f"here.{race}"
    )

"""`method`: how each shown number is computed, with its limits and its source.

The entries stand in method.toml; thresholds come from the code that uses them.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Annotated

from vdisklab.analysis import race
from vdisklab.analysis.diagnostics import recorded, values
from vdisklab.analysis.intervals import MIN_ROUNDS, ORDER_STATISTICS_FROM
from vdisklab.analysis.paired_ratios import MOST_ROUNDS
from vdisklab.documents import Answer
from vdisklab.path.adjacent import RULE as SIMPLEST
from vdisklab.value import Value

_THRESHOLDS = {
    "order_statistics_from": ORDER_STATISTICS_FROM, "min_rounds": MIN_ROUNDS,
    "first_look": race.LOOKS[0], "both_seen": race.BOTH_SEEN,
    "seldom": race.SELDOM, "seldom_percent": 100 * math.expm1(race.SELDOM_SEEN),
    "unseen_percent": 100 * math.expm1(race.UNSEEN), "simplest": SIMPLEST,
    "most_rounds": MOST_ROUNDS, "from_cache_below": recorded.FROM_CACHE_BELOW,
    "trend_from": values.TREND_FROM, "smallest_trend": values.SMALLEST_TREND,
    "slow_first": 1 - values.SLOW_FIRST_BELOW, "smallest_mode_ratio": values.SMALLEST_MODE_RATIO,
    "guest_ceiling": values.GUEST_CEILING_SHARE, "ceiling": values.CEILING_SHARE,
    "stolen_above": recorded.STOLEN_ABOVE, "clock_tolerance": recorded.CLOCK_TOLERANCE - 1,
}  # fmt: skip

_TOLD = tomllib.loads(files(__package__).joinpath("method.toml").read_text("utf-8"))


class Explanation(Value):
    """How a kind of number is computed."""

    title: str
    shown_by: Annotated[tuple[str, ...], "verbs"]
    keys: Annotated[tuple[str, ...], "in JSON and CSV: keys, and metrics"]
    how: str
    source: str


class MethodAnswer(Answer):
    """`vdisklab method`: how each number is computed."""

    FORMAT = "vdisklab.method/2"

    numbers: tuple[Explanation, ...]


def explanations_about(word: str | None) -> MethodAnswer:
    """The entries with the word in their title, keys or verbs; all for None.

    If the word is a whole title, only titles are searched.
    """
    wanted = (word or "").lower()
    titled = wanted in {entry.title.lower() for entry in EXPLANATIONS}
    return MethodAnswer(
        tuple(
            entry
            for entry in EXPLANATIONS
            if wanted in entry.title.lower()
            or (
                not titled
                and any(wanted in name.lower() for name in (*entry.keys, *entry.shown_by))
            )
        )
    )


def _entries(rows: list[Mapping[str, str]]) -> Iterator[Explanation]:
    for row in rows:
        verbs = tuple(verb.strip() for verb in row["shown_by"].split(","))
        how = " ".join(row["how"].split()).format_map(_THRESHOLDS)
        how = re.sub(r"(?<=\d)%", " %", how)  # as sentences write it; Python's format does not
        yield Explanation(row["title"], verbs, tuple(row["keys"].split()), how, row["source"])


MAIN = tuple(_entries(_TOLD["main"]))
"""The numbers that a decision rests on: docs/method.md."""

EXPLANATIONS = (*MAIN, *_entries(_TOLD["others"]))

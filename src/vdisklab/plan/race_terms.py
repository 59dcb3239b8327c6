"""What a race of paths promises, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from vdisklab.errors import PlanError
from vdisklab.path.needs import DURABLE, Need, parse_need
from vdisklab.value import Value

SEARCH_ROUNDS = 20
"""Limit of a model's search for a shortlist: as many runs as this many rounds of all cells."""


DEFAULT_MARGIN = 0.1
"""A path that is worse than the best by less than this share counts as good as the best."""

DEFAULT_CONFIDENCE = 0.95

MOST_ROUNDS = 60
"""A race without a decision ends after this many rounds."""


class RaceTerms(Value):
    """What a race promises: no path is better than its winner by more than `margin`.

    It is right with `confidence`, and ends after `rounds` at the latest. Paths that lack one of the
    `needs` do not compete. If there are many paths, a model of their segments makes a `shortlist`
    of those that race. Each of `groups` races apart: the names of its paths.
    """

    margin: float = DEFAULT_MARGIN
    confidence: float = DEFAULT_CONFIDENCE
    metric: str = "overall"
    needs: tuple[Need, ...] = (DURABLE,)
    shortlist: bool = False
    rounds: int = MOST_ROUNDS
    groups: tuple[tuple[str, ...], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The form that a stored campaign's plan has."""
        return {
            "margin": self.margin,
            "confidence": self.confidence,
            "metric": self.metric,
            "needs": list(map(str, self.needs)),
            "shortlist": self.shortlist,
            "rounds": self.rounds,
            **({"groups": list(map(list, self.groups))} if self.groups else {}),
        }

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Self | None:
        """The terms in a stored plan; None if it has none, or none that are understood."""
        stored = plan.get("race")
        if not isinstance(stored, Mapping):
            return None
        try:
            terms = cls(
                float(stored["margin"]),
                float(stored["confidence"]),
                str(stored["metric"]),
                tuple(map(parse_need, stored["needs"])),
                bool(stored["shortlist"]),
                int(stored["rounds"]),
                tuple(tuple(map(str, group)) for group in stored.get("groups", ())),
            )
        except (TypeError, KeyError, ValueError, PlanError):
            return None
        return terms if terms.margin > 0 and 0 < terms.confidence < 1 else None

"""What can come of a power cut, for one state and for a path. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What one state turned out to be, best first."""

    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"
    GARBAGE = "garbage"
    DAMAGED = "image damaged"
    DATABASE = "database corrupt"
    AFTERLIFE = "corrupt in the afterlife"
    UNREADABLE = "image unreadable"
    UNMOUNTABLE = "file system unmountable"

    @property
    def is_loss(self) -> bool:
        """A promise was broken."""
        return self is not Outcome.KEPT


@dataclass(frozen=True, slots=True)
class Judged:
    """One state: which cut, what came of it, and what else was seen. `leaked` is normal."""

    cut: str
    outcome: Outcome
    detail: str = ""
    leaked: int = 0
    repaired: bool = False
    lived_on: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one recording. `witness` is the first state that broke a promise."""

    outcomes: Mapping[Outcome, int]
    states: int
    possible: int
    exhaustive: bool
    promises: int
    witness: Judged | None
    leaked_states: int
    repaired_states: int
    afterlives: int

    @property
    def survives(self) -> bool | None:
        """Whether no promise was broken; None when nothing was judged, or nothing promised."""
        if self.witness is not None:
            return False
        return True if self.states and self.promises else None

    @property
    def loss_bound(self) -> float | None:
        """Upper end of the 95 % interval for the share of bad states, by the rule of three.

        Of n independent states without a loss, a share above 3/n would have shown itself with a
        probability of 95 % (Hanley and Lippman-Hand, JAMA 1983). None after a loss, and where
        every state was judged: there is nothing left to estimate.
        """
        if self.survives is not True or self.exhaustive:
            return None
        return min(1.0, 3.0 / self.states)

    @property
    def claim(self) -> str:
        """What may be said, and no more."""
        model = "everything before the last completed flush is durable, any subset of the rest is"
        if self.survives is None:
            return "nothing was promised in this run, so nothing can be said"
        if self.survives is False:
            bad = sum(count for outcome, count in self.outcomes.items() if outcome.is_loss)
            return f"for this recorded run, {bad} of {self.states} power cuts break a promise"
        if self.exhaustive:
            return (
                f"for this recorded run, under the model that {model}, no power cut breaks a "
                f"promise: all {self.states} states were judged"
            )
        return (
            f"for this recorded run, under the model that {model}, none of {self.states} power "
            f"cuts of {self.possible} possible ones breaks a promise; at most "
            f"{self.loss_bound:.2%} of them do (95 %)"
        )


def summarise(
    judged: Iterable[Judged], *, possible: int, exhaustive: bool, promises: int
) -> Verdict:
    """The verdict over states in the order in which they were selected."""
    states = tuple(judged)
    return Verdict(
        outcomes=dict(Counter(each.outcome for each in states)),
        states=len(states),
        possible=possible,
        exhaustive=exhaustive,
        promises=promises,
        witness=next((each for each in states if each.outcome.is_loss), None),
        leaked_states=sum(1 for each in states if each.leaked),
        repaired_states=sum(1 for each in states if each.repaired),
        afterlives=sum(1 for each in states if each.lived_on),
    )

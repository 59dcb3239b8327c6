"""How many guests a path carries: the numbers of guests to try next, and the capacity's interval.

A step is one run with some number of guests, and it passes or fails. Near the limit it sometimes
passes, so the answer is a fit of the probability of passing, which falls with the number of guests:

    P(pass | n) = slip / 2 + (1 - slip) / (1 + exp((n - limit) / width))

`limit` has a flat prior, `width` a flat prior of its logarithm; the capacity is the largest whole
number up to `limit`, the number of guests that still passes more often than it fails. The interval
has 95 % of the posterior probability. bench/density.py shows by simulation that it covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
REPEATS = 5
"""How often the numbers of guests next to the limit are measured."""

_SLIP = 0.02
_STEPS = 20  # of the limit, for each guest
_WIDTHS = np.geomspace(0.05, 1.0, 12)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The number of guests that a path carries, with its 95 % interval.

    `at_least` is True if the largest number that was tried passed: the true one may be higher.
    """

    guests: int
    low: int
    high: int
    at_least: bool


Outcomes = Mapping[int, Sequence[bool]]
"""Whether each run passed, by its number of guests."""


def next_steps(outcomes: Outcomes, most: int, repeats: int = REPEATS) -> tuple[int, ...]:
    """The numbers of guests to measure in the next round; empty when the capacity is known.

    First they are doubled until a step fails, then halved between; then the numbers on both sides
    of the limit are repeated, each once in a round.
    """
    passing, failing = _bracket(outcomes)
    if not outcomes:
        return (1,)
    if failing is None:
        if passing < most:
            return (min(2 * passing, most),)
    elif failing - passing > 1:
        return ((passing + failing) // 2,)
    beside = [number for number in (passing, failing) if number]
    return tuple(number for number in beside if len(outcomes[number]) < repeats)


def _bracket(outcomes: Outcomes) -> tuple[int, int | None]:
    """The largest number that mostly passed (0: none) below the smallest that mostly failed."""
    failing = min((n for n, passed in outcomes.items() if not _mostly(passed)), default=None)
    below = (n for n in outcomes if failing is None or n < failing)
    return max([0, *below]), failing


def _mostly(passed: Sequence[bool]) -> bool:
    return 2 * sum(passed) > len(passed)


def capacity(outcomes: Outcomes, most: int) -> Capacity | None:
    """The capacity, from all runs of a path; `most` is the largest number that can be tried.

    None without runs. Nothing is known of larger numbers than those tried until one has failed.
    """
    if not any(outcomes.values()):
        return None
    if _bracket(outcomes)[1] is None:
        most = max(outcomes)
    probability = _posterior(outcomes, most)
    guests = int(probability.argmax())
    below = np.cumsum(probability)
    tail = (1 - LEVEL) / 2
    return Capacity(
        guests=guests,
        low=int(np.searchsorted(below, tail, side="right")),
        high=min(most, int(np.searchsorted(below, 1 - tail, side="left"))),
        at_least=guests == most,
    )


def _posterior(outcomes: Outcomes, most: int) -> npt.NDArray[np.float64]:
    """The probability of each capacity from 0 to `most`, which stands for `most` and more."""
    limits = np.arange(0, most + 1, 1 / _STEPS) + 0.5 / _STEPS
    logs = np.zeros((len(limits), len(_WIDTHS)))
    for number, passed in outcomes.items():
        exponent = np.clip((number - limits[:, None]) / _WIDTHS[None, :], -60, 60)
        chance = _SLIP / 2 + (1 - _SLIP) / (1 + np.exp(exponent))
        successes = sum(passed)
        logs += successes * np.log(chance) + (len(passed) - successes) * np.log(1 - chance)
    weights = np.exp(logs - logs.max()).sum(axis=1)
    shares = weights.reshape(most + 1, _STEPS).sum(axis=1)
    return np.asarray(shares / shares.sum())

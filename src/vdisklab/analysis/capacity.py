"""How many guests a path carries: the numbers of guests to try next, and the capacity's interval.

A step is one run with some number of guests, and it passes or fails. Near the limit it sometimes
passes, so the answer is a fit of the probability of passing, which falls with the number of guests:

    P(pass | n) = slip / 2 + (1 - slip) / (1 + exp((n - limit * exp(drift * z)) / width))

A disk may be slower in one round than in another: each round has its own z, which is normal, and a
part of z lasts into the next round (AR(1)). If it is slow for the whole search, the numbers alone
do not tell that from a smaller limit, so the interval allows for it. `limit` has a flat prior,
`width` a flat prior of its logarithm from a cliff to a slope of a dozen guests, `drift` is one of a
few sizes, and so is the part that lasts. The capacity is the largest whole number up to `limit`,
the number of guests that still passes more often than it fails. The interval has 95 % of the
posterior probability.

z has five values, whose chain of rounds has the mean, variance and autocorrelation of AR(1)
(Rouwenhorst 1995; Kopecky & Suen, Review of Economic Dynamics 13, 2010), so the probability of all
runs is a sum over chains (the forward algorithm). bench/density.py shows by simulation how often it
covers.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vdisklab.value import Value

LEVEL = 0.95
SURE = 0.98
"""A search to a precision ends when so much of the probability lies in few enough guests: one that
ended when the 95 % interval was narrow would end too often when that is narrow by chance."""
REPEATS = 5
"""How often the numbers of guests next to the limit are measured."""
MOST_REPEATS = 40
"""The same, while the interval is wider than it should be."""

_SLIP = 0.02
_STEPS = 5  # of the limit, for each guest
_MOST_STEPS = 2500
_WIDTHS = np.geomspace(0.05, 12.0, 10)
_DRIFTS = {
    (0.0, 0.0): 1.0,
    **{(drift, 0.0): 1.0 for drift in (0.06, 0.2)},
    **{(drift, lasts): 0.4 for drift in (0.06, 0.2) for lasts in (0.6, 0.9)},
}
"""How much the limit differs from round to round, and what part of that lasts into the next, with
the weight of each before any run. More weight of what lasts widens the interval of a steady disk,
which looks the same in a few rounds."""

_PLACES = 5
"""Values of z."""


Outcomes = Mapping[int, Mapping[int, bool]]
"""Whether each run passed, by its number of guests and its round."""


class Capacity(Value):
    """The number of guests that a path carries, with its 95 % interval.

    `at_least` is True if the largest number that was tried passed: the true one may be higher.
    `lasts` is the probability that the disk stays slower or faster for several rounds (before any
    run: 0.35).
    """

    guests: int
    low: int
    high: int
    at_least: bool
    lasts: float = 0.0


def next_steps(
    outcomes: Outcomes, most: int, repeats: int | None = None, narrow: int | None = None
) -> tuple[int, ...]:
    """The numbers of guests to measure in the next round; empty when the capacity is known.

    The number is doubled until a step fails. Then the middle between the largest number that passed
    and the smallest that failed is tried, until they are neighbours. Then the two numbers around
    the limit are repeated, each once in a round: `repeats` times, or until the interval spans no
    more than `narrow` guests.
    """
    passing, failing = _bracket(outcomes)
    if not outcomes:
        return (1,)
    if failing is None:
        if passing < most:
            return (min(2 * passing, most),)
    elif failing - passing > 1:
        return ((passing + failing) // 2,)
    limit = repeats or (REPEATS if narrow is None else MOST_REPEATS)
    if narrow is None:
        beside = [number for number in (passing, failing) if number]
        return tuple(number for number in beside if len(outcomes[number]) < limit)
    below = np.cumsum(_posterior(outcomes, most))
    low, high = _interval(below, SURE)
    repeated = sum(map(len, outcomes.values())) - len(outcomes)
    if high - low <= narrow or repeated >= 2 * limit:
        return ()
    around = {int(np.searchsorted(below, share)) for share in (0.2, 0.8)}
    return tuple(sorted({max(1, min(around)), min(most, max(around) + 1)}))


def _bracket(outcomes: Outcomes) -> tuple[int, int | None]:
    """The largest number that mostly passed (0: none) below the smallest that mostly failed."""
    failing = min((n for n, passed in outcomes.items() if not _mostly(passed)), default=None)
    below = (n for n in outcomes if failing is None or n < failing)
    return max([0, *below]), failing


def _mostly(passed: Mapping[int, bool]) -> bool:
    return 2 * sum(passed.values()) > len(passed)


def capacity(outcomes: Outcomes, most: int) -> Capacity | None:
    """The capacity, from all runs of a path; `most` is the largest number that can be tried.

    None without runs. Nothing is known of larger numbers than those tried until one has failed.
    """
    if not any(outcomes.values()):
        return None
    if _bracket(outcomes)[1] is None:
        most = max(outcomes)
    weights = _weights(outcomes, most)
    probability = _by_guests(weights, most)
    guests = int(probability.argmax())
    low, high = _interval(np.cumsum(probability), LEVEL)
    lasts = weights[[part > 0 for _, part in _DRIFTS]].sum() / weights.sum()
    return Capacity(guests, low, high, at_least=guests == most, lasts=float(lasts))


def _interval(below: npt.NDArray[np.float64], level: float) -> tuple[int, int]:
    """The smallest and largest number of guests, from the cumulated probability."""
    tail = (1 - level) / 2
    high = int(np.searchsorted(below, 1 - tail, side="left"))
    return int(np.searchsorted(below, tail, side="right")), min(len(below) - 1, high)


def _posterior(outcomes: Outcomes, most: int) -> npt.NDArray[np.float64]:
    """The probability of each capacity from 0 to `most`, which stands for `most` and more: up to
    twice as many if none has failed."""
    return _by_guests(_weights(outcomes, most), most)


def _by_guests(weights: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """The same, from `_weights`."""
    shares = weights.sum(axis=0).reshape(-1, _steps(most)).sum(axis=1)
    shares = np.append(shares[:most], shares[most:].sum())
    return np.asarray(shares / shares.sum())


def _steps(most: int) -> int:
    return max(1, min(_STEPS, _MOST_STEPS // (most + 1)))


def _weights(outcomes: Outcomes, most: int) -> npt.NDArray[np.float64]:
    """The probability of each of `_DRIFTS` and each limit, all times one factor."""
    steps = _steps(most)
    largest = most if _bracket(outcomes)[1] is not None else 2 * most
    limits = (np.arange((largest + 1) * steps) + 0.5) / steps
    by_round: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for number, passed in outcomes.items():
        for round in passed:
            by_round[round].append((number, passed[round]))
    rounds = [by_round[round] for round in sorted(by_round)]
    logs = np.array(
        [
            _log_likelihood(rounds, limits, *drift) + math.log(weight)
            for drift, weight in _DRIFTS.items()
        ]
    )
    return np.asarray(np.exp(logs - logs.max()).sum(axis=2))


def _log_likelihood(
    rounds: Sequence[Sequence[tuple[int, bool]]],
    limits: npt.NDArray[np.float64],
    drift: float,
    lasts: float,
) -> npt.NDArray[np.float64]:
    """By limit and width, the logarithm of the probability of all runs, round by round."""
    places, shares, moves = _chain(lasts) if drift else (np.zeros(1), np.ones(1), np.ones((1, 1)))
    here = (limits * np.exp(drift * places)[:, None])[:, :, None]
    passing = {
        number: _SLIP / 2 + (1 - _SLIP) / (1 + np.exp(np.clip((number - here) / _WIDTHS, -60, 60)))
        for number in {number for runs in rounds for number, _ in runs}
    }
    answer = np.zeros((len(limits), len(_WIDTHS)))
    chance = np.ones_like(here * _WIDTHS) * shares[:, None, None]
    for turn, runs in enumerate(rounds):
        if turn:
            chance = np.tensordot(moves.T, chance, 1)
        for number, passed in runs:
            chance = chance * (passing[number] if passed else 1 - passing[number])
        total = chance.sum(axis=0)
        answer += np.log(total)
        chance = chance / total
    return answer


@functools.cache
def _chain(
    lasts: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The values of z, their shares, and the probabilities of the next value (rows: this one's)."""
    stays = (1 + lasts) / 2
    moves = np.array([[stays, 1 - stays], [1 - stays, stays]])
    for size in range(3, _PLACES + 1):
        larger = np.zeros((size, size))
        larger[:-1, :-1] += stays * moves
        larger[:-1, 1:] += (1 - stays) * moves
        larger[1:, :-1] += (1 - stays) * moves
        larger[1:, 1:] += stays * moves
        larger[1:-1] /= 2
        moves = larger
    most = math.sqrt(_PLACES - 1)
    shares = np.array([math.comb(_PLACES - 1, place) for place in range(_PLACES)], np.float64)
    return np.linspace(-most, most, _PLACES), shares / shares.sum(), moves

"""How many guests a path carries: the search's steps, and intervals that cover the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.analysis.capacity import REPEATS, Capacity, capacity, next_steps


def search(
    passes: Callable[[int], bool], most: int, repeats: int = REPEATS
) -> tuple[Capacity, dict[int, list[bool]]]:
    """The answer of a whole search, and all its outcomes."""
    outcomes: dict[int, list[bool]] = {}
    while steps := next_steps(outcomes, most, repeats):
        for guests in steps:
            outcomes.setdefault(guests, []).append(passes(guests))
    found = capacity(outcomes, most)
    assert found is not None
    return found, outcomes


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 6))
def test_a_cliff_is_found_where_it_is(truth: int, most: int, repeats: int) -> None:
    found, outcomes = search(lambda guests: guests <= truth, most, repeats)
    assert found.guests == min(truth, most)
    assert found.low <= found.guests <= found.high <= most
    assert found.at_least is (truth >= most)
    assert sum(map(len, outcomes.values())) <= 2 * repeats + 2 * math.log2(most) + 2


def test_the_steps_are_doubled_and_then_halved() -> None:
    _, outcomes = search(lambda guests: guests <= 5, 64, repeats=2)
    assert list(outcomes) == [1, 2, 4, 8, 6, 5]
    assert {guests: len(passed) for guests, passed in outcomes.items() if guests in (5, 6)} == {
        5: 2,
        6: 2,
    }


def test_five_repeats_of_a_cliff_leave_no_doubt() -> None:
    found, _ = search(lambda guests: guests <= 3, 8)
    assert (found.low, found.guests, found.high) == (3, 3, 3)


def test_a_search_that_did_not_end_says_nothing_of_larger_numbers() -> None:
    once_failed = {1: [True], 2: [False, True, True], 4: [True]}
    for outcomes in ({1: [True]}, {1: [True], 2: [True], 4: [True]}, once_failed):
        found = capacity(outcomes, 16)
        assert found is not None
        assert (found.guests, found.high, found.at_least) == (max(outcomes), max(outcomes), True)


def test_nothing_measured_is_no_answer() -> None:
    assert capacity({}, 4) is None
    assert next_steps({}, 4) == (1,)


@pytest.mark.parametrize("width", [0.03, 0.3, 0.6])
def test_the_interval_covers_the_truth(width: float) -> None:
    """Guests that pass with a probability; bench/density.py has the whole simulation."""
    chance = random.Random(7)  # noqa: S311 - reproducible, not secret
    covered = 0
    for _ in range(100):
        limit = chance.uniform(1, 11)

        def passes(guests: int, limit: float = limit) -> bool:
            exponent = max(-60.0, min(60.0, (guests - limit) / width))
            return chance.random() < 1 / (1 + math.exp(exponent))

        found, _ = search(passes, 12)
        covered += found.low <= int(limit) <= found.high
    assert covered >= 95

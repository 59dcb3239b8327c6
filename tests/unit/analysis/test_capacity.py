"""How many guests a path carries: the search's steps, and intervals that cover the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pages import bench as program
from vdisklab.analysis.capacity import REPEATS, Capacity, capacity, next_steps


def search(
    passes: Callable[[int], bool], most: int, repeats: int = REPEATS
) -> tuple[Capacity, dict[int, dict[int, bool]]]:
    """The answer of a whole search, and all its outcomes."""
    outcomes: dict[int, dict[int, bool]] = {}
    round = 0
    while steps := next_steps(outcomes, most, repeats):
        round += 1
        for guests in steps:
            outcomes.setdefault(guests, {})[round] = passes(guests)
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


def test_five_repeats_of_a_cliff_leave_one_guest_to_either_side_and_more_repeats_none() -> None:
    found, _ = search(lambda guests: guests <= 3, 8)
    assert (found.low, found.guests, found.high) == (2, 3, 4), "the disk may be slow all the time"
    found, _ = search(lambda guests: guests <= 3, 8, repeats=12)
    assert (found.low, found.guests, found.high) == (3, 3, 3)


def test_a_search_that_did_not_end_says_nothing_of_larger_numbers() -> None:
    once_failed = {1: {1: True}, 2: {2: False, 4: True, 5: True}, 4: {3: True}}
    rising = {1: {1: True}, 2: {2: True}, 4: {3: True}}
    for outcomes in ({1: {1: True}}, rising, once_failed):
        found = capacity(outcomes, 16)
        assert found is not None
        assert (found.guests, found.high, found.at_least) == (max(outcomes), max(outcomes), True)


def test_a_disk_that_stays_slower_for_many_rounds_is_seen() -> None:
    """A limit of 6 guests for ten rounds and of 4 for ten others; at random, nothing lasts."""
    slow_later = {5: {round: round <= 10 for round in range(1, 21)}}
    by_turns = {5: {round: round % 2 == 0 for round in range(1, 21)}}
    lasts, steady = (capacity(outcomes, 16) for outcomes in (slow_later, by_turns))
    assert lasts is not None
    assert steady is not None
    assert steady.lasts < 1.6 / 4.6
    assert lasts.lasts > 0.9
    once = capacity({1: {1: True}}, 16)
    assert once is not None
    assert once.lasts == pytest.approx(1.6 / 4.6, abs=0.05), "one run says nothing of it"


def test_nothing_measured_is_no_answer() -> None:
    assert capacity({}, 4) is None
    assert next_steps({}, 4) == (1,)


@pytest.mark.parametrize(
    "world",
    [
        "slope of 0.3 guests",
        pytest.param("slope of 3 guests", marks=pytest.mark.nightly),  # between the others, 1 s
        "slope of 5 guests",
    ],
)
def test_the_interval_covers_the_truth_on_a_slope(world: str) -> None:
    """Widths of up to one guest were assumed: slopes of 3 and 5 guests were held in 63 and 40 %."""
    (row,) = _simulated(world, None)
    assert row["covered"] >= 0.93 - 2 * (0.07 * 0.93 / 60) ** 0.5


def test_rounds_that_differ_are_a_part_of_the_interval() -> None:
    """With 15 % from round to round, 54 % were held."""
    (row,) = _simulated("rounds differ by 15%", None)
    assert row["covered"] >= 0.93 - 2 * (0.07 * 0.93 / 60) ** 0.5


# A second each; what lasts longer was held less often.
@pytest.mark.parametrize("lasts", [pytest.param("60%", marks=pytest.mark.nightly), "90%"])
def test_differences_that_last_from_round_to_round_are_a_part_of_the_interval(lasts: str) -> None:
    """Where they were taken for independent, 79 % were held if 90 % of them lasted."""
    (row,) = _simulated(f"rounds differ by 15%, of which {lasts} lasts", None)
    assert row["covered"] >= 0.93 - 2 * (0.07 * 0.93 / 60) ** 0.5


@pytest.mark.parametrize("searches", [5, pytest.param(60, marks=pytest.mark.nightly)])
def test_the_search_repeats_until_the_interval_is_narrow(searches: int) -> None:
    """A narrow interval takes a hundred rounds and more, 0.25 s of CPU for each search."""
    (wide,), (narrow,) = (_simulated("slope of 1 guests", span, searches) for span in (None, 2))
    assert narrow["mean_width"] <= 2 < wide["mean_width"]
    assert narrow["covered"] >= 0.9 - 2 * (0.1 * 0.9 / searches) ** 0.5


def _simulated(world: str, narrow: int | None, searches: int = 60) -> list[dict[str, Any]]:
    bench = program("density.py")
    bench["simulate"].__globals__["WORLDS"] = {world: bench["WORLDS"][world]}
    rows: list[dict[str, Any]] = bench["simulate"](searches, (narrow,))
    return rows

"""The race: drops, ends, and what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pages import bench
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.race import (
    BOTH_SEEN,
    LOOKS,
    MOST_ROUNDS,
    SELDOM,
    SELDOM_SEEN,
    UNSEEN,
    level,
    race_state,
    race_states,
)

BENCH = bench("race.py")


def logs(truth: list[float], rounds: int, noise: float = 0.02, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    table = np.log(truth)[:, None] + rng.normal(0, 0.3, rounds) + rng.normal(0, noise, (4, rounds))
    return np.asarray(table)


CLEAR = [100.0, 50.0, 40.0, 30.0]
CLOSE = [100.0, 97.0, 50.0, 30.0]


def test_nothing_is_said_before_the_first_look() -> None:
    state = race_state(logs(CLEAR, 2), 0.1)
    assert (state.left, state.behind, state.ended) == ((0, 1, 2, 3), None, False)


def test_a_clear_race_ends_at_the_first_look_and_names_the_best() -> None:
    state = race_state(logs(CLEAR, LOOKS[0]), 0.1)
    assert (state.left, state.decided, state.best) == ((0,), True, True)


def test_within_the_margin_is_decided_and_not_called_the_best() -> None:
    state = race_state(logs(CLOSE, 20, noise=0.05), 0.1)
    assert state.decided
    assert not state.best


def test_a_smaller_margin_needs_more_rounds() -> None:
    table = logs(CLOSE, 5, noise=0.05)
    assert len(race_state(table, 0.3).left) <= len(race_state(table, 0.01).left)
    assert len(race_state(table, 0.01).left) == 2
    assert race_state(table, 0.01).behind is not None


def test_a_path_is_not_dropped_before_it_can_have_shown_both_of_its_speeds() -> None:
    """Three rounds with the lower of two speeds, without noise, are no proof against a path."""
    table = logs([100.0, 70.0, 70.0, 30.0], BOTH_SEEN, noise=0.001)
    for rounds in range(LOOKS[0], BOTH_SEEN):
        state = race_state(table[:, :rounds], 0.1)
        assert set(state.left) == {0, 1, 2}
        assert state.behind == pytest.approx(0.7 * math.exp(UNSEEN) - 1, abs=0.01)
    table[1] += np.log(2) * np.r_[np.zeros(3), np.ones(BOTH_SEEN - 3)]
    assert 1 in race_state(table, 0.1).left
    assert race_state(table[[0, 2, 3]], 0.1).decided


def test_close_paths_are_not_dropped_before_a_speed_that_is_seldom_may_have_shown() -> None:
    """A path that is twice as fast in a quarter of the rounds shows it in eleven with 96 %."""
    table = logs([100.0, 90.0, 60.0, 30.0], SELDOM + 1, noise=0.001, seed=2)
    for rounds in range(BOTH_SEEN, SELDOM + 1):
        state = race_state(table[:, :rounds], 0.1)
        assert set(state.left) == {0, 1}
        assert state.behind == pytest.approx(0.9 * math.exp(SELDOM_SEEN) - 1, abs=0.01)
    assert race_state(table, 0.1).decided


def test_first_rounds_that_were_warm_up_are_thrown_away() -> None:
    table = logs([100.0, 80.0, 60.0, 30.0], SELDOM + 3, noise=0.03)
    steady = race_state(table, 0.1)
    table[0, :2] -= 1.0
    state = race_state(table, 0.1)
    assert steady.warm_up == 0
    assert (state.warm_up, state.leader, state.decided) == (2, 0, True)
    assert state.rounds == steady.rounds, "they were measured all the same"


def test_noise_that_lasts_keeps_paths_in_the_race() -> None:
    """The same spread within each path; in one race each round's noise is its own."""
    rng = np.random.default_rng(3)
    independent = rng.normal(0, 0.1, (13, 20))
    lasting = independent.copy()
    for index in range(1, 20):
        lasting[:, index] = 0.8 * lasting[:, index - 1] + 0.6 * lasting[:, index]
    truth = np.linspace(0, -0.3, 13)[:, None]
    assert len(race_state(truth + lasting, 0.1).left) > len(
        race_state(truth + independent, 0.1).left
    )


def test_the_noise_of_dropped_paths_does_not_hold_up_the_last_two() -> None:
    rng = np.random.default_rng(5)
    noise = np.array([0.05, 0.05, 0.4, 0.4, 0.4])
    values = (
        np.array([0.0, 0.0, -1.5, -1.5, -1.5])[:, None] + rng.normal(0, 1, (5, 14)) * noise[:, None]
    )
    values[2:, 7:] = np.nan
    found = race_state(values, 0.1)
    assert found.decided
    assert found.behind is not None
    assert found.behind <= 0.1


def test_the_last_two_are_not_decided_sooner_than_their_own_noise_allows() -> None:
    quiet = np.random.default_rng(5).normal(0, 0.02, (5, 13)) - np.array([[0, 0, 1.5, 1.5, 1.5]]).T
    shaken = quiet.copy()
    shaken[1] += np.resize([0.5, -0.5], 13)
    shaken[1, -1] = shaken[0, -1]
    quiet[2:, 7:] = shaken[2:, 7:] = np.nan
    assert race_state(quiet, 0.1).decided
    assert not race_state(shaken, 0.1).decided


def test_later_rounds_do_not_bring_back_who_was_dropped() -> None:
    table = logs(CLEAR, 9)
    for rounds in range(3, 10):
        assert race_state(table[:, :rounds], 0.1).left == (0,)


def test_an_interrupted_race_goes_on_as_if_it_had_not_been() -> None:
    table = logs(CLOSE, 10, noise=0.2)
    seen = []
    for look in (count for count in LOOKS if count <= 10):
        seen.append(race_state(table[:, :look], 0.1).left)
        table[[row for row in range(4) if row not in seen[-1]], look:] = np.nan
    assert len(seen[-1]) < len(seen[0])
    assert [state.left for state in race_states(table, 0.1)][:-1] == seen


def test_the_first_look_drops_only_what_is_shown_to_be_worse() -> None:
    """All rounds that it sees may be the slow ones of a path that starts slowly."""
    table = logs([100.0, 57.0, 53.0, 30.0], LOOKS[1], noise=0.001)
    first = race_state(table[:, : LOOKS[0]], 0.1)
    assert (set(first.left), first.best) == ({0, 1}, True)
    assert race_state(table, 0.1).left == (0,)
    assert not race_state(table, 0.1).best


def test_a_path_without_numbers_is_neither_leader_nor_dropped() -> None:
    table = logs(CLEAR, BOTH_SEEN)
    table[0] = np.nan
    state = race_state(table, 0.1)
    assert state.leader == 1
    assert {0, 1} <= set(state.left)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(0, 9), st.data())
def test_numbers_may_miss_anywhere(cells: int, rounds: int, data: st.DataObject) -> None:
    """Without a warning of numpy: pytest makes it an error."""
    table = logs(CLEAR, rounds)[:cells]
    each = st.lists(st.booleans(), min_size=rounds, max_size=rounds)
    missing = np.array([data.draw(each) for _ in range(cells)], dtype=np.bool_)
    state = race_state(np.where(missing, np.nan, table), 0.1)
    assert state.leader in state.left


def test_order_of_paths_does_not_matter() -> None:
    table = logs(CLOSE, 7, noise=0.1)
    turned = race_state(table[::-1], 0.1)
    assert {3 - row for row in turned.left} == set(race_state(table, 0.1).left)


def test_a_race_has_an_end() -> None:
    state = race_state(logs([100.0] * 4, MOST_ROUNDS, noise=3.0), 0.1)
    assert state.ended
    assert not state.decided
    assert state.behind is not None
    assert state.behind > 0.1


def test_the_level_grows_and_stays_below_the_error() -> None:
    levels = [level(look) for look in LOOKS]
    assert levels == sorted(levels)
    assert levels[-1] == pytest.approx(0.01)
    assert level(60, 0.1) == pytest.approx(0.02)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", sorted(BENCH["WORLDS"]))
def test_a_simulated_race_is_right(name: str, seed: int) -> None:
    """One race of each world; thousands of each are recorded in bench/results."""
    end = BENCH["race"](BENCH["WORLDS"][name], 8, seed)
    assert end.right
    assert math.isfinite(end.behind)


@pytest.mark.parametrize("replays", [4, pytest.param(30, marks=pytest.mark.nightly)])
def test_what_is_known_of_races_whose_paths_swing(replays: int) -> None:
    """All of it is counted among wrong races, of which a few are found."""
    for row in BENCH["swings"](6, replays).values():
        shares = (row["warned"], row["seen"], row["other_answer"])
        assert all(0 <= share <= 1 or math.isnan(share) for share in shares)
        assert math.isnan(row["seen"]) is (row["wrong"] == 0)


def test_looking_after_each_round_costs_more_unless_each_look_has_a_small_error() -> None:
    found = BENCH["watching"](13, 30)["20"]
    assert found["at_each"] > found["as_allowed"]
    assert found["as_allowed"] <= 0.15

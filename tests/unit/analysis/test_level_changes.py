"""Steps and slow declines in a series of campaigns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.analysis.level_changes import (
    DATED_FROM,
    ChangeKind,
    level_changes,
    may_have_changed,
    noise_lasts,
)
from vdisklab.analysis.observations import Floats


def noise(seed: int, count: int, lasts: float = 0.0) -> Floats:
    """AR(1) with a standard deviation of 1."""
    values = np.random.default_rng(seed).normal(0, 1, count)
    for index in range(1, count):
        values[index] = lasts * values[index - 1] + math.sqrt(1 - lasts**2) * values[index]
    return values


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 11), st.sampled_from([-0.3, 0.3]))
def test_a_large_step_is_found_where_it_is(seed: int, place: int, size: float) -> None:
    level = 0.01 * noise(seed, 15)
    level[place:] += size
    change = next(
        change
        for change in level_changes(level)
        if change.kind is ChangeKind.STEP and change.start == place
    )
    assert change.each is None
    assert change.change.low is not None
    assert change.change.high is not None
    assert change.change.low < math.exp(size) * 1.03
    assert change.change.high > math.exp(size) * 0.97


def test_two_steps_are_both_found_with_their_own_sizes() -> None:
    level = 0.01 * noise(1, 30)
    level[12:] -= 0.2
    level[22:] += 0.1
    first, second = level_changes(level)
    assert (first.start, first.end, second.start, second.end) == (12, 21, 22, 29)
    assert first.change.ratio == pytest.approx(math.exp(-0.2), abs=0.02)
    assert second.change.ratio == pytest.approx(math.exp(0.1), abs=0.02)


def test_a_decline_is_one_line_and_not_several_steps() -> None:
    """2 % a month over 20 months; half a per cent at a noise of 1 %."""
    for seed in range(10):
        steep = 0.03 * noise(seed, 20) + math.log(0.98) * np.arange(20)
        (change,) = level_changes(steep)
        assert change.kind is ChangeKind.LINE
        assert change.each == pytest.approx(0.98, abs=0.01)
        slow = 0.01 * noise(seed, 24) + math.log(0.995) * np.arange(24)
        (change,) = level_changes(slow)
        assert change.each == pytest.approx(0.995, abs=0.002)


def test_a_decline_far_above_its_noise_is_dated_within_a_year() -> None:
    """2 % a month over 12 months at a noise of 1 %: 20 % in all, which no eye overlooks."""
    found = [
        level_changes(0.01 * noise(seed, 12) + math.log(0.98) * np.arange(12)) for seed in range(20)
    ]
    assert sum(len(changes) == 1 for changes in found) >= 18
    assert all(change.kind is ChangeKind.LINE for changes in found for change in changes)


def test_a_line_begins_where_the_level_begins_to_move() -> None:
    level = 0.01 * noise(3, 24)
    level[12:] += math.log(0.97) * np.arange(1, 13)
    (change,) = level_changes(level)
    assert change.kind is ChangeKind.LINE
    assert abs(change.start - 11) <= 2
    assert change.end == 23


def test_gaps_do_not_matter_but_cost_evidence() -> None:
    level = 0.01 * noise(4, 24)
    level[14:] -= 0.2
    (whole,) = level_changes(level)
    level[[3, 10, 20]] = np.nan
    (part,) = level_changes(level)
    assert (whole.start, part.start) == (14, 14)
    assert part.odds < whole.odds


def test_what_is_constant_or_too_short_has_no_change() -> None:
    assert level_changes(np.zeros(12)) == []
    assert level_changes(np.full(12, np.nan)) == []
    assert level_changes(np.repeat([0.0, 1.0], [2, DATED_FROM - 3])) == []


def test_a_step_without_any_noise_is_found() -> None:
    (change,) = level_changes(np.repeat([0.0, 1.0], 8))
    assert (change.kind, change.start) == (ChangeKind.STEP, 8)
    assert change.change.ratio == pytest.approx(math.e)


def test_one_slow_campaign_is_no_lasting_change() -> None:
    level = 0.01 * noise(5, 16)
    level[8] -= 0.5
    assert level_changes(level) == []


@pytest.mark.parametrize(("lasts", "most"), [(0.0, 3), (0.5, 10)])
def test_noise_that_lasts_is_seldom_taken_for_a_change(lasts: float, most: int) -> None:
    """At one look; bench/trend.py looks every month."""
    dated = sum(bool(level_changes(noise(seed, 24, lasts))) for seed in range(60))
    assert dated <= most


def test_a_small_change_and_one_series_of_many_need_more_evidence() -> None:
    level = [0.05 * noise(seed, 24) - 0.09 * (np.arange(24) > 11) for seed in range(60)]
    plain = sum(bool(level_changes(row)) for row in level)
    small = sum(bool(level_changes(row, matters=0.5)) for row in level)
    many = sum(bool(level_changes(row, doubt=20)) for row in level)
    assert max(small, many) < plain


def test_a_gain_needs_more_evidence_than_a_loss() -> None:
    level = [0.05 * noise(seed, 20) - 0.1 * (np.arange(20) > 9) for seed in range(60)]
    losses = sum(bool(level_changes(row)) for row in level)
    gains = sum(bool(level_changes(-row)) for row in level)
    assert 0 < gains < losses


def test_the_newest_campaign_alone_dates_no_change() -> None:
    """A change that shows little without it is dated a campaign later, unless it is very large."""
    level = 0.05 * noise(3, 16)
    level[-2:] -= 0.25
    assert not may_have_changed(level[None, :-1])[0]
    assert may_have_changed(level[None])[0]
    assert level_changes(level) == []
    level[-2:] -= 0.4
    assert [change.start for change in level_changes(level)] == [14]


def test_the_search_of_many_series_at_once_finds_what_that_of_each_finds() -> None:
    level = np.array([0.05 * noise(seed, 20) - 0.1 * (np.arange(20) > 9) for seed in range(30)])
    alone = [bool(level_changes(row)) for row in level]
    assert np.all(may_have_changed(level) >= alone)
    assert 0 < sum(alone) <= may_have_changed(level).sum() < len(level)
    assert not may_have_changed(level[:, : DATED_FROM - 1]).any()


def test_noise_that_lasts_is_seen_in_a_long_series() -> None:
    assert noise_lasts(noise(1, 60, 0.8))
    assert not noise_lasts(noise(1, 60))
    assert not noise_lasts(noise(1, 4, 0.8))


def test_a_large_step_shows_in_few_campaigns_and_noise_does_not() -> None:
    """With one prior variance the odds of a step had a limit: one of seven times the noise was
    dated in none of 100 series of five campaigns and three."""
    steps = [noise(seed, 8) - 7.4 * (np.arange(8) > 4) for seed in range(60)]
    found = [level_changes(level) for level in steps]
    assert sum(len(changes) == 1 and changes[0].start == 5 for changes in found) >= 36
    assert sum(bool(level_changes(noise(seed, 8))) for seed in range(200)) <= 2

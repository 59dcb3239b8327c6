"""The newest level against earlier ones, and dated level shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analysis.made import IOPS, P99, cell
from vdisklab.analysis.observations import Floats, MeasureKey, Round, from_numbers
from vdisklab.analysis.trend import (
    CampaignLevels,
    TrendVerdict,
    dated,
    level_shifts,
    levels,
    newest_changes,
)


def made(level: Floats, error: Floats | None = None) -> CampaignLevels:
    names = tuple(cell(f"c{row}") for row in range(len(level)))
    return CampaignLevels(names, level, np.zeros_like(level) if error is None else error, 0)


def measured(values: Floats, measure: MeasureKey = IOPS) -> CampaignLevels:
    """Levels of cells x campaigns x rounds; NaN is missing."""
    numbers = {
        (cell(f"c{path}"), Round(f"{at:02d}", round + 1), measure): float(values[path, at, round])
        for path, at, round in zip(*np.nonzero(np.isfinite(values)), strict=True)
    }
    names = [f"{at:02d}" for at in range(values.shape[1])]
    return levels(from_numbers(numbers), names, [measure])


def test_the_interval_of_one_more_campaign_is_students_prediction() -> None:
    """Levels 1, 2, 3 in hundredths: mean 2, sd 1, t(0.975, 2) = 4.3027, times sqrt(4/3)."""
    (newest,) = newest_changes(made(np.array([[0.01, 0.02, 0.03, 0.5]])), ())
    change = newest.change
    assert change.low is not None
    assert change.high is not None
    half = 4.30265 * 0.01 * math.sqrt(4 / 3)
    assert math.log(change.low) == pytest.approx(0.48 - half, abs=1e-6)
    assert math.log(change.high) == pytest.approx(0.48 + half, abs=1e-6)
    assert newest.spread == pytest.approx(0.01)
    assert newest.verdict is TrendVerdict.BETTER


def test_a_newest_campaign_of_few_rounds_is_noisier() -> None:
    level = np.array([[0.01, 0.02, 0.03, 0.15]])
    error = np.array([[1e-4, 1e-4, np.nan, 3e-3]])
    (sure,), (unsure,) = newest_changes(made(level), ()), newest_changes(made(level, error), ())
    assert sure.verdict is TrendVerdict.BETTER
    assert unsure.verdict is TrendVerdict.NONE_SHOWN


def test_a_lower_latency_is_better() -> None:
    values = np.full((1, 5, 3), 1e-3) * np.array([1.0, 1.01, 0.99])
    values[0, -1] *= 0.5
    (newest,) = newest_changes(measured(values, P99), ())
    assert newest.verdict is TrendVerdict.BETTER
    assert newest.change.ratio == pytest.approx(2)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000), st.floats(1e-3, 1e6), st.integers(1, 3),
    st.lists(st.booleans(), min_size=5, max_size=5),
)  # fmt: skip
def test_neither_units_nor_the_order_of_rounds_matter(
    seed: int, unit: float, paths: int, lost: list[bool]
) -> None:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 0.05, (paths, 11, 5)))
    values[0, 4, np.array(lost)] = np.nan
    mixed = unit * rng.permuted(values, axis=2)
    if paths > 1 and any(lost):
        mixed = unit * values[:, :, ::-1]  # rounds pair the paths of one campaign
    one, other = measured(values), measured(mixed)
    assert one.cells == other.cells
    shifts = level_shifts(one)
    assert [(s.series, s.at) for s in shifts] == [(s.series, s.at) for s in level_shifts(other)]
    for left, right in zip(newest_changes(one, shifts), newest_changes(other, shifts), strict=True):
        assert left.verdict is right.verdict
        assert left.change.ratio == pytest.approx(right.change.ratio)
        if left.p is not None:
            assert left.change.low is not None
            assert left.change.ratio is not None
            assert left.change.high is not None
            assert left.change.low <= left.change.ratio <= left.change.high


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 9), st.sampled_from([-0.3, 0.3]))
def test_a_large_shift_is_found_where_it_is(seed: int, at: int, size: float) -> None:
    level = np.random.default_rng(seed).normal(0, 0.01, (2, 12))
    level[1, at:] += size
    found = level_shifts(made(level))
    (shift,) = [one for one in found if one.series == 1]
    assert shift.at == at
    assert shift.change.ratio == pytest.approx(math.exp(size), rel=0.05)


def test_two_shifts_are_both_found() -> None:
    level = np.random.default_rng(1).normal(0, 0.01, (1, 30))
    level[0, 12:] -= 0.2
    level[0, 22:] += 0.1
    assert [one.at for one in level_shifts(made(level))] == [12, 22]


def test_what_is_constant_or_too_short_or_incomplete_has_no_shift() -> None:
    assert level_shifts(made(np.zeros((2, 12)))) == ()
    step = np.repeat([[0.0, 1.0]], [4, 5], axis=1)
    assert level_shifts(made(step)) == ()  # nine campaigns
    missing = np.repeat([[0.0, 1.0]], 6, axis=1)
    missing[0, 3] = np.nan
    assert level_shifts(made(missing)) == ()
    assert not dated(made(missing)).any()


@pytest.mark.parametrize(("campaigns", "earlier"), [(16, range(12, 15)), (14, range(12))])
def test_the_newest_is_compared_with_what_came_after_the_last_shift_if_that_is_enough(
    campaigns: int, earlier: range
) -> None:
    """With only one other campaign since the shift, those before it count."""
    level = np.random.default_rng(2).normal(0, 0.01, (1, campaigns))
    level[0, 12:] -= 0.3
    found = made(level)
    (shift,) = level_shifts(found)
    assert shift.at == 12
    (newest,) = newest_changes(found, (shift,))
    assert newest.earlier == tuple(earlier)
    assert (newest.verdict is TrendVerdict.WORSE) == (campaigns == 14)


def test_only_rounds_with_every_measure_count() -> None:
    """Else a round that lacks the slow measure would look fast."""
    slow, fast = IOPS, MeasureKey("seqread-1m-q1", IOPS.direction, "iops")
    numbers = {
        (cell("c"), Round(f"{at:02d}", round), key): value
        for at in range(4)
        for round in (1, 2, 3)
        for key, value in ((slow, 1.0), (fast, 100.0))
        if not (at == 3 and round == 2 and key is slow)
    }
    found = levels(from_numbers(numbers), ["00", "01", "02", "03"], [slow, fast])
    assert found.level[0] == pytest.approx([math.log(10)] * 4)


def test_all_paths_together_are_those_that_every_campaign_measured() -> None:
    values = np.exp(np.random.default_rng(0).normal(0, 0.1, (3, 4, 3)))
    values[2, 1] = np.nan
    found = measured(values)
    assert (found.cells[0], found.whole, len(found.cells)) == (None, 2, 4)
    assert found.level[0] == pytest.approx(np.log(values[:2]).mean(axis=(0, 2)))


def test_false_alarms_in_campaigns_that_do_not_change_are_few() -> None:
    """bench/trend.py has the figures; here nothing is grossly wrong."""
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(60):
        found = measured(np.exp(rng.normal(0, 0.05, (3, 12, 3))))
        shifts = level_shifts(found)
        worse = {one.verdict for one in newest_changes(found, shifts)} & {TrendVerdict.WORSE}
        alarms += bool(shifts) or bool(worse)
    assert alarms <= 9  # 5 % of 60 are 3; more than 9 has a chance of 0.1 %

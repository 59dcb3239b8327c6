"""The newest level against earlier ones, and dated level shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analysis.made import IOPS, P99, cell
from vdisklab.analysis.level_changes import ChangeKind, DatedChange, LevelChange
from vdisklab.analysis.observations import Floats, MeasureKey, Round, from_numbers
from vdisklab.analysis.trend import (
    CampaignLevels,
    SeriesChange,
    TrendVerdict,
    dated,
    lasting_change,
    levels,
    newest_changes,
    series_changes,
)


def made(level: Floats, error: Floats | None = None) -> CampaignLevels:
    names = tuple(cell(f"c{row}") for row in range(len(level)))
    return CampaignLevels(names, level, np.zeros_like(level) if error is None else error, 0)


def measured(values: Floats, measure: MeasureKey = IOPS) -> CampaignLevels:
    """Levels of cells x campaigns x rounds; NaN is missing."""
    numbers = {
        (cell(f"c{path}"), Round(f"{place:02d}", round + 1), measure): float(
            values[path, place, round]
        )
        for path, place, round in zip(*np.nonzero(np.isfinite(values)), strict=True)
    }
    names = [f"{index:02d}" for index in range(values.shape[1])]
    return levels(from_numbers(numbers), names, [measure])


def test_the_interval_of_one_more_campaign_is_students_prediction() -> None:
    """Levels 1, 2, 3 in hundredths: mean 2, sd 1, t(2) of 5 % : 24 two-sided, times sqrt(4/3)."""
    (newest,) = newest_changes(made(np.array([[0.01, 0.02, 0.03, 0.5]])), ())
    change = newest.change
    assert change.low is not None
    assert change.high is not None
    half = 21.8747 * 0.01 * math.sqrt(4 / 3)
    assert math.log(change.low) == pytest.approx(0.48 - half, abs=1e-6)
    assert math.log(change.high) == pytest.approx(0.48 + half, abs=1e-6)
    assert newest.spread == pytest.approx(0.01)
    assert newest.verdict is TrendVerdict.BETTER


def test_a_newest_campaign_of_few_rounds_is_noisier() -> None:
    level = np.array([[0.01, 0.02, 0.03, 0.35]])
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
    first, other = measured(values), measured(mixed)
    assert first.cells == other.cells
    shifts = series_changes(first)
    places = [(each.series, each.dated.kind, each.dated.start) for each in shifts]
    assert places == [
        (each.series, each.dated.kind, each.dated.start) for each in series_changes(other)
    ]
    for left, right in zip(
        newest_changes(first, shifts), newest_changes(other, shifts), strict=True
    ):
        assert left.verdict is right.verdict
        assert left.change.ratio == pytest.approx(right.change.ratio)
        if left.p is not None:
            assert left.change.low is not None
            assert left.change.ratio is not None
            assert left.change.high is not None
            assert left.change.low <= left.change.ratio <= left.change.high


@pytest.mark.parametrize(("campaigns", "earlier"), [(16, range(12, 15)), (14, range(12))])
def test_the_newest_is_compared_with_what_came_after_the_last_shift_if_that_is_enough(
    campaigns: int, earlier: range
) -> None:
    """With only one other campaign since the shift, those before it count."""
    level = np.random.default_rng(2).normal(0, 0.01, (1, campaigns))
    level[0, 12:] -= 0.3
    found = made(level)
    change = DatedChange(ChangeKind.STEP, 12, campaigns - 1, LevelChange(0.74), None, 99.0)
    (newest,) = newest_changes(found, (SeriesChange(0, change),))
    assert newest.earlier == tuple(earlier)
    assert (newest.verdict is TrendVerdict.WORSE) == (campaigns == 14)


def test_only_rounds_with_every_measure_count() -> None:
    """Else a round that lacks the slow measure would look fast."""
    slow, fast = IOPS, MeasureKey("seqread-1m-q1", IOPS.direction, "iops")
    numbers = {
        (cell("c"), Round(f"{index:02d}", round), key): value
        for index in range(4)
        for round in (1, 2, 3)
        for key, value in ((slow, 1.0), (fast, 100.0))
        if not (index == 3 and round == 2 and key is slow)
    }
    found = levels(from_numbers(numbers), ["00", "01", "02", "03"], [slow, fast])
    assert found.level[0] == pytest.approx([math.log(10)] * 4)


def test_all_paths_together_are_what_campaigns_add_to_their_paths() -> None:
    values = np.exp(np.random.default_rng(0).normal(0, 0.1, (3, 4, 3)))
    found = measured(values)
    assert (found.cells[0], found.together, len(found.cells)) == (None, 3, 4)
    assert found.level[0] == pytest.approx(np.log(values).mean(axis=(0, 2)))


def test_a_new_path_and_a_gap_leave_the_trend_of_all_together_as_it_is() -> None:
    """Exact levels: the new path is three times as fast, and no campaign looks faster for it."""
    effects = np.array([0.0, 0.01, -0.02, 0.03, 0.0, -0.01, 0.02])
    level = np.array([0.0, 0.5, math.log(3)])[:, None] + effects
    level[2, :4] = np.nan
    level[0, 2] = np.nan
    found = measured(np.exp(np.repeat(level[:, :, None], 3, axis=2)))
    assert found.together == 3
    assert found.level[0] - found.level[0, 0] == pytest.approx(effects)


def test_campaigns_without_a_common_path_are_not_compared() -> None:
    level = np.zeros((4, 6))
    level[:2, :3] = np.nan
    level[2:, 3:] = np.nan
    found = measured(np.exp(np.repeat(level[:, :, None], 3, axis=2)))
    assert np.isfinite(found.level[0]).tolist() == [False] * 3 + [True] * 3


def test_a_series_with_a_gap_is_dated_and_one_of_five_campaigns_is_not() -> None:
    level = np.random.default_rng(1).normal(0, 0.01, (2, 12))
    level[0, 6:] -= 0.3
    level[0, 3] = np.nan
    level[1, 5:] = np.nan
    found = made(level)
    assert dated(found).tolist() == [True, False]
    (change,) = series_changes(found)
    assert (change.series, change.dated.start) == (0, 6)
    assert lasting_change([change], 0, 12) == pytest.approx(0.74, abs=0.02)
    assert lasting_change([change], 0, 20) is None, "an old loss does not alarm for ever"
    assert lasting_change([change], 1, 12) is None


def test_false_alarms_in_campaigns_that_do_not_change_are_few() -> None:
    """bench/trend.py has the figures; here nothing is grossly wrong."""
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(60):
        found = measured(np.exp(rng.normal(0, 0.05, (3, 12, 3))))
        changes = series_changes(found)
        worse = {change.verdict for change in newest_changes(found, changes)} & {TrendVerdict.WORSE}
        alarms += bool(changes) or bool(worse)
    assert alarms <= 4  # one look: 0.4 % are expected

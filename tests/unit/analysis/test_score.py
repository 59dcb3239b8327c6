from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.analysis.made import campaign_runs, cell, observed
from vdisklab.analysis.observations import MeasureKey, observe
from vdisklab.analysis.rank_intervals import rank
from vdisklab.analysis.score import (
    MEAN,
    ROLE_SETS,
    Role,
    Score,
    Weighted,
    add_scores,
    middle_path,
    role_set,
)
from vdisklab.results.model import Direction

Q1, Q32, *_ = ROLE_SETS


def test_the_article_by_hand() -> None:
    # Baseline: 500 MB/s sequential, 25 MB/s small, so k = 20.
    grids = {
        Q1.measures[Role.SEQUENTIAL_READ]: np.array([[500.0], [700.0]]),
        Q1.measures[Role.RANDOM_READ]: np.array([[25.0], [20.0]]),
        Q1.measures[Role.SEQUENTIAL_WRITE]: np.array([[400.0], [200.0]]),
        Q1.measures[Role.RANDOM_WRITE]: np.array([[100.0], [100.0]]),
    }
    scored = add_scores(observed(grids), cell("c00"))
    values = {score: scored.observations.grid(score.key)[:, 0].tolist() for score in Weighted}
    assert values[Weighted.READ] == [500.0, (700 + 20 * 20) / 2]
    assert values[Weighted.WRITE] == [400.0, (200 + 4 * 100) / 2]
    assert values[Weighted.OVERALL] == [450.0, (550 + 300) / 2]
    assert scored.missing == ()
    ratios = {score: scored.observations.grid(score.key)[:, 0] for score in Score}
    np.testing.assert_allclose(ratios[Score.READ], [1.0, (700 / 500 * 20 / 25) ** 0.5])
    np.testing.assert_allclose(ratios[Score.WRITE], [1.0, (200 / 400 * 1) ** 0.5])
    np.testing.assert_allclose(
        ratios[Score.OVERALL], [1.0, (700 / 500 * 20 / 25 * 200 / 400) ** 0.25]
    )
    assert scored.overall == MEAN
    assert set(scored.rates) == set(grids)


def test_writes_count_as_what_lasts_and_a_cell_without_it_has_no_score() -> None:
    burst, lasting = Q1.measures[Role.SEQUENTIAL_WRITE], "sustained"
    sustained = MeasureKey(burst.name, Direction.WRITE, lasting)
    grids = {key: np.ones((3, 1)) for key in Q1.measures.values()}
    grids[burst] = np.array([[100.0], [900.0], [100.0]])
    grids[sustained] = np.array([[100.0], [50.0], [np.nan]])
    scored = add_scores(observed(grids), cell("c00"))
    np.testing.assert_allclose(
        scored.observations.grid(Score.WRITE.key)[:, 0], [1.0, 0.5**0.5, np.nan]
    )
    assert scored.roles is not None
    assert scored.roles.measures[Role.SEQUENTIAL_WRITE] == sustained
    assert {
        (str(each.cell), each.score) for each in scored.missing if isinstance(each.score, Score)
    } == {
        ("c02", Score.WRITE),
        ("c02", Score.OVERALL),
    }
    # Salter's score is of what fio saw.
    assert scored.observations.grid(Weighted.WRITE.key)[2, 0] == 100.0


def test_the_path_in_the_middle_takes_the_place_of_a_baseline() -> None:
    speeds = np.array([1.0, 4.0, 2.0, 9.0, 3.0])[:, None]
    grids = {key: speeds * np.ones((5, 3)) for key in Q1.measures.values()}
    grids[Q1.measures[Role.RANDOM_READ]][2, 1] = np.nan  # it lacks a round
    data = observed(grids)
    assert middle_path(data, data.cells) == cell("c04")
    assert middle_path(data, data.cells[:2]) == cell("c00")
    assert middle_path(data, data.cells[:1]) is None
    assert middle_path(data, ()) is None
    orders = [
        [row.cell for row in rank(add_scores(data, base).observations, MEAN).rows]
        for base in (cell("c04"), cell("c00"), cell("c03"))
    ]
    assert orders[0] == orders[1] == orders[2]


@given(st.lists(st.floats(0.01, 100), min_size=8, max_size=8), st.floats(0.01, 100))
def test_a_factor_counts_the_same_in_each_measure(values: list[float], factor: float) -> None:
    """A path that is slower by a factor in one measure loses the same, whichever it is."""
    numbers = np.array(values).reshape(4, 2)
    scores = []
    for slower in range(4):
        changed = numbers.copy()
        changed[slower, 1] *= factor
        grids = {key: changed[place][:, None] for place, key in enumerate(Q1.measures.values())}
        scored = add_scores(observed(grids), cell("c00"))
        scores.append(scored.observations.grid(Score.OVERALL.key)[1, 0])
    np.testing.assert_allclose(scores, scores[0])


def test_a_baseline_scores_its_own_sequential_bandwidth() -> None:
    data = observe(campaign_runs())
    scored = add_scores(data, cell("host"))
    row = data.place[cell("host")]
    np.testing.assert_allclose(
        scored.observations.grid(Weighted.READ.key)[row],
        data.grid(Q1.measures[Role.SEQUENTIAL_READ])[row],
    )


def test_scores_rank_like_any_metric() -> None:
    scored = add_scores(observe(campaign_runs()), cell("host"))
    found = rank(scored.observations, Score.OVERALL.key)
    assert {str(row.cell): (row.best, row.worst) for row in found.rows} == {
        "raw/none": (1, 2),
        "raw/writeback (cold)": (1, 2),
        "qcow2/directsync": (3, 3),
    }


def test_without_a_role_there_is_no_score_and_the_reason_is_told() -> None:
    keys = Q1.measures
    grids = {key: np.ones((3, 2)) for key in keys.values()}
    grids[keys[Role.RANDOM_READ]][1] = np.nan
    grids[keys[Role.SEQUENTIAL_WRITE]][2, 0] = np.nan
    grids[keys[Role.RANDOM_WRITE]][2, 1] = np.nan
    scored = add_scores(observed(grids), cell("c00"))
    found = {
        (str(each.cell), each.score): each
        for each in scored.missing
        if isinstance(each.score, Score)
    }
    assert set(found) == {
        ("c01", Score.READ),
        ("c01", Score.OVERALL),
        ("c02", Score.WRITE),
        ("c02", Score.OVERALL),
    }
    assert found["c01", Score.READ].lacking == (Role.RANDOM_READ,)
    assert found["c02", Score.WRITE].lacking == ()  # measured, but never in the same round


@pytest.mark.parametrize("baseline", ["nobody", "c01"])
def test_an_unmeasured_baseline_leaves_all_without_a_score(baseline: str) -> None:
    keys = Q1.measures
    grids = {key: np.ones((2, 2)) for key in keys.values()}
    grids[keys[Role.RANDOM_READ]][1] = np.nan
    scored = add_scores(observed(grids), cell(baseline))
    assert not np.isfinite(scored.observations.grid(Score.READ.key)).any()
    read = [each for each in scored.missing if each.score is Score.READ]
    assert {each.cell for each in read} == {cell("c00"), cell("c01")}
    assert all(Role.RANDOM_READ in each.baseline_lacking for each in read)


def test_a_baseline_of_zero_was_measured_and_leaves_all_without_a_score() -> None:
    grids = {key: np.ones((2, 2)) for key in Q1.measures.values()}
    grids[Q1.measures[Role.RANDOM_READ]][0] = 0.0
    missing = add_scores(observed(grids), cell("c00")).missing
    read = [each for each in missing if each.score is Score.READ]
    assert {each.cell for each in read} == {cell("c00"), cell("c01")}
    assert {each.baseline_zero for each in read} == {(Role.RANDOM_READ,)}
    assert {(each.lacking, each.baseline_lacking) for each in read} == {((), ())}


def test_one_request_at_a_time_comes_first_and_the_fuller_set_wins() -> None:
    both = {key: np.ones((1, 1)) for each in (Q1, Q32) for key in each.measures.values()}
    assert role_set(observed(both)) is Q1
    assert role_set(observed({key: np.ones((1, 1)) for key in Q32.measures.values()})) is Q32
    other = {MeasureKey("bonnie", Direction.READ, "bandwidth"): np.ones((1, 1))}
    assert role_set(observed(other)) is None
    assert add_scores(observed(other), cell("c00")).roles is None


def test_without_the_four_measurements_the_score_is_the_mean_of_the_rates() -> None:
    reads = MeasureKey("oltp", Direction.READ, "bandwidth")
    waits = MeasureKey("oltp", Direction.READ, "latency_mean")  # says the same again
    boots = MeasureKey("boot", Direction.NONE, "boot_time")
    grids = {
        reads: np.array([[100.0, 50.0], [400.0, 200.0], [100.0, np.nan]]),
        waits: np.array([[2.0, 4.0], [1.0, 1.0], [1.0, 1.0]]),
        boots: np.array([[10.0, 10.0], [40.0, 40.0], [5.0, 5.0]]),
    }
    scored = add_scores(observed(grids), cell("c00"))
    assert (scored.roles, scored.overall) == (None, MEAN)
    assert set(scored.rates) == {reads, boots}
    np.testing.assert_allclose(
        scored.observations.grid(MEAN), [[1.0, 1.0], [1.0, 1.0], [2**0.5, np.nan]]
    )


def test_one_of_the_four_measurements_is_not_enough_for_the_articles_score() -> None:
    lone = Q1.measures[Role.SEQUENTIAL_READ]
    scored = add_scores(observed({lone: np.array([[2.0], [3.0]])}), cell("c00"))
    assert (scored.overall, scored.rates) == (MEAN, (lone,))
    np.testing.assert_allclose(scored.observations.grid(MEAN), [[1.0], [1.5]])


def test_without_the_baseline_there_is_no_mean() -> None:
    lone = Q1.measures[Role.SEQUENTIAL_READ]
    scored = add_scores(observed({lone: np.array([[2.0], [3.0]])}), cell("elsewhere"))
    assert scored.rates == ()
    assert MEAN not in scored.observations.measures


def test_a_rate_that_few_have_takes_the_mean_from_nobody() -> None:
    common, odd = (MeasureKey(name, Direction.READ, "bandwidth") for name in ("oltp", "odd"))
    numbers = np.array([[1.0], [2.0], [np.nan], [4.0]])
    odd_ones = np.array([[np.nan], [9.0], [9.0], [np.nan]])  # the baseline lacks it
    scored = add_scores(observed({common: numbers, odd: odd_ones}), cell("c00"))
    assert scored.rates == (common,)
    np.testing.assert_allclose(scored.observations.grid(MEAN)[:, 0], [1.0, 2.0, np.nan, 4.0])
    (missing,) = scored.missing
    assert (str(missing.cell), missing.key, missing.lacking) == ("c02", MEAN, (str(common),))
    few = np.array([[1.0], [np.nan], [np.nan], [np.nan]])
    assert add_scores(observed({common: numbers, odd: few}), cell("c00")).rates == (common,)

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.unit.analysis.made import IOPS, P99, cell, drifting, observed
from vdisklab.analysis.additive import Fit, fit, moderate, usable
from vdisklab.analysis.distributions import t_sf
from vdisklab.analysis.observations import (
    Floats,
    Observations,
    Round,
    from_numbers,
    logarithms,
    narrowed,
)
from vdisklab.analysis.paired_ratios import holm
from vdisklab.analysis.rank_intervals import Unranked, rank, separate


def places(data: Observations) -> dict[str, tuple[int, int]]:
    return {str(row.cell): (row.best, row.worst) for row in rank(data, IOPS).rows}


def test_clear_differences_are_ranked_and_ties_stay_ties() -> None:
    grid = drifting(np.random.default_rng(1), [10, 10, 5, 1], 6, noise=0.01)
    found = rank(observed({IOPS: grid}), IOPS)
    assert {str(row.cell): (row.best, row.worst) for row in found.rows} == {
        "c00": (1, 2),
        "c01": (1, 2),
        "c02": (3, 3),
        "c03": (4, 4),
    }
    assert found.comparisons == 6
    assert found.separated == 5
    assert found.best is not None
    assert set(found.best.cells) == {cell("c00"), cell("c01")}
    assert not found.inconclusive


def test_lower_is_better_for_latency() -> None:
    grid = drifting(np.random.default_rng(1), [1, 10], 6, noise=0.01)
    assert rank(observed({P99: grid}), P99).rows[0].cell == cell("c00")
    assert rank(observed({IOPS: grid}), IOPS).rows[0].cell == cell("c01")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_order_of_rows_and_of_vocabularies_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = drifting(rng, rng.choice([1.0, 1.2, 3.0], 8).tolist(), 5)
    grid[rng.random(grid.shape) < 0.1] = np.nan
    data = observed({IOPS: grid})
    rows = rng.permutation(len(data.value))
    cells, rounds = rng.permutation(len(data.cells)), rng.permutation(len(data.rounds))
    shuffled = Observations(
        cell=np.argsort(cells).astype(np.int32)[data.cell[rows]],
        round=np.argsort(rounds).astype(np.int32)[data.round[rows]],
        measure=data.measure[rows],
        value=data.value[rows],
        cells=tuple(data.cells[code] for code in cells),
        rounds=tuple(data.rounds[code] for code in rounds),
        measures=data.measures,
    )
    first, second = rank(data, IOPS), rank(shuffled, IOPS)
    assert [(r.cell, r.best, r.worst) for r in first.rows] == [
        (r.cell, r.best, r.worst) for r in second.rows
    ]
    assert first.unranked == second.unranked


def test_equal_samples_tie() -> None:
    grid = np.tile([1.0, 1.5, 0.9, 1.2], (5, 1))
    found = rank(observed({IOPS: grid}), IOPS)
    assert all((row.best, row.worst) == (1, 5) for row in found.rows)
    assert found.inconclusive
    assert [row.cell for row in found.rows] == [
        cell("c00"),
        cell("c01"),
        cell("c02"),
        cell("c03"),
        cell("c04"),
    ]


def test_two_cells_are_a_paired_t_test() -> None:
    grid = drifting(np.random.default_rng(7), [1.0, 1.05], 6)
    model = fit(logarithms(grid), usable(logarithms(grid)))
    oracle = stats.ttest_rel(np.log(grid[0]), np.log(grid[1]))
    statistic = (model.effect[0] - model.effect[1]) / np.hypot(*model.error)
    assert statistic == pytest.approx(oracle.statistic)
    assert model.freedom.tolist() == [5, 5]


def test_too_few_rounds_are_listed_and_not_ranked() -> None:
    grid = drifting(np.random.default_rng(2), [3.0, 2.0, 1.0], 4)
    grid[2, 1:] = np.nan
    found = rank(observed({IOPS: grid}), IOPS)
    assert len(found.rows) == 2
    (left,) = found.unranked
    assert (left.cell, left.rounds, left.reason) == (cell("c02"), 1, Unranked.TOO_FEW_ROUNDS)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((3, 2), Unranked.TOO_FEW_ROUNDS), ((1, 5), Unranked.NOTHING_TO_COMPARE)],
)
def test_without_enough_there_is_no_ranking(shape: tuple[int, int], reason: Unranked) -> None:
    found = rank(observed({IOPS: np.ones(shape)}), IOPS)
    assert found.rows == ()
    assert {each.reason for each in found.unranked} == {reason}
    assert not found.inconclusive


def test_one_with_enough_beside_one_with_too_few() -> None:
    """It has its rounds, and is not told to be measured more often."""
    grid = np.ones((2, 3))
    grid[1, 2] = np.nan
    found = rank(observed({IOPS: grid}), IOPS)
    assert found.rows == ()
    assert {str(each.cell): each.reason for each in found.unranked} == {
        "c00": Unranked.NOTHING_TO_COMPARE,
        "c01": Unranked.TOO_FEW_ROUNDS,
    }


def test_nothing_at_all() -> None:
    found = rank(observed({}), IOPS)
    assert (found.rows, found.unranked, found.comparisons) == ((), (), 0)


def test_cells_that_never_met_are_not_compared() -> None:
    grid = np.full((5, 8), np.nan)
    grid[:3, :4] = drifting(np.random.default_rng(3), [1, 2, 3], 4)
    grid[3:, 4:] = drifting(np.random.default_rng(4), [1, 2], 4)
    found = rank(observed({IOPS: grid}), IOPS)
    assert {row.cell for row in found.rows} == {cell("c00"), cell("c01"), cell("c02")}
    assert {(str(each.cell), each.reason) for each in found.unranked} == {
        ("c03", Unranked.NO_COMMON_ROUND),
        ("c04", Unranked.NO_COMMON_ROUND),
    }


def test_missing_rounds_do_not_bias_the_effect() -> None:
    # c01 is as fast as c00, but was measured only in the fast rounds.
    drift = np.array([1.0, 1.0, 1.0, 4.0, 4.0, 4.0])
    grid = np.outer([2.0, 2.0, 1.0], drift)
    grid[1, :3] = np.nan
    model = fit(logarithms(grid), usable(logarithms(grid)))
    np.testing.assert_allclose(model.effect - model.effect[2], np.log([2, 2, 1]), atol=1e-12)


def holm_by_definition(goodness: Floats, model: Fit, alpha: float) -> tuple[Floats, Floats]:
    pairs = list(itertools.combinations(range(len(goodness)), 2))
    p = np.array(
        [
            2
            * stats.t.sf(
                abs(goodness[i] - goodness[j]) / np.hypot(model.error[i], model.error[j]),
                min(model.freedom[i], model.freedom[j]),
            )
            for i, j in pairs
        ]
    )
    better, worse = np.zeros(len(goodness)), np.zeros(len(goodness))
    for step, place in enumerate(np.argsort(p)):
        if p[place] > alpha / (len(p) - step):
            break
        low, high = sorted(pairs[place], key=lambda cell: goodness[cell])
        better[low] += 1
        worse[high] += 1
    return better, worse


@pytest.mark.parametrize("seed", range(8))
def test_the_fast_procedure_is_holm_over_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = 20
    goodness = rng.normal(0, 1, cells)
    model = Fit(
        np.arange(cells),
        goodness,
        rng.lognormal(-2, 0.5, cells),
        rng.choice([2.0, 5.5, 20.0], cells),
        np.empty((cells, 0)),
        np.zeros(cells),
    )
    better, worse = separate(goodness, model, 0.05)
    oracle_better, oracle_worse = holm_by_definition(goodness, model, 0.05)
    np.testing.assert_array_equal(better, oracle_better)
    np.testing.assert_array_equal(worse, oracle_worse)


@pytest.mark.parametrize("cells", [5, 21, 60, 300])
def test_many_cells_are_counted_as_by_a_list_of_all_pairs(cells: int) -> None:
    """Errors were once rounded up where there were more than 48 cells."""
    rng = np.random.default_rng(5)
    goodness, errors = rng.normal(0, 0.5, cells), rng.lognormal(-3, 0.7, cells)
    freedom, resolution = rng.choice([3.0, 5.5, 9.0], cells), rng.choice([0.0, 0.05], cells)
    model = Fit(np.arange(cells), goodness, errors, freedom, np.empty((cells, 0)), resolution)
    first, other = np.triu_indices(cells, 1)
    apart = np.abs(goodness[first] - goodness[other]) - resolution[first] - resolution[other]
    error = np.hypot(errors[first], errors[other])
    p = 2 * t_sf(np.maximum(apart, 0) / error, np.minimum(freedom[first], freedom[other]))
    shown = holm(p) <= 0.05
    first_is_better = goodness[first] > goodness[other]
    worse = np.bincount(np.where(first_is_better, first, other)[shown], minlength=cells)
    better = np.bincount(np.where(first_is_better, other, first)[shown], minlength=cells)
    assert 0 < shown.sum() < len(p)
    assert [each.tolist() for each in separate(goodness, model, 0.05)] == [
        better.tolist(), worse.tolist(),
    ]  # fmt: skip


def test_moderation_never_lowers_a_variance() -> None:
    variance = np.array([1.0, 1.1, 0.9, 50.0, 0.01])
    moderated, freedom = moderate(variance, np.full(5, 2.0), 8.0)
    assert (moderated >= variance).all()
    assert moderated[4] > variance[4]
    assert (freedom >= 2).all()
    assert (freedom <= 8).all()


NOISE = {
    "alike": np.full(12, 0.03),
    "one noisy": np.r_[0.3, np.full(11, 0.03)],
    "half noisy": np.tile([0.03, 0.24], 6),
}


# Half a second each: a commit simulates the fewest rounds with equal noise, and both with others.
@pytest.mark.parametrize(
    ("noise", "rounds"),
    [
        ("alike", 3),
        ("one noisy", 10),
        ("half noisy", 3),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in (("alike", 10), ("one noisy", 3), ("half noisy", 10))
        ),
    ],
)
def test_family_wise_error_with_equal_means_and_drifting_rounds(noise: str, rounds: int) -> None:
    rng = np.random.default_rng(17)
    repeats = 250
    wrong = 0
    for _ in range(repeats):
        logs = rng.normal(0, 1, (12, rounds)) * NOISE[noise][:, None]
        logs += np.cumsum(rng.normal(0, 0.15, rounds))
        model = fit(logs, usable(logs))
        wrong += bool(separate(model.effect, model, 0.05)[0].any())
    # 5 % and two standard errors of the simulation.
    assert wrong / repeats <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / repeats)


def test_a_known_difference_is_found() -> None:
    rng = np.random.default_rng(19)
    found = 0
    for _ in range(100):
        data = observed({IOPS: drifting(rng, [1.3] + [1.0] * 9, 4)})
        found += places(data)["c00"] == (1, 1)
    assert found >= 90


def test_other_cells_do_not_decide_which_may_be_the_best() -> None:
    """The host's noise counts for ranks and not for the set: `recommend` has no host."""
    rng = np.random.default_rng(3)
    logs = np.array([[2.0], [1.0], [0.0], [-1.0]]) + rng.normal(0, 0.05, (4, 4))
    logs[0] += rng.normal(0, 1.0, 4)
    names = ("host", "raw/none", "raw/writeback", "qcow2/none")
    whole = from_numbers(
        {
            (cell(name), Round("c", round), IOPS): float(np.exp(value))
            for name, values in zip(names, logs, strict=True)
            for round, value in enumerate(values)
        }
    )
    best = rank(whole, IOPS).best
    assert best is not None
    assert best.leader.name == "raw/none"
    assert best == rank(narrowed(whole, map(cell, names[1:])), IOPS).best

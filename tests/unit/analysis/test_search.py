from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, observed
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.path_model import (
    PRIOR_RUNS,
    PRIOR_VARIANCE,
    ROUND_VARIANCE,
    SHARES,
    PathModel,
    Runs,
)
from vdisklab.analysis.search import (
    EACH_ONCE,
    ENOUGH,
    FEW,
    FEWEST,
    SearchState,
    first_cells,
    given_up,
    goodness,
    next_cells,
    search_state,
    shortlist,
)
from vdisklab.path.factors import Levels

MARGIN = 0.1
SIZES = (3, 2, 5, 2)
LEVELS: Levels = np.array(list(itertools.product(*map(range, SIZES))), np.int64)
MODEL = PathModel(LEVELS)


def structured(rng: np.random.Generator) -> Floats:
    """Each factor adds something; each cell a little of its own."""
    truth = np.zeros(len(LEVELS))
    for factor, size in enumerate(SIZES):
        truth += rng.normal(0, 0.3, size)[LEVELS[:, factor]]
    truth += rng.normal(0, 0.03, len(LEVELS))
    return truth


def searched(
    truth: Floats,
    rng: np.random.Generator,
    noise: float = 0.05,
    allowed: float = 480,
) -> tuple[SearchState, Floats]:
    """The last state of a search, and all that was measured."""
    logs, spent, level = np.empty((len(truth), 0)), 0, 0.0
    rows = first_cells(LEVELS, allowed)
    while True:
        level += rng.normal(0, 0.05)
        logs = np.column_stack([logs, np.full(len(truth), np.nan)])
        logs[list(rows), -1] = truth[list(rows)] + level + rng.normal(0, noise, len(rows))
        spent += len(rows)
        state = search_state(MODEL, logs, MARGIN)
        rows = next_cells(state, spent, allowed - spent)
        if state.race or not rows:
            return state, logs


def test_the_first_round_has_each_level_about_equally_often() -> None:
    """As a fraction, if there are too many cells to measure each or a budget is too small."""
    many: Levels = np.array(list(itertools.product(*map(range, (5, 3, 5, 2)))), np.int64)
    fraction = 2 * (1 + 4 + 2 + 4 + 1)
    assert len(many) > EACH_ONCE
    for levels, affordable, wanted in ((many, math.inf, fraction), (LEVELS, 40, 20)):
        rows = list(first_cells(levels, affordable))
        assert len(rows) == len(set(rows)) == wanted
        for factor in range(4):
            counts = np.bincount(levels[rows, factor])
            assert counts.max() - counts.min() <= 2


def test_up_to_a_number_of_cells_each_is_measured_once() -> None:
    assert sorted(first_cells(LEVELS, 2 * len(LEVELS))) == list(range(len(LEVELS)))


@pytest.mark.parametrize("lead", [1.2, 1.4])
def test_a_cell_that_is_better_than_its_segments_promise_is_in_the_shortlist(lead: float) -> None:
    rng = np.random.default_rng(8)
    for _ in range(8):
        truth = structured(rng)
        exception = int(rng.integers(len(truth)))
        truth[exception] = truth.max() + np.log(lead)
        state, _ = searched(truth, rng)
        assert exception in state.shortlist


@pytest.mark.parametrize(("affordable", "cells"), [(20, 10), (5, 2), (2, 2), (1.9, 0), (-1, 0)])
def test_a_small_budget_makes_a_small_first_round(affordable: float, cells: int) -> None:
    assert len(first_cells(LEVELS, affordable)) == cells


def test_few_cells_are_all_measured_first() -> None:
    assert sorted(first_cells(LEVELS[:4], math.inf)) == [0, 1, 2, 3]
    assert first_cells(np.empty((1, 0), np.int64), math.inf) == (0,)


def test_the_shortlist_has_the_best_after_a_run_of_each() -> None:
    """`bench/search.py` does this with more replays, in more worlds, and with recordings."""
    rng = np.random.default_rng(4)
    right, runs = 0, []
    for _ in range(8):
        truth = structured(rng)
        state, logs = searched(truth, rng)
        right += bool(truth.max() - truth[list(state.shortlist)].max() <= np.log(1.1))
        runs.append(int(np.isfinite(logs).sum()))
        assert state.race
        assert FEWEST <= len(state.shortlist) <= FEW
    assert right >= 7
    assert np.mean(runs) <= len(LEVELS) + 6


def test_without_structure_most_cells_are_measured() -> None:
    rng = np.random.default_rng(5)
    truth = rng.normal(0, 0.4, len(LEVELS))
    state, logs = searched(truth, rng)
    assert truth.max() - truth[list(state.shortlist)].max() <= np.log(1.1)
    assert np.isfinite(logs).any(axis=1).mean() > 0.8


def test_in_noise_all_that_the_model_cannot_tell_apart_race() -> None:
    rng = np.random.default_rng(3)
    state, logs = searched(rng.normal(0, 0.3, len(LEVELS)), rng, noise=0.5)
    assert len(state.shortlist) > FEW
    assert state.race
    assert np.isfinite(logs).sum() < (ENOUGH + 1) * len(LEVELS)


def test_a_shortlist_covers_all_draws() -> None:
    """Three cells are the best in half, a third and the rest of the draws; the fourth never is."""
    draws = np.zeros((4, 300))
    draws[0, :150] = draws[1, 150:250] = draws[2, 250:] = 1.0
    assert shortlist(draws, 0, 0.1) == (0, 1, 2)
    assert shortlist(draws, 0, 1.1) == (0,), "no cell is better by that margin"
    assert shortlist(draws, 3, 0.1) == (3, 0, 1, 2)


def test_a_budget_below_one_round_is_kept_and_goes_to_a_few() -> None:
    rng = np.random.default_rng(6)
    _, logs = searched(structured(rng), rng, noise=0.3, allowed=30)
    assert np.isfinite(logs).sum() <= 30


def test_all_rounds_hold_the_leader() -> None:
    logs = np.column_stack([structured(np.random.default_rng(7))] * 2)
    logs[30:, 1] = np.nan
    state = search_state(MODEL, logs, MARGIN)
    assert not next_cells(state, 90, 1.9)
    for affordable in (2.0, 20.0, math.inf):
        rows = next_cells(state, 90, affordable)
        assert rows[0] == state.shortlist[0]
        assert len(rows) == len(set(rows)) <= affordable


def test_the_same_numbers_choose_the_same_cells() -> None:
    logs = structured(np.random.default_rng(3))[:, None]
    assert search_state(MODEL, logs, MARGIN) == search_state(MODEL, logs.copy(), MARGIN)


def test_a_cell_that_failed_is_no_answer_and_not_measured_again() -> None:
    logs = np.column_stack([structured(np.random.default_rng(3))] * 3)
    best = int(logs[:, 0].argmax())
    assert search_state(MODEL, logs, MARGIN).shortlist[0] == best
    state = search_state(MODEL, logs, MARGIN, {best})
    assert best not in {*state.shortlist, *state.challengers}


def test_a_level_of_which_all_cells_fail_is_given_up() -> None:
    levels = np.array([[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]])
    assert given_up(levels, [0, 1, 4], [0, 1]) == {0, 1}
    assert given_up(levels, [0, 1, 2, 4], [0, 1, 2]) == {0, 1, 2, 3}
    assert given_up(levels, [0, 1, 2, 3], [0, 1, 2]) == {0, 1, 2}
    assert given_up(levels, [], []) == frozenset()


def test_a_lonely_cell_races_and_nothing_is_an_error() -> None:
    model = PathModel(np.empty((1, 0), np.int64))
    state = search_state(model, np.zeros((1, 1)), MARGIN)
    assert (state.shortlist, state.challengers, state.race) == ((0,), (), True)
    with pytest.raises(ValueError, match="no round has been measured"):
        search_state(MODEL, np.full((60, 1), np.nan), MARGIN)


def test_the_model_predicts_cells_that_were_not_measured() -> None:
    rng = np.random.default_rng(8)
    truth = structured(rng)
    measured = rng.permutation(60)[:40]
    runs = Runs(measured, np.zeros(40, np.int64), truth[measured] + rng.normal(0, 0.03, 40))
    draws = MODEL.draws(runs, 300, rng)
    assert draws.shape == (60, 300)
    others = np.setdiff1d(np.arange(60), measured)
    assert np.corrcoef(draws.mean(axis=1)[others], truth[others])[0, 1] > 0.95
    # each draw is up to a constant: take the measured cells' mean as the origin
    errors = (draws - draws[measured].mean(axis=0)).T - (truth - truth[measured].mean())
    spread = errors[:, others].std(axis=0)
    assert (np.abs(errors[:, others].mean(axis=0)) < 4 * spread).all()


@pytest.mark.parametrize("size", [20, 150])
def test_the_likelihoods_are_those_of_the_covariance_of_all_runs(size: int) -> None:
    """The textbook's formulas, with fewer runs than pairs of levels and with more."""
    rng = np.random.default_rng(12)
    cell, round = rng.integers(0, 60, size), np.sort(rng.integers(0, 4, size))
    runs = Runs(cell, np.unique(round, return_inverse=True)[1], rng.normal(size=size))
    sums = MODEL.sums(runs, runs.value, size)
    likelihoods, misfits = sums.likelihoods(SHARES)
    same = LEVELS[cell][:, None] == LEVELS[cell]
    both = [
        same[..., first] & same[..., other] for first, other in itertools.combinations(range(4), 2)
    ]
    for place in (0, 30, len(SHARES) - 1):
        factors, pairs, alone, noise = SHARES[place]
        covariance = factors * same.mean(axis=2) + pairs * np.mean(both, axis=0)
        covariance += alone * (cell[:, None] == cell) + noise * np.eye(size)
        covariance += ROUND_VARIANCE * (runs.round[:, None] == runs.round)
        solved = np.linalg.solve(covariance, runs.value)
        misfit = runs.value @ solved + PRIOR_RUNS * PRIOR_VARIANCE
        assert misfits[place] == pytest.approx(misfit)
        likelihood = -np.linalg.slogdet(covariance)[1] / 2 - sums.degrees / 2 * np.log(misfit)
        assert likelihoods[place] == pytest.approx(likelihood)
        assert sums.solved(SHARES[place], runs.value[:, None])[:, 0] == pytest.approx(solved)


@pytest.mark.parametrize("factor", [1e-3, 1e6])
def test_the_model_has_no_unit(factor: float) -> None:
    rng = np.random.default_rng(9)
    runs = Runs(np.arange(60), np.zeros(60, np.int64), structured(rng))
    scaled = Runs(runs.cell, runs.round, factor * runs.value)
    first, other = (MODEL.draws(each, 20, np.random.default_rng(1)) for each in (runs, scaled))
    assert other == pytest.approx(factor * first, rel=1e-6)


def test_equal_values_are_no_error() -> None:
    assert search_state(MODEL, np.zeros((60, 3)), MARGIN).race


def test_what_did_nothing_is_bad_but_not_infinitely() -> None:
    values = np.array([[0.0, 1e3], [1e3, 1e3], [np.nan, 1e3]])
    logs = goodness(observed({IOPS: values}), IOPS)
    assert logs[0, 0] == pytest.approx(logs[1, 0] - math.log(100))
    assert np.isnan(logs[2, 0])


def test_for_latencies_less_is_better() -> None:
    values = np.array([[1.0, 1.0], [2.0, 2.0]])
    assert (goodness(observed({IOPS: values}), IOPS)[1] > 0).all()
    assert (goodness(observed({P99: values}), P99)[1] < 0).all()

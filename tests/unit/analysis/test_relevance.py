"""The model in which few factors matter, in any combination."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from vdisklab.analysis.observations import Floats
from vdisklab.analysis.path_model import PathModel, Runs
from vdisklab.analysis.relevance import RelevanceModel, ScaledRuns, _features
from vdisklab.path.factors import Levels

LEVELS: Levels = np.array(list(itertools.product(range(2), repeat=8)), np.int64)


def hidden_exception() -> Floats:
    """Three factors matter, and only together."""
    together = np.where(LEVELS[:, [0, 3, 5]].all(axis=1), 1.5, 0.0)
    return np.asarray(together + 0.3 * LEVELS[:, 1])


def runs_of(rows: npt.NDArray[np.int64], truth: Floats, noise: float, seed: int) -> Runs:
    values = truth[rows] + np.random.default_rng(seed).normal(0, noise, len(rows))
    return Runs(rows, np.zeros(len(rows), np.int64), values)


def error(truth: Floats, guess: Floats) -> float:
    left = truth - guess
    return float((left - left.mean()).std())


def test_an_interaction_of_three_is_found_in_a_fifth_of_the_cells() -> None:
    """The mean of the cells alone is off by 0.5."""
    truth = hidden_exception()
    rows = np.random.default_rng(2).permutation(len(truth))[:52]
    draws = PathModel(LEVELS).draws(runs_of(rows, truth, 0.02, 1), 60, np.random.default_rng(0))
    assert error(truth, draws.mean(axis=1)) < 0.12


def test_factors_that_do_not_matter_get_no_weight() -> None:
    truth = hidden_exception()
    rows = np.random.default_rng(3).permutation(len(truth))[:80]
    target = (truth[rows] - truth[rows].mean()) / truth[rows].std()
    model = RelevanceModel(
        ScaledRuns(LEVELS[rows], np.zeros(80, np.int64), target, 80.0, 0.1, 300.0)
    )
    weight = np.exp(model._log_w)
    assert weight[[0, 3, 5]].min() > 5 * weight[[2, 4, 6, 7]].max()


def test_random_features_agree_as_the_covariance_says() -> None:
    joins = np.array([0.3, 0.0, 0.6, 0.1, 0, 0, 0, 0.9])
    features, at_runs = _features(LEVELS, LEVELS[:5], joins, np.random.default_rng(0))
    agree = features @ at_runs.T / features.shape[1]
    expected = np.ones(agree.shape)
    for factor, chance in enumerate(joins.tolist()):
        expected *= np.where(LEVELS[:, [factor]] == LEVELS[:5, factor], 1, 1 - chance)
    assert np.abs(agree - expected).max() < 0.15


def test_rounds_of_different_levels_do_not_matter() -> None:
    truth = hidden_exception()
    rng = np.random.default_rng(4)
    rows = rng.permutation(len(truth))[:60]
    rounds = np.repeat([0, 1], 30)
    values = truth[rows] + rng.normal(0, 0.02, 60) + 5.0 * rounds
    draws = PathModel(LEVELS).draws(Runs(rows, rounds, values), 60, rng)
    assert error(truth, draws.mean(axis=1)) < 0.2


@pytest.mark.parametrize("count", [1, 7, 60])
def test_as_many_draws_as_asked_for(count: int) -> None:
    runs = runs_of(np.arange(40, dtype=np.int64), hidden_exception(), 0.1, 5)
    draws = PathModel(LEVELS).draws(runs, count, np.random.default_rng(0))
    assert draws.shape == (len(LEVELS), count)
    assert np.isfinite(draws).all()

"""Noise that lasts from round to round, and warm-up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vdisklab.analysis.lasting_noise import (
    freedom_left,
    inflation,
    lasting_noise,
    warm_up,
)
from vdisklab.analysis.observations import Floats


def residuals(part: float, cells: int, rounds: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, (cells, rounds))
    for index in range(1, rounds):
        values[:, index] = part * values[:, index - 1] + math.sqrt(1 - part**2) * values[:, index]
    return np.asarray(values - values.mean(axis=1, keepdims=True))


@pytest.mark.parametrize("rounds", [7, 10, 20, 60])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_the_estimate_has_little_bias_whatever_the_number_of_rounds(
    part: float, rounds: int
) -> None:
    found = lasting_noise(residuals(part, 3000, rounds))
    assert found.shown == pytest.approx(part, abs=0.06)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_a_means_variance_is_inflated_as_theory_says(part: float) -> None:
    rng, rounds = np.random.default_rng(1), 12
    noise = rng.normal(0, 1, (20_000, rounds))
    for index in range(1, rounds):
        noise[:, index] = part * noise[:, index - 1] + math.sqrt(1 - part**2) * noise[:, index]
    naive = noise.var(axis=1, ddof=1).mean() / rounds
    assert noise.mean(axis=1).var() / naive == pytest.approx(
        float(inflation(part, rounds)), rel=0.05
    )


def test_independent_noise_is_hardly_widened() -> None:
    found = lasting_noise(residuals(0.0, 13, 12))
    assert found.pooled < 0.25
    assert float(inflation(0.0, 9)) == pytest.approx(1)
    assert float(freedom_left(0.0)) == 1


def test_a_cell_that_lasts_more_than_the_others_counts_with_its_own() -> None:
    values = residuals(0.0, 13, 30)
    values[4] = residuals(0.9, 1, 30, seed=3)
    found = lasting_noise(values)
    assert found.parts[4] == found.parts.max() > 0.5
    assert found.parts[0] == found.pooled


def test_few_rounds_and_constant_cells_say_nothing() -> None:
    assert lasting_noise(residuals(0.9, 5, 5)).pooled == 0
    assert lasting_noise(np.zeros((3, 20))).pooled == 0
    assert lasting_noise(residuals(0.9, 5, 5), least=0.4).parts.tolist() == [0.4] * 5


def test_warm_up_is_seen_and_steady_rounds_are_not_taken_for_it() -> None:
    values = 0.1 * residuals(0.0, 13, 10)
    values[5, :3] -= 1.0
    assert warm_up(values) == 3
    taken = sum(warm_up(residuals(0.0, 13, 10, seed)) > 0 for seed in range(100))
    assert taken <= 12
    assert warm_up(values[:, :5]) == 0

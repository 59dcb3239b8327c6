"""Our probabilities and quantiles against SciPy's, and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from vdisklab.analysis import distributions
from vdisklab.analysis.additive import usable
from vdisklab.analysis.diagnostics.values import slope, trend_p

FREEDOM = np.array([0.5, 1, 1.5, 2, 2.7, 3, 4, 5, 7.3, 10, 17, 30, 55.5, 100, 333, 1000, 12345])
CHANCE = np.array([1e-12, 1e-8, 1e-5, 1e-3, 0.025, 0.07, 0.1, 0.2, 0.4, 0.6, 0.9, 0.975, 0.999])
EXACT = 1e-12


def test_quantiles_of_t() -> None:
    chance, freedom = np.meshgrid(CHANCE, FREEDOM)
    ours = distributions.t_isf(chance, freedom)
    np.testing.assert_allclose(ours, -special.stdtrit(freedom, chance), rtol=EXACT)
    np.testing.assert_allclose(distributions.t_sf(ours, freedom), chance, rtol=1e-11)
    assert distributions.t_isf(0.5, 7) == 0
    assert distributions.t_isf(0.0, 7) == math.inf


def test_tails_of_t() -> None:
    value, freedom = np.meshgrid([0, 0.1, 0.5, 1, 2, 5, 10, 40, 1e3, 1e6, -1, -5], FREEDOM)
    ours = distributions.t_sf(value, freedom)
    np.testing.assert_allclose(ours, special.stdtr(freedom, -value), rtol=EXACT)
    # SciPy 1.17 is wrong by 1e-9 here: the density at 0 is 1/pi.
    assert distributions.t_sf(1e-8, 1) == pytest.approx(0.5 - 1e-8 / math.pi, rel=1e-15)
    assert distributions.t_sf(math.inf, 3) == 0


@pytest.mark.parametrize("freedom", [0, -1, math.nan])
def test_without_degrees_of_freedom_nothing_is_known(freedom: float) -> None:
    assert math.isnan(distributions.t_isf(0.025, freedom))
    assert math.isnan(distributions.t_sf(1.0, freedom))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 7, 10, 31, 32, 33, 50, 500, 20_000])
def test_quantiles_of_chi_squared(freedom: int) -> None:
    chance = np.array([*((np.arange(300) + 0.5) / 300), 1e-6, 0.01, 0.1, 0.2, 0.5])
    ours = distributions.chi2_isf(chance, freedom)
    np.testing.assert_allclose(ours, special.chdtri(freedom, chance), rtol=EXACT)


def test_tails_of_chi_squared_and_quantiles_of_several() -> None:
    for freedom in (1.0, 2.0, 4.5, 9.0, 35.0, 400.0):
        for value in (0.0, 0.001, 0.5, 3.0, 20.0, 300.0):
            assert distributions.chi2_sf(value, freedom) == pytest.approx(
                special.chdtrc(freedom, value), rel=EXACT
            )
    many = np.array([2.0, 4.0, 2.0])
    np.testing.assert_allclose(
        distributions.chi2_isf(0.1, many), special.chdtri(many, 0.1), rtol=EXACT
    )


def test_the_normal_distribution() -> None:
    value = np.linspace(-40, 40, 20_001)
    ours = distributions.normal_cdf(value)
    np.testing.assert_allclose(ours, special.ndtr(value), rtol=0, atol=4e-16)


@pytest.mark.parametrize("trials", [1, 2, 5, 6, 33, 100, 999])
def test_tosses_of_a_coin(trials: int) -> None:
    successes = np.arange(trials)
    ours = distributions.fair_binomial_cdf(successes, trials)
    np.testing.assert_allclose(ours, stats.binom.cdf(successes, trials, 0.5), rtol=0, atol=EXACT)
    assert distributions.fair_binomial_cdf(-1, trials) == 0
    assert distributions.fair_binomial_cdf(trials, trials) == 1


def test_polygammas() -> None:
    value = np.array([0.1, 0.5, 1, 1.5, 2, 3, 7.5, 15, 100, 1e4])
    for ours, order in (
        (distributions.digamma, 0),
        (distributions.trigamma, 1),
        (distributions.tetragamma, 2),
    ):
        np.testing.assert_allclose(ours(value), special.polygamma(order, value), rtol=EXACT)


@given(st.lists(st.integers(0, 40), min_size=5, max_size=40))
def test_trends(values: list[int]) -> None:
    numbers = np.array(values, dtype=np.float64)
    order = np.arange(len(numbers))
    theirs = stats.kendalltau(order, numbers).pvalue
    assert trend_p(numbers) == pytest.approx(1.0 if math.isnan(theirs) else theirs, rel=1e-9)
    assert slope(numbers) == pytest.approx(stats.theilslopes(numbers, order)[0], abs=1e-12)


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=2, max_size=9))
def test_cells_that_share_no_round_are_told_apart(measured: list[list[bool]]) -> None:
    logs = np.where(np.array(measured), 1.0, np.nan)
    chosen = usable(logs)
    inside = np.isfinite(logs[np.ix_(chosen.rows, chosen.columns)])
    outside = np.isfinite(logs[np.ix_(chosen.apart, chosen.columns)])
    assert not outside.any()
    linked = np.linalg.matrix_power(
        (inside.astype(int) @ inside.T.astype(int) > 0).astype(float), max(1, len(chosen.rows))
    )
    assert (linked > 0).all()

"""Coverage, error and power where noise runs on in time, as a real disk's does.

Noise is a stationary AR(1) process from run to run (correlation 0.9 with the neighbour) on top of
a random walk, so that runs next to one another are alike. What makes differences within rounds
fair is the random order in each round, which is simulated here as `campaign.schedule` makes it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, observed
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.analysis.rank_intervals import rank

pytestmark = pytest.mark.slow


def in_time(
    rng: np.random.Generator, level: Floats, rounds: int, noise: float, correlation: float = 0.9
) -> Floats:
    """Cells x rounds of values whose noise was drawn along the order of the runs."""
    cells = len(level)
    runs = cells * rounds
    steps = rng.normal(0, noise * (1 - correlation**2) ** 0.5, runs)
    steps[0] = rng.normal(0, noise)
    wander = np.empty(runs)
    last = 0.0
    for place, step in enumerate(steps):
        last = correlation * last + step
        wander[place] = last
    wander += np.cumsum(rng.normal(0, 0.1 / cells**0.5, runs))
    values = np.empty((cells, rounds))
    for round in range(rounds):
        order = rng.permutation(cells)
        values[order, round] = wander[round * cells : (round + 1) * cells]
    independent = rng.normal(0, noise / 3, (cells, rounds))
    answer: Floats = np.exp(np.log(level)[:, None] + values + independent)
    return answer


@pytest.mark.parametrize("rounds", [5, 10])
def test_intervals_of_ratios_cover_95_percent(rounds: int) -> None:
    rng = np.random.default_rng(11)
    held = tried = 0
    for _ in range(500):
        values = in_time(rng, np.array([1.0, 1.3, 0.7, 1.0, 2.0, 1.0]), rounds, 0.1)
        # Cells 0 and 1, and 3 and 5, have nothing in common but the campaign.
        for first, other, true in ((1, 0, 1.3), (3, 5, 1.0)):
            (ratio,) = paired_ratios(values[first], values[other], forecast=False)
            assert ratio.low is not None
            assert ratio.high is not None
            held += ratio.low <= true <= ratio.high
            tried += 1
    assert abs(held / tried - 0.95) <= 0.02


@pytest.mark.parametrize(
    ("cells", "rounds"),
    [(12, 5), *(pytest.param(*size, marks=pytest.mark.nightly) for size in ((4, 5), (12, 10)))],
)
def test_equal_cells_are_told_apart_in_at_most_5_percent(cells: int, rounds: int) -> None:
    rng = np.random.default_rng(12)
    wrong = sum(
        rank(observed({IOPS: in_time(rng, np.ones(cells), rounds, 0.1)}), IOPS).separated > 0
        for _ in range(200)
    )
    assert wrong / 200 <= 0.05 + 2 * (0.05 * 0.95 / 200) ** 0.5


def test_a_known_difference_is_found_with_the_power_that_the_forecast_promises() -> None:
    """`rounds_needed` of true mean and deviation says 80 %; that many rounds find it so often."""
    rng = np.random.default_rng(13)
    level = np.array([1.0, 1.25, 1.0, 1.0])
    logs = [np.log(in_time(rng, level, 10, 0.1)) for _ in range(300)]
    difference = np.array([each[1] - each[0] for each in logs])
    deviation = float(difference.std())
    (needed,) = paired_ratios(
        1.2345678 * np.exp(np.log(1.25) + deviation * _standard(40)), np.full(40, 1.2345678)
    )
    rounds = needed.rounds_needed
    assert rounds is not None
    found = 0
    for _ in range(400):
        values = in_time(rng, level, rounds, 0.1)
        (ratio,) = paired_ratios(values[1], values[0], forecast=False)
        found += ratio.p is not None and ratio.p <= 0.05
    assert found / 400 >= 0.8 - 0.05


def _standard(count: int) -> Floats:
    """Numbers with mean 0 and standard deviation 1."""
    raw = np.linspace(-1, 1, count)
    answer: Floats = (raw - raw.mean()) / raw.std(ddof=1)
    return answer

"""Which cells no other beats in all of several measures."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, campaign_runs, cell, drifting, observed
from vdisklab.analysis.observations import observe
from vdisklab.analysis.pareto import (
    CPU,
    ShareOfBest,
    Standing,
    add_cpu,
    add_metric_mean,
    pareto_front,
)
from vdisklab.answers.pareto import parse_criteria
from vdisklab.errors import PlanError
from vdisklab.results.model import RunSums


def test_the_front_has_the_best_of_each_and_the_compromises() -> None:
    rng = np.random.default_rng(1)
    speed = drifting(rng, [10.0, 8.0, 5.0, 4.0], 5, noise=0.01)
    latency = drifting(rng, [4.0, 2.0, 1.0, 3.0], 5, noise=0.01)
    front = pareto_front(observed({IOPS: speed, P99: latency}), [IOPS, P99])
    on_front = {placed.cell for placed in front.cells if placed.standing is Standing.FRONT}
    assert on_front == {cell("c00"), cell("c01"), cell("c02")}
    (beaten,) = [placed for placed in front.cells if placed.standing is Standing.BEATEN]
    assert beaten.cell == cell("c03")
    assert beaten.by in {cell("c01"), cell("c02")}
    first = next(placed for placed in front.cells if placed.cell == cell("c00"))
    assert first.shares[0] == ShareOfBest(1.0, 1.0, 1.0)
    assert first.shares[1].low is not None
    assert first.shares[1].share is not None
    assert first.shares[1].high is not None
    assert first.shares[1].low < first.shares[1].share < first.shares[1].high < 0.3


def test_what_is_not_shown_in_all_may_be_beaten() -> None:
    rng = np.random.default_rng(2)
    speed = drifting(rng, [10.0, 5.0], 5, noise=0.01)
    same = drifting(rng, [1.0, 1.0], 5)
    same[1] = same[0] * [1.1, 0.95, 1.1, 0.95, 1.1]  # worse by means, but not in each round
    front = pareto_front(observed({IOPS: speed, P99: same}), [IOPS, P99])
    standing = {placed.cell: placed.standing for placed in front.cells}
    assert standing[cell("c00")] is Standing.FRONT
    assert standing[cell("c01")] is Standing.MAY_BE


def test_a_cell_on_the_front_is_rarely_called_beaten() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(150):
        grids = {
            measure: drifting(rng, [1.0, 1.0, 0.5, 0.5], 3, noise=0.1) for measure in (IOPS, P99)
        }
        front = pareto_front(observed(grids), [IOPS, P99])
        # The first two are equal in both, so neither beats the other.
        beaten = {cell.cell for cell in front.cells if cell.standing is Standing.BEATEN}
        wrong += cell("c00") in beaten or cell("c01") in beaten
    assert wrong / 150 <= 0.05


def test_cells_without_a_measure_are_left_out() -> None:
    speed = drifting(np.random.default_rng(4), [3.0, 2.0, 1.0], 4)
    latency = speed.copy()
    latency[2] = np.nan
    front = pareto_front(observed({IOPS: speed, P99: latency}), [IOPS, P99])
    assert front.left_out == (cell("c02"),)
    assert len(front.cells) == 2
    assert pareto_front(observed({IOPS: speed}), [IOPS, P99]).cells == ()


def test_cpu_and_means_are_measures_by_round() -> None:
    runs = [run for run in campaign_runs(3) if run.failure is None]
    run = runs[0]
    counted = RunSums(run.campaign, run.round, run.cell, 0.5, 1000)
    idle = RunSums(run.campaign, run.round, runs[1].cell, 0.5, 0)
    cells = {run.cell: run.measured_cell for run in runs}
    data = add_cpu(observe(runs), [counted, idle], cells)
    grid = data.grid(CPU)
    place = data.place[run.measured_cell]
    assert grid[place, 0] == pytest.approx(0.0005)
    assert np.isfinite(grid).sum() == 1
    data, key = add_metric_mean(data, "latency_p99")
    parts = [m for m in data.measures if m.metric == "latency_p99" and m != key]
    expected = np.exp(np.mean([np.log(data.grid(part)[place, 0]) for part in parts]))
    assert data.grid(key)[place, 0] == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "read", "read/", "read,read", ","])
def test_one_criterion_is_no_trade_off(text: str) -> None:
    with pytest.raises(PlanError, match="two or more"):
        parse_criteria(text)


def test_criteria_with_slashes_are_separated_by_commas() -> None:
    assert parse_criteria("read/write/cpu") == ("read", "write", "cpu")
    assert parse_criteria("read, a/read/iops") == ("read", "a/read/iops")


def test_shares_hold_although_the_data_chose_the_best() -> None:
    """All are equal, so each share is 1; Student's t of each pair missed more than 5 % of them."""
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(80):
        grids = {measure: drifting(rng, [1.0] * 10, 3, noise=0.1) for measure in (IOPS, P99)}
        shares = [placed.shares[0] for placed in pareto_front(observed(grids), [IOPS, P99]).cells]
        missed += sum(share.high is not None and share.high < 1 for share in shares)
    assert missed / 800 <= 0.05

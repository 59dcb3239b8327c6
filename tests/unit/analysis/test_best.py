"""Which cells may be the best."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, cell, drifting, labelled, observed
from tests.unit.pages import bench as program
from vdisklab.analysis.best import BestSet, competitors, critical, p_of_lead
from vdisklab.analysis.observations import Floats, MeasureKey
from vdisklab.analysis.pair_noise import PairNoise
from vdisklab.analysis.rank_intervals import Ranking, rank


def best(grid: Floats, measure: MeasureKey = IOPS) -> BestSet:
    answer = rank(observed({measure: grid}), measure).best
    assert answer is not None
    return answer


def test_a_clear_leader_is_named_alone() -> None:
    answer = best(drifting(np.random.default_rng(1), [10, 5, 5, 1], 5, noise=0.01))
    assert answer.cells == (cell("c00"),)
    assert answer.alone
    assert (answer.competitors, answer.beaten) == (4, 3)
    assert answer.runner_up in {cell("c01"), cell("c02")}
    assert answer.p is not None
    assert answer.p < 0.001


def test_a_cell_that_misses_a_round_of_three_still_competes() -> None:
    """It had no rank, so the best was absent from "one of these is the best, with 95 %"."""
    grid = drifting(np.random.default_rng(1), [10, 5, 5, 1, 4, 3], 3, noise=0.01)
    grid[0, 1] = np.nan
    answer = best(grid)
    assert answer.cells == (cell("c00"),)
    assert answer.unranked == 0
    grid[0, 2] = np.nan
    answer = best(grid)
    assert cell("c00") not in answer.cells
    assert answer.unranked == 1


@pytest.mark.parametrize(
    "world",
    [
        pytest.param("equal noise", marks=pytest.mark.nightly),
        "one cell 10× noisier",
        pytest.param("exact twins", marks=pytest.mark.nightly),
    ],
)
def test_missing_runs_take_neither_the_best_nor_the_limit_away(world: str) -> None:
    """15 % of the runs are missing: 13 × 3 rounds left the best without a rank in 37 %."""
    bench = program("simulations.py")
    rng = np.random.default_rng(5)
    truth = np.where(np.arange(13) < 2, 0.0, -5.0)
    drawn = bench["drawn"](rng, bench["WORLDS"][world], truth, 100, 3)
    absent = wrong = 0
    for logs in np.where(rng.random(drawn.shape) < 0.15, np.nan, drawn):
        answer = best(np.exp(logs))
        ranked = {cell(f"c{row:02d}") for row in (0, 1) if np.isfinite(logs[row]).sum() >= 2}
        absent += cell("c00") not in ranked
        wrong += bool(ranked - set(answer.cells))
    assert absent / 100 <= 0.15
    assert wrong / 100 <= 0.05 + 2 * (0.05 * 0.95 / 100) ** 0.5


def test_equal_leaders_both_may_be_the_best() -> None:
    answer = best(drifting(np.random.default_rng(1), [5, 10, 10, 1], 5, noise=0.01))
    assert set(answer.cells) == {cell("c01"), cell("c02")}
    assert answer.runner_up == answer.cells[1]
    assert answer.p is not None
    assert answer.p > 0.05


def test_the_doubt_of_a_tie_is_about_the_next_of_the_set() -> None:
    """The second by its mean is beaten; a noisy one behind it is not."""
    levels = np.array([6, 5.9, 5.8, 4, 3, 2, 1, 0])
    logs = levels[:, None] + np.random.default_rng(4).normal(0, 0.01, (8, 4))
    logs[2] += np.array([0.2, -0.2, -0.2, 0.2])
    answer = best(np.exp(logs))
    assert answer.cells == (cell("c00"), cell("c02"))
    assert answer.runner_up == cell("c02")
    assert answer.p is not None
    assert answer.p > 0.05


def test_lower_is_better_for_latency() -> None:
    grid = drifting(np.random.default_rng(1), [10, 1, 5], 5, noise=0.01)
    assert best(grid, P99).cells == (cell("c01"),)


def test_the_host_and_the_null_device_and_warm_caches_do_not_compete() -> None:
    grid = drifting(np.random.default_rng(2), [99, 50, 30, 20, 10, 5], 4, noise=0.01)
    names = ["host", "null/none", "raw/writeback (warm)", "raw/writeback (cold)", "raw/none", "x"]
    data = labelled(
        {
            (name, round, IOPS): float(grid[row, round])
            for row, name in enumerate(names)
            for round in range(4)
        }
    )
    answer = rank(data, IOPS).best
    assert answer is not None
    assert answer.cells == (cell("raw/writeback (cold)"),)
    assert answer.competitors == 3
    only_host = [cell("host"), cell("ext4/host")]
    assert competitors(only_host).tolist() == [0, 1]


def test_a_warm_cache_does_not_compete_although_its_cold_cell_has_no_rank() -> None:
    grid = drifting(np.random.default_rng(2), [30, 50, 10, 5], 4, noise=0.01)
    names = ["raw/writeback (cold)", "raw/writeback (warm)", "raw/none", "qcow2/none"]
    data = labelled(
        {
            (name, round, IOPS): float(grid[row, round])
            for row, name in enumerate(names)
            for round in range(4)
            if row or round < 1
        }
    )
    assert cell("raw/writeback (warm)") not in {row.cell for row in rank(data, IOPS).rows}
    answer = rank(data, IOPS).best
    assert answer is not None
    assert (answer.cells, answer.competitors) == ((cell("raw/none"),), 2)


def test_more_guests_at_once_are_no_better_path() -> None:
    grid = drifting(np.random.default_rng(2), [10, 20, 5], 4, noise=0.01)

    def ranked(*names: str) -> Ranking:
        numbers = {
            (name, round, IOPS): float(grid[row, round])
            for row, name in enumerate(names)
            for round in range(4)
        }
        return rank(labelled(numbers), IOPS)

    first, second = "raw/none/virtio:guests=1", "raw/none/virtio:guests=2"
    assert ranked(first, second, "qcow2/none").best is None
    assert len(ranked(first, second, "qcow2/none").rows) == 3
    assert ranked(first, "qcow2/none").best is not None


def test_one_competitor_has_nothing_to_beat() -> None:
    grid = drifting(np.random.default_rng(2), [2, 1], 4)
    data = labelled(
        {
            (name, round, IOPS): float(grid[row, round])
            for row, name in enumerate(["host", "raw/none"])
            for round in range(4)
        }
    )
    answer = rank(data, IOPS)
    assert (answer.rows, answer.best) == ((), None)


def test_what_the_rounds_can_show_is_what_that_many_rounds_are_needed_for() -> None:
    answer = best(drifting(np.random.default_rng(5), [1.0] * 12, 3, noise=0.1))
    assert answer.shows is not None
    assert 0.15 < answer.shows < 0.8
    assert answer.rounds_for(answer.shows) == 3
    more = answer.rounds_for(0.1)
    assert more is not None
    assert more > 3
    assert answer.rounds_for(1e-6) is None


@pytest.mark.parametrize("noise", ["equal noise", "a third has 10 times the variance"])
def test_a_stated_lead_is_named_in_about_80_percent_although_rivals_are_close(noise: str) -> None:
    """Leads were stated for one rival, all others far behind, and for common noise: 57 and 2 %."""
    bench = program("simulations.py")
    rng, world = np.random.default_rng(9), bench["REACHED"][noise]
    probes = [bench["drawn"](rng, world, bench["spread"](rng, 13, 0.1), 1, 5)[0] for _ in range(20)]
    lead = float(np.median([bench["set_of"](logs).shows for logs in probes]))
    alone = 0
    for _ in range(60):
        logs = bench["drawn"](rng, world, bench["spread"](rng, 13, lead), 1, 5)[0]
        alone += bench["set_of"](logs).alone
    assert alone / 60 >= 0.8 - 2 * (0.8 * 0.2 / 60) ** 0.5


@pytest.mark.parametrize(
    "world",
    [
        pytest.param("equal noise", marks=pytest.mark.nightly),
        "one cell 3× noisier",
        pytest.param("two families 10 %, own 2 %", marks=pytest.mark.nightly),
    ],
)
def test_the_leaders_own_test_names_more_and_keeps_the_limit(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gutmann and Maymin's two-sided test from 5 rounds on, with the tool's noise rules."""
    bench = program("simulations.py")
    rng = np.random.default_rng(10)
    truth = np.where(np.arange(13) < 2, 0.0, -5.0)
    ties = bench["drawn"](rng, bench["WORLDS"][world], truth, 150, 5)
    wrong = np.mean([bench["left_out"](logs)[:2].any() for logs in ties])
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / 150) ** 0.5
    leads = [bench["one_leader"](rng, 0.1, 0.3, 5) for _ in range(100)]
    named = np.mean([bench["set_of"](logs).alone for logs in leads])
    monkeypatch.setattr("vdisklab.analysis.best.ALONE_FROM", 99)
    assert named >= np.mean([bench["set_of"](logs).alone for logs in leads]) + 0.05


def test_p_is_below_the_limit_exactly_if_the_leader_is_alone() -> None:
    for seed in range(60):
        rounds = 3 + seed % 4
        answer = best(drifting(np.random.default_rng(seed), [1.25, 1, 1, 0.9], rounds, noise=0.08))
        assert answer.p is not None
        assert (answer.p <= 0.05) == answer.alone


@pytest.mark.parametrize("freedom", [2, 4, 30, 200])
@pytest.mark.parametrize("others", [1, 4, 7, 60])
@pytest.mark.parametrize(("alpha", "rounds"), [(0.05, 3), (0.025, 12), (0.001, 5)])
def test_the_critical_lead_is_the_least_that_shows_a_cell_to_be_better(
    alpha: float, rounds: int, others: int, freedom: int
) -> None:
    lead = critical(alpha, others, freedom, rounds)
    assert p_of_lead(lead * 1.000_001, others, freedom, rounds) < alpha
    assert p_of_lead(lead * 0.999_999, others, freedom, rounds) > alpha


@pytest.mark.parametrize("rounds", [3, 8])
def test_equal_values_all_may_be_the_best(rounds: int) -> None:
    assert len(best(np.tile(np.linspace(1, 2, rounds), (5, 1))).cells) == 5


@pytest.mark.parametrize("leads", [[2.0], [1.0, 1.0]])
def test_limits_are_made_once_for_many_cells(
    monkeypatch: pytest.MonkeyPatch, leads: list[float]
) -> None:
    """A median over all cells for each of them took twice as long as all the rest."""
    asked: list[PairNoise] = []

    def rounds(noise: PairNoise) -> int:
        asked.append(noise)
        return 5

    monkeypatch.setattr(PairNoise, "rounds", property(rounds))
    means = np.r_[leads, np.full(400, 0.5)]
    best(drifting(np.random.default_rng(1), list(means), 5, noise=0.02))
    assert 0 < len(asked) < 60

"""Which cells may be the best."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, cell, drifting, labelled, observed
from vdisklab.analysis.best import BestSet, competitors
from vdisklab.analysis.observations import Floats, MeasureKey
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
            if row or round < 2
        }
    )
    assert cell("raw/writeback (warm)") in {row.cell for row in rank(data, IOPS).rows}
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

    one, two = "raw/none/virtio:guests=1", "raw/none/virtio:guests=2"
    assert ranked(one, two, "qcow2/none").best is None
    assert len(ranked(one, two, "qcow2/none").rows) == 3
    assert ranked(one, "qcow2/none").best is not None


def test_one_competitor_has_nothing_to_beat() -> None:
    grid = drifting(np.random.default_rng(2), [2, 1], 4)
    data = labelled(
        {
            (name, round, IOPS): float(grid[row, round])
            for row, name in enumerate(["host", "raw/none"])
            for round in range(4)
        }
    )
    answer = rank(data, IOPS).best
    assert answer is not None
    assert (answer.leader, answer.runner_up, answer.p) == (cell("raw/none"), None, None)
    assert answer.shows is None
    assert answer.rounds_for(0.1) is None


def test_what_the_rounds_can_show_is_what_that_many_rounds_are_needed_for() -> None:
    answer = best(drifting(np.random.default_rng(3), [1.0] * 12, 3, noise=0.1))
    assert answer.shows is not None
    assert 0.15 < answer.shows < 0.5
    assert answer.rounds_for(answer.shows) == 3
    more = answer.rounds_for(0.1)
    assert more is not None
    assert more > 3
    assert answer.rounds_for(1e-6) is None


@pytest.mark.parametrize("rounds", [3, 8])
def test_equal_values_all_may_be_the_best(rounds: int) -> None:
    assert len(best(np.tile(np.linspace(1, 2, rounds), (5, 1))).cells) == 5

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, P99, observed
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.search import (
    Ended,
    Rules,
    SearchState,
    goodness,
    look,
    next_cells,
    search_state,
)

RULES = Rules()


def campaign(rng: np.random.Generator, truth: Floats, blocks: int, noise: float) -> Floats:
    drift = np.cumsum(rng.normal(0, 0.15, blocks))
    logs: Floats = truth[:, None] + drift + rng.normal(0, noise, (len(truth), blocks))
    return logs


def searched(logs: Floats, rules: Rules = RULES, runs: float = np.inf) -> tuple[int, int]:
    """The row that is found, and in how many runs."""
    seen = np.full_like(logs, np.nan)
    cells: tuple[int, ...] = tuple(range(len(logs)))
    found: SearchState | None = None
    spent, leader = 0, 0
    for block in range(logs.shape[1]):
        seen[list(cells), block] = logs[list(cells), block]
        spent += len(cells)
        found = look(seen[:, : block + 1], rules, found)
        leader, cells = found.leader, next_cells(found, runs - spent)
        if not cells:
            break
    return leader, spent


def test_below_three_blocks_nobody_is_shown_to_be_worse() -> None:
    logs = np.log(np.array([[10.0], [8.0], [1.0], [0.1]]))
    for blocks in (1, 2):
        found = search_state(np.repeat(logs, blocks, axis=1), RULES)
        assert found.leader == 0
        assert found.survivors == (0, 1, 2, 3)
        assert not found.worse
        assert found.ended is None
        assert found.gap == np.inf  # nobody knows
    assert search_state(np.repeat(logs, 3, axis=1), RULES).survivors == (0,)


def test_a_best_cell_of_two_modes_is_not_put_out_by_one_bad_run() -> None:
    """Median latencies of a disk are such; an assumed noise had put the best out at once."""
    rng = np.random.default_rng(6)
    lost = 0
    for _ in range(100):
        logs = campaign(rng, np.concatenate([[0.0], rng.uniform(-2, -0.3, 59)]), 8, 0.1)
        logs[0] += rng.permutation([0.9] * 4 + [-1.5] * 3 + [1.0])
        seen = np.full_like(logs, np.nan)
        seen[:, 0] = logs[:, 0]
        lost += 0 in search_state(seen[:, :1], RULES).worse
    assert lost == 0


def test_twins_end_as_a_tie_within_the_margin() -> None:
    rng = np.random.default_rng(1)
    logs = campaign(rng, np.zeros(3), 12, 0.005)
    found = search_state(logs, RULES)
    assert found.ended is Ended.TIED
    assert len(found.near) == 2
    assert found.gap == 0


def test_a_clear_best_ends_alone() -> None:
    logs = campaign(np.random.default_rng(2), np.array([1.0, 0.0, -1.0]), 4, 0.02)
    found = search_state(logs, RULES)
    assert (found.survivors, found.ended) == ((0,), Ended.SEPARATED)
    assert next_cells(found, np.inf) == ()


def test_a_cell_that_missed_the_last_block_may_come_back() -> None:
    logs = campaign(np.random.default_rng(2), np.array([0.0, -0.5, -0.01, -0.02]), 3, 0.01)
    logs[2, 2] = np.nan
    found = search_state(logs, RULES)
    assert found.dropped == (2,)
    assert 2 not in found.survivors
    again = np.column_stack([logs, logs.mean(axis=1) * 0 + np.array([0.0, np.nan, -0.01, -0.02])])
    again[2, 3] = -0.01
    assert 2 in search_state(again, RULES).survivors


def test_without_a_budget_a_cell_that_failed_is_not_tried_again() -> None:
    logs = campaign(np.random.default_rng(2), np.array([1.0, 0.99, -1.0]), 5, 0.02)
    logs[1, 1:] = np.nan
    found = search_state(logs, RULES)
    assert (found.survivors, found.ended) == ((0,), Ended.UNSETTLED)
    assert found.dropped == (1,)
    assert found.gap > 0
    assert next_cells(found, np.inf) == ()
    assert next_cells(found, 20) == (0, 1)  # the budget had not done for it before


def test_a_lonely_cell_is_the_best_and_nothing_is_an_error() -> None:
    assert search_state(np.zeros((1, 1)), RULES).ended is Ended.SEPARATED
    with pytest.raises(ValueError, match="no block has been measured"):
        search_state(np.full((2, 1), np.nan), RULES)


def test_a_small_budget_goes_to_the_best() -> None:
    found = search_state(np.linspace(0, 0.3, 30)[:, None], RULES)
    assert len(found.survivors) == 30
    assert next_cells(found, np.inf) == found.survivors
    assert next_cells(found, 20) == found.survivors[:5]
    assert next_cells(found, 1.5) == ()


def test_the_same_numbers_choose_the_same_cells() -> None:
    logs = campaign(np.random.default_rng(3), np.linspace(0, 1, 20), 3, 0.05)
    assert search_state(logs, RULES) == search_state(logs.copy(), RULES)


def test_for_latencies_less_is_better() -> None:
    values = np.array([[1.0, 1.0], [2.0, 2.0]])
    assert (goodness(observed({IOPS: values}), IOPS)[1] > 0).all()
    assert (goodness(observed({P99: values}), P99)[1] < 0).all()


@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_the_best_within_the_margin_is_found_at_a_quarter_of_the_runs(noise: float) -> None:
    """`bench/search.py` does this with 1,000 replays and with recorded campaigns."""
    rng = np.random.default_rng(4)
    right, runs = 0, []
    for _ in range(150):
        truth = rng.normal(0, 0.8, 60)
        found, spent = searched(campaign(rng, truth, 8, noise), runs=120)
        right += bool(truth.max() - truth[found] <= np.log(1.03))
        runs.append(spent)
    assert right >= 0.95 * 150
    assert max(runs) <= 120


def test_without_a_budget_the_best_is_hardly_ever_put_out() -> None:
    """Cells nearer than the margin may be; the risk of others is alpha over all looks."""
    rng = np.random.default_rng(5)
    lost = 0
    for _ in range(200):
        truth = np.concatenate([[0.0], np.full(11, -0.06)])
        logs = campaign(rng, truth, 10, 0.05)
        seen = np.full_like(logs, np.nan)
        cells: tuple[int, ...] = tuple(range(12))
        found: SearchState | None = None
        for block in range(10):
            seen[list(cells), block] = logs[list(cells), block]
            found = look(seen[:, : block + 1], RULES, found)
            if 0 not in found.survivors:
                lost += 1
                break
            cells = next_cells(found, np.inf)
            if not cells:
                break
    assert lost <= 0.05 * 200

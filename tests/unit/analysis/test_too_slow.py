"""A cell that did not end in its time is worse than what was measured, not absent."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, IOPS, campaign_runs, cell, drifting, observed
from vdisklab.analysis.diagnostics.ranked import (
    DroppedBySearch,
    TooFewRounds,
    TooSlow,
    dropped_by_search,
    ranking_diagnostics,
    slow_diagnostics,
)
from vdisklab.analysis.observations import (
    MeasureKey,
    Observations,
    cells_too_slow,
    observe,
    with_too_slow,
)
from vdisklab.analysis.rank_intervals import rank
from vdisklab.campaign.runner import _kind
from vdisklab.errors import GuestTimeoutError, TooSlowError
from vdisklab.results.model import Direction, Failure, FailureKind
from vdisklab.value import replace


def slow_in(rounds: list[int], *, measured: bool) -> Observations:
    """Four cells in four rounds; the last of them, else the best, did not end in `rounds`."""
    grid = drifting(np.random.default_rng(6), [10.0, 8.0, 5.0, 20.0], 4, noise=0.01)
    grid[3, rounds] = np.nan
    data = observed({IOPS: grid if measured else grid[:3]})
    return with_too_slow(data, [(cell("c03"), data.rounds[round]) for round in rounds])


def test_a_cell_that_never_ended_is_ranked_last() -> None:
    data = slow_in([0, 1, 2, 3], measured=False)
    answer = rank(data, IOPS)
    assert answer.unranked == ()
    last = answer.rows[-1]
    assert (last.cell, last.rounds, last.worst) == (cell("c03"), 0, 4)
    assert answer.best is not None
    assert answer.best.cells == (cell("c00"),)
    assert not np.isfinite(data.grid(IOPS)[3]).any()  # no number is made up


def test_rounds_that_did_not_end_count_against_a_fast_cell() -> None:
    whole = rank(slow_in([], measured=True), IOPS).best
    assert whole is not None
    assert whole.cells == (cell("c03"),)
    answer = rank(slow_in([1, 2], measured=True), IOPS)
    assert answer.best is not None
    assert answer.best.leader != cell("c03")
    finding = next(
        diagnostic
        for diagnostic in ranking_diagnostics(answer, 3)
        if isinstance(diagnostic, TooSlow)
    )
    assert (finding.cells, finding.rounds) == ((cell("c03"),), 2)
    assert "c03: too slow to end in time in 2 rounds" in str(finding)
    assert "Medians and ratios are of the other rounds" in str(finding)


def test_a_cell_without_any_number_has_no_other_rounds() -> None:
    data = slow_in([0, 1, 2, 3], measured=False)
    of_ranking = [
        diagnostic
        for diagnostic in ranking_diagnostics(rank(data, IOPS), 3)
        if type(diagnostic) is TooSlow
    ]
    assert slow_diagnostics(data) == tuple(of_ranking)
    assert "there is neither a median nor a ratio" in str(of_ranking[0])
    assert slow_diagnostics(data, among=[cell("c00")]) == ()


def test_cells_that_a_search_dropped_need_no_further_rounds() -> None:
    runs = [
        run
        for run in campaign_runs(4)
        if run.measured_cell.name != "raw/writeback" or run.round == 1
    ]
    dropped = dropped_by_search(runs)
    assert {str(row) for row in dropped} == {"raw/writeback (cold)", "raw/writeback (warm)"}
    complete = [
        run for run in campaign_runs(4) if run.round < 4 or run.measured_cell.name == "host"
    ]
    assert dropped_by_search(complete) == frozenset()  # the last round may be under way
    answer = rank(observe(runs), MeasureKey("randread-4k-q1", Direction.READ, "bandwidth"))
    (finding,) = (
        diagnostic
        for diagnostic in ranking_diagnostics(answer, 3, dropped)
        if isinstance(diagnostic, DroppedBySearch)
    )
    assert "--rounds" not in str(finding)
    assert not any(
        type(diagnostic) is TooFewRounds for diagnostic in ranking_diagnostics(answer, 3, dropped)
    )


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_a_measurement_that_took_too_long_is_too_slow(kind: FailureKind) -> None:
    runs = list(campaign_runs(3))
    failed = replace(runs[1], failure=Failure(kind, "no"))
    expected = (
        {(runs[1].measured_cell, (CAMPAIGN.id, 1))} if kind is FailureKind.TOO_SLOW else set()
    )
    assert cells_too_slow([failed, *runs[2:]]) == expected
    assert cells_too_slow([failed, *runs[1:]]) == set()  # it was measured later


def test_the_kind_of_the_error_is_kept() -> None:
    assert _kind(TooSlowError("`fio` did not end within 9 s")) is FailureKind.TOO_SLOW
    assert _kind(GuestTimeoutError("`mkfs` did not end within 9 s")) is FailureKind.GUEST

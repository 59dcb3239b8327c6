from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.made import IOPS, campaign_runs, cell, observed
from vdisklab.analysis.diagnostics.caveats import Caveats, InLab, caveats_of
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import failed_cells
from vdisklab.analysis.diagnostics.recorded import FromPageCache, evidence_diagnostics
from vdisklab.analysis.observations import observe
from vdisklab.analysis.summary import IntervalMethod, summarise
from vdisklab.analysis.sums import sums_of, times_of
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import Direction, Origin, Run
from vdisklab.value import replace


def test_a_summary_says_how_it_came_about() -> None:
    grid = np.full((4, 6), np.nan)
    for row, n in enumerate((0, 2, 3, 6)):
        grid[row, :n] = 1.0 + np.arange(n)
    data = observed({IOPS: grid})
    found = summarise(data, IOPS)
    assert cell("c00") not in found
    assert (found[cell("c01")].median, found[cell("c01")].low, found[cell("c01")].method) == (
        1.5,
        None,
        None,
    )
    assert found[cell("c02")].method is IntervalMethod.LOG_T
    assert found[cell("c03")].method is IntervalMethod.ORDER_STATISTICS
    assert found[cell("c03")].median == pytest.approx(3.5)


def test_a_summary_is_there_for_what_was_measured_alone() -> None:
    grid = np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, np.nan]])
    found = summarise(observed({IOPS: grid}), IOPS)
    assert list(found) == [cell("c00"), cell("c02")]
    assert (len(found), cell("c01") in found, found.get(cell("c01"))) == (2, False, None)
    with pytest.raises(KeyError):
        found[cell("c01")]
    assert found[cell("c02")].rounds == 1


def test_medians_are_numpys() -> None:
    rng = np.random.default_rng(3)
    grid = np.exp(rng.normal(0, 3, (60, 7)))
    grid[rng.random(grid.shape) < 0.4] = np.nan
    grid[0, 1:], grid[0, 0] = np.nan, 5.0
    found = summarise(observed({IOPS: grid}), IOPS)
    for row, values in enumerate(grid):
        if np.isfinite(values).any():
            assert found[cell(f"c{row:02d}")].median == np.nanmedian(values)


def test_an_interval_beyond_what_a_float_holds_is_none() -> None:
    found = summarise(observed({IOPS: np.array([[1e-300, 1.0, 1e300]])}), IOPS)
    assert (found[cell("c00")].low, found[cell("c00")].high) == (0.0, None)


def from_cache(runs: list[Run]) -> tuple[Diagnostic, ...]:
    measured = [run for run in runs if run.failure is None]
    return evidence_diagnostics(
        [row for run in measured for row in sums_of(run)],
        [time for run in measured for time in times_of(run)],
        {run.cell: run.measured_cell for run in measured},
        {(key.name, key.direction) for key in observe(measured).used},
        2,
    )


def test_bytes_that_never_reached_the_device_are_told() -> None:
    found = from_cache(list(campaign_runs()))
    cached = [each for each in found if isinstance(each, FromPageCache)]
    assert len(cached) == len(found) > 0
    assert {each.cell for each in cached} == {cell("raw/writeback (warm)")}
    assert {each.direction for each in cached} == {Direction.READ}
    assert all(each.share == pytest.approx(0.03, abs=0.001) for each in cached)


def test_a_null_disk_has_no_device() -> None:
    assert from_cache([replace(run, path="null/none") for run in campaign_runs()]) == ()


def test_failures_are_counted_until_they_are_made_good() -> None:
    runs = list(campaign_runs(rounds=3))
    (failed,) = failed_cells(runs)
    assert (failed.cell, failed.rounds, failed.failure) == (cell("qcow2/none"), 3, "state")
    bad = [run for run in runs if run.failure]
    repaired = [replace(bad[0], id="again", failure=None)]
    (failed,) = failed_cells([*runs, *repaired])
    assert failed.rounds == 2
    assert failed_cells([run for run in runs if not run.failure]) == ()


def test_emulation_and_lab_are_noticed() -> None:
    runs = list(campaign_runs(rounds=1))
    assert caveats_of(runs) == Caveats(Accelerator.TCG, emulated=True)
    assert caveats_of(runs[:1]) == Caveats()  # the host alone
    one_of_the_lab = [*runs, replace(runs[0], origin=Origin.LAB)]
    assert caveats_of(one_of_the_lab) == Caveats(Accelerator.TCG, emulated=True, lab=True)
    assert caveats_of(one_of_the_lab).findings == (InLab(),)

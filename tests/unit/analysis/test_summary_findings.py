from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from analysis.made import IOPS, campaign_runs, observed
from vdisklab.analysis.doubt import FromPageCache, evidence_findings, witnessed
from vdisklab.analysis.findings import emulated, failed_cells
from vdisklab.analysis.summary import IntervalMethod, summarise
from vdisklab.result.model import Direction


def test_a_summary_says_how_it_came_about() -> None:
    grid = np.full((4, 6), np.nan)
    for row, n in enumerate((0, 2, 3, 6)):
        grid[row, :n] = 1.0 + np.arange(n)
    data = observed({IOPS: grid})
    found = summarise(data, IOPS)
    assert "c00" not in found
    assert found["c01"].too_few
    assert (found["c01"].median, found["c01"].low, found["c01"].method) == (1.5, None, None)
    assert found["c02"].method is IntervalMethod.LOG_T
    assert found["c03"].method is IntervalMethod.ORDER_STATISTICS
    assert found["c03"].median == pytest.approx(3.5)


def test_bytes_that_never_reached_the_device_are_told() -> None:
    seen = [each for run in campaign_runs() for each in witnessed(run)]
    found = [each for each in evidence_findings(seen, 2) if isinstance(each, FromPageCache)]
    assert len(found) == len(evidence_findings(seen, 2))
    assert {each.cell for each in found} == {"raw/writeback (warm)"}
    assert {each.direction for each in found} == {Direction.READ}
    assert all(each.share == pytest.approx(0.03, abs=0.001) for each in found)


def test_a_null_disk_has_no_device() -> None:
    runs = [dataclasses.replace(run, path="null/none") for run in campaign_runs()]
    assert evidence_findings([each for run in runs for each in witnessed(run)], 2) == ()


def test_failures_are_counted_until_they_are_made_good() -> None:
    runs = list(campaign_runs(blocks=3))
    (failed,) = failed_cells(runs)
    assert (failed.cell, failed.blocks, failed.kind) == ("qcow2/none", 3, "state")
    bad = [run for run in runs if run.failure]
    repaired = [dataclasses.replace(bad[0], id="again", failure=None)]
    (failed,) = failed_cells([*runs, *repaired])
    assert failed.blocks == 2
    assert failed_cells([run for run in runs if not run.failure]) == ()


def test_emulation_is_noticed() -> None:
    runs = list(campaign_runs(blocks=1))
    assert emulated(runs)
    assert not emulated(runs[:1])  # the host alone

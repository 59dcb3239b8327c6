from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.analysis.made import IOPS, campaign_runs, cell, observed
from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.observations import (
    MeasureKey,
    Observations,
    Round,
    collect,
    logarithms,
    observe,
)
from vdisklab.analysis.paired_ratios import paired_ratios
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.results.model import METRICS, Direction, Failure, FailureKind
from vdisklab.value import replace


@pytest.mark.parametrize("state", list(PageCache))
def test_labels_are_those_of_the_plan(state: PageCache) -> None:
    planned = Cell(parse_path("ext4/raw/writeback"), state)
    measured = MeasuredCell(planned.path.canonical, state)
    assert measured.label == str(measured) == planned.label
    assert measured == planned.measured == MeasuredCell.parse(planned.label)
    assert (measured.path, measured.page_cache) == (planned.path, state)


@pytest.mark.parametrize("name", ["my VM at home", "disk (new one)", "raw/none/nonsense", "(warm)"])
def test_an_import_may_have_any_name(name: str) -> None:
    measured = MeasuredCell.parse(name)
    assert (measured.name, measured.label, measured.path) == (name, name, None)
    assert not measured.on_host
    assert not measured.is_null


def test_a_free_name_is_nothing_that_could_be_recommended() -> None:
    cells = [cell("my VM at home"), cell("host"), cell("null/none"), cell("raw/writeback (warm)"),
             cell("raw/writeback (cold)")]  # fmt: skip
    assert list(candidates(cells)) == [cell("raw/writeback (cold)")]


@given(st.sampled_from(["read", "write", "none"]), st.text(min_size=1), st.sampled_from(["iops"]))
def test_measures_are_read_back(direction: str, name: str, metric: str) -> None:
    key = MeasureKey.parse(f"{name}/{direction}/{metric}")
    assert str(key) == f"{name}/{direction}/{metric}"
    assert key.name == name


@pytest.mark.parametrize("text", ["", "iops", "a/b", "a/sideways/iops", "/read/iops"])
def test_what_is_no_measure_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not a measure"):
        MeasureKey.parse(text)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(PlanError, match="unknown metric 'bogus'"):
        _ = MeasureKey.parse("a/read/bogus").quantity


def test_order_of_runs_leaves_no_trace() -> None:
    runs = list(campaign_runs())
    shuffled = list(runs)
    random.Random(1).shuffle(shuffled)  # noqa: S311 - no secret
    first, second = observe(runs), observe(shuffled)
    assert first.cells == second.cells
    assert first.measures == second.measures
    for measure in first.measures:
        np.testing.assert_array_equal(first.grid(measure), second.grid(measure))


def test_failed_runs_have_no_numbers_and_the_later_of_two_wins() -> None:
    runs = list(campaign_runs(rounds=1))
    broken = replace(runs[1], failure=Failure(FailureKind.STATE, "no"))
    assert runs[1].measured_cell not in observe([runs[0], broken]).cells
    again = replace(runs[0], id="later", started=runs[3].started, measurements=())
    assert len(observe([again, runs[0]]).value) == 0


def test_two_values_for_one_place_are_refused() -> None:
    data = observed({IOPS: np.ones((1, 1))})
    codes = np.zeros(2, dtype=np.int32)
    double = Observations(codes, codes, codes, np.ones(2), data.cells, data.rounds, data.measures)
    with pytest.raises(DatabaseError, match="two values"):
        double.grid(IOPS)


def test_columns_must_be_equally_long() -> None:
    first, second = np.zeros(1, dtype=np.int32), np.zeros(2, dtype=np.int32)
    with pytest.raises(ValueError, match="differ in length"):
        Observations(first, second, first, np.ones(1), (cell("a"),), (Round("c", 1),), (IOPS,))


def test_rounds_of_two_campaigns_are_two_rounds() -> None:
    runs = [
        (1, "z", "b", "bypassed", 1),
        (2, "y", "b", "bypassed", 1),
        (3, "z", "a", "bypassed", 1),
        (4, "y", "a", "bypassed", 2),
    ]
    measurements = np.array([[key, 0, key] for key in range(1, 5)], np.float64)
    samples = np.array([[1, 0, 1.0], [2, 0, 2.0], [3, 0, 3.0], [4, 0, 4.0]])
    data = collect(runs, ["m"], measurements, [("read", "iops")], samples)
    assert data.cells == (cell("a"), cell("b"))
    assert sorted(data.rounds) == [("y", 1), ("y", 2), ("z", 1)]
    grid = data.grid(MeasureKey.parse("m/read/iops"))
    assert grid[0, data.rounds.index(Round("z", 1))] == 3.0
    assert grid[1, data.rounds.index(Round("y", 1))] == 2.0
    assert np.isfinite(grid).sum() == 4
    assert data.rounds_of().tolist() == [2, 2]


def test_only_a_missing_value_has_no_logarithm() -> None:
    logs = logarithms(np.array([[0.0, 1.0, np.nan, np.e]]))
    assert np.isnan(logs[0, 2])
    np.testing.assert_allclose(logs[0, [1, 3]], [0.0, 1.0])
    assert logs[0, 0] < np.log(1e-5)  # nothing was done at all: worse than any rate


def test_zero_is_a_value_of_a_metric_with_a_step() -> None:
    stall = METRICS["longest_stall"]
    logs = logarithms(np.array([[0.0, 0.1, 0.3, np.nan]]), stall)
    np.testing.assert_allclose(logs[0, :3], np.log([0.1, 0.2, 0.4]))
    assert np.isnan(logs[0, 3])


FLUSHES = MeasureKey("seqwrite-1m-q1", Direction.WRITE, "flushes")


@pytest.mark.parametrize("unit", [1.0, 100.0, 1e-5])
def test_only_a_declared_step_bounds_what_rounding_made(unit: float) -> None:
    """Values that happen to be multiples of a power of ten are not rounded to it."""
    values = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    assert observed({IOPS: unit * values}).resolution(IOPS).tolist() == [0.0, 0.0]
    declared = observed({FLUSHES: 100 * values}).resolution(FLUSHES)
    np.testing.assert_allclose(declared, np.log([101 / 100.5, 201 / 200.5]))
    (ratio,) = paired_ratios(np.full(20, 100 * unit), np.full(20, 200 * unit))
    assert ratio.p is not None
    assert ratio.p < 1e-6


def test_the_step_of_a_value_does_not_depend_on_the_other_values() -> None:
    stall = METRICS["longest_stall"]
    ratios = [
        paired_ratios(np.zeros(5), np.full(5, worse), stall)[0] for worse in (0.9, 1.0, 1.1, 100.0)
    ]
    assert all(ratio.p is not None and ratio.p < 0.001 for ratio in ratios)
    (flushes,) = paired_ratios(np.zeros(3), np.full(3, 100.0), METRICS["flushes"])
    assert flushes.low == pytest.approx(1 / 101 / 1.5 / (101 / 100.5), rel=1e-3)
    assert flushes.high == pytest.approx(1.5 / 101 * (101 / 100.5), rel=1e-3)

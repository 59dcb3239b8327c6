"""The simulations of docs/proofs.md run, and their record keeps its limits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.pages import bench as program
from vdisklab.analysis import pair_noise
from vdisklab.analysis.observations import MeasureKey, Round, from_numbers
from vdisklab.analysis.trend import levels
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "bench" / "results" / "simulations.json"
RATE = MeasureKey("randread-4k-q1", Direction.READ, "iops")


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    return program("simulations.py")


@contextmanager
def two_sizes(bench: dict[str, Any]) -> Iterator[None]:
    """Simulates campaigns of two sizes only."""
    names = bench["best_errors"].__globals__
    whole = names["SIZES"]
    names["SIZES"] = [(13, 3), (13, 5)]
    try:
        yield
    finally:
        names["SIZES"] = whole


@pytest.mark.parametrize(
    "name",
    [
        "best",
        "ranks",
        "power",
        pytest.param("reach", marks=pytest.mark.nightly),  # 4 s; its small form runs below
        "medians",
        "ratios",
        "alarms",
        "worst",
        "alike",
        "bound",
        "modes",
        "own",
    ],
)
def test_each_simulation_is_repeatable(bench: dict[str, Any], name: str) -> None:
    with two_sizes(bench):
        first, again = (bench["simulated"]([name], 1, 7) for _ in range(2))
    assert json.dumps(first, default=float) == json.dumps(again, default=float)
    assert bench["SIMULATIONS"][name].shown(first[name])


def test_other_rules_are_tried_and_put_back(bench: dict[str, Any]) -> None:
    names = ["the set", "no shared effects"]
    runs = [bench["other_rules"](np.random.default_rng(1), 1, names) for _ in range(2)]
    assert json.dumps(runs[0], default=float) == json.dumps(runs[1], default=float)
    assert [row["rules"] for row in runs[0]] == names
    assert pair_noise.SHARED == 0.15


@pytest.mark.parametrize(
    "world",
    [
        "one cell 10× noisier",
        "two families 10 %, own 2 %",
        *(
            pytest.param(world, marks=pytest.mark.nightly)
            for world in ("equal noise", "exact twins")
        ),
    ],
)
def test_the_best_is_rarely_left_out(bench: dict[str, Any], world: str) -> None:
    rng = np.random.default_rng(20)
    truth = np.where(np.arange(13) < 2, 0.0, -5.0)
    drawn = bench["drawn"](rng, bench["WORLDS"][world], truth, 150, 3)
    wrong = np.mean([bench["left_out"](logs)[:2].any() for logs in drawn])
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / 150) ** 0.5


SMALL = {
    "best": (25, "wrong", 0.0, 0.05),
    "ranks": (25, "silent", 0.0, 0.05),
    "reach": (10, "shown", 0.65, 1.0),  # 25 take 3 s
    "medians": (25, "ours", 0.93, 1.0),
    "ratios": (25, "held", 0.93, 1.0),
    "alarms": (25, "drift", 0.0, 0.05),
}
"""How many campaigns the small form of each simulation has, and what they may show on average, over
worlds and sizes."""


@pytest.mark.parametrize("name", SMALL)
def test_the_small_form_of_a_simulation_keeps_its_bounds(bench: dict[str, Any], name: str) -> None:
    """Bounds that can fail: with a plain test, `best` and `ranks` are beyond theirs."""
    count, column, least, most = SMALL[name]
    with two_sizes(bench):
        rows = bench["simulated"]([name], count, 3)[name]
    margin = 2 * (0.05 * 0.95 / count / len(rows)) ** 0.5
    assert least - margin <= np.mean([row[column] for row in rows]) <= most + margin
    if name == "best":
        assert np.mean([row["plain"] for row in rows]) > most + margin


def test_the_record_keeps_its_limits() -> None:
    """No world in which two lead is beyond 5 % by more than twice its standard error."""
    record = json.loads(RECORD.read_text())
    limit = 0.05 + 2 * (0.05 * 0.95 / record["campaigns"]["best"]) ** 0.5
    assert max(row["wrong"] for row in record["results"]["best"]) <= limit
    rules = {row["rules"]: row for row in record["results"]["rules"]}
    assert rules["the set"]["wrong"] <= limit
    assert rules["none of the rules"]["wrong"] > 0.1


@pytest.mark.parametrize(("n", "most"), [(3, 0.78), (7, 0.90)])
def test_the_percentile_bootstrap_covers_too_little(
    bench: dict[str, Any], n: int, most: float
) -> None:
    grid = np.exp(np.random.default_rng(9).normal(0, 0.2, (1_000, n)))
    low, high = bench["bootstrap_interval"](grid, resamples=499)
    assert ((low <= 1) & (high >= 1)).mean() < most


def test_trends_are_simulated_again_alike_and_keep_their_limits() -> None:
    """False alarms, exit status 9 or a date, and changes that are found, with both seeds."""
    trend = program("trend.py")
    world = trend["World"](trend["noise"](0.02), step=0.8)
    first, again = (trend["simulate"](world, 2, 3) for _ in range(2))
    assert first == again
    record = trend["record_of"]("trend.json.gz")
    assert record["replays"] >= 1000
    for worlds in (record["worlds"], record["again"]):
        assert all(worlds[f"independent, {noise} %"]["at_all"] <= 0.05 for noise in (0, 2, 5, 20))
        lasting = ["AR 0.5, 2 %", "AR 0.5, 5 %", "seasons of ±5 %, 2 %", "seasons of ±5 %, 5 %"]
        assert all(worlds[name]["at_all"] <= 0.1 for name in lasting)
        assert worlds["step of 10 %, 5 %"]["found12"] >= 0.9
        assert worlds["decline of 2 % a month, 5 %"]["found12"] >= 0.85
        assert worlds["decline of 0.5 % from the first, 2 %"]["steps"] <= 0.1
        assert worlds["decline of 2 % from the first, 5 %"]["at_all"] >= 0.95
        assert worlds["gain of 10 %, 5 %"]["found12"] >= 0.35
        assert worlds["gain of 20 %, 5 %"]["found12"] >= 0.9


def test_no_rule_that_seeks_gains_too_finds_nine_of_ten_steps() -> None:
    """What `bench/trend.py --bound` says is recorded; losses alone are found more often."""
    trend = program("trend.py")
    power = trend["bound"](0.9, 60, 1)
    assert power == trend["bound"](0.9, 60, 1)
    assert 0.6 < power["both"] < power["losses"] < 1
    recorded = trend["record_of"]("trend.json.gz")["bound"]
    assert recorded["both"] < recorded["both, in the middle"] < 0.9 < recorded["losses"]


def test_the_simulated_levels_of_trends_are_those_of_the_program() -> None:
    trend = program("trend.py")
    logs = trend["World"](trend["noise"](0.05)).logs(np.random.default_rng(3))
    numbers = {
        (MeasuredCell(f"c{path}"), Round(f"{campaign:02d}", place + 1), RATE): math.exp(value)
        for (path, campaign, place), value in np.ndenumerate(logs)
    }
    names = [f"{campaign:02d}" for campaign in range(trend["CAMPAIGNS"])]
    program_says = levels(from_numbers(numbers), names, [RATE])
    bench_says = trend["measured"](logs)
    assert bench_says.cells == program_says.cells
    np.testing.assert_allclose(bench_says.level, program_says.level)
    np.testing.assert_allclose(bench_says.error, program_says.error)


def test_a_look_of_which_the_simulation_expects_nothing_says_nothing() -> None:
    """`speaks` leaves out only looks without a dated change and without a sudden loss."""
    trend = program("trend.py")
    world = trend["World"](trend["noise"](0.05), step=0.85)
    hosts = [trend["measured"](world.logs(np.random.default_rng(seed))) for seed in range(6)]
    for count in (4, 7, 14, 16, 24):
        said = trend["speaks"](hosts, count)
        for index in np.flatnonzero(~said).tolist():
            seen = trend["Looks"]()
            trend["looked"](seen, hosts[index], world, count)
            assert min(seen.alarm, seen.dated) == math.inf

"""The numbers of bench/fidelity.py, which compares vdisklab with a guest made by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.pages import bench

Typical = Callable[[Sequence[float]], dict[str, Any]]


@pytest.fixture(scope="module")
def typical() -> Typical:
    found: Typical = bench("fidelity.py")["typical"]
    return found


def test_the_ratio_of_pairs_and_of_its_inverse_are_inverse(typical: Typical) -> None:
    values = [0.8, 0.9, 1.0, 1.3, 1.1, 0.95, 1.05, 1.02]
    found, inverse = typical(values), typical([1 / value for value in values])
    assert found["ratio"] * inverse["ratio"] == pytest.approx(1, abs=0.002)
    assert found["interval_95"][0] * inverse["interval_95"][1] == pytest.approx(1, abs=0.002)


def test_one_disturbed_pair_changes_the_ratio_little(typical: Typical) -> None:
    assert typical([1.0] * 9 + [3.0])["ratio"] == 1.0


def test_too_few_boots_have_no_interval(typical: Typical) -> None:
    assert typical([0.9, 1.0, 1.1, 1.0, 1.2])["interval_95"] is None
    assert typical([0.9, 1.0, 1.1, 1.0, 1.2, 1.3])["interval_95"] == [0.9, 1.3]


def test_the_interval_has_the_true_ratio_19_times_of_20(typical: Typical) -> None:
    """1,000 comparisons of 8 boots each, as noisy as those of the lab."""
    chance = random.Random(22)  # noqa: S311
    inside = 0
    for _ in range(1000):
        values = [0.9 * math.exp(chance.gauss(0, 0.15)) for _ in range(8)]
        low, high = typical(values)["interval_95"]
        inside += low <= 0.9 <= high
    assert 930 <= inside <= 970


TABLES = bench("fidelity_tables.py")
JOBS, ROWS, VALUES = (TABLES[name] for name in ("JOBS", "ROWS", "VALUES"))
boots_of, ratio = TABLES["boots_of"], TABLES["ratio"]


def test_the_records_meet_the_aim_as_the_page_says() -> None:
    found = {
        value: [
            ratio(boots_of(*ROWS[row][0]), job, value, "vdisklab", *ROWS[row][2])
            for row in ("vdisklab ÷ both by hand", "vdisklab ÷ Debian")
            for job in JOBS
        ]
        for value in VALUES
    }
    for each in (*found["IOPS"], *found["work"]):
        assert 0.97 <= each["ratio"] <= 1.03
    beyond = {
        value: [max(0.97 - low, high - 1.03, 0) for low, high in (e["interval_95"] for e in each)]
        for value, each in found.items()
    }
    assert not any(beyond["work"])
    assert sum(map(bool, beyond["IOPS"])) == 6
    assert max(beyond["IOPS"]) == pytest.approx(0.025)


@pytest.mark.parametrize(
    "arguments", [["machines"], *(["changes", name] for name in TABLES["TABLES"])]
)
def test_each_other_table_can_be_made(arguments: list[str]) -> None:
    assert TABLES["shown"](arguments).startswith("| ")

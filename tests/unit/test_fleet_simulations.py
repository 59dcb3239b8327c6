"""The simulations on fleets in a small form, and the limits of their record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.pages import bench as program

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "bench" / "results" / "fleet-simulations.json"


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    return program("fleet_simulations.py")


def most(share: float, trials: int) -> float:
    """What a true share exceeds in one of forty trials."""
    return float(share + 2 * (share * (1 - share) / trials) ** 0.5)


def test_the_record_keeps_its_limits() -> None:
    record = json.loads(RECORD.read_text())
    results, fleets = record["results"], record["fleets"]

    def error(name: str) -> float:
        """The standard error of an entry of 5 %."""
        return float((0.05 * 0.95 / fleets[name]) ** 0.5)

    # Three times the standard error for the largest of many entries that are 5 %; less below.
    for name, key, errors in (
        ("pairs", "wrong", 2),
        ("classes", "better", 1),
        ("classes", "profiles", 3),
    ):
        worst = max(row[key] for row in results[name])
        assert worst <= 0.05 + errors * error(name), (name, key)
    assert min(row["mean"] for row in results["intervals"]) >= 0.95 - 3 * error("intervals")
    assert max(row["wrong"] for row in results["outliers"]) <= 0.05
    alike = [row for row in results["outliers"] if row["levels"].startswith("log-normal 2 %")]
    assert all(row["alarm"] == 1 for row in alike if row["hosts"] >= 15)
    found = [
        row["found"] for row in results["outliers"] if row["levels"].endswith((" 5 %", "tenth"))
    ]
    assert min(found) > 0.85


@pytest.mark.parametrize("world", ["own 5 % for each cell", "two families 10 %, own 2 %"])
def test_equal_cells_are_rarely_told_apart(bench: dict[str, Any], world: str) -> None:
    rng = np.random.default_rng(3)
    key = bench["KEYS"][0]
    wrong = []
    for _ in range(120):
        means = bench["fleet_of"]({key: bench["drawn"](rng, world, 13, 8)}).means
        wrong.append(bench["separated"](means.logs(key), np.zeros(13), 0.05)[0].any())
    assert np.mean(wrong) <= most(0.05, len(wrong))


def test_sound_fleets_rarely_have_an_alarm(bench: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    keys = bench["KEYS"][:2]
    groups = [[f"{host:03d}" for host in range(20)]]
    wrong, found = [], []
    for _ in range(60):
        tables = {
            key: bench["drawn"](rng, "hosts alike", 4, 20, walk=False)
            + rng.normal(0, 0.05, 20)[:, None]
            for key in keys
        }
        wrong.append(
            bool(bench["find_outliers"](bench["fleet_of"](tables).means, keys, groups).outliers)
        )
        for logs in tables.values():
            logs[:, 0] += np.log(0.6)
        search = bench["find_outliers"](bench["fleet_of"](tables).means, keys, groups)
        found.append("000" in {outlier.host for outlier in search.outliers})
    assert np.mean(wrong) <= most(0.05, len(wrong))
    assert np.mean(found) > 0.9


def test_the_command_of_the_page_runs(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "bench" / "fleet_simulations.py",
            "--fleets",
            "1",
            "--json",
            record,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    kept = json.loads(RECORD.read_text())["results"]
    made = json.loads(record.read_text())["results"]
    for name, rows in kept.items():
        assert f"\n{name}\n" in f"\n{done.stdout}"
        assert [row.keys() for row in made[name]] == [row.keys() for row in rows]

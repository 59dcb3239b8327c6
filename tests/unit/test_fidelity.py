"""The numbers of bench/fidelity.py, which compares vdisklab with a guest made by hand."""

from __future__ import annotations

import json
import math
import random
import runpy
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
Typical = Callable[[Sequence[float]], dict[str, Any]]


@pytest.fixture
def typical(monkeypatch: pytest.MonkeyPatch) -> Typical:
    monkeypatch.syspath_prepend(BENCH)
    found: Typical = runpy.run_path(str(BENCH / "fidelity.py"))["typical"]
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


JOBS = ("write-1m-q1", "randread-4k-q1", "randwrite-4k-q1", "randread-4k-q32")
BOTH = ("lab-fidelity", "lab-fidelity-debian")
ROWS = {
    "control ÷ hand": (BOTH, "control", ("hand",)),
    "vdisklab ÷ both by hand": (BOTH, "vdisklab", ("hand", "control")),
    "vdisklab ÷ Debian": (BOTH[1:], "vdisklab", ("system",)),
}


def boots_of(names: Sequence[str]) -> list[list[dict[str, dict[str, list[float]]]]]:
    """The rounds of each boot of these records."""
    texts = ((BENCH / f"results/{name}.json").read_text() for name in names)
    return [rounds for text in texts for rounds in json.loads(text)["iops_and_cpu_ms"]]


def cell(found: dict[str, Any]) -> str:
    """A ratio with its interval, as the page has it."""
    return "{:.2f} ({:.2f}–{:.2f})".format(found["ratio"], *found["interval_95"])


@pytest.mark.parametrize("row", ROWS)
def test_the_page_has_the_ratios_of_the_records(row: str, typical: Typical) -> None:
    """From the runs, whose IOPS are rounded. The ratio to two guests is that to their geometric
    mean, run by run."""
    names, over, under = ROWS[row]
    cells = [
        cell(typical([
            statistics.geometric_mean(
                runs[job][over][0] / statistics.geometric_mean(runs[job][arm][0] for arm in under)
                for runs in rounds
            )
            for rounds in boots_of(names)
        ]))
        for job in JOBS
    ]  # fmt: skip
    page = (BENCH.parent / "docs/guest.md").read_text()
    assert f"| {row} | {' | '.join(cells)} |" in page


CHANGES = {
    "none (the control)": "control",
    "`tsc=reliable`": "tsc",
    "a root port": "root-port",
    "`-blockdev`": "blockdev",
    "fio's log": "log",
}


@pytest.mark.parametrize("row", CHANGES)
def test_the_page_has_what_each_change_did(row: str, typical: Typical) -> None:
    arm = CHANGES[row]
    cells = [
        cell(typical([
            statistics.geometric_mean(runs[job][arm][0] / runs[job]["hand"][0] for runs in rounds)
            for rounds in boots_of(["lab-fidelity-parameters"])
        ]))
        for job in ("randread-4k-q1", "randread-4k-q32")
    ]  # fmt: skip
    page = (BENCH.parent / "docs/guest.md").read_text()
    assert f"| {row} | {' | '.join(cells)} |" in page

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
RECORDS = {
    "AMD": "lab-fidelity-amd",
    "AMD, with the Debian": "lab-fidelity-debian-amd",
    "Intel": "lab-fidelity",
    "Intel, with the Debian": "lab-fidelity-debian-intel",
    "Intel, with the Debian, again": "lab-fidelity-debian",
}
"""All records of bench/fidelity.py under KVM in the lab, by their names on the page."""
ALL = tuple(RECORDS.values())
DEBIAN = tuple(name for name in ALL if "debian" in name)
BY_HAND, THE_DEBIAN = ("hand", "control"), ("system",)
ROWS = {
    "control ÷ hand": (ALL, "control", ("hand",)),
    "vdisklab ÷ both by hand": (ALL, "vdisklab", BY_HAND),
    "vdisklab ÷ Debian": (DEBIAN, "vdisklab", THE_DEBIAN),
    "Debian ÷ both by hand": (DEBIAN, "system", BY_HAND),
}
VALUES = {"IOPS": 0, "work": 1}
Boots = list[list[dict[str, dict[str, list[float]]]]]


def boots_of(*names: str) -> Boots:
    """The rounds of each boot of these records."""
    texts = [(BENCH / f"results/{name}.json").read_text() for name in names]
    return [boot for text in texts for boot in json.loads(text)["iops_and_work"]]


def ratio(
    typical: Typical, boots: Boots, job: str, value: str, over: str, *under: str
) -> dict[str, Any]:
    """From the runs. The ratio to two guests is that to their geometric mean, run by run."""
    place = VALUES[value]
    return typical([
        statistics.geometric_mean(
            runs[job][over][place]
            / statistics.geometric_mean(runs[job][arm][place] for arm in under)
            for runs in rounds
        )
        for rounds in boots
    ])  # fmt: skip


def cell(found: dict[str, Any], digits: int) -> str:
    """A ratio with its interval, as the page has it."""
    low, high = found["interval_95"]
    return f"{found['ratio']:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("row", ROWS)
def test_the_page_has_the_ratios_of_the_records(row: str, value: str, typical: Typical) -> None:
    names, over, under = ROWS[row]
    boots = boots_of(*names)
    digits = 3 if value == "work" else 2
    cells = [cell(ratio(typical, boots, job, value, over, *under), digits) for job in JOBS]
    page = (BENCH.parent / "docs/guest.md").read_text()
    assert f"| {row} | {value} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize("record", RECORDS)
def test_the_page_has_the_iops_of_each_record(record: str, typical: Typical) -> None:
    name, page = RECORDS[record], (BENCH.parent / "docs/guest.md").read_text()
    boots = boots_of(name)
    others = {"by hand": BY_HAND} | ({"Debian": THE_DEBIAN} if name in DEBIAN else {})
    for other, under in others.items():
        cells = [cell(ratio(typical, boots, job, "IOPS", "vdisklab", *under), 2) for job in JOBS]
        assert f"| {record} | {other} | {len(boots)} | {' | '.join(cells)} |" in page


def test_the_records_meet_the_aim_as_the_page_says(typical: Typical) -> None:
    found = {
        value: [
            ratio(typical, boots_of(*ROWS[row][0]), job, value, "vdisklab", *ROWS[row][2])
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


CHANGES = {
    "none (the control)": ("control", "hand"),
    "`tsc=reliable`": ("tsc", "hand"),
    "`no_timer_check`": ("no_timer_check", "hand"),
    "`lpj=8000000`": ("lpj", "hand"),
    "initcalls left out": ("initcalls", "hand"),
    "a root port": ("root-port", "hand"),
    "`-blockdev`": ("blockdev", "hand"),
    "fio's log": ("log", "hand"),
    "fio's percentiles and JSON+": ("percentiles", "hand"),
    "an ordinary buffer": ("buffer", "hand"),
    "vdisklab's guest, attachment and options of fio": ("vdisklab", "hand"),
    "the same, both with an ordinary buffer": ("ordinary", "buffer"),
    "vdisklab's watch": ("vdisklab", "unwatched"),
    "all of vdisklab's guest": ("vdisklab", "hand"),
    "all of it ÷ a guest with `tsc=reliable`": ("vdisklab", "tsc"),
}
"""What each row of the page's tables of changes divides by what."""
UNDER_EMULATION = ("all of vdisklab's guest", "all of it ÷ a guest with `tsc=reliable`")
TABLES = {
    "lab-fidelity-parameters": ("work", UNDER_EMULATION),
    "lab-fidelity-write": ("work", UNDER_EMULATION),
    "lab-fidelity-timer": ("work", UNDER_EMULATION),
    "fidelity-parameters": ("IOPS", ("vdisklab's guest, attachment and options of fio",)),
}
"""What each record of changes shows on the page, and the rows that its table does not have."""


def changed(typical: Typical, record: str, row: str, arms: tuple[str, str], value: str) -> str:
    """The page's row of a change, with the ratios of its two arms in a record."""
    boots, (over, under) = boots_of(record), arms
    digits = 3 if value == "work" else 2
    cells = [cell(ratio(typical, boots, job, value, over, under), digits) for job in boots[0][0]]
    return f"| {row} | {' | '.join(cells)} |"


@pytest.mark.parametrize("record", TABLES)
def test_the_page_has_what_each_change_did(record: str, typical: Typical) -> None:
    value, left_out = TABLES[record]
    (measured, *_) = boots_of(record)[0][0].values()
    page = (BENCH.parent / "docs/guest.md").read_text()
    for row, arms in CHANGES.items():
        if row not in left_out and {*arms} <= measured.keys():
            assert changed(typical, record, row, arms, value) in page


def test_the_page_has_what_more_looks_did(typical: Typical) -> None:
    boots = boots_of("lab-fidelity-more-looks")
    *first, last = (
        f"{ratio(typical, boots, job, 'work', 'vdisklab', *BY_HAND)['ratio']:.3f}" for job in JOBS
    )
    page = (BENCH.parent / "docs/guest.md").read_text()
    assert f"work was {', '.join(first)} and {last} of" in page


def test_the_page_has_the_ratios_with_one_cpu(typical: Typical) -> None:
    boots = boots_of("fidelity-one-cpu")
    *first, last = (cell(ratio(typical, boots, job, "IOPS", "vdisklab", "hand"), 2) for job in JOBS)
    page = (BENCH.parent / "docs/guest.md").read_text()
    assert f"vdisklab ÷ hand was {', '.join(first)} and {last}," in page

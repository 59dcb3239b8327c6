"""Installations and boots side by side."""

from __future__ import annotations

from tests.unit.analysis.made import labelled
from vdisklab.analysis.observations import MeasureKey
from vdisklab.results.model import Direction
from vdisklab.views.documents.conversion import to_json
from vdisklab.views.medians import boot_table, compute_medians, growth_table, side_by_side

ORDER = ["install-first", "install-again"]
SECONDS = {
    "qcow2:preallocation=off/writeback (cold)": (30.0, 20.0),
    "qcow2/writeback (cold)": (15.0, 15.0),
    "raw/writeback (cold)": (10.0, 10.0),
    "raw/none": (50.0, 50.0),
}


def test_thin_allocated_and_raw() -> None:
    numbers = {}
    for cell, both in SECONDS.items():
        for name, seconds in zip(ORDER, both, strict=True):
            numbers[cell, 1, MeasureKey(name, Direction.WRITE, "duration")] = seconds
            numbers[cell, 1, MeasureKey(name, Direction.WRITE, "allocated")] = 1 << 20
            numbers[cell, 1, MeasureKey(name, Direction.NONE, "longest_stall")] = seconds / 10
    table = growth_table(compute_medians(labelled(numbers)), ORDER)
    assert table is not None
    rows = {(row["measurement"], row["cell"]): row for row in to_json(table.rows)}
    thin = rows["install-first", "qcow2:preallocation=off/writeback (cold)"]
    assert (thin["to_again"], thin["to_allocated"], thin["to_raw"]) == (1.5, 2.0, 3.0)
    assert thin["flushes"] is None
    assert (thin["longest_stall"], thin["worst_second"]) == (3.0, None)
    raw = rows["install-again", "raw/writeback (cold)"]
    assert (raw["to_again"], raw["to_allocated"], raw["to_raw"]) == (None, None, None)
    assert rows["install-first", "raw/none"]["to_raw"] is None


def test_each_place_is_set_against_itself() -> None:
    places = {}
    for place, factor in (("/mnt/local", 1.0), ("/mnt/block", 7.0)):
        numbers = {}
        for cell, (seconds, _) in SECONDS.items():
            key = MeasureKey("install-first", Direction.WRITE, "duration")
            numbers[cell, 1, key] = seconds * factor
            key = MeasureKey("install-first", Direction.WRITE, "allocated")
            numbers[cell, 1, key] = 1 << 20
        places[place] = compute_medians(labelled(numbers))
    table = growth_table(side_by_side(places), ORDER)
    assert table is not None
    rows = {row["cell"]: row for row in to_json(table.rows)}
    for place in places:
        thin = rows[f"qcow2:preallocation=off/writeback (cold) in {place}"]
        assert (thin["to_allocated"], thin["to_raw"]) == (2.0, 3.0)


def test_an_installation_on_the_host_has_a_time_and_no_image() -> None:
    key = MeasureKey("install-first", Direction.WRITE, "duration")
    table = growth_table(compute_medians(labelled({("host", 1, key): 14.5})), ORDER)
    assert table is not None
    (row,) = to_json(table.rows)
    assert (row["cell"], row["seconds"], row["allocated"]) == ("host", 14.5, None)


def test_boots() -> None:
    numbers = {
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "boot_time")): 3.0,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "shutdown_time")): 0.5,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "worst_second")): 2e6,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "longest_stall")): 0.0,
    }
    table = boot_table(compute_medians(labelled(numbers)))
    assert table is not None
    (row,) = to_json(table.rows)
    assert (row["cell"], row["boot_time"], row["shutdown_time"]) == ("raw/none/ide", 3.0, 0.5)
    assert (row["worst_second"], row["longest_stall"]) == (2e6, 0.0)
    assert growth_table(compute_medians(labelled(numbers)), ["boot"]) is None

"""Medians side by side, installations, boots, and what is told of sysbench's fsyncs."""

from __future__ import annotations

from tests.unit.analysis.made import labelled
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.table import Medians, boot_rows, fsync_diagnostics, growth_rows, of_sysbench
from vdisklab.results.model import Direction

PLANNED = [
    {"name": "journal", "program": "sysbench", "settings": {"mode": "rndwr", "fsync_freq": 1}},
    {"name": "sysbench-seqwr", "program": "sysbench", "settings": {"mode": "seqwr"}},
    {"name": "sysbench-like", "program": "fio", "settings": {}},
]
NAMES = ("journal", "sysbench-seqwr", "sysbench-like", "sysbench-rndrd")


def test_sysbenchs_measurements_are_found_by_program_or_by_an_imports_name() -> None:
    assert of_sysbench(NAMES, PLANNED) == ("journal", "sysbench-seqwr", "sysbench-rndrd")


def test_each_way_of_syncing_is_told_with_its_defaults() -> None:
    first, second = map(str, fsync_diagnostics(NAMES, PLANNED, imported=False))
    assert first.endswith("--file-fsync-freq=1 --file-fsync-all=off --file-fsync-end=on (journal)")
    assert "--file-fsync-freq=100" in second
    (alone,) = map(str, fsync_diagnostics(["sysbench-seqwr"], PLANNED, imported=False))
    assert alone.endswith("--file-fsync-end=on")


def test_of_an_import_nothing_is_said_to_be_known() -> None:
    found = fsync_diagnostics(["sysbench-rndrd"], [{"name": "sysbench-rndrd"}], imported=True)
    (note,) = map(str, found)
    assert "not known" in note
    assert list(fsync_diagnostics(["quick"], [], imported=True)) == []


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
    medians = Medians.of({"": labelled(numbers)})
    rows = {(row.measurement, str(row.cell)): row for row in growth_rows(medians, ORDER)}
    thin = rows["install-first", "qcow2:preallocation=off/writeback (cold)"]
    assert (thin.to_again, thin.to_allocated, thin.to_raw) == (1.5, 2.0, 3.0)
    assert thin.flushes is None
    assert (thin.longest_stall, thin.worst_second) == (3.0, None)
    raw = rows["install-again", "raw/writeback (cold)"]
    assert (raw.to_again, raw.to_allocated, raw.to_raw) == (None, None, None)
    assert rows["install-first", "raw/none"].to_raw is None


def test_each_place_is_set_against_itself() -> None:
    places = {}
    for place, factor in (("/mnt/local", 1.0), ("/mnt/block", 7.0)):
        numbers = {}
        for cell, (seconds, _) in SECONDS.items():
            key = MeasureKey("install-first", Direction.WRITE, "duration")
            numbers[cell, 1, key] = seconds * factor
            key = MeasureKey("install-first", Direction.WRITE, "allocated")
            numbers[cell, 1, key] = 1 << 20
        places[place] = labelled(numbers)
    rows = {str(row.cell): row for row in growth_rows(Medians.of(places), ORDER)}
    for place in places:
        thin = rows[f"qcow2:preallocation=off/writeback (cold) in {place}"]
        assert (thin.to_allocated, thin.to_raw) == (2.0, 3.0)


def test_an_installation_on_the_host_has_a_time_and_no_image() -> None:
    key = MeasureKey("install-first", Direction.WRITE, "duration")
    (row,) = growth_rows(Medians.of({"": labelled({("host", 1, key): 14.5})}), ORDER)
    assert (str(row.cell), row.seconds, row.allocated) == ("host", 14.5, None)


def test_boots() -> None:
    numbers = {
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "boot_time")): 3.0,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "shutdown_time")): 0.5,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "worst_second")): 2e6,
        ("raw/none/ide", 1, MeasureKey("boot", Direction.NONE, "longest_stall")): 0.0,
    }
    medians = Medians.of({"": labelled(numbers)})
    (row,) = boot_rows(medians)
    assert (str(row.cell), row.boot_time, row.shutdown_time) == ("raw/none/ide", 3.0, 0.5)
    assert (row.worst_second, row.longest_stall) == (2e6, 0.0)
    assert list(growth_rows(medians, ["boot"])) == []

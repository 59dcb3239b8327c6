"""What is told of sysbench's fsyncs."""

from __future__ import annotations

from vdisklab.answers.places import of_sysbench, sysbench_notes

PLANNED = [
    {"name": "journal", "program": "sysbench", "settings": {"mode": "rndwr", "fsync_freq": 1}},
    {"name": "sysbench-seqwr", "program": "sysbench", "settings": {"mode": "seqwr"}},
    {"name": "sysbench-like", "program": "fio", "settings": {}},
]
NAMES = ("journal", "sysbench-seqwr", "sysbench-like", "sysbench-rndrd")


def test_sysbenchs_measurements_are_found_by_program_or_by_an_imports_name() -> None:
    assert of_sysbench(NAMES, PLANNED) == ("journal", "sysbench-seqwr", "sysbench-rndrd")


def test_each_way_of_syncing_is_told_with_its_defaults() -> None:
    first, second = sysbench_notes(NAMES, PLANNED, imported=False)
    assert first.endswith("--file-fsync-freq=1 --file-fsync-all=off --file-fsync-end=on (journal)")
    assert "--file-fsync-freq=100" in second
    (alone,) = sysbench_notes(["sysbench-seqwr"], PLANNED, imported=False)
    assert alone.endswith("--file-fsync-end=on")


def test_of_an_import_nothing_is_said_to_be_known() -> None:
    (note,) = sysbench_notes(["sysbench-rndrd"], [{"name": "sysbench-rndrd"}], imported=True)
    assert "not known" in note
    assert sysbench_notes(["quick"], [], imported=True) == ()

"""The layouts of the articles and their programs."""

from __future__ import annotations

from vdisklab.analysis.observations import MeasureKey, from_numbers
from vdisklab.report.articles import crystaldiskmark_text, measurements_table, medians
from vdisklab.report.bonnie import bonnie_measurements, bonnie_text
from vdisklab.report.numbers import MISSING
from vdisklab.report.tables import as_records
from vdisklab.result.model import Direction
from vdisklab.workload.foreign.recognise import recognise

READ, WRITE = Direction.READ, Direction.WRITE

NUMBERS = from_numbers(
    {
        ("ext4", f"c/{block}", MeasureKey(name, direction, metric)): value * (block + 1)
        for name, direction, metric, value in (
            ("seq1m-q1t1-read", READ, "bandwidth", 100e6),
            ("seq1m-q1t1-read", READ, "iops", 95.4),
            ("seq1m-q1t1-read", READ, "latency_mean", 0.01),
            ("seq1m-q1t1-read", READ, "worst_second", 50e6),
            ("seq1m-q1t1-read", READ, "longest_stall", 0.2),
            ("bonnie", WRITE, "bandwidth", 1024e3),
            ("bonnie", WRITE, "bandwidth_cpu", 0.025),
            ("bonnie", Direction.NONE, "seeks", 55.0),
        )
        for block in range(3)
    }
)


def test_crystaldiskmarks_text_is_read_back_as_what_it_says() -> None:
    text = crystaldiskmark_text(medians(NUMBERS), "ext4", "0.1")
    assert "  SEQ    1MiB (Q=  1, T= 1):   200.000 MB/s [    190.8 IOPS] < 20000.00 us>" in text
    assert f"  RND    4KiB (Q=  1, T= 1): {MISSING:>9} MB/s" in text
    assert "median" in text
    measured = "\n".join(line for line in text.splitlines() if MISSING not in line)
    (report,) = recognise(measured.replace("the layout of ", "").replace("Mark 8:", "Mark 8.0:"))
    assert [found.name for found in report.found] == ["seq1m-q1t1-read"]


def test_bonnies_table() -> None:
    assert bonnie_measurements(NUMBERS) == ["bonnie"]
    text = bonnie_text(medians(NUMBERS), "bonnie")
    line = "ext4           +++++ +++  2000   5 +++++ +++ +++++ +++ +++++ +++ 110.0 +++"
    assert line in text.splitlines()


def test_all_measurements_in_the_profiles_order() -> None:
    table = measurements_table(medians(NUMBERS), ["seq1m-q1t1-read", "bonnie"])
    first, second = as_records(table)
    assert (first["measurement"], second["measurement"]) == ("seq1m-q1t1-read", "bonnie")
    assert first["worst_second"] == 100e6
    assert first["longest_stall"] == 0.4
    assert second["iops"] is None

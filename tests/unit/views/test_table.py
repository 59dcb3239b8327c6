"""The layouts of the articles and their programs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.analysis.made import CAMPAIGN, cell, labelled
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.answers.table import (
    Medians,
    PlacedCell,
    TableAnswer,
    TableCell,
    boot_rows,
    flush_rows,
    freed_rows,
    growth_rows,
    measurement_rows,
)
from vdisklab.errors import PlanError
from vdisklab.numbers import MISSING
from vdisklab.plan.accelerator import Accelerator
from vdisklab.results.model import Direction
from vdisklab.value import replace
from vdisklab.views.table import bonnie, bonnie_text, crystaldiskmark_text, grid, tables
from vdisklab.workload.importing import recognise

READ, WRITE = Direction.READ, Direction.WRITE

NUMBERS = labelled(
    {
        ("ext4", round, MeasureKey(name, direction, metric)): value * (round + 1)
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
        for round in range(3)
    }
)


def answered(
    numbers: Observations,
    order: Sequence[str] = (),
    of_sysbench: Sequence[str] = (),
    installations: Sequence[str] = (),
) -> TableAnswer:
    """The answer of one place."""
    medians = Medians.of({"": numbers})
    return TableAnswer(
        campaigns=(CAMPAIGN,),
        caveats=caveats_of(()),
        runs=medians.runs,
        places=(),
        cells=tuple(TableCell(cell, None, "measured with fio") for cell in medians.cells),
        measurements=tuple(measurement_rows(medians, order)),
        growth=tuple(growth_rows(medians, installations)),
        boots=tuple(boot_rows(medians)),
        freed=tuple(freed_rows(medians)),
        flushes=tuple(flush_rows(medians)),
        others=(),
        installations=tuple(installations),
        of_sysbench=tuple(of_sysbench),
        findings=(),
        medians=medians,
    )


def test_crystaldiskmarks_text_is_read_back_as_what_it_says() -> None:
    text = crystaldiskmark_text(
        answered(NUMBERS), TableCell(PlacedCell(cell("ext4")), None, "measured with fio")
    )
    assert "  SEQ    1MiB (Q=  1, T= 1):   200.000 MB/s [    190.8 IOPS] < 20000.00 us>" in text
    assert f"  RND    4KiB (Q=  1, T= 1): {MISSING:>9} MB/s" in text
    assert "median" in text
    measured = "\n".join(line for line in text.splitlines() if MISSING not in line)
    (report,) = recognise(measured.replace("the layout of ", "").replace("Mark 8:", "Mark 8.0:"))
    assert [found.name for found in report.results] == ["seq1m-q1t1-read"]


def test_crystaldiskmarks_mixed_tests_have_a_section_where_a_text_had_one() -> None:
    key = MeasureKey("rnd4k-q1t1-mix70", Direction.NONE, "bandwidth")
    numbers = labelled({("imported", 1, key): 30.125e6})
    text = crystaldiskmark_text(
        answered(numbers), TableCell(PlacedCell(cell("imported")), None, "imported")
    )
    (below,) = text.split("[Mix] Read 70%/Write 30%")[1:]
    assert f"  RND    4KiB (Q=  1, T= 1):    30.125 MB/s [{MISSING:>9} IOPS]" in below
    without = crystaldiskmark_text(
        answered(NUMBERS), TableCell(PlacedCell(cell("ext4")), None, "measured with fio")
    )
    assert "[Mix]" not in without


def test_bonnies_table() -> None:
    answer = answered(NUMBERS)
    text = bonnie_text(answer, "bonnie")
    assert list(bonnie(answer)) == [text]
    line = "ext4           +++++ +++  2000   5 +++++ +++ +++++ +++ +++++ +++ 110.0 +++"
    assert line in text.splitlines()


def test_all_measurements_in_the_profiles_order() -> None:
    (table,) = tables(answered(NUMBERS, ["seq1m-q1t1-read", "bonnie"]))
    first, second = table.rows
    assert (first.measurement, second.measurement) == ("seq1m-q1t1-read", "bonnie")
    assert first.worst_second == 100e6
    assert first.longest_stall == 0.4
    assert second.iops is None


def test_the_grid_has_a_row_for_each_path_in_the_plans_order() -> None:
    numbers = labelled(
        {
            (cell, 1, MeasureKey(name, way, "bandwidth")): value
            for cell, name, way, value in (
                ("host", "sysbench-seqwr", WRITE, 6422 * 1048576.0),
                ("host", "sysbench-rndrd", READ, 4644 * 1048576.0),
                ("raw/none", "sysbench-rndrd", READ, 154 * 1048576.0),
            )
        }
    )
    names = ["sysbench-rndrd", "sysbench-seqwr"]
    (table,) = grid(answered(numbers, names, names))
    assert [each.title for each in table.columns] == ["MiB/s", *names]
    assert [[column.show(row) for column in table.columns] for row in table.rows] == [
        ["host", "4640", "6420"], ["raw/none", "154", MISSING],
    ]  # fmt: skip
    (mega,) = grid(answered(numbers, names, names[:1]))
    assert mega.columns[0].title == "MB/s", "one of them is not counted in MiB"
    assert mega.columns[1].show(mega.rows[1]) == "161"
    assert "MB/s = 1,000,000 bytes/s" in mega.notes[0]


def test_two_directions_of_one_measurement_are_two_columns_of_the_grid() -> None:
    numbers = labelled(
        {("host", 1, MeasureKey("mixed", way, "bandwidth")): 1e6 for way in (READ, WRITE)}
    )
    (table,) = grid(answered(numbers))
    assert [each.title for each in table.columns] == ["MB/s", "mixed read", "mixed write"]
    with pytest.raises(PlanError, match="no bandwidths"):
        list(grid(answered(labelled({}))))


def test_times_of_fsyncs_are_shown_where_there_are_some() -> None:
    (table,) = tables(answered(NUMBERS))
    assert not any(each.title == "sync p99" for each in table.columns)
    synced = labelled(
        {
            ("host", 1, MeasureKey("fsync", WRITE, metric)): value
            for metric, value in (("bandwidth", 1e6), ("sync_p99", 0.06))
        }
    )
    (table,) = tables(answered(synced))
    assert any(each.title == "sync p99" for each in table.columns)
    (row,) = table.rows
    assert row.sync_p99 == 0.06


def test_writes_have_their_sustained_rate_beside_the_burst() -> None:
    (table,) = tables(answered(NUMBERS))
    assert not any(each.title == "sustained" for each in table.columns)
    burst = MeasureKey("seqwrite", WRITE, "bandwidth")
    lasting = MeasureKey("seqwrite", WRITE, "sustained")
    (table,) = tables(answered(labelled({("a", 1, burst): 900e6, ("a", 1, lasting): 210e6})))
    (row,) = table.rows
    shown = {column.title: column.show(row) for column in table.columns}
    assert (shown["MB/s"], shown["sustained"]) == ("900", "210")


def test_what_becomes_of_a_write_is_counted_at_each_place_and_no_zero_is_made_up() -> None:
    numbers = labelled({
        (path, 1, MeasureKey("plain-4k", WRITE, metric)): value
        for path, counts in {
            "raw/none": {"writes": 512.0, "flushes": 0.0, "host_syncs": 0.0},
            "raw/directsync": {"writes": 512.0, "flushes": 0.0, "host_syncs": 512.0,
                               "device_flushes": 512.0},
        }.items()
        for metric, value in counts.items()
    })  # fmt: skip
    (table,) = tables(answered(numbers))
    assert table.title == "What becomes of a write"
    assert [[column.show(row) for column in table.columns][1:] for row in table.rows] == [
        ["raw/directsync", "512", "0", "512", "512"],
        ["raw/none", "512", "0", "0", MISSING],
    ]


def test_what_a_deletion_gave_back_has_a_table_of_its_own_and_no_zero_is_made_up() -> None:
    trim, stall = Direction.TRIM, MeasureKey("delete", Direction.NONE, "longest_stall")
    numbers = labelled({
        ("raw/none", 1, MeasureKey("delete", trim, "freed_guest")): 134e6,
        ("raw/none", 1, MeasureKey("delete", trim, "freed_image")): 0.0,
        ("raw/none", 1, stall): 0.0,
    })  # fmt: skip
    (table,) = tables(answered(numbers))
    assert table.title == "Given back by deleting"
    assert [[column.show(row) for column in table.columns] for row in table.rows] == [
        ["delete", "raw/none", "128 MiB", "0 B", MISSING]
    ]


def test_a_program_whose_tests_were_all_too_short_is_shown_by_its_series() -> None:
    """As bonnie++ with `+++++` for each block test."""
    none = Direction.NONE
    numbers = {
        ("host", 1, MeasureKey("bonnie-ext2", none, "worst_second")): 1e6,
        ("host", 1, MeasureKey("bonnie-ext2", none, "longest_stall")): 0.0,
        ("raw/none", 1, MeasureKey("bonnie-ext2", WRITE, "bandwidth")): 5e6,
        ("raw/none", 1, MeasureKey("bonnie-ext2", none, "longest_stall")): 2.0,
        ("host", 1, MeasureKey("install", WRITE, "duration")): 4.0,
        ("host", 1, MeasureKey("install", none, "longest_stall")): 0.0,
    }
    rows = measurement_rows(Medians.of({"": labelled(numbers)}), ())
    assert [(str(row.cell), row.bandwidth, row.worst_second, row.longest_stall)
            for row in sorted(rows, key=lambda row: str(row.cell))] == [
        ("host", None, 1e6, 0.0), ("raw/none", 5e6, None, 2.0),
    ]  # fmt: skip


def test_no_percentile_is_below_a_lower_one() -> None:
    """Rounds with few operations have no 99th percentile: its median is that of the others."""
    shown = {0: {"p95": 0.1, "p99": 0.2}, 1: {"p95": 0.3}, 2: {"p95": 0.4}}
    numbers = labelled(
        {
            ("raw/none", round, MeasureKey("tpcb", WRITE, metric)): value
            for round, found in shown.items()
            for metric, value in (
                ("latency_mean", 0.05),
                *((f"latency_{name}", each) for name, each in found.items()),
            )
        }
    )
    (row,) = answered(numbers).measurements
    assert (row.latency_p95, row.latency_p99) == (0.3, None)


def test_emulation_is_said_above_the_rows() -> None:
    emulated = Caveats(accelerator=Accelerator.TCG)
    first = next(iter(tables(replace(answered(NUMBERS), caveats=emulated))))
    assert first.intro[0].startswith("Measured under emulation (TCG)")
    assert not any("emulation" in note for note in first.notes)

"""Results that others measured: each format, and each mutilated."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workload.recorded import DATA, recorded
from vdisklab.errors import WorkloadError
from vdisklab.results.model import METRICS, Direction
from vdisklab.units import MIB
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import Report
from vdisklab.workload.sysbench import parse_text as parse_sysbench

READ, WRITE, NONE = Direction.READ, Direction.WRITE, Direction.NONE

FILES = sorted(
    str(path.relative_to(DATA))
    for path in [*DATA.glob("*.*"), *(DATA / "foreign").glob("*.*"), *(DATA / "fio").glob("*.json")]
    if path.suffix in (".json", ".txt", ".csv", ".xml")
    # What the host's kernel says, a step of the profile `discard`, and loads and replays of them.
    and not path.name.startswith(("diskstats-", "fstrim-", "blkparse-", "replay-"))
)


def numbers(name: str) -> dict[tuple[str, str, Direction], float]:
    (report,) = recognise(recorded(name))
    found = {
        (result.name, sample.metric, sample.direction): sample.value
        for result in report.results
        for sample in result.outcome.samples
    }
    assert len(found) == sum(len(result.outcome.samples) for result in report.results)
    return found


def samples_of(report: Report) -> dict[tuple[str, Direction], float]:
    return {(each.metric, each.direction): each.value for each in report.results[0].outcome.samples}


@pytest.mark.parametrize("name", FILES)
def test_each_recording_is_recognised(name: str) -> None:
    for report in recognise(recorded(name)):
        assert report.results
        for result in report.results:
            assert result.outcome.samples
            assert all(sample.metric in METRICS for sample in result.outcome.samples)


def test_crystaldiskmark_8_stands_beside_our_own_profile() -> None:
    found = numbers("foreign/crystaldiskmark-8.0.0.txt")
    assert found["seq1m-q8t1-read", "bandwidth", READ] == 897.182e6
    assert found["rnd4k-q1t1-write", "latency_mean", WRITE] == pytest.approx(119.12e-6)
    assert found["rnd4k-q32t1-read", "iops", READ] == 8876.7
    assert len(found) == 24


def test_crystaldiskmarks_mix_counts_reads_and_writes_together() -> None:
    text = recorded("foreign/crystaldiskmark-8.0.0.txt") + MIX
    (report,) = recognise(text)
    mixed = [each for each in report.results if "-mix" in each.name]
    assert [each.name for each in mixed] == ["seq1m-q8t1-mix70", "rnd4k-q1t1-mix70"]
    (bandwidth, iops, latency) = mixed[0].outcome.samples
    assert {each.direction for each in mixed[0].outcome.samples} == {Direction.NONE}
    assert (bandwidth.value, iops.value) == (700.5e6, 668.0)
    assert latency.value == pytest.approx(11950.12e-6)
    assert len(report.results) == 8 + 2


MIX = """
[Mix] Read 70%/Write 30%
  SEQ    1MiB (Q=  8, T= 1):   700.500 MB/s [    668.0 IOPS] < 11950.12 us>
  SEQ    1MiB (Q=  1, T= 1):     0.000 MB/s [      0.0 IOPS] <     0.00 us>
  RND    4KiB (Q=  1, T= 1):    30.125 MB/s [   7354.7 IOPS] <   135.50 us>
"""


def test_crystaldiskmark_3_and_6() -> None:
    old = numbers("foreign/crystaldiskmark-3.0.txt")
    assert old["rnd4k-q32-read", "iops", READ] == 1000
    assert old["rnd512k-read", "bandwidth", READ] == 50.125e6
    assert ("rnd4k-q1-write", "iops", WRITE) not in old, "0.000 was not measured"
    later = numbers("foreign/crystaldiskmark-6.0.txt")
    assert later["rnd4k-q8t8-write", "bandwidth", WRITE] == 204.8e6
    assert later["seq-q32t1-read", "bandwidth", READ] == 500e6


def test_sysbench_04_with_an_endless_size_is_refused() -> None:
    text = recorded("foreign/sysbench-0.4.12.txt").replace("93.75Mb", "9" * 400 + "Mb")
    with pytest.raises(WorkloadError):
        parse_sysbench(text)


def test_sysbench_04_counts_by_1024() -> None:
    found = numbers("foreign/sysbench-0.4.12.txt")
    assert found["sysbench-rndrw", "bandwidth", READ] == 93.75 * MIB / 50
    assert found["sysbench-rndrw", "iops", WRITE] == 80
    assert found["sysbench-rndrw", "latency_p95", NONE] == pytest.approx(0.18046)
    assert found["sysbench-rndrw", "latency_mean", NONE] == pytest.approx(0.04348)


def test_a_name_that_no_database_can_hold_is_made_fit() -> None:
    text = recorded("fio-3.33-plain.json").replace('"jobname" : "', '"jobname" : "\\u0000\\ud800')
    (report,) = recognise(text.replace('"fio-3.33"', '"fio-3.33\\udfff"'))
    assert report.version == "3.33?"
    assert [each.name for each in report.results] == ["??plain"]


def test_a_name_without_end_is_refused() -> None:
    text = recorded("fio-3.33-plain.json").replace('"jobname" : "', f'"jobname" : "{"x" * 1000}')
    with pytest.raises(WorkloadError, match="a name of 1005 characters, more than 200"):
        recognise(text)


@pytest.mark.parametrize(
    "text",
    [
        recorded("sysbench-1.0.20-rndrd.txt") + "\n" * 1_000_000,
        f"Version 1.03  --Sequential Output-- --\n{'-' * 1_000_000}",
    ],
    ids=["sysbench", "bonnie++"],
)
def test_a_text_made_to_be_read_slowly_is_not(text: str) -> None:
    """With a square of the time this would take hours."""
    begin = time.monotonic()
    with suppress(WorkloadError):
        recognise(text)
    assert time.monotonic() - begin < 20


def test_diskspd() -> None:
    found = numbers("foreign/diskspd-2.0.xml")
    assert found["diskspd", "bandwidth", READ] == 4096000
    assert found["diskspd", "iops", READ] == 1000
    assert found["diskspd", "latency_max", READ] == 0.02
    assert found["diskspd", "latency_p99.9", READ] == 0.009
    assert not [key for key in found if key[2] is WRITE]
    (report,) = recognise(recorded("foreign/diskspd-2.0.xml"))
    assert report.results[0].outcome.series[0].values == (1500, 500)


def test_a_file_of_several_sysbench_runs_holds_each_of_them() -> None:
    """As a script writes it that prepares, runs each mode, and cleans up."""
    prepared = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\n{}\n\n"
    modes = ("rndrd", "rndwr", "seqrd", "seqwr")
    parts = [recorded(f"sysbench-1.0.20-{mode}.txt") for mode in modes]
    text = "\n".join([
        prepared.format("128 files, 1024Kb each, 128Mb total\nCreating files for the test..."),
        *parts, prepared.format("Removing test files..."),
    ])  # fmt: skip
    (report,) = recognise(text)
    assert [each.name for each in report.results] == [f"sysbench-{mode}" for mode in modes]
    assert [each.outcome for each in report.results] == [
        recognise(part)[0].results[0].outcome for part in parts
    ]
    with pytest.raises(WorkloadError, match="holds 2 results of sysbench-rndrd"):
        recognise(parts[0] * 2)
    with pytest.raises(WorkloadError, match="missing"):
        recognise(parts[0] + parts[1][:300])


@pytest.mark.parametrize(
    ("name", "said"),
    [("fio-3.33-plain.json", "2 reports of fio"), ("dd-9.1-4k.txt", "2 results of dd")],
)
def test_of_several_results_none_is_left_out_in_silence(name: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=f"the file holds {said}"):
        recognise(recorded(name) * 2)


def test_dd_does_not_say_which_way() -> None:
    assert numbers("dd-9.1-4k.txt")["dd", "bandwidth", NONE] == 67108864 / 0.503305


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("hello", "no known program"),
        ("SQL statistics:\n    queries performed:\n", "first line, `sysbench` with its version"),
        ("File operations:\n    reads/s: 1\n", "first line, `sysbench` with its version"),
        ("<!DOCTYPE html>\n<html></html>", "a web page"),
        ("\n<HTML>", "a web page"),
        ("<Results></Results>", "no <TimeSpan>"),
        ("<Other/>", "writes <Results>"),
        ("<Results", "damaged XML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><Results>&a;</Results>', "document type"),
        ("CrystalDiskMark 2.2", "version from 3 to 8"),
        ("CrystalDiskMark 8.0.0\n  SEQ 1MiB (Q= 8, T= 1): 1.0 MB/s [ 1.0 IOPS]", "MB/s is not"),
        ('{"fio version": "fio-3.33", "jobs": []}', "no job"),
        ('{"fio version" : "fio-2.21", "jobs": []}', "^the report is from fio-2.21"),
        ('{"fio version": "fio-3.33", "jobs": ' + "[" * 100_000, "too deep"),
        ('{"fio version": "fio-3.33", "jobs": ' + "9" * 5000 + "}", "a number that is too long"),
        ("1 bytes (1 B) copied, 1e-400 s, 1 B/s", "dd printed 0 s"),
        ("9999999999999999999 bytes (10 EB) copied, 1 s", "too large to be"),
        ("1000000 bytes (1 MB) copied, 1e-300 s", "too large to be"),
        ("sysbench 1.0.20\n", "Doing"),
        ('{"fio version": "fio-3.33", "jobs": [' + "0," * 9999 + "0]}", "has 10000 jobs"),
        (
            "sysbench 1.0.20\n1 bytes copied, 1 s",
            "several programs: sysbench fileio and oltp text, dd",
        ),
        ("sysbench 1.0.20\nDoing random read test\n", "lacks"),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        recognise(text)


@pytest.mark.parametrize("count", ["1_0", "٣", "0x10", "nan", ""])
def test_a_number_of_diskspd_is_written_in_digits(count: str) -> None:
    text = recorded("foreign/diskspd-2.0.xml")
    with pytest.raises(WorkloadError, match=r"ReadCount is .*, not a number"):
        recognise(re.sub("<ReadCount>[0-9]+", f"<ReadCount>{count}", text))


def test_a_heading_that_is_not_known_ends_the_one_before() -> None:
    text = recorded("foreign/crystaldiskmark-8.0.0.txt").replace("[Write]", "[Erase]")
    with pytest.raises(WorkloadError, match=r"a result below no \[Read\]"):
        recognise(text)


def test_a_damaged_line_is_named() -> None:
    text = recorded("foreign/crystaldiskmark-8.0.0.txt").replace("36.359 MB/s", "36.359 GB/h")
    with pytest.raises(WorkloadError, match=r"line 11: .* is not a result of CrystalDiskMark"):
        recognise(text)
    twice = recorded("foreign/crystaldiskmark-8.0.0.txt") * 2
    with pytest.raises(WorkloadError, match="holds 2 reports of CrystalDiskMark"):
        recognise(twice)


TEXTS = {name: recorded(name) for name in FILES}


_PUT = ["", "0", "-", "nan", "1e999", "\0", "<", "}", ",", "٣", "\n", "9" * 30, "9" * 5000]


@given(st.data())
def test_a_mutilated_file_is_refused_or_read(data: st.DataObject) -> None:
    text = TEXTS[data.draw(st.sampled_from(FILES))]
    place = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 60))
    put = data.draw(st.sampled_from(_PUT))
    with suppress(WorkloadError):
        for report in recognise(text[:place] + put + text[place + cut :]):
            for result in report.results:
                for sample in result.outcome.samples:
                    assert 0 <= sample.value < float("inf")


@given(st.text())
def test_any_text_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(WorkloadError):
        recognise(text)


def test_the_recordings_are_there() -> None:
    assert len(FILES) > 12
    assert Path(DATA / "foreign" / "README.md").exists()


DD = "100+0 records in\n100+0 records out\n104857600 bytes"


@pytest.mark.parametrize(
    "line",
    [
        "transferred in 0.500000 secs (209715200 bytes/sec)",
        "transferred in 0.500000 seconds (209715200 bytes/sec)",
        "(100.0MB) copied, 0.500000 seconds, 200.0MB/s",
        "(105 MB, 100 MiB) copied, 0.5 s, 210 MB/s",
    ],
    ids=["macOS", "coreutils 5.0", "busybox", "coreutils 9"],
)
def test_dd_of_other_systems(line: str) -> None:
    (report,) = recognise(f"{DD} {line}\n")
    assert samples_of(report) == {
        ("bandwidth", NONE): 209715200, ("duration", NONE): 0.5, ("iops", NONE): 200,
    }  # fmt: skip


SYSBENCH_1_1 = """\
sysbench 1.1.0 (using bundled LuaJIT 2.1.0-beta3)

Doing random r/w test

Throughput:
         read:  IOPS=4331.55 67.68 MiB/s (70.97 MB/s)
         write: IOPS=2887.70 45.12 MiB/s (47.31 MB/s)
         fsync: IOPS=9247.16

Latency (ms):
         min:                                  0.00
         avg:                                  0.06
         max:                                  5.04
         95th percentile:                      0.13
         sum:                               9923.05
"""


def test_sysbench_1_1_has_a_line_for_each_direction() -> None:
    """The layout is that of file_report_cumulative in sysbench's sb_fileio.c."""
    (report,) = recognise(SYSBENCH_1_1)
    found = samples_of(report)
    assert (report.version, report.results[0].name) == ("1.1.0", "sysbench-rndrw")
    assert found["iops", READ] == 4331.55
    assert found["bandwidth", WRITE] == 45.12 * MIB
    assert found["latency_max", NONE] == pytest.approx(5.04e-3)
    assert report.results[0].outcome.measured_seconds is None


_ENOSPC = (
    "1+0 records in\n0+0 records out\n524288 bytes (524 kB, 512 KiB) copied, 0.0012 s, 437 MB/s"
)
_GERMAN = (
    "100+0 Datensätze ein\n100+0 Datensätze aus\n104857600 Bytes (105 MB) kopiert, 0,06 s, 1,7 GB/s"
)
_CHINESE = "记录了100+0 的读入\n记录了100+0 的写出\n104857600字节(105 MB)已复制,0.06 s,1.7 GB/s"
_HISTOGRAM = ", ".join(["1001", "0", "4096", *["0"] * 1216])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"dd: error writing 'x': No space left\n{_ENOSPC}", "dd failed: .*No space left"),
        (_ENOSPC, "no whole record: it failed"),
        (_GERMAN, "in a language other"),
        (_CHINESE, "in a language other"),
        ("记录了1024+0 的读入\n记录了1024+0 的写出\n"
         "1073741824字节(1.1 GB)已复制，5.0 秒，215 MB/秒\n", "in a language other"),
        ("1024+0 записей получено\n1024+0 записей отправлено\n"
         "1073741824 байт (1,1 GB) скопирован, 5,0 c, 215 МБ/c\n", "in a language other"),
        ("1024+0 enregistrements lus\n1024+0 enregistrements écrits\n"
         "1073741824 octets copiés, 5,0 s, 215 Mo/s\n", "in a language other"),
        ("sysbench 1.0.20\nFATAL: No test files found\n", "sysbench failed"),
        ("sysbench 1.0.20\n\nSQL statistics:\n", "no transaction, or was cut off"),
        ("sysbench 0.4.12:  multi-threaded\n\nDoing CPU performance benchmark\n", "the processor"),
        ("sysbench 1.0.20\n\nRemoving test files...\n", "only made or removed its files"),
        (SYSBENCH_1_1 + recorded("sysbench-1.0.20-rndrd.txt"), "2 versions of sysbench"),
        (
            "".join(recorded(f"foreign/crystaldiskmark-{each}.txt") for each in ("3.0", "8.0.0")),
            "2 reports of CrystalDiskMark",
        ),
        (
            recorded("foreign/bonnie-1.03e.txt") + recorded("foreign/bonnie-2.00a.txt"),
            "a table of bonnie.. 2.00a? follows one of 1.03e",
        ),
        (recorded("fio-3.33-plain.json") + recorded("dd-9.1-4k.txt"), "several programs: fio, dd"),
        (
            recorded("foreign/crystaldiskmark-8.0.0.txt") + recorded("dd-9.1-4k.txt"),
            "several programs: CrystalDiskMark text, dd",
        ),
        ("Command Line: diskspd.exe -b4K\n\nTotal IO\n", "DISKSPD's text"),
        ("a: (g=0): rw=randread, bs=(R) 4096B\nfio-3.33\n", "fio's normal text"),
        ("3;fio-3.33;a;0;0;12;", "terse"),
        ("250, 53104, 0, 0, 0\n500, 48080, 0, 0, 0\n", "a log of fio"),
        (_HISTOGRAM, "a log of fio"),
        ("[global]\nrw=read\n", "job file"),
        ("{}", "neither a report of fio nor an export of vdisklab"),
        ("deadbeef" + "0" * 64 + " I/O error", "no known program wrote this"),
    ],
)  # fmt: skip
def test_what_is_nearly_a_result_is_told_what_it_is(text: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said) as caught:
        recognise(text)
    assert caught.value.hint


@pytest.mark.parametrize("unit", ["Ib", "\u212ab"], ids=["no unit", "Kelvin sign"])
def test_a_size_of_sysbench_in_no_unit_is_refused(unit: str) -> None:
    text = recorded("foreign/sysbench-0.4.12.txt").replace("62.5Mb", f"62.5{unit}")
    with pytest.raises(WorkloadError, match="Total transferred` is missing"):
        recognise(text)


def test_long_digits_beside_a_result_do_no_harm() -> None:
    text = "eui.00000000000000000000000000000000000000000012\n" + recorded("dd-9.1-4k.txt")
    assert recognise(text) == recognise(recorded("dd-9.1-4k.txt"))

"""elbencho's results.

The samples are not recorded: they are made after its documentation (docs/csv-docs.md of 3.1) and
its source (Statistics.cpp). Columns, names and escapes are elbencho's, the numbers are ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import Report

COLUMNS = (
    "ISO date,label,path type,paths,hosts,threads,dirs,files,file size,block size,direct IO,random,"
    "random aligned,IO depth,shared paths,truncate,operation,time ms [first],time ms [last],"
    "entries/s [first],entries/s [last],IOPS [first],IOPS [last],MiB/s [first],MiB/s [last],"
    "CPU% [first],CPU% [last],entries [first],entries [last],MiB [first],MiB [last],"
    "Ent lat us [min],Ent lat us [avg],Ent lat us [max],"
    "IO lat us [min],IO lat us [avg],IO lat us [max],"
    "rwmix read entries/s [first],rwmix read entries/s [last],rwmix read IOPS [first],"
    "rwmix read IOPS [last],rwmix read MiB/s [first],rwmix read MiB/s [last],"
    "rwmix read entries [first],rwmix read entries [last],rwmix read MiB [first],"
    "rwmix read MiB [last],rwmix read Ent lat us [min],rwmix read Ent lat us [avg],"
    "rwmix read Ent lat us [max],rwmix read IO lat us [min],rwmix read IO lat us [avg],"
    "rwmix read IO lat us [max],version,command"
)


def row(operation: str, values: Mapping[str, object] | None = None) -> str:
    """A row of the CSV; `values` are by the column's name."""
    fields = dict.fromkeys(COLUMNS.split(","), "")
    fields |= {
        "ISO date": "2026-11-28T10:00:00.000+0000", "path type": "blockdev",
        "paths": "1", "hosts": "1", "threads": "4", "file size": "1073741824",
        "block size": "4096", "direct IO": "1", "random": "1", "random aligned": "1",
        "IO depth": "16", "operation": operation, "time ms [first]": "9000",
        "time ms [last]": "10000", "CPU% [first]": "10", "CPU% [last]": "11", "version": "3.1-3",
        "command": '"elbencho" "-r" "--csvfile" "out.csv" "/dev/sdx" ',
    }  # fmt: skip
    fields |= {name: str(value) for name, value in (values or {}).items()}
    return ",".join(fields.values())


READ = row("READ", {"IOPS [last]": 640, "MiB/s [last]": 2, "MiB [last]": 25,
                      "IO lat us [avg]": 99, "IO lat us [max]": 5000})  # fmt: skip
MIXED = row(
    "RWMIX70",
    {"IOPS [last]": 300, "MiB [last]": 11, "rwmix read IOPS [last]": 700,
       "rwmix read MiB [last]": 27, "rwmix read IO lat us [avg]": 80},
)  # fmt: skip
CSV = "\n".join((COLUMNS, row("DROPCACHE"), READ, MIXED, ""))


def phase(**changed: object) -> dict[str, object]:
    """A phase's JSON: Boost's property tree writes every value as a text."""
    return {
        "phase_type": "WRITE",
        "phase_id": "d3b1",
        "iso_start_date": "2026-11-28T10:00:00.000+0000",
        "config": {"path_type": "file", "paths": "1", "hosts": "2", "threads": "4",
                   "file_size": "1073741824", "block_size": "1048576", "direct_io": "true",
                   "random_offsets": "false", "io_depth": "1", "truncate_files": "false",
                   "version": "3.1-3", "command": '"elbencho" "-w" '},
        "first_done": {"elapsed_time_ms": "900", "iops": "120", "bytes/s": "125829120"},
        "last_done": {"elapsed_time_ms": "10000", "iops": "100", "bytes/s": "104857700",
                      "cpu%": "3", "latency": {"IO": {"min_us": "5", "avg_us": "79000",
                                                      "max_us": "200000"}}},
    } | changed  # fmt: skip


def boost(*phases: dict[str, object]) -> str:
    """The file's text: one line each, where Boost escapes each slash."""
    return "".join(json.dumps(each).replace("/", "\\/") + "\n" for each in phases)


def found(*reports: Report) -> dict[tuple[str, str, Direction], float]:
    return {
        (result.name, sample.metric, sample.direction): sample.value
        for report in reports
        for result in report.results
        for sample in result.outcome.samples
    }


def test_the_csv_is_read_with_its_mixed_reads() -> None:
    (report,) = recognise(CSV)
    assert (report.program, report.version, report.label) == ("elbencho", "3.1-3", None)
    values = found(report)
    assert values["rnd4k-q16t4-read", "iops", Direction.READ] == 640
    # 640 requests of 4 KiB are 2.5 MiB/s, and the column has 2
    assert values["rnd4k-q16t4-read", "bandwidth", Direction.READ] == 2.5 * (1 << 20)
    assert values["rnd4k-q16t4-read", "latency_mean", Direction.READ] == pytest.approx(99e-6)
    assert values["rnd4k-q16t4-rwmix70", "iops", Direction.WRITE] == 300
    assert values["rnd4k-q16t4-rwmix70", "iops", Direction.READ] == 700
    assert {name for name, *_ in values} == {"rnd4k-q16t4-read", "rnd4k-q16t4-rwmix70"}


def test_the_json_is_read_to_the_byte() -> None:
    (report,) = recognise(boost(phase(phase_type="MKDIRS"), phase()))
    values = found(report)
    assert values["seq1M-q1t8-write", "bandwidth", Direction.WRITE] == 104857700
    assert values["seq1M-q1t8-write", "latency_max", Direction.WRITE] == pytest.approx(0.2)


def test_a_label_is_a_report_of_its_own() -> None:
    labelled = READ.replace("+0000,,", "+0000,ssd,", 1)
    reports = recognise("\n".join((CSV, labelled)))
    assert [report.label for report in reports] == [None, "ssd"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CSV}{READ}", "a second result of rnd4k-q16t4-read"),
        (CSV[:-60], "fields, and elbencho's heading"),
        (READ + "\n" + COLUMNS, "line 1 has 55 fields, and elbencho's heading 0"),
        (CSV.replace(",640,", ",many,"), "'IOPS [last]' of elbencho's result is 'many'"),
        (CSV.replace(",4096,", ",0,"), "'block size' of elbencho's result is '0'"),
        (CSV.replace(",4096,", ",,"), "'block size' of elbencho's result is ''"),
        (CSV.replace(",READ,", ",PONDER,"), "'operation' of elbencho's result is 'PONDER'"),
        (CSV.replace(",READ,", ",,"), "'operation' of elbencho's result is ''"),
        (CSV.replace("blockdev", "bucket"), "measured bucket, which is neither a file nor a disk"),
        (CSV.replace("blockdev", "tape"), "'path type' of elbencho's result is 'tape'"),
        (CSV.replace("3.1-3", "3.0-1", 1), "2 versions of elbencho"),
        (f"{COLUMNS}\n{row('SYNC')}", "no phase of elbencho read or wrote data"),
        (COLUMNS, "no phase of elbencho read or wrote data"),
        (boost(phase())[:-40], "line 1 is not a phase's JSON"),
        (boost(phase(), phase()), "a second result of seq1M-q1t8-write"),
        (boost(phase(config="none")), "line 1 is not a phase's JSON"),
        (boost(phase(last_done={"elapsed_time_ms": "-1"})), "'time ms [last]'"),
        (boost(phase(last_done={"elapsed_time_ms": "1", "iops": ["1"]})), "not a phase's JSON"),
        ('{"phase_type": ' + "[" * 100_000, "line 1 is not a phase's JSON"),
        ("OPERATION   RESULT TYPE         FIRST DONE  LAST DONE", "elbencho's text output"),
        ("ISO Date,Label,Phase,RuntimeMS,Rank,MixType", "elbencho's live log"),
    ],
)
def test_a_mutilated_result_is_refused(text: str, said: str) -> None:
    with pytest.raises(WorkloadError) as refusal:
        recognise(text)
    assert said in str(refusal.value)
    assert refusal.value.hint

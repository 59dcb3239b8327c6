"""MariaDB: the steps of a measurement, recorded answers, and mutilated ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import Direction, Evidence, IoCounters
from vdisklab.units import GIB, MIB
from vdisklab.workload.mariadb import Mariadb
from vdisklab.workload.program import Around, Outputs, Subject, Timing

PROGRAM = Mariadb()
PLACE = Subject("/mnt/x", 1900 * MIB, is_device=False, is_directory=True, memory=256 * MIB,
                disk_size=2 * GIB)  # fmt: skip
COUNTS = recorded("mariadb-10.11.19-counts.log")
SYSBENCH = recorded("sysbench-1.0.20-mariadb_write_only.txt")


def plan(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", "mariadb", {"test": "oltp_write_only", **settings}, "ext4")


def said(counts: str = COUNTS, text: str = SYSBENCH) -> Outputs:
    return Outputs(text, files={"c": counts})


def test_each_commit_is_flushed_and_pages_are_written_twice() -> None:
    made = PROGRAM.script(plan(), PLACE, Timing(60, 20))
    (copy,) = made.prepare
    rows = int(copy.command[-1])
    assert 4 * rows * 250 == pytest.approx(4 * 256 * MIB, rel=0.001)
    assert copy.command[3:6] == ("copy", "/mnt/x", f"mariadb-{rows}")
    assert {"innodb_flush_log_at_trx_commit=1", "innodb_doublewrite=1", "skip_log_bin"} <= set(
        made.warm[0].command
    )
    assert "--time=20" in made.warm[1].command
    assert made.command[4:6] == ("sysbench", "oltp_write_only")
    assert made.command[-2:] == ("--time=60", "run")


def test_a_disk_too_small_for_the_rows() -> None:
    with pytest.raises(PlanError, match=r"'one' needs .* MiB and the disk has room for"):
        PROGRAM.script(plan(rows=2_000_000), PLACE, Timing(60, 20))


def test_transactions_latencies_and_states() -> None:
    outcome = PROGRAM.parse(plan(), said())
    found = {sample.metric: sample.value for sample in outcome.samples}
    assert {sample.direction for sample in outcome.samples} == {Direction.WRITE}
    assert found["transactions"] == 387.70
    assert found["latency_p50"] < found["latency_p99"] < found["latency_max"]
    checks = {check.name: check for check in outcome.checks}
    assert checks["one.innodb_doublewrite"].requested == "ON"
    assert all(check.confirmed for check in checks.values())
    assert checks["one.com_commit"].observed == str(2004 - 451)
    assert checks["one.innodb_data_fsyncs"].observed == str(2028 - 468)
    assert float(checks["one.fdatasync"].observed) == pytest.approx(0.310254 / 64, abs=1e-6)
    assert 0 < float(checks["one.cpu"].observed) <= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [("trx_commit 1", "trx_commit 2"), ("doublewrite ON", "doublewrite OFF"),
     ("log_bin OFF", "log_bin ON")],
)  # fmt: skip
def test_what_a_commit_relies_on_is_checked(before: str, after: str) -> None:
    assert before in COUNTS
    with pytest.raises(WorkloadError, match="was not measured as meant"):
        PROGRAM.parse(plan(), said(COUNTS.replace(before, after)))


def test_counts_that_were_cut_off_are_refused() -> None:
    for end in range(0, COUNTS.index("after "), 37):
        with pytest.raises(WorkloadError):
            PROGRAM.parse(plan(), said(COUNTS[:end]))
    with pytest.raises(WorkloadError, match="is not a number"):
        PROGRAM.parse(plan(), said(COUNTS.replace("after com_commit 2004", "after com_commit x")))


@pytest.mark.parametrize("end", [0, 100, 400])
def test_a_summary_that_was_cut_off(end: int) -> None:
    with pytest.raises(WorkloadError):
        PROGRAM.parse(plan(), said(text=SYSBENCH[:end]))


def test_gates() -> None:
    outcome = PROGRAM.parse(plan(), said())
    for flushes, path, met in ((1700, "raw/none", True), (300, "raw/none", False)):
        evidence = Evidence(qemu=IoCounters(0, 0, 0, 0, flushes))
        around = Around(evidence, 256 * MIB, 60, parse_path(path))
        gates = {gate.name: gate for gate in PROGRAM.gates(plan(), outcome, around)}
        assert gates["flushes ÷ commits"].met is met
        assert gates["data ÷ guest memory"].only_said
    around = Around(Evidence(), 256 * MIB, 60, parse_path("raw/writethrough"))
    names = {gate.name for gate in PROGRAM.gates(plan(), outcome, around)}
    assert "flushes ÷ commits" not in names


def test_a_gate_whose_counter_is_missing_is_named_and_not_skipped() -> None:
    lines = [line for line in COUNTS.splitlines() if "com_commit" not in line]
    outcome = PROGRAM.parse(plan(), said("\n".join(lines)))
    evidence = Evidence(qemu=IoCounters(0, 0, 0, 0, 1700))
    around = Around(evidence, 256 * MIB, 60, parse_path("raw/none"))
    gates = {gate.name: gate for gate in PROGRAM.gates(plan(), outcome, around)}
    check = gates["flushes ÷ commits"].check("one")
    assert check.observed == "not met, only said: com_commit was not counted"


@pytest.mark.parametrize(("fails", "said", "status"), [(2, "", 0), (3, "sysbench failed", 1)])
def test_threads_that_start_late_are_given_three_chances(
    fails: int, said: str, status: int, tmp_path: Path
) -> None:
    """sysbench's own 30 s were too short in an emulated guest of 192 MiB on a busy host."""
    (tmp_path / "data").mkdir()
    late = tmp_path / "late"
    late.write_text(
        "#!/bin/sh\necho x >>$0.calls\n[ $(wc -l <$0.calls) -le $1 ] || exit 0\n"
        "echo 'FATAL: Worker threads failed to initialize within 30 seconds!'\nexit 1\n"
    )
    late.chmod(0o755)
    step = PROGRAM.script(plan(), PLACE, Timing(60, 20)).warm[1]
    command = ("sh", "-s", "--", "warm", str(tmp_path), str(late), str(fails))
    done = subprocess.run(command, input=step.stdin, text=True, check=False, capture_output=True)
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert len(late.with_suffix(".calls").read_text().splitlines()) == 3

"""PostgreSQL: the steps of a measurement, recorded answers, and mutilated ones."""

from __future__ import annotations

import re

import pytest

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import METRICS, Direction, Evidence, IoCounters
from vdisklab.units import GIB, MIB
from vdisklab.value import replace
from vdisklab.workload.importing import recognise
from vdisklab.workload.postgresql import Postgresql, read_report
from vdisklab.workload.program import Around, Gate, Outputs, ProgramResult, Subject, Timing

WRITE = Direction.WRITE
PLACE = Subject("/mnt/x", 1900 * MIB, is_device=False, is_directory=True, memory=256 * MIB,
                disk_size=2 * GIB)  # fmt: skip
FULL = Timing(60, 30)
SAID = Outputs(recorded("pgbench-15.18.txt"), files={"c": recorded("postgresql-15.18-counts.log")})
PROGRAM = Postgresql()


def plan(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", "postgresql", settings, "ext4")


def outcome() -> ProgramResult:
    return PROGRAM.parse(plan(), SAID)


def facts(found: ProgramResult) -> dict[str, str]:
    return {check.name.removeprefix("one."): check.observed for check in found.checks}


def gates(
    found: ProgramResult, *, flushes: int = 16_000, runtime: float = 60, path: str = "raw/none"
) -> dict[str, Gate]:
    evidence = Evidence(qemu=IoCounters(0, 0, 0, 0, flushes))
    around = Around(evidence, 256 * MIB, runtime, parse_path(path))
    return {gate.name: gate for gate in PROGRAM.gates(plan(), found, around)}


class TestSteps:
    def test_data_is_four_guest_memories_and_a_quarter_of_memory_holds_it(self) -> None:
        made = PROGRAM.script(plan(), PLACE, FULL)
        (copy,) = made.prepare
        assert copy.command == ("sh", "-s", "--", "copy", "/mnt/x", "pgbench-80", "80")
        assert 4 * 256 * MIB <= 80 * 15e6
        start, warm, before = made.warm
        assert "shared_buffers=64MB" in start.command
        assert {"fsync=on", "synchronous_commit=on", "checkpoint_timeout=30s"} <= set(start.command)
        assert warm.command[-3:] == ("-T", "30", "postgres")
        assert before.command[3] == "before"
        assert made.command[:4] == ("sh", "-c", 'cd "$0" && exec "$@"', "/mnt/x/data")
        assert "-T 60 -l" in " ".join(made.command)
        assert [step.command[3] for step in (*made.count, *made.conclude)] == ["after", "stop"]

    def test_the_scale_is_the_same_on_every_file_system(self) -> None:
        small = replace(PLACE, size=1700 * MIB)
        assert PROGRAM.files(plan(), small, FULL) == PROGRAM.files(plan(), PLACE, FULL)

    def test_what_fits_if_the_disk_is_small(self) -> None:
        small = replace(PLACE, size=480 * MIB, disk_size=512 * MIB)
        files = PROGRAM.files(plan(), small, FULL)
        assert files.arguments == ("17",)
        assert PROGRAM.script(plan(), small, FULL).prepare

    def test_less_work_is_less_data(self) -> None:
        assert PROGRAM.files(plan(), PLACE, Timing(60, 30, 0.5)).arguments == ("40",)

    def test_a_disk_too_small_for_the_scale_is_refused(self) -> None:
        with pytest.raises(PlanError, match="'one' needs 1920 MiB and the disk has room for"):
            PROGRAM.script(plan(scale=100), PLACE, FULL)

    def test_a_rate_is_a_share_of_the_ramps(self) -> None:
        made = PROGRAM.script(plan(rate_percent=60), PLACE, FULL)
        assert made.warm[1].command[5] == "60"
        assert made.command[2] == 'cd "$0" && exec "$@" -R "$(cat vdisklab.rate)"'

    def test_the_plan_knows_the_time_before(self) -> None:
        made = PROGRAM.script(plan(), PLACE, FULL)
        assert made.expected == 60
        assert 60 < made.before < 120


class TestAnswers:
    def test_transactions_and_latencies(self) -> None:
        found = {(sample.metric, sample.direction): sample.value for sample in outcome().samples}
        assert all(metric in METRICS for metric, _ in found)
        assert found["transactions", WRITE] == 250.900534
        assert found["latency_mean", WRITE] == pytest.approx(0.003986, rel=0.01), "pgbench's own"
        order = [found[f"latency_{name}", WRITE] for name in ("p50", "p95", "p99", "p99.9", "max")]
        assert order == sorted(order)
        assert order[0] > 0.001

    def test_percentiles_are_of_the_histogram(self) -> None:
        rows = sorted(
            (int(time), int(count))
            for time, count in re.findall(
                r"^latency (\d+) (\d+)$", recorded("postgresql-15.18-counts.log"), re.MULTILINE
            )
        )
        every = [time for time, count in rows for _ in range(count)]
        (p99,) = [s.value for s in outcome().samples if s.metric == "latency_p99"]
        assert p99 * 1e6 == pytest.approx(every[-(-len(every) * 99 // 100) - 1])

    def test_settings_are_states_and_confirmed(self) -> None:
        checks = {check.name: check for check in outcome().checks}
        assert checks["one.fsync"].requested == "on"
        assert all(check.confirmed for check in checks.values())
        assert checks["one.server_version"].observed.startswith("15.18")

    def test_counters_of_the_measured_time(self) -> None:
        found_facts = facts(outcome())
        assert found_facts["commits"] == "15307"
        assert 0.9 < int(found_facts["wal_flushes"]) / 15307 < 1.1
        assert found_facts["checkpoints_timed"] == "2"
        assert found_facts["checkpoints_requested"] == "0"
        assert float(found_facts["cycle_1_transactions"]) > 0
        assert 0 < float(found_facts["cpu"]) <= 1

    def test_a_second_is_whole(self) -> None:
        (series,) = outcome().series
        assert series.metric == "transactions"
        assert 58 <= len(series.values) <= 61
        assert sum(series.values) <= 15307

    @pytest.mark.parametrize(
        "setting", ["fsync", "full_page_writes", "synchronous_commit", "data_checksums"]
    )
    def test_what_a_commit_relies_on_is_checked(self, setting: str) -> None:
        counts = SAID.files["c"].replace(f"setting {setting} on", f"setting {setting} off")
        with pytest.raises(WorkloadError, match=f"{setting} is off, not on"):
            PROGRAM.parse(plan(), Outputs(SAID.stdout, files={"c": counts}))

    def test_cut_off_anywhere_it_is_refused(self) -> None:
        counts = SAID.files["c"]
        for end in range(0, counts.rindex("latency"), 997):
            with pytest.raises(WorkloadError):
                PROGRAM.parse(plan(), Outputs(SAID.stdout, files={"c": counts[:end]}))

    @pytest.mark.parametrize(
        ("before", "after"),
        [("log 15307 0", "log 15307 3"), ("log 15307", "log 15306"), ("latency ", "patience "),
         ('{"wal_records"', "[{"), ("before cpu", "before cpu x")],
    )  # fmt: skip
    def test_mutilated_counts(self, before: str, after: str) -> None:
        counts = SAID.files["c"].replace(before, after, 1)
        assert counts != SAID.files["c"]
        with pytest.raises(WorkloadError):
            PROGRAM.parse(plan(), Outputs(SAID.stdout, files={"c": counts}))


class TestGates:
    def test_the_recorded_run_was_on_a_busy_machine(self) -> None:
        found = gates(outcome()).items()
        assert {name for name, gate in found if not (gate.met or gate.only_said)} == {
            "busy processors"
        }
        assert {name for name, gate in found if gate.only_said and not gate.met} == {
            "data ÷ guest memory"
        }

    def test_a_disk_that_swallows_flushes(self) -> None:
        gate = gates(outcome(), flushes=8_000)["flushes ÷ commits"]
        assert not gate.met
        assert gate.check("one").observed == "missed: 0.523, at least 0.9"

    def test_without_a_write_cache_no_flush_is_sent(self) -> None:
        assert "flushes ÷ commits" not in gates(outcome(), flushes=0, path="raw/directsync")

    def test_a_run_without_cycles_says_so_and_counts(self) -> None:
        counts = SAID.files["c"].replace('"checkpoints_timed":2', '"checkpoints_timed":0')
        found = PROGRAM.parse(plan(), Outputs(SAID.stdout, files={"c": counts}))
        short, full = (gates(found, runtime=seconds)["timed checkpoints"] for seconds in (10, 60))
        assert (short.met, short.only_said) == (False, True)
        assert (full.met, full.only_said) == (False, False)

    def test_more_commits_than_the_disk_can_sync(self) -> None:
        counts = re.sub(r"^probe .*$", "probe 64 6.4", SAID.files["c"], flags=re.MULTILINE)
        found = PROGRAM.parse(plan(), Outputs(SAID.stdout, files={"c": counts}))
        (gate,) = [gate for name, gate in gates(found).items() if "fdatasync" in name]
        assert not gate.met


class TestImport:
    def test_what_pgbench_printed(self) -> None:
        (report,) = recognise(recorded("pgbench-15.18.txt"))
        (result,) = report.results
        assert (report.program, report.version, result.name) == ("pgbench", "15.18", "tpcb-like-c1")
        assert {sample.metric for sample in result.outcome.samples} == {
            "transactions", "latency_mean",
        }  # fmt: skip

    def test_older_versions_words(self) -> None:
        """9.6 and 13 print two rates, with and without the time of connecting (pgbench.c)."""
        old = recorded("pgbench-15.18.txt").replace(
            "tps = 250.900534 (without initial connection time)",
            "tps = 250.1 (including connections establishing)\n"
            "tps = 250.9 (excluding connections establishing)",
        )
        assert read_report(old).tps == 250.9

    @pytest.mark.parametrize("end", [0, 100, 250, 300, 395])
    def test_a_summary_that_was_cut_off(self, end: int) -> None:
        with pytest.raises(WorkloadError):
            read_report(recorded("pgbench-15.18.txt")[:end])

    def test_two_runs_in_one_file(self) -> None:
        with pytest.raises(WorkloadError, match="is missing"):
            recognise(2 * recorded("pgbench-15.18.txt"))

    @pytest.mark.parametrize(
        ("kind", "name"),
        [("read_write", "oltp-read-write-c2"), ("write_only", "oltp-write-only-c2"),
         ("read_only", "oltp-read-only-c2"), ("plain", "oltp-read-write-c2")],
    )  # fmt: skip
    def test_sysbenchs_database_tests(self, kind: str, name: str) -> None:
        (report,) = recognise(recorded(f"sysbench-1.0.20-oltp_{kind}.txt"))
        (result,) = report.results
        assert result.name == name
        found = {sample.metric: sample.value for sample in result.outcome.samples}
        assert found["transactions"] > 10
        assert 0 < found["latency_mean"] < found["latency_max"]
        assert ("latency_p50" in found) == (kind != "plain"), "from the histogram"

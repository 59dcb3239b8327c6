"""dd, sysbench, bonnie++ and SQLite: commands, recorded answers, and mutilated ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import METRICS, Direction, IoCounters
from vdisklab.units import GIB, MIB
from vdisklab.value import replace
from vdisklab.workload.bonnie import parse_csv
from vdisklab.workload.dd import parse_line
from vdisklab.workload.program import (
    Outputs,
    ProgramResult,
    Script,
    Subject,
    Timing,
    database_script,
)
from vdisklab.workload.registry import WORKLOADS, workload_for
from vdisklab.workload.sysbench import parse_text

READ, WRITE, NONE = Direction.READ, Direction.WRITE, Direction.NONE
PLACE = Subject("/mnt/x", 4 * GIB, is_device=False, is_directory=True, memory=GIB)


def plan(program: str, **settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", program, settings, "ext4")


def script(measurement: MeasurementPlan, scale: float = 1.0, place: Subject = PLACE) -> Script:
    return workload_for(measurement).script(measurement, place, Timing(5, 0.5, scale))


def values(outcome: ProgramResult) -> dict[tuple[str, Direction], float]:
    found = {(sample.metric, sample.direction): sample.value for sample in outcome.samples}
    assert len(found) == len(outcome.samples), "one number for each metric and direction"
    assert all(metric in METRICS for metric, _ in found)
    return found


class TestDd:
    PLAN = plan("dd", bs="4k", count=1000)

    def test_the_articles_command(self) -> None:
        made = script(plan("dd", bs="4k", count=262144))
        assert made.command == (
            "dd", "if=/dev/zero", "of=/mnt/x/one.dd", "bs=4k", "count=262144", "oflag=direct",
            "status=progress",
        )  # fmt: skip
        assert made.conclude[0].command == ("rm", "-f", "/mnt/x/one.dd")

    def test_totals_scale(self) -> None:
        assert "count=100" in script(self.PLAN, scale=0.1).command
        assert "count=1" in script(self.PLAN, scale=1e-9).command

    def test_what_is_read_was_written_before(self) -> None:
        made = script(plan("dd", bs="4k", count=1000, direction="read"))
        assert "count=4" in made.prepare[0].command
        assert "iflag=direct" in made.command

    def test_a_disk_that_is_too_small(self) -> None:
        with pytest.raises(PlanError, match="'one' needs 8192 MiB and the disk has room for"):
            script(plan("dd", bs="1M", count=8192))

    def test_one_line(self) -> None:
        said = Outputs("", recorded("dd-9.1-4k.txt"))
        outcome = WORKLOADS["dd"].parse(self.PLAN, said)
        assert values(outcome) == {
            ("bandwidth", WRITE): 67108864 / 0.503305,
            ("iops", WRITE): 16384 / 0.503305,
            ("duration", WRITE): 0.503305,
        }
        assert outcome.counted == IoCounters(0, 67108864, 0, 16384)
        assert outcome.series == (), "half a second has no whole second"

    def test_the_course_is_dds_progress(self) -> None:
        outcome = WORKLOADS["dd"].parse(self.PLAN, Outputs("", recorded("dd-9.1-progress.txt")))
        (series,) = outcome.series
        assert series.values[0] == 130052096
        assert series.values[1] == 269230080 - 130052096
        assert values(outcome)["worst_second", WRITE] == min(series.values)
        assert values(outcome)["longest_stall", WRITE] == 0.0

    def test_a_second_that_is_not_shown_was_a_stall(self) -> None:
        text = (
            "\r100 bytes copied, 1 s, 100 B/s\r400 bytes copied, 4 s, 100 B/s\n"
            "5+0 records in\n5+0 records out\n500 bytes copied, 5.0 s, 100 B/s\n"
        )
        found = values(WORKLOADS["dd"].parse(self.PLAN, Outputs("", text)))
        assert found["longest_stall", WRITE] == 2.0

    @pytest.mark.parametrize(
        "text",
        ["", "dd: writing: No space left on device", "0 bytes copied, 0.1 s, 0 B/s",
         "12 bytes copied, 0 s, 0 B/s", "12 bytes copied, x s"],
    )  # fmt: skip
    def test_no_number_is_made_up(self, text: str) -> None:
        with pytest.raises(WorkloadError):
            parse_line(text)

    @pytest.mark.parametrize(
        "text",
        ["67108864 bytes (67 MB, 64 MiB) copied, 5.03305 s, 133 MB/s",
         "67108864 bytes (67 MB, 64 MiB) copied, 0.503305 s, 133 kB/s",
         "6710886 bytes (67 MB, 64 MiB) copied, 0.503305 s, 133 MB/s",
         "67108864 bytes (6 MB, 64 MiB) copied, 0.503305 s, 133 MB/s",
         "67108864 bytes (67 MB, 6 MiB) copied, 0.503305 s, 133 MB/s",
         "67108864 bytes (67 MB, 64 MiB) copied, 0.503305 s, Infinity B/s",
         "67108864 bytes (67 MB, 64 MiB) copied, 1e400 s, 133 MB/s"],
    )  # fmt: skip
    def test_a_line_that_contradicts_itself(self, text: str) -> None:
        with pytest.raises(WorkloadError, match="contradicts itself: '67"):
            parse_line(text)

    @pytest.mark.parametrize("end", ["133 M", "133", "", "133 MB", "133 MB/s and more"])
    def test_a_line_that_was_cut_off(self, end: str) -> None:
        with pytest.raises(WorkloadError, match="is missing"):
            parse_line(f"67108864 bytes (67 MB, 64 MiB) copied, 0.503305 s, {end}")

    def test_progress_without_an_end(self) -> None:
        text = recorded("dd-9.1-progress.txt")
        cut = text[: text.index("5 s") + 20].rpartition("\r")[0]
        with pytest.raises(WorkloadError, match="`records out` is missing"):
            parse_line(cut)

    def test_a_stall_in_the_last_write(self) -> None:
        """A tick comes with the first write after each second: none came for six of them."""
        text = (
            "\r100 bytes copied, 1 s, 100 B/s\r200 bytes copied, 2 s, 100 B/s"
            "\r250 bytes copied, 2 s, 125 B/s\n"
            "3+0 records in\n3+0 records out\n300 bytes copied, 8.2 s, 37 B/s\n"
        )
        outcome = WORKLOADS["dd"].parse(self.PLAN, Outputs("", text))
        assert values(outcome)["longest_stall", WRITE] == 5.0
        (series,) = outcome.series
        assert series.values[:2] == (100, 150), "all that was written by then"

    @given(st.integers(1, 10**14), st.floats(1e-5, 1e6), st.booleans(), st.booleans())
    def test_no_rounding_of_dds_is_a_contradiction(
        self, size: int, seconds: float, progress: bool, comma: bool
    ) -> None:
        """As coreutils prints it: seconds with `%g` (progress: `%.0f`), the rate with a decimal
        below ten of its unit."""
        rate, units = size / seconds, iter(["", "k", "M", "G", "T", "P"])
        unit = next(units)
        while rate >= 999.5 and unit != "P":
            rate, unit = rate / 1000, next(units)
        printed = f"{rate:.1f}" if rate < 9.95 and unit else f"{rate:.0f}"
        shown = f"{seconds:.0f}" if progress else f"{seconds:g}"
        line = f"{size} bytes copied, {shown} s, {printed} {unit}B/s"
        line = line.replace(".", ",") if comma else line
        if float(shown) > 0:
            assert parse_line(line).size == size


class TestSysbench:
    def test_every_fsync_setting_is_in_the_command(self) -> None:
        made = script(plan("sysbench", mode="rndwr"))
        assert made.command[:4] == ("sh", "-c", 'cd "$0" && exec "$@"', "/mnt/x")
        assert {
            "--file-fsync-freq=100", "--file-fsync-all=off", "--file-fsync-end=on",
            "--file-test-mode=rndwr", "--time=5", f"--file-total-size={2 * GIB}",
        } <= set(made.command)  # fmt: skip
        assert made.prepare[0].command[-1] == "prepare"
        assert made.conclude[0].command[-1] == "cleanup"

    def test_percentiles_come_from_its_histogram(self) -> None:
        text = recorded("sysbench-1.0.20-histogram.txt")
        rows = [line.split() for line in text.splitlines() if " |" in line]
        assert sum(int(row[-1]) for row in rows) == 54911, "of all events"
        found = values(parse_text(text))
        assert 0.001e-3 <= found["latency_p50", WRITE] < found["latency_p99", WRITE]
        assert found["latency_p99", WRITE] == pytest.approx(0.42e-3, abs=0.005e-3), "its own"
        assert found["latency_p99", WRITE] < found["latency_p99.9", WRITE]
        assert found["latency_p99.9", WRITE] < found["latency_max", WRITE]
        above = sum(
            int(row[-1]) for row in rows if float(row[0]) > 1e3 * found["latency_p99.9", WRITE]
        )
        assert above <= 54911 / 1000

    def test_a_histogram_that_lost_lines_is_damaged(self) -> None:
        lines = recorded("sysbench-1.0.20-histogram.txt").splitlines(keepends=True)
        rows = [number for number, line in enumerate(lines) if " |" in line]
        for lost in (rows[: len(rows) // 2], rows[len(rows) // 2 :], rows[-1:]):
            text = "".join(line for number, line in enumerate(lines) if number not in lost)
            with pytest.raises(WorkloadError, match=r"histogram holds [0-9]+ of the 54911 events"):
                parse_text(text)

    def test_a_random_write(self) -> None:
        said = Outputs(recorded("sysbench-1.0.20-rndwr.txt"))
        outcome = WORKLOADS["sysbench"].parse(plan("sysbench", mode="rndwr"), said)
        found = values(outcome)
        assert found["bandwidth", WRITE] == 197.96 * MIB
        assert found["iops", WRITE] == 12669.50
        assert found["latency_mean", WRITE] == pytest.approx(2983.55e-3 / 42120)
        assert found["latency_p99", WRITE] == pytest.approx(1.70e-3)
        assert found["latency_max", WRITE] == pytest.approx(70.85e-3)
        assert found["worst_second", WRITE] == 121.63 * MIB
        assert outcome.measured_seconds == 3.0768

    def test_what_is_too_small_to_be_shown_is_left_out(self) -> None:
        found = values(parse_text(recorded("sysbench-1.0.20-seqrd.txt")))
        assert found["bandwidth", READ] == 4036.79 * MIB
        assert ("latency_p99", READ) not in found
        assert not [key for key in found if key[1] is WRITE]

    @pytest.mark.parametrize("mode", ["rndrd", "rndwr", "seqrd", "seqwr"])
    def test_cut_off_anywhere_it_is_refused_or_right(self, mode: str) -> None:
        text = recorded(f"sysbench-1.0.20-{mode}.txt")
        whole = values(parse_text(text))
        for end in range(0, len(text), 7):
            try:
                part = values(parse_text(text[:end]))
            except WorkloadError:
                continue
            assert part.keys() <= whole.keys()
            assert (
                part["bandwidth", part_direction(part)] == whole["bandwidth", part_direction(part)]
            )


def part_direction(found: dict[tuple[str, Direction], float]) -> Direction:
    return next(direction for metric, direction in found if metric == "bandwidth")


class TestBonnie:
    def test_its_file_is_twice_the_guests_memory(self) -> None:
        made = script(plan("bonnie++"))
        command = " ".join(made.command)
        assert command == ("bonnie++ -q -d /mnt/x -s 2048 -r 1024 -n 16 -m one -u root -b")

    def test_a_file_that_fits_into_memory_is_refused(self) -> None:
        with pytest.raises(PlanError, match="fits into the page cache"):
            script(plan("bonnie++", size="1G"))

    def test_a_disk_that_is_too_small(self) -> None:
        small = Subject("/m", GIB, is_device=False, is_directory=True, memory=GIB)
        with pytest.raises(PlanError, match="needs 2048 MiB and") as refused:
            script(plan("bonnie++"), place=small)
        # --scale makes fewer small files, and no smaller large one
        assert refused.value.hint == "choose a larger --size, or a smaller --guest-memory"

    def test_btrfs_needs_room_for_its_metadata_beside_the_file(self) -> None:
        place = Subject("/m", 515 * MIB, is_device=False, is_directory=True, memory=192 * MIB)
        on_btrfs = replace(plan("bonnie++"), filesystem="btrfs")
        with pytest.raises(PlanError, match="needs 640 MiB and the disk has room for 515 MiB"):
            script(on_btrfs, place=place)
        assert script(on_btrfs, place=replace(place, size=640 * MIB)).command
        assert script(plan("bonnie++"), place=place).command

    def test_a_recorded_line(self) -> None:
        said = Outputs(recorded("bonnie-2.00a-fast.csv"))
        outcome = WORKLOADS["bonnie++"].parse(plan("bonnie++"), said)
        assert values(outcome) == {
            ("bandwidth", WRITE): 655017 * 1024,
            ("bandwidth_cpu", WRITE): 0.31,
            ("seq_create", NONE): 7297,
            ("seq_create_cpu", NONE): 0.91,
        }

    def test_characters_and_no_small_files(self) -> None:
        (line,) = parse_csv(recorded("bonnie-2.00a-short.csv"))
        assert (line.name, line.version) == ("path1", "2.00a")
        assert {(s.metric, s.direction): s.value for s in line.samples} == {
            ("per_char", WRITE): 1021 * 1024, ("per_char", READ): 1810 * 1024,
            ("per_char_cpu", WRITE): 0.44, ("per_char_cpu", READ): 0.51,
        }  # fmt: skip

    @pytest.mark.parametrize(
        "text", ["", "1.98,2.00a,host", "x" * 5000, "," * 30, "9.9" + "," * 50]
    )
    def test_what_is_no_csv_of_bonnie(self, text: str) -> None:
        with pytest.raises(WorkloadError):
            parse_csv(text)

    def test_tests_that_were_all_too_short_give_no_number(self) -> None:
        text = recorded("bonnie-2.00a-fast.csv")
        short = text.replace("655017", "+++++").replace("7297", "+++++")
        assert WORKLOADS["bonnie++"].parse(plan("bonnie++"), Outputs(short)).samples == ()

    def test_a_field_that_is_no_number_is_named(self) -> None:
        text = recorded("bonnie-2.00a-fast.csv").replace("655017", "655O17")
        with pytest.raises(WorkloadError, match=r"line 1, field 12 .* is '655O17'"):
            parse_csv(text)


class TestSqlite:
    PLAN = plan("sqlite", journal="wal", transactions=3)
    SAID = (
        "wal\nsynchronous|2\nbegin|1795228995.902|0\n"
        "Run Time: real 0.001 user 0.000000 sys 0.000054\n"
        "Run Time: real 0.000 user 0.000000 sys 0.000041\n"
        "Run Time: real 0.004 user 0.000000 sys 0.000041\nend|1795228995.912|3\n"
    )

    def test_each_row_is_a_transaction(self) -> None:
        made = script(self.PLAN)
        assert made.command == ("sqlite3", "-batch", "/mnt/x/one.db")
        assert made.stdin is not None
        assert made.stdin.count("INSERT INTO") == 3
        assert "BEGIN" not in made.stdin

    def test_transactions_and_latencies(self) -> None:
        found = values(WORKLOADS["sqlite"].parse(self.PLAN, Outputs(self.SAID)))
        assert found["transactions", WRITE] == pytest.approx(300, rel=1e-3)
        assert found["latency_max", WRITE] == 0.004
        assert found["latency_p50", WRITE] == 0.001
        assert ("latency_p99.9", WRITE) not in found

    def test_one_in_a_thousand(self) -> None:
        timed = "".join(f"Run Time: real {n / 1000:.3f} user 0.0 sys 0.0\n" for n in range(1, 1001))
        said = f"wal\nsynchronous|2\nbegin|1795228995.000|0\n{timed}end|1795229496.000|1000\n"
        many = plan("sqlite", journal="wal", transactions=1000)
        found = values(WORKLOADS["sqlite"].parse(many, Outputs(said)))
        assert (found["latency_p99", WRITE], found["latency_p99.9", WRITE]) == (0.990, 0.999)

    @pytest.mark.parametrize(
        ("before", "after"),
        [("wal", "delete"), ("synchronous|2", "synchronous|1"), ("|3", "|2"), ("end", "fin"),
         ("95.912", "95.902"), ("real 0.001", "real ?")],
    )  # fmt: skip
    def test_a_state_that_is_not_confirmed(self, before: str, after: str) -> None:
        with pytest.raises(WorkloadError):
            WORKLOADS["sqlite"].parse(self.PLAN, Outputs(self.SAID.replace(before, after)))


@pytest.mark.parametrize("program", ["dd", "sysbench", "bonnie++", "sqlite"])
def test_a_wrong_setting_is_named(program: str) -> None:
    with pytest.raises(PlanError, match=r"setting"):
        script(plan(program, colour="red"))


@pytest.mark.parametrize(("name", "lacking"), [("mariadb", "mariadbd"), ("rocksdb", "db_bench")])
def test_a_guest_without_the_database_is_refused_in_a_sentence(
    name: str, lacking: str, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("tail", "tr", "rm"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run(
        ["/bin/sh", "-s", "--", "copy", tmp_path / "disk", "none", "1"],
        input=database_script(name), env={"PATH": str(tools)}, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    said = f"there is no {lacking} here: install it in the guest, or leave out --guest"
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "pid_file", "server"),
    [("postgresql", "postmaster.pid", "postgres"), ("mariadb", "mariadbd.pid", "mariadbd")],
)
def test_what_a_killed_server_left_ends_at_once_and_a_person_who_looks_does_not(
    name: str, pid_file: str, server: str, tmp_path: Path
) -> None:
    """Nobody has waited for the dead server, as in a guest whose init does not."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(shutil.which("sleep") or "", tmp_path / server)
    with (
        subprocess.Popen(["true"]) as dead,
        subprocess.Popen([tmp_path / server, "60"], cwd=data) as left,
        subprocess.Popen(["sleep", "60"], cwd=data) as person,
    ):
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        (data / pid_file).write_text(f"{dead.pid}\n")
        try:
            subprocess.run(
                ["/bin/sh", "-s", "--", "stop", tmp_path], input=database_script(name), text=True,
                check=True, timeout=20,
            )  # fmt: skip
            assert left.wait(5) == -signal.SIGKILL
            assert person.poll() is None
        finally:
            left.kill()
            person.kill()
    assert not data.exists()


def test_a_server_that_does_not_start_shows_the_last_lines_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "server.log").write_text("first\nsecond\nthird\nfourth\n")
    done = subprocess.run(
        ["/bin/sh", "-s", "--", "other", tmp_path], text=True, capture_output=True, check=False,
        input=f'{database_script("mariadb")}\nfail "the server does not start"\n',
    )  # fmt: skip
    said = "the server does not start; the last lines of its log: second | third | fourth\n"
    assert (done.returncode, done.stderr) == (1, said)


SETTINGS: dict[str, dict[str, Setting]] = {
    "fio": {"rw": "read", "bs": "4k"},
    "dd": {"bs": "4k", "count": 1},
    "sysbench": {"mode": "rndrd"},
    "bonnie++": {},
    "sqlite": {"journal": "wal"},
    "dpkg": {"system": "short"},
    "boot": {},
    "postgresql": {},
    "mariadb": {"test": "oltp_write_only"},
    "rocksdb": {"benchmark": "fillsync"},
    "discard": {},
}


@given(program=st.sampled_from(sorted(SETTINGS)), out=st.text(), errors=st.text())
def test_no_answer_is_taken_for_another_error(program: str, out: str, errors: str) -> None:
    measurement = plan(program, **SETTINGS[program])
    with pytest.raises(WorkloadError):
        workload_for(measurement).parse(measurement, Outputs(out, errors))

"""The replay of a load: its profile, its command, its report, and the program itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads.loads import SECOND, load
from tests.unit.workload.recorded import recorded
from vdisklab.analysis.diagnostics.ranked import GateMissed
from vdisklab.errors import LoadError, PlanError, WorkloadError
from vdisklab.host.command import PROGRAMS
from vdisklab.loads.folding import folded
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import encode
from vdisklab.loads.replay_plan import encode_plan
from vdisklab.path.architecture import ARCHITECTURES, CHOICE, HOST, Architecture
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import BEGUN_LATE, Direction, Evidence, IoCounters
from vdisklab.units import GIB, MIB
from vdisklab.workload.grouped import BesideRun
from vdisklab.workload.open_load import GroupStart
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.program import Around, Outputs, Subject, Timing
from vdisklab.workload.registry import WORKLOADS, beside_workload_for, grouped_workload_for
from vdisklab.workload.replay import Histogram, load_profile_of, read_report

READ, WRITE, FLUSH, DISCARD = IoKind.READ, IoKind.WRITE, IoKind.FLUSH, IoKind.DISCARD
REPLAY = WORKLOADS["replay"]
TIMED = recorded("replay-1-timed.txt")
FAST = recorded("replay-1-fast.txt")
DISK = Subject("/dev/vda", GIB, is_device=True, scratch="/scratch", mark="-x", memory=GIB)
TIMING = Timing(60, 0)
PLACE = "/scratch/replay-x"


def database(seconds: int = 2) -> RecordedLoad:
    """Three writes and a flush, each 10 ms."""
    requests = [
        (10_000 * turn + 100 * part, (WRITE, WRITE, WRITE, FLUSH)[part],
         (turn * 3 + part) % 90 * 8192 * (part < 3), 8192 * (part < 3), (80, 80, 80, 900)[part])
        for turn in range(seconds * 100)
        for part in range(4)
    ]  # fmt: skip
    return load(*requests, span_us=seconds * SECOND, disk_bytes=300 * GIB)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "My DB.load"
    place.write_bytes(encode(database()))
    return place


def plan(mode: str) -> MeasurementPlan:
    return MeasurementPlan(mode, "replay", {"load": "x.load", "mode": mode})


class TestProfile:
    def test_a_short_load_is_replayed_whole_in_both_ways(self, file: Path) -> None:
        profile = load_profile(str(file))
        assert (profile.name, profile.title) == (
            "my-db.load", "web01 vda, as recorded: 800 requests in 2 s",
        )  # fmt: skip
        assert [measurement.name for measurement in profile.measurements] == ["timed", "fast"]
        assert profile.usual.runtime == 2
        assert profile.usual.size_bytes == GIB

    def test_a_long_load_is_replayed_in_two_parts(self, tmp_path: Path) -> None:
        place = tmp_path / "long.load"
        place.write_bytes(encode(database(100)))
        names = [measurement.name for measurement in load_profile_of(str(place)).measurements]
        assert names == ["timed-busiest", "fast-busiest", "timed-typical", "fast-typical"]

    def test_a_minute_and_a_little_is_replayed_whole(self, tmp_path: Path) -> None:
        """As `record --for 1m` makes it."""
        place = tmp_path / "minute.load"
        place.write_bytes(encode(database(62)))
        profile = load_profile_of(str(place))
        assert [measurement.name for measurement in profile.measurements] == ["timed", "fast"]
        assert profile.usual.runtime == 62

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(LoadError, match=r"the load no\.load cannot be read: No such file"):
            load_profile("no.load")

    def test_a_file_that_is_no_load(self, tmp_path: Path) -> None:
        (tmp_path / "x.load").write_text("hello")
        with pytest.raises(LoadError, match="is not a load file"):
            load_profile(str(tmp_path / "x.load"))


COMPILER = """
import sys
from tests.unit.workload.test_replay import DISK, REPLAY, TIMING
from vdisklab.workload.replay import load_profile_of

timed, _ = load_profile_of(sys.argv[1]).measurements
files = REPLAY.files(timed, DISK, TIMING)
print(*files.programs, *files.arguments)
"""


class TestScript:
    @pytest.mark.parametrize("guest", ARCHITECTURES, ids=lambda row: row.name)
    def test_it_is_compiled_for_the_guests(self, file: Path, guest: Architecture) -> None:
        done = subprocess.run(
            [sys.executable, "-c", COMPILER, file], env={**os.environ, CHOICE: guest.name},
            capture_output=True, text=True, check=True, timeout=120, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        compiler = "cc" if guest is HOST else guest.cross_compiler
        assert done.stdout.split() == [compiler] * 2
        assert compiler in PROGRAMS

    def test_the_steps(self, file: Path) -> None:
        timed, fast = load_profile(str(file)).measurements
        made = REPLAY.script(timed, DISK, TIMING)
        assert made.command == (
            "sh", "-s", "--", "run", PLACE, "the whole recording, 2 s", "where they were recorded",
            "timed", "/dev/vda", "12.500",
        )  # fmt: skip
        assert made.expected == 2
        files = REPLAY.files(timed, DISK, TIMING)
        assert files is not None
        assert len(files.name) == 19, "a disk's serial number has 20 characters at most"
        assert made.prepare[0].command[3:] == ("unpack", PLACE, files.name, "/dev/vda")
        assert made.conclude[0].command[3:] == ("remove", PLACE, "/dev/vda")
        of_both = REPLAY.files(fast, DISK, TIMING)
        assert of_both is not None
        assert of_both.name == files.name
        assert files.given["plan"]() == encode_plan(database(), folded(database(), GIB))

    def test_another_disk_has_another_plan(self, file: Path) -> None:
        timed, _ = load_profile(str(file)).measurements
        small = Subject(
            "/dev/vda", 64 * MIB, is_device=True, scratch="/scratch", mark="-x", memory=GIB
        )
        names = {getattr(REPLAY.files(timed, row, TIMING), "name", "") for row in (DISK, small)}
        assert len(names) == 2

    def test_a_directory(self, file: Path) -> None:
        timed, _ = load_profile(str(file)).measurements
        place = Subject("/mnt", GIB, is_device=False, is_directory=True)
        with pytest.raises(PlanError, match="needs the disk itself"):
            REPLAY.script(timed, place, TIMING)

    def test_too_little_memory(self, file: Path) -> None:
        timed, _ = load_profile(str(file)).measurements
        small = Subject("/dev/vda", GIB, is_device=True, memory=64 * MIB)
        with pytest.raises(PlanError, match="needs 109 MiB of memory"):
            REPLAY.script(timed, small, TIMING)


HEAD = "part the whole recording, 2 s\nplaces where they were recorded\n"


class TestReport:
    def test_timed(self) -> None:
        outcome = REPLAY.parse(plan("timed"), Outputs(TIMED))
        values = {(sample.metric, sample.direction): sample.value for sample in outcome.samples}
        assert outcome.counted == IoCounters(0, 4915200, 0, 600, 200)
        assert 0.00001 < values["latency_p50", Direction.WRITE] < 0.1
        assert values["latency_p50", Direction.WRITE] <= values["latency_p99", Direction.WRITE]
        assert values["sync_mean", Direction.WRITE] > 0
        assert not {"iops", "bandwidth"} & {metric for metric, _ in values}

    def test_fast(self) -> None:
        outcome = REPLAY.parse(plan("fast"), Outputs(FAST))
        values = {(sample.metric, sample.direction): sample.value for sample in outcome.samples}
        seconds = values["duration", Direction.NONE]
        assert values["iops", Direction.NONE] == pytest.approx(800 / seconds)
        assert outcome.measured_seconds == seconds

    def test_it_says_whether_the_path_kept_up(self) -> None:
        outcome = REPLAY.parse(plan("timed"), Outputs(TIMED))
        qemu = IoCounters(0, 4915200, 0, 650, 200)
        around = Around(Evidence(qemu=qemu), None, 2, parse_path("raw/none"))
        kept_up, same = REPLAY.gates(plan("timed"), outcome, around)
        assert (kept_up.name, kept_up.met) == (BEGUN_LATE, True)
        assert not same.met
        late = TIMED.replace("bin late", "bin lost").replace("kind late", "kind lost")
        with pytest.raises(WorkloadError, match="unknown line"):
            read_report(late)

    @pytest.mark.parametrize("cut_at", [0, 1, 5, -1])
    def test_a_report_that_is_cut_off(self, cut_at: int) -> None:
        text = "\n".join(TIMED.splitlines()[:cut_at])
        with pytest.raises(WorkloadError, match="the replay did not finish"):
            read_report(text)

    def test_a_histogram_that_lacks_values(self) -> None:
        lines = [line for line in TIMED.splitlines() if not line.startswith("bin write")]
        with pytest.raises(WorkloadError, match="histogram of write is incomplete"):
            read_report("\n".join(lines))

    @given(st.lists(st.integers(0, 5000)))
    def test_a_mutilated_report_is_an_error_or_numbers(self, places: list[int]) -> None:
        text = list(TIMED)
        for place in places:
            text[place % len(text)] = "7"
        with suppress(WorkloadError):
            read_report("".join(text))


class TestGroup:
    START = GroupStart(1.5, 1)

    def test_a_guest_of_a_group_starts_later_and_logs(self, file: Path) -> None:
        timed, _ = load_profile(str(file)).measurements
        made = grouped_workload_for(timed).group_script(timed, DISK, Timing(5, 1), self.START)
        assert made.command[-6:] == (
            "timed", "/dev/vda", "6.000", "1.500", f"{PLACE}/requests.log", "again",
        )  # fmt: skip
        assert made.collect == (f"{PLACE}/requests.log",)
        assert made.prepare

    def test_its_requests(self) -> None:
        log = "0 150 1 4096\n2000 9000 2 0\n3000000 -1 0 512\n7000000 -1 0 512\n"
        output = Outputs(TIMED, "", {"log": log})
        found = grouped_workload_for(plan("timed")).group_requests(
            plan("timed"), output, Timing(5, 1), self.START
        )
        assert found.end - found.start == pytest.approx(6)
        assert [request.latency for request in found.requests] == [150e-6, 9e-3, None]
        assert [request.direction for request in found.requests] == [
            Direction.WRITE, Direction.NONE, Direction.READ,
        ]  # fmt: skip

    def test_a_damaged_log(self) -> None:
        output = Outputs(TIMED, "", {"log": "0 150 9 4096\n"})
        with pytest.raises(WorkloadError, match="a line of the replay's log is damaged"):
            grouped_workload_for(plan("timed")).group_requests(
                plan("timed"), output, Timing(5, 1), self.START
            )

    def test_a_program_that_logs_nothing(self) -> None:
        with pytest.raises(PlanError, match="does not log its requests"):
            grouped_workload_for(MeasurementPlan("x", "dd", {}))


class TestBeside:
    RUN = BesideRun(120, 60, None, GroupStart(2, 1))

    def test_it_repeats_the_part_that_a_plan_has_brought(self, file: Path) -> None:
        timed, _ = load_profile(str(file)).measurements
        made = beside_workload_for(timed).beside_script(timed, DISK, self.RUN)
        assert made.command[-6:] == (
            "timed", "/dev/vda", "120.000", "2.000", f"{PLACE}/requests.log", "again",
        )  # fmt: skip
        assert made.prepare == REPLAY.script(timed, DISK, TIMING).prepare

    def test_its_requests_end_with_it(self) -> None:
        output = Outputs(TIMED, "", {"log": "0 150 1 4096\n2000000 9 2 0\n7000000 -1 0 512\n"})
        workload = beside_workload_for(plan("timed"))
        found = workload.beside_requests(plan("timed"), output, self.RUN, 5.0)
        assert found.end - found.start == pytest.approx(5)
        assert len(found.requests) == 2

    def test_only_what_was_due_at_known_moments(self) -> None:
        for refused in (plan("fast"), MeasurementPlan("x", "dd", {})):
            with pytest.raises(PlanError, match="fio or a recorded load"):
                beside_workload_for(refused)


def test_histograms_add_up() -> None:
    first, other = Histogram(2, 0, 30, 20, {10: 1, 20: 1}), Histogram(1, 0, 20, 20, {20: 1})
    both = first + other
    assert both == Histogram(3, 0, 50, 20, {10: 1, 20: 2})
    assert both.percentile(0.5) == 20e-9
    assert both.share_above(15e-9) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def replayer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    source = Path(__file__).parents[3] / "src/vdisklab/workload/programs/replay.c"
    program = tmp_path_factory.mktemp("replay") / "replay"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source], check=True
    )
    return program


def replayed(
    replayer: Path,
    directory: Path,
    mode: str,
    recording: RecordedLoad,
    limit: float = 60,
    *more: str,
) -> tuple[str, list[tuple[int, ...]]]:
    """The report and the lines of the log: due, taken, kind, bytes."""
    disk, requests, log = directory / "disk", directory / "plan", directory / "log"
    disk.write_bytes(bytes(2 * MIB))
    requests.write_bytes(encode_plan(recording, folded(recording, 2 * MIB)))
    command: list[str | Path] = [replayer, mode, requests, disk, str(limit), "0", log, *more]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return HEAD + ended.stdout, [
        tuple(map(int, line.split())) for line in log.read_text().splitlines()
    ]


_LOGGED_SUBMISSIONS = """
#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
long syscall(long number, ...) {{
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    FILE *log = number == SYS_io_submit ? fopen("{}", "a") : NULL;
    for (int i = 0; log && i < a[1]; i++) {{
        struct iocb *request = ((struct iocb **)a[2])[i];
        fprintf(log, "%lld %llu\\n", (long long)request->aio_offset,
                (unsigned long long)request->aio_buf);
    }}
    if (log)
        fclose(log);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}}
"""


def with_preloaded(replayer: Path, directory: Path, code: str) -> Path:
    """The replayer, with functions of this C code in place of the C library's."""
    library, program = directory / "preloaded.so", directory / "replay"
    compiler: list[str | Path] = ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library]
    subprocess.run([*compiler, "-xc", "-", "-ldl"], check=True, input=code, text=True)
    program.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {replayer} "$@"\n')
    program.chmod(0o755)
    return program


def sectors_written(disk: Path) -> int:
    """The sectors of a disk of zeros that hold anything else by now."""
    content = np.frombuffer(disk.read_bytes(), np.uint8).reshape(-1, 512)
    return int(np.count_nonzero(content.any(axis=1)))


class TestProgram:
    @pytest.mark.parametrize("mode", ["timed", "fast"])
    def test_it_does_every_request_once(self, replayer: Path, tmp_path: Path, mode: str) -> None:
        recording = load(
            *((i * 100, (READ, WRITE, WRITE, FLUSH)[i % 4], i % 4 // 3 * 0 if i % 4 == 3 else
               i * 512, 0 if i % 4 == 3 else 512, 50) for i in range(400)),
            disk_bytes=2 * MIB,
        )  # fmt: skip
        text, log = replayed(replayer, tmp_path, mode, recording)
        report = read_report(text)
        assert report.is_complete
        assert report.counted == IoCounters(100 * 512, 200 * 512, 100, 200, 100)
        assert [row[2] for row in log] == recording.kind.tolist()
        disk = np.frombuffer((tmp_path / "disk").read_bytes(), np.uint8).reshape(-1, 512)
        written = {i for i in range(400) if i % 4 in (1, 2)}
        assert {int(i) for i in np.flatnonzero(disk.any(axis=1))} == written

    def test_forced_writes(self, replayer: Path, tmp_path: Path) -> None:
        recording = load(*((i * 100, WRITE, i * 512, 512, 50, i % 2 == 1) for i in range(100)))
        text, _ = replayed(replayer, tmp_path, "fast", recording)
        report = read_report(text)
        assert report.counted == IoCounters(0, 100 * 512, 0, 100, 50)
        on_nvme = text.replace("\nkind ", "\nfua 1\nkind ", 1)
        assert read_report(on_nvme).counted == IoCounters(0, 100 * 512, 0, 100, 0)
        disk = np.frombuffer((tmp_path / "disk").read_bytes(), np.uint8).reshape(-1, 512)
        assert disk[:100].any(axis=1).all()

    def test_timed_requests_begin_when_they_are_due(self, replayer: Path, tmp_path: Path) -> None:
        text, log = replayed(replayer, tmp_path, "timed", database(1))
        assert [row[0] for row in log] == database(1).due_us.tolist()
        assert read_report(text).measured_seconds >= 0.99

    def test_think_times_stay_and_waiting_goes(self, replayer: Path, tmp_path: Path) -> None:
        """Each request took 100 ms and the client 10 ms: here only the client's time is left."""
        recording = load(
            *((i * 110_000, READ, 0, 512, 100_000) for i in range(20)), span_us=3 * SECOND
        )
        text, log = replayed(replayer, tmp_path, "fast", recording)
        assert read_report(text).numbers["deepest"] == 1
        moments = [row[0] for row in log]
        gaps = np.diff(moments)
        assert (gaps >= 10_000).all(), "the think time"
        assert moments[-1] < 20 * 110_000, "the recorded waiting is gone"

    def test_a_flush_comes_after_its_writes(self, replayer: Path, tmp_path: Path) -> None:
        _, log = replayed(replayer, tmp_path, "fast", database(1))
        ends = [due + took for due, took, _, _ in log]
        for place in range(3, len(log), 4):
            assert log[place][2] == FLUSH
            assert log[place][0] >= max(ends[place - 3 : place]) - 1, "rounded to microseconds"

    def test_a_timed_flush_does_not_overtake_its_writes(
        self, replayer: Path, tmp_path: Path
    ) -> None:
        """Each write took a microsecond in the recording, and takes longer here."""
        requests = [
            (turn * 20_000 + part, WRITE if part < 8 else FLUSH, 0, MIB * (part < 8), 1)
            for turn in range(5)
            for part in (*range(8), 9)
        ]
        _, log = replayed(replayer, tmp_path, "timed", load(*requests, disk_bytes=2 * MIB))
        ends = [due + took for due, took, _, _ in log]
        for place in range(8, len(log), 9):
            assert log[place][2] == FLUSH
            assert ends[place] >= max(ends[place - 8 : place]) - 1, "rounded to microseconds"

    def test_what_follows_a_flush_at_once_does_not_overtake_it(
        self, replayer: Path, tmp_path: Path
    ) -> None:
        """The client waited for the flush, which took 2 µs in the recording."""
        requests = [
            (turn * 20_000 + due, kind, place, length, 2)
            for turn in range(20)
            for due, kind, place, length in (
                (0, WRITE, turn * 4096, 4096), (10, FLUSH, 0, 0), (13, WRITE, MIB, 512),
            )
        ]  # fmt: skip
        _, log = replayed(replayer, tmp_path, "timed", load(*requests, disk_bytes=2 * MIB))
        ends = [due + took for due, took, _, _ in log]
        for place in range(1, len(log), 3):
            assert [log[place][2], log[place + 1][2]] == [FLUSH, WRITE]
            assert ends[place + 1] >= ends[place] - 1, "rounded to microseconds"

    def test_requests_submitted_at_once_are_submitted_in_their_order(
        self, replayer: Path, tmp_path: Path
    ) -> None:
        """The last write came 90 µs after the first, so it is not one of them: it has a thread."""
        submitted = tmp_path / "submitted"
        preloaded = with_preloaded(replayer, tmp_path, _LOGGED_SUBMISSIONS.format(submitted))
        places = (3 * 4096, 8 * 4096, 0, 4096)
        requests = [
            (turn * 20_000 + 4 * part, READ if part < 2 else WRITE, place, 4096, 50)
            for turn in range(10)
            for part, place in (*enumerate(places), (23, MIB))
        ]
        recording = load(*requests, disk_bytes=2 * MIB)
        text, log = replayed(preloaded, tmp_path, "timed", recording)
        assert all(took >= 0 for _, took, _, _ in log)
        if not read_report(text).numbers["direct"]:
            pytest.skip("the file system has no direct I/O")
        found = [tuple(map(int, line.split())) for line in submitted.read_text().splitlines()]
        for turn in range(10):
            burst = found[4 * turn : 4 * turn + 4]
            assert tuple(place for place, _ in burst) == places
            assert len({memory for _, memory in burst}) == 4
        assert len(found) == 40

    @pytest.mark.parametrize(("think_us", "waits"), [(40_000, True), (70_000, False)])
    def test_it_waits_for_a_flush_that_it_followed_within_the_time_of_the_flush(
        self, replayer: Path, tmp_path: Path, *, think_us: int, waits: bool
    ) -> None:
        """The flush took 50 ms in the recording, and takes 200 here."""
        code = "#include <unistd.h>\nint fdatasync(int fd) { (void)fd; return usleep(200000); }\n"
        preloaded = with_preloaded(replayer, tmp_path, code)
        requests = [(10, FLUSH, 0, 0, 50_000), (50_010 + think_us, WRITE, MIB, 512, 2)]
        recording = load(*requests, disk_bytes=2 * MIB)
        _, ((_, flush, _, _), (due, took, _, _)) = replayed(preloaded, tmp_path, "timed", recording)
        assert flush >= 200_000
        assert (due + took >= flush) == waits

    def test_no_request_begins_after_the_limit(self, replayer: Path, tmp_path: Path) -> None:
        text, log = replayed(replayer, tmp_path, "timed", database(60), limit=0.2)
        report = read_report(text)
        assert not report.is_complete
        assert any(took == -1 for _, took, _, _ in log)
        assert report.measured_seconds < 30

    def test_a_plan_begins_again_until_the_limit(self, replayer: Path, tmp_path: Path) -> None:
        recording = load((0, WRITE, 0, 512, 9), (50_000, FLUSH, 0, 0, 9), span_us=100_000)
        _, log = replayed(replayer, tmp_path, "timed", recording, 0.35, "again")
        assert [row[0] for row in log if row[1] >= 0] == [0, *range(50_000, 350_000, 50_000)]
        text, log = replayed(replayer, tmp_path, "fast", recording, 0.35, "again")
        assert len([row for row in log if row[1] >= 0]) >= 6
        assert read_report(text).numbers["deepest"] == 1

    @pytest.mark.parametrize("mode", ["timed", "fast"])
    def test_an_interrupt_ends_it_with_its_report(
        self, replayer: Path, tmp_path: Path, mode: str
    ) -> None:
        requests, log = tmp_path / "plan", tmp_path / "log"
        # The last request is due long after the interrupt, and a thread sleeps until then.
        recording = load(
            *((10_000 * turn, WRITE, 4096 * turn, 512, 9) for turn in range(100)),
            (50_000_000, WRITE, 0, 512, 9), span_us=60_000_000,
        )  # fmt: skip
        requests.write_bytes(encode_plan(recording, folded(recording, 2 * MIB)))
        disk = tmp_path / "disk"
        command: list[str | Path] = [replayer, mode, requests, disk, "120", "0", log, "again"]
        disk.write_bytes(bytes(2 * MIB))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            waiting_until = time.monotonic() + 40
            while (written := sectors_written(disk)) < 8 and time.monotonic() < waiting_until:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=40)
        assert process.returncode == 0
        assert written >= 8
        report = read_report(HEAD + printed)
        assert 0 < report.measured_seconds < 45
        done = [line for line in log.read_text().splitlines() if " -1 " not in line]
        assert len(done) == report.numbers["done"] >= written

    def test_discards_and_zeroes(self, replayer: Path, tmp_path: Path) -> None:
        recording = load(
            (0, WRITE, 0, 8192, 9), (100, DISCARD, 4096, 4096, 9),
            (200, IoKind.WRITE_ZEROES, 0, 4096, 9),
        )  # fmt: skip
        text, _ = replayed(replayer, tmp_path, "fast", recording)
        refused = read_report(text).numbers["refused"]
        content = (tmp_path / "disk").read_bytes()[:8192]
        assert refused or not any(content)

    def test_a_request_beyond_the_end(self, replayer: Path, tmp_path: Path) -> None:
        recording = load((0, READ, MIB, 4096, 9))
        (tmp_path / "disk").write_bytes(bytes(4096))
        (tmp_path / "plan").write_bytes(encode_plan(recording, folded(recording, 2 * MIB)))
        command: list[str | Path] = [replayer, "timed", tmp_path / "plan", tmp_path / "disk", "5"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        assert "1 requests failed; the first was the read of 4096 bytes at 1048576" in ended.stderr

    def test_a_plan_that_is_cut_off(self, replayer: Path, tmp_path: Path) -> None:
        recording = database(1)
        content = encode_plan(recording, folded(recording, 2 * MIB))
        (tmp_path / "plan").write_bytes(content[:-1])
        (tmp_path / "disk").write_bytes(bytes(2 * MIB))
        command: list[str | Path] = [replayer, "timed", tmp_path / "plan", tmp_path / "disk", "5"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        assert "Invalid argument" in ended.stderr


def test_a_path_that_did_not_keep_up_is_said_so() -> None:
    cell = MeasuredCell.parse("raw/none")
    late = GateMissed(BEGUN_LATE, "0.2, at most 0.01", (cell,), ("timed",), only_said=True)
    assert str(late) == (
        "The recorded load came faster than it was done, so latencies hold waiting: share of "
        "requests begun over 5 ms late 0.2, not at most 0.01 (raw/none in timed)."
    )

"""fio: jobs, the user's own job files, and how a run went."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import Direction
from vdisklab.units import GIB
from vdisklab.value import replace
from vdisklab.workload.fio import Fio
from vdisklab.workload.fio_report import outcome_of, read_report
from vdisklab.workload.fiojob import groups, job_profile, reach
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import LoggedRun, Outputs, Subject, Timing, read_log

READ, WRITE, NONE = Direction.READ, Direction.WRITE, Direction.NONE
DISK = Subject("/dev/vdb", GIB, is_device=True)
FILES = Subject("/mnt/x", GIB, is_device=False, is_directory=True)


def fio(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", "fio", settings)


def command(measurement: MeasurementPlan, place: Subject = DISK) -> tuple[str, ...]:
    return Fio().script(measurement, place, Timing(5, 0.5)).command


class TestJobs:
    def test_a_timed_job_on_the_disk(self) -> None:
        made = Fio().script(fio(rw="randread", bs="4k"), DISK, Timing(5, 0.5))
        assert {"--filename=/dev/vdb", "--time_based=1", "--runtime=5000ms"} <= set(made.command)
        assert made.collect == (f"{DISK.scratch}/one_bw.log",)

    def test_a_log_that_comes_with_the_answer_is_not_read_back(self) -> None:
        place = replace(DISK, stderr_log="/lib/stderr", mark="-1")
        made = Fio().script(fio(rw="randread", bs="4k"), place, Timing(5, 0.5))
        assert "--write_bw_log=/lib/stderr" in made.command
        assert made.collect == ()

    def test_the_articles_forty_jobs_each_have_a_file(self) -> None:
        forty = fio(rw="write", bs="4k", size="10M", numjobs=40, time_based=False)
        options = command(forty, FILES)
        assert {"--directory=/mnt/x", "--size=10485760", "--numjobs=40"} <= set(options)
        assert "--time_based=1" not in options

    def test_jobs_on_one_disk_keep_apart(self) -> None:
        options = command(fio(rw="write", bs="4k", size="10M", numjobs=4, time_based=False))
        assert "--offset_increment=10485760" in options

    def test_a_disk_that_is_too_small(self) -> None:
        with pytest.raises(PlanError, match="needs 4000 MiB and the disk has room for 1024 MiB"):
            command(fio(rw="write", bs="4k", size="100M", numjobs=40, time_based=False))

    def test_buffers_that_the_guests_memory_cannot_hold(self) -> None:
        small = replace(DISK, memory=256 << 20)
        many = fio(rw="write", bsrange="4k-1M", iodepth=32, numjobs=40, size="1M", time_based=False)
        with pytest.raises(PlanError, match="needs 1376 MiB of memory and the guest has 256 MiB"):
            command(many, small)

    @pytest.mark.parametrize(
        "settings", [{"rw": "read"}, {"bs": "4k"}, {"rw": "read", "bs": "4k", "bsrange": "1k-2k"},
                     {"rw": "read", "bsrange": "4k"}, {"rw": "fly", "bs": "4k"}],
    )  # fmt: skip
    def test_settings_that_make_no_job(self, settings: dict[str, Setting]) -> None:
        with pytest.raises(PlanError):
            command(fio(**settings))


class TestAnswers:
    def test_three_jobs_and_their_series(self) -> None:
        log = recorded("fio-3.33-3jobs_bw.log")
        outcome = Fio().parse(fio(), Outputs(recorded("fio-3.33-3jobs.json"), "", {"bw": log}))
        (series,) = outcome.series
        assert len(series.values) == 3
        assert outcome.counted is not None
        # What the log lacks at its end was added from fio's own total.
        assert sum(series.values) == pytest.approx(outcome.counted.write_bytes, rel=0.01)
        found = {sample.metric: sample.value for sample in outcome.samples}
        assert found["worst_second"] == min(series.values)
        assert found["longest_stall"] == 0.0

    def test_the_course_by_a_log_among_other_things_that_were_said(self) -> None:
        report, log = recorded("fio-3.33-3jobs.json"), recorded("fio-3.33-3jobs_bw.log")
        first, *rest = log.splitlines()
        said = "\n".join(["fio: a note", first, "note: 5, 6", *rest, "500, 1, 0", "done"])
        read_back = Fio().parse(fio(), Outputs(report, "", {"bw": log}))
        assert Fio().parse(fio(), Outputs(report, said)) == read_back
        assert read_back.series

    def test_without_a_log_there_is_no_series(self) -> None:
        outcome = Fio().parse(fio(), Outputs(recorded("fio-3.33-3jobs.json"), "fio: 1, 2\n"))
        assert outcome.series == ()
        assert "worst_second" not in {sample.metric for sample in outcome.samples}

    def test_a_frozen_file_system_is_a_stall(self) -> None:
        # fsfreeze(8) held it for 1.8 s from the second one on
        log = recorded("fio-3.33-frozen_bw.log")
        outcome = Fio().parse(fio(), Outputs(recorded("fio-3.33-frozen.json"), "", {"bw": log}))
        found = {sample.metric: sample.value for sample in outcome.samples}
        assert found["longest_stall"] == pytest.approx(1.8, abs=0.15)
        assert found["latency_max"] == pytest.approx(1.87, abs=0.01)
        assert found["worst_second"] == 0.0

    def test_both_directions(self) -> None:
        log = recorded("fio-3.33-randrw_bw.log")
        outcome = Fio().parse(fio(), Outputs(recorded("fio-3.33-randrw.json"), "", {"bw": log}))
        assert {series.direction for series in outcome.series} == {READ, WRITE}
        stalls = [sample for sample in outcome.samples if sample.metric == "longest_stall"]
        assert [stall.direction for stall in stalls] == [NONE]

    def test_a_short_end_is_no_stall_and_a_long_one_is(self) -> None:
        log = "".join(f"{100 * index}, 1000, 0, 0, 0\n" for index in range(1, 10))
        whole = {READ: 1_000_000}
        short = read_log(log, LoggedRun(0.1, 1.0, whole, 0.001))
        found = {sample.metric: sample.value for sample in short.samples}
        assert found["longest_stall"] == 0.0
        assert sum(short.series[0].values) == pytest.approx(1_000_000)
        long = read_log(log, LoggedRun(0.1, 3.0, {READ: 9 * 102_400}, 2.2))
        found = {sample.metric: sample.value for sample in long.samples}
        assert found["longest_stall"] == pytest.approx(2.1)
        assert found["worst_second"] == 0.0

    @pytest.mark.parametrize(
        "line", ["1000", "x, 1, 0", "1000, 5, 9", "-1, 5, 0", "1000, -5, 0", "1000, 5, -1"]
    )
    def test_a_damaged_log_is_named(self, line: str) -> None:
        with pytest.raises(WorkloadError, match="line 2 of fio's bandwidth log"):
            read_log(f"500, 1, 0, 0, 0\n{line}\n", LoggedRun(0.1, 5, {}, 1.0))

    def test_json_without_plus(self) -> None:
        (job,) = read_report(recorded("fio-3.33-plain.json")).jobs
        outcome = outcome_of([job])
        assert job.jobname == "plain"
        assert {sample.metric for sample in outcome.samples} >= {"iops", "latency_p99.9"}

    @given(st.data())
    def test_a_mutilated_report_is_refused_or_read(self, data: st.DataObject) -> None:
        text = recorded("fio-3.33-plain.json")
        place = data.draw(st.integers(0, len(text) - 1))
        put = data.draw(st.sampled_from(["", "}", "null", "-", "\0", '"']))
        mutilated = text[:place] + put + text[place + data.draw(st.integers(0, 40)) :]
        with suppress(WorkloadError):
            outcome_of(read_report(mutilated).jobs)


JOB = """
; a comment
[global]
rw=randread
bs=4k
runtime=30
time_based

[one]
[two]
stonewall
rw=randwrite
"""


class TestJobFiles:
    def test_groups_become_measurements(self) -> None:
        profile = job_profile(JOB, "/home/me/My Job.fio")
        assert profile.name == "my-job"
        assert [each.name for each in profile.measurements] == ["one", "two"]
        made = Fio().script(profile.measurements[1], DISK, Timing(5, 0))
        assert made.stdin == JOB
        assert made.command[-2:] == ("--section=two", "-")
        assert "--filename=/dev/vdb" in made.command
        assert made.timeout > 30

    @pytest.mark.parametrize(
        "line",
        ["filename=/dev/sda", "filename=../x", "filename=a:/dev/sda", "directory=/etc",
         "exec_prerun=rm -rf /", "write_bw_log=/etc/x", "ioengine=external:/tmp/x.so",
         "include /etc/passwd", "filename=${HOME}", "read_iolog=/x", "ioengine=net",
         "opendir=/etc", "aux-path=/", "FILENAME=/dev/sda", "size=`id`"],
    )  # fmt: skip
    def test_a_job_that_could_reach_outside_is_refused(self, line: str) -> None:
        with pytest.raises(PlanError) as caught:
            groups(f"[global]\nrw=write\n[one]\n{line}\n", "x.fio")
        assert caught.value.hint

    def test_a_name_of_a_file_needs_a_directory(self) -> None:
        profile = job_profile("[one]\nfilename=test\nrw=write\n", "x.fio")
        with pytest.raises(PlanError, match="not on the measured disk"):
            command(profile.measurements[0])
        assert "--directory=/mnt/x" in command(profile.measurements[0], FILES)

    @pytest.mark.parametrize("name", ["globalx", "global2", "Global", "GLOBALS"])
    def test_names_that_fio_takes_for_global(self, name: str) -> None:
        with pytest.raises(PlanError, match=r"fio treats a job with that name as \[global\]"):
            groups(f"[{name}]\noffset=60M\n[a]\nrw=write\nsize=60M\n", "x.fio")

    @pytest.mark.parametrize("job", ["", "rw=read", "[global]\nrw=read", "[/etc/x]\nrw=read"])
    def test_what_is_no_job_file(self, job: str) -> None:
        with pytest.raises(PlanError):
            groups(job, "x.fio")

    @given(st.text())
    def test_any_text_is_a_job_file_or_an_error(self, text: str) -> None:
        with suppress(PlanError):
            groups(text, "x.fio")


def test_the_json_is_the_programs_own() -> None:
    assert json.loads(recorded("fio-3.33-3jobs.json"))["fio version"] == "fio-3.33"


def test_syncs_have_latencies_of_their_own() -> None:
    text = recorded("fio-3.33-fsync.json")
    outcome = outcome_of(read_report(text).jobs)
    found = {sample.metric: sample.value for sample in outcome.samples}
    sync = json.loads(text)["jobs"][0]["sync"]["lat_ns"]
    assert found["sync_mean"] == pytest.approx(sync["mean"] / 1e9)
    assert found["sync_p99"] == pytest.approx(sync["percentile"]["99.000000"] / 1e9)


class TestReach:
    """What a job file may write to: fio makes a file of the host as large as a job says."""

    @pytest.mark.parametrize(
        "options",
        [
            "size=1025M", "size=101%", "size=150000%", "offset=1M", "offset=50%",
            "size=1G\noffset=4k", "size=600M\noffset_increment=500M\nnumjobs=2",
            "filesize=512M-2G", "filesize=300M\nnrfiles=4",
        ],
    )  # fmt: skip
    def test_jobs_that_go_beyond_the_end_are_refused(self, options: str) -> None:
        with pytest.raises(PlanError, match=r"needs \d+ MiB, and the disk has room for 1024 MiB"):
            command(fio(job=f"[a]\nrw=write\n{options}\n"))

    @pytest.mark.parametrize(
        "options", ["", "size=100%", "size=50%\noffset=50%", "size=1G", "io_size=5G", "loops=9"]
    )
    def test_jobs_within_it_are_not(self, options: str) -> None:
        made = command(fio(job=f"[a]\nrw=write\n{options}\n"))
        assert "--verify_state_save=0" in made

    def test_files_in_a_directory_are_summed_up(self) -> None:
        made = command(fio(job="[a]\nrw=write\nnumjobs=3\n[b]\nrw=read"), FILES)
        assert f"--size={GIB // 8}" in made
        with pytest.raises(PlanError, match="needs 1200 MiB, and the disk has room for 921 MiB"):
            command(fio(job="[global]\nsize=400M\n[a]\nrw=write\nnumjobs=3\n"), FILES)
        with pytest.raises(PlanError, match="needs 1200 MiB"):
            command(fio(job="[global]\nsize=600M\n[a]\nrw=write\n[b]\nrw=read"), FILES)
        shared = "[global]\nsize=800M\nfilename=x\n[a]\nrw=write\nnumjobs=3\n[b]\nrw=read\n"
        command(fio(job=shared), FILES)

    def test_each_job_of_a_directory_begins_later_by_the_increment(self) -> None:
        later = "[a]\nrw=write\nsize=1M\noffset_increment=200M\nnumjobs=3\n"
        # Files of 1, 201 and 401 MiB; with one name for all, the last is as long as that.
        assert reach(later, (), GIB, GIB, in_directory=True) == 603 << 20
        only = reach(f"{later}filename=x\n", (), GIB, GIB, in_directory=True)
        assert only == reach(later, (), GIB, GIB, in_directory=False) == 401 << 20

    def test_only_the_jobs_of_the_measurement_count(self) -> None:
        job = "[a]\nrw=write\nsize=1M\n[b]\nstonewall\nrw=write\nsize=2G\n"
        command(fio(job=job, sections=("a",)))
        with pytest.raises(PlanError, match="needs 2048 MiB"):
            command(fio(job=job, sections=("b",)))

    @pytest.mark.parametrize("option", ["size=much", "numjobs=two", "numjobs=-1", "nrfiles=٣"])
    def test_what_cannot_be_summed_up_is_refused(self, option: str) -> None:
        with pytest.raises(PlanError, match=f"the job file's {option} is not a"):
            command(fio(job=f"[a]\nrw=write\n{option}\n"))

    @pytest.mark.parametrize("option", ["fill_device=1", "unlink=1", "verify_state_save=1"])
    def test_options_that_reach_beyond_are_not_let_through(self, option: str) -> None:
        with pytest.raises(PlanError, match="is not allowed"):
            command(fio(job=f"[a]\nrw=write\n{option}\n"))


def test_a_synchronous_engine_counts_its_syncs_by_their_latencies_alone() -> None:
    """fio 3.33 gives `total_ios` 0 for fdatasync with the engine `sync`, as in etcd's job."""
    text = recorded("fio-3.33-etcd.json")
    sync = json.loads(text)["jobs"][0]["sync"]
    assert sync["total_ios"] == 0
    (report,) = recognise(text)
    found = {sample.metric: sample.value for sample in report.results[0].outcome.samples}
    assert found["sync_p99"] == pytest.approx(sync["lat_ns"]["percentile"]["99.000000"] / 1e9)

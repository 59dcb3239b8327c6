"""fio's command line, and its report read from recordings of fio 3.33."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import METRICS, Direction
from vdisklab.value import replace
from vdisklab.workload.fio import Fio
from vdisklab.workload.program import Outputs, ProgramResult, Subject, Timing

DATA = Path(__file__).parents[2] / "data" / "fio"
WHOLE = (DATA / "read-lat-fio-3.33.json").read_text()
READ = (DATA / "read-fio-3.33.json").read_text()
MIXED = (DATA / "randrw-fio-3.33.json").read_text()
SUBJECT = Subject("/dev/vdb", 32 << 20, is_device=True)


def measurement(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("m", "fio", settings)


def parse(text: str) -> ProgramResult:
    return Fio().parse(measurement(rw="read", bs="4k"), Outputs(text))


def damaged(change: Any) -> str:  # noqa: ANN401 - a function that edits any JSON value
    report = json.loads(READ)
    change(report)
    return json.dumps(report)


def test_the_whole_command() -> None:
    script = Fio().script(
        measurement(rw="randrw", bs="4k", iodepth=8, numjobs=2, rwmixread=70, fsync=1),
        SUBJECT,
        Timing(2.0, 0.05),
    )
    assert script.command == (
        "fio", "--name=m", "--filename=/dev/vdb", "--size=33554432", "--rw=randrw", "--bs=4096",
        "--iodepth=8", "--ioengine=libaio", "--direct=1", "--runtime=2000ms", "--time_based=1",
        "--ramp_time=50ms", "--norandommap=1", "--group_reporting=1", "--randrepeat=0",
        "--output-format=json+", "--eta=never", "--lat_percentiles=1", "--clat_percentiles=0",
        "--numjobs=2", "--rwmixread=70", "--fsync=1",
        f"--write_bw_log={SUBJECT.scratch}/m", "--log_avg_msec=100", "--per_job_logs=0",
    )  # fmt: skip
    assert script.expected == 2.05
    assert script.timeout > script.expected


def test_writes_that_wait_for_the_disk_and_what_becomes_of_them_is_counted() -> None:
    plan = measurement(rw="randwrite", bs="4k", sync="dsync", count_flushes=True)
    script = Fio().script(plan, SUBJECT, Timing(1.0, 0.0))
    assert "--sync=dsync" in script.command
    assert script.observe == ("writes", "flushes", "host_syncs", "device_flushes")


def test_a_run_of_less_than_a_second_has_no_log() -> None:
    script = Fio().script(measurement(rw="read", bs="1M"), SUBJECT, Timing(0.5, 0.0))
    assert not script.collect
    assert not [word for word in script.command if "log" in word]


JOINED = (
    MeasurementPlan("seqwrite-1m-q1", "fio", {"rw": "write", "bs": "1M"}),
    MeasurementPlan("randread-4k-q4", "fio", {"rw": "randread", "bs": "4k", "iodepth": 4}),
)


class TestTogether:
    """tests/data/fio-3.33-steps.json is what fio 3.33 printed for the command of `JOINED`."""

    def test_each_measurement_is_a_job_that_waits(self) -> None:
        scripts = [Fio().script(plan, SUBJECT, Timing(0.5, 0.0)) for plan in JOINED]
        command = Fio().together(scripts)
        first, second = (script.command[1:] for script in scripts)
        place = 1 + len(first)
        assert command[1:place] == first
        assert command[place : place + 3] == (
            "--new_group=1",
            "--exec_prerun=echo ready 1 >&3; read -r go </run/vdisklab/steps/1 #",
            "--exec_postrun=echo done 1 >&3 #",
        )
        assert command[place + 3 : place + 3 + len(second)] == second

    def test_each_part_of_the_report_is_read_like_a_report(self) -> None:
        whole = (DATA / "fio-3.33-steps.json").read_text()
        write, read = Fio().apart(JOINED, Outputs(whole))
        for part, plan, direction in zip(
            (write, read), JOINED, (Direction.WRITE, Direction.READ), strict=True
        ):
            outcome = Fio().parse(plan, part)
            assert {sample.direction for sample in outcome.samples} == {direction}
            assert outcome.counted is not None
            assert part.stdout.startswith("seqwrite-1m-q1 : Saving output")
            assert all(line in whole for line in part.stdout.splitlines())
        assert len(json.loads(read.stdout[read.stdout.index("{") :])["jobs"]) == 1

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda text: text.replace("randread-4k-q4", "other"), "in place of"),
            (lambda text: text[: len(text) // 2], "damaged"),
            (lambda text: "", "no JSON"),
        ],
    )
    def test_another_report_is_refused(self, change: Callable[[str], str], said: str) -> None:
        whole = (DATA / "fio-3.33-steps.json").read_text()
        with pytest.raises(WorkloadError, match=said):
            Fio().apart(JOINED, Outputs(change(whole)))

    @pytest.mark.parametrize(
        ("plan", "fits"),
        [
            (JOINED[0], True),
            (replace(JOINED[0], filesystem="ext4"), False),
            (measurement(rw="read", bs="4k", numjobs=2), False),
            (measurement(rw="randread", bs="4k", rate_iops=10), False),
            (measurement(rw="randwrite", bs="4k", count_flushes=True), False),
            (measurement(job="[a]\nrw=read\n"), False),
        ],
    )
    def test_what_is_made_by_one_fio(self, plan: MeasurementPlan, fits: bool) -> None:
        assert Fio().fits_together(plan) is fits


@pytest.mark.parametrize(
    ("settings", "leaves"),
    [
        ({"rw": "write", "bs": "1M"}, True),
        ({"rw": "write", "bs": "1M", "sync": "dsync"}, False),
        ({"rw": "randwrite", "bs": "4k"}, True),
        ({"rw": "randrw", "bs": "4k"}, True),
        ({"rw": "rw", "bs": "4k"}, True),
        ({"rw": "read", "bs": "4k"}, False),
        ({"rw": "randread", "bs": "4k"}, False),
        ({"rw": "write", "bs": "4k", "fsync": 1}, False),
        ({"job": "[a]\nrw=write\n"}, True),
        ({"job": "[a]\nrw=write\nend_fsync=1\n"}, False),
        ({"job": "[a]\nrw=randread\n"}, False),
    ],
)
def test_which_programs_leave_writes_in_memory(settings: dict[str, Setting], leaves: bool) -> None:
    assert Fio().leaves_writes(measurement(**settings)) is leaves


def test_what_was_not_asked_for_is_left_to_fio() -> None:
    command = Fio().script(measurement(rw="read", bs="1M"), SUBJECT, Timing(5.0, 0.0)).command
    assert not [word for word in command if word.startswith(("--numjobs", "--rwmix", "--fsync"))]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rw": "readwrite?", "bs": "4k"}, "'rw'"),
        ({"rw": "read"}, "'bs'"),
        ({"rw": "read", "bs": "4k", "iodepth": 0}, "setting iodepth should be"),
        ({"rw": "read", "bs": "4k", "iodepth": "8"}, "setting iodepth should be"),
        ({"rw": "read", "bs": "4k", "io_depth": 8}, "setting io_depth is unknown"),
        ({"rw": "read", "bs": "4 parsecs"}, "4 parsecs"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Setting], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Fio().script(measurement(**settings), SUBJECT, Timing(1.0, 0.0))


class TestRecordings:
    def test_a_read(self) -> None:
        side = json.loads(READ)["jobs"][0]["read"]
        outcome = parse(READ)
        found = {sample.metric: sample.value for sample in outcome.samples}
        assert {sample.direction for sample in outcome.samples} == {Direction.READ}
        assert found["bandwidth"] == side["bw_bytes"]
        assert found["iops"] == pytest.approx(side["iops"])
        assert found["latency_mean"] == pytest.approx(side["lat_ns"]["mean"] / 1e9)
        assert found["latency_p99"] == pytest.approx(
            side["clat_ns"]["percentile"]["99.000000"] / 1e9
        )
        assert outcome.counted is not None
        assert outcome.counted.read_bytes == side["io_bytes"]
        assert outcome.counted.write_operations == 0
        assert outcome.measured_seconds == side["runtime"] / 1000

    def test_percentiles_are_of_the_whole_latency_where_fio_was_told_so(self) -> None:
        side = json.loads(WHOLE)["jobs"][0]["read"]
        assert "percentile" not in side["clat_ns"]
        found = {sample.metric: sample.value for sample in parse(WHOLE).samples}
        for metric, key in (("latency_p50", "50.000000"), ("latency_p99.9", "99.900000")):
            assert found[metric] == pytest.approx(side["lat_ns"]["percentile"][key] / 1e9)

    def test_both_directions_of_a_mix(self) -> None:
        outcome = parse(MIXED)
        kinds = {(sample.direction, sample.metric) for sample in outcome.samples}
        metrics = {"bandwidth", "iops", *(name for name in METRICS if name.startswith("latency_"))}
        metrics -= {"latency_p95"}
        assert kinds == {(d, m) for d in (Direction.READ, Direction.WRITE) for m in metrics}

    def test_notes_before_and_after_the_report_do_no_harm(self) -> None:
        assert parse(f"note: a pipe {'is'} full\n{READ}\nfio: bye\n") == parse(READ)

    def test_an_error_of_a_job_is_an_error(self) -> None:
        with pytest.raises(WorkloadError, match="errno 28"):
            parse((DATA / "enospc-fio-3.33.txt").read_text())


class TestMutilated:
    @pytest.mark.parametrize("text", ["", "fio: cannot open /dev/vdb\n", "\n\n"])
    def test_no_report(self, text: str) -> None:
        with pytest.raises(WorkloadError, match="no JSON"):
            parse(text)

    def test_a_missing_number_is_not_a_zero(self) -> None:
        def drop(report: Any) -> None:  # noqa: ANN401
            del report["jobs"][0]["read"]["iops"]

        with pytest.raises(WorkloadError, match=r"jobs\.0\.read\.iops"):
            parse(damaged(drop))

    def test_a_missing_percentile_is_no_sample(self) -> None:
        def drop(report: Any) -> None:  # noqa: ANN401
            del report["jobs"][0]["read"]["clat_ns"]["percentile"]["99.900000"]

        found = {sample.metric for sample in parse(damaged(drop)).samples}
        assert "latency_p99" in found
        assert "latency_p99.9" not in found

    def test_no_jobs(self) -> None:
        with pytest.raises(WorkloadError, match="no job"):
            parse(damaged(lambda report: report["jobs"].clear()))

    def test_no_operations(self) -> None:
        with pytest.raises(WorkloadError, match="single operation"):
            parse(damaged(lambda report: report["jobs"][0]["read"].update(total_ios=0)))

    @given(st.integers(min_value=0, max_value=READ.rindex("}") - 1))
    def test_a_report_that_was_cut_off_is_refused(self, length: int) -> None:
        with pytest.raises(WorkloadError):
            parse(READ[:length])

    @given(st.text())
    def test_any_text_gives_a_sentence(self, text: str) -> None:
        with pytest.raises(WorkloadError):
            parse(text)

    @given(
        st.sampled_from(["error", "read", "write", "jobname"]),
        st.none() | st.text() | st.lists(st.integers()) | st.floats() | st.just({}),
    )
    def test_any_other_value_gives_a_sentence_or_finite_samples(
        self, key: str, value: object
    ) -> None:
        try:
            outcome = parse(damaged(lambda report: report["jobs"][0].update({key: value})))
        except WorkloadError:
            return
        assert all(sample.value == sample.value for sample in outcome.samples)

    @given(
        st.sampled_from(["iops", "bw_bytes"]), st.sampled_from(["NaN", "Infinity", "-1", "-0.5"])
    )
    def test_a_number_that_cannot_be_is_refused(self, key: str, number: str) -> None:
        text = damaged(lambda report: report["jobs"][0]["read"].update({key: "HERE"}))
        with pytest.raises(WorkloadError):
            parse(text.replace('"HERE"', number))


@pytest.mark.parametrize(
    ("rw", "once"), [("read", True), ("randread", True), ("randwrite", False), ("randrw", False)]
)
def test_a_job_that_only_reads_does_not_read_a_cache(rw: str, *, once: bool) -> None:
    """Without time_based it ends after its size, and fio's own map gives each block once."""
    cold = replace(SUBJECT, read_once=True)
    command = Fio().script(measurement(rw=rw, bs="4k"), cold, Timing(0.5, 0.1)).command
    assert "--runtime=500ms" in command
    assert ({"--time_based=1", "--norandommap=1", "--ramp_time=100ms"} <= {*command}) is not once
    assert (not {"--time_based=1", "--norandommap=1", "--ramp_time=100ms"} & {*command}) is once

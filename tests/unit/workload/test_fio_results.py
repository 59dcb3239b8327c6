"""fio's JSON of several versions, mixed directions, clients and failed jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.workload.recorded import recorded
from tests.unit.workload.test_importing import NONE, READ, samples_of
from vdisklab.errors import WorkloadError
from vdisklab.workload.importing import recognise
from vdisklab.workload.program import Report


@pytest.mark.parametrize(
    ("was", "put", "where"),
    [
        ('"io_bytes" : ', '"io_bytes" : "12", "x" : ', "jobs.0.read.io_bytes"),
        ('"iops" : ', '"iops" : true, "x" : ', "jobs.0.read.iops"),
        ('"fio version" : ', '"fio version" : null, "x" : ', "fio version"),
    ],
)
def test_a_text_or_a_truth_is_no_number_of_fio(was: str, put: str, where: str) -> None:
    text = recorded("fio-3.33-plain.json")
    assert was in text
    with pytest.raises(WorkloadError, match=f"not as expected: {where} "):
        recognise(text.replace(was, put, 1))


def _fio(change: Callable[[dict[str, Any]], None]) -> str:
    """The report of fio 3.33, changed."""
    report = json.loads(recorded("fio-3.33-plain.json"))
    change(report)
    return json.dumps(report)


def test_fio_3_0_and_3_1_state_the_bandwidth_in_kib_only() -> None:
    """fio's commit aedd021d added bw_bytes in 3.2; bw is 1000 * io_bytes / runtime / 1024."""

    def older(report: dict[str, Any]) -> None:
        report["fio version"] = "fio-3.1"
        for side in (report["jobs"][0][name] for name in ("read", "write", "trim")):
            del side["bw_bytes"]

    (now,), (then,) = recognise(recorded("fio-3.33-plain.json")), recognise(_fio(older))
    assert (now.version, then.version) == ("3.33", "3.1")
    assert now.results[0].outcome.samples == then.results[0].outcome.samples

    def contradicting(report: dict[str, Any]) -> None:
        older(report)
        report["jobs"][0]["read"]["bw"] += 2

    with pytest.raises(WorkloadError, match="fio's report contradicts itself: its bw is"):
        recognise(_fio(contradicting))


def test_what_fio_did_not_measure_is_no_zero() -> None:
    """gtod_reduce leaves latencies of 0, and a run below a millisecond rates of 0."""

    def reduced(report: dict[str, Any]) -> None:
        side = report["jobs"][0]["read"]
        for name in ("lat_ns", "clat_ns"):
            side[name] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}

    (report,) = recognise(_fio(reduced))
    assert {metric for metric, way in samples_of(report) if way is READ} == {"bandwidth", "iops"}

    def short(report: dict[str, Any]) -> None:
        report["jobs"][0]["read"] |= {"runtime": 0, "bw": 0, "bw_bytes": 0, "iops": 0.0}

    (report,) = recognise(_fio(short))
    assert not {"bandwidth", "iops"} & {metric for metric, _ in samples_of(report)}


def test_fios_mixed_directions_are_counted_together() -> None:
    def unified(report: dict[str, Any]) -> None:
        (job,) = report["jobs"]
        job["mixed"] = job.pop("read")
        del job["write"], job["trim"]

    (report,) = recognise(_fio(unified))
    assert {way for _, way in samples_of(report)} == {NONE}
    assert report.results[0].outcome.counted is None


def _clients(*jobs: tuple[str, str, float]) -> str:
    """A report of `fio --client`: name, host and factor of the rates of each job."""

    def clients(report: dict[str, Any]) -> None:
        (job,) = report.pop("jobs")
        report["client_stats"] = []
        for name, host, factor in jobs:
            read = {**job["read"], "iops": job["read"]["iops"] * factor,
                    "bw_bytes": int(job["read"]["bw_bytes"] * factor)}  # fmt: skip
            stat = {**job, "jobname": name, "read": read, "port": 8765}
            report["client_stats"].append({**stat, "hostname": host} if host else stat)

    return "<a> Starting\n" + _fio(clients)


def _rate(report: Report, name: str, metric: str = "iops") -> float:
    (outcome,) = (result.outcome for result in report.results if result.name == name)
    values = [
        sample.value
        for sample in outcome.samples
        if (sample.metric, sample.direction) == (metric, READ)
    ]
    return sum(values) if len(values) == 1 else -1


def test_clients_of_one_job_are_one_run() -> None:
    (alone,) = recognise(_clients(("plain", "a", 1)))
    (report,) = recognise(_clients(("plain", "a", 1), ("plain", "b", 3), ("All clients", "", 4)))
    assert (report.label, [result.name for result in report.results]) == ("2 clients", ["plain"])
    assert _rate(report, "plain") == pytest.approx(4 * _rate(alone, "plain"))
    assert alone.label == "a"
    with pytest.raises(WorkloadError, match="no job"):
        recognise('{"fio version": "fio-3.43", "client_stats": []}')


def test_each_job_of_several_clients_is_added_up() -> None:
    (alone,) = recognise(_clients(("plain", "a", 1)))
    (report,) = recognise(
        _clients(("x", "a", 1), ("y", "a", 2), ("x", "b", 1), ("y", "b", 5), ("All clients", "", 9))
    )
    assert _rate(report, "x") == pytest.approx(2 * _rate(alone, "plain"))
    assert _rate(report, "y") == pytest.approx(7 * _rate(alone, "plain"))
    assert _rate(report, "y", "latency_max") == _rate(alone, "plain", "latency_max")
    assert _rate(report, "y", "latency_p99") == -1  # percentiles cannot be added


def test_a_client_that_failed_refuses_the_run() -> None:
    text = _clients(("plain", "a", 1), ("plain", "b", 1), ("All clients", "", 2))
    with pytest.raises(WorkloadError, match="ended with errno 5"):
        recognise(text.replace('"error": 0', '"error": 5', 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"error": 28}, "job plain ended with errno 28"),
        ({"total_err": 3}, "went on after 3 errors"),
        ({"read": None, "write": None}, "no 'read', 'write' or 'mixed'"),
    ],
)
def test_a_job_of_fio_that_failed_measured_nothing(change: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        recognise(_fio(lambda report: report["jobs"][0].update(change)))


@pytest.mark.parametrize(
    ("root", "hint"),
    [("PhoronixTestSuite", "run fio itself"), ("testsuites", "DISKSPD with -Rxml")],
)
def test_xml_of_another_program_says_what_to_import_instead(root: str, hint: str) -> None:
    with pytest.raises(WorkloadError, match="DISKSPD writes <Results>") as refused:
        recognise(f'<?xml version="1.0"?>\n<{root}><a/></{root}>')
    assert hint in (refused.value.hint or "")

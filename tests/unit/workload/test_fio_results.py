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


def test_fio_with_clients_has_a_report_for_each_host() -> None:
    def clients(report: dict[str, Any]) -> None:
        (job,) = report.pop("jobs")
        hosts = (("plain", "a"), ("plain", "b"), ("All clients", "b"))
        report["client_stats"] = [
            {**job, "jobname": name, "hostname": host, "port": 8765} for name, host in hosts
        ]

    reports = recognise("<a> Starting\n" + _fio(clients))
    assert [report.label for report in reports] == ["All clients", "a", "b"]
    with pytest.raises(WorkloadError, match="no job"):
        recognise('{"fio version": "fio-3.43", "client_stats": []}')


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

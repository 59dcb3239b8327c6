"""fio: JSON+ in, samples out; the same job in the guest and on the host."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.result.model import Counted, Direction, Sample
from vdisklab.units import parse_size
from vdisklab.workload.base import Outcome, Script, Subject, Timing

_NANOSECOND = 1e-9
_SLACK_SECONDS = 120.0

# clat percentiles that fio prints by default (HOWTO, percentile_list), by our metric's name
_PERCENTILES = {
    "latency_p50": "50.000000",
    "latency_p99": "99.000000",
    "latency_p99.9": "99.900000",
}


class FioSettings(BaseModel):
    """Settings of a fio measurement in a profile, in fio's own words."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rw: Literal["read", "write", "randread", "randwrite", "rw", "randrw"]
    bs: str
    iodepth: Annotated[int, Field(ge=1, le=4096)] = 1
    numjobs: Annotated[int, Field(ge=1, le=256)] = 1
    rwmixread: Annotated[int, Field(ge=0, le=100)] | None = None
    fsync: Annotated[int, Field(ge=0)] | None = None
    ioengine: str = "libaio"


# Python's JSON reader takes NaN and Infinity, which are no measurement.
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


class _Latency(BaseModel):
    mean: _Number
    max: _Number
    percentile: dict[str, _Number] = {}


class _Side(BaseModel):
    io_bytes: _Count
    bw_bytes: _Number
    iops: _Number
    runtime: _Count  # milliseconds
    total_ios: _Count
    lat_ns: _Latency
    clat_ns: _Latency


class _Job(BaseModel):
    jobname: str
    error: int
    read: _Side
    write: _Side


class _Report(BaseModel):
    jobs: list[_Job]


def read_settings(plan: MeasurementPlan) -> FioSettings:
    """The measurement's settings, typed. Raises PlanError naming the first wrong one."""
    try:
        settings = FioSettings.model_validate(dict(plan.settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(FioSettings.model_fields)
        raise PlanError(
            f"measurement {plan.name!r}: fio setting {where!r}: {first['msg']}",
            hint=f"settings of a fio measurement: {known}",
        ) from error
    parse_size(settings.bs)
    return settings


class Fio:
    """The flexible I/O tester."""

    def script(self, plan: MeasurementPlan, subject: Subject, timing: Timing) -> Script:
        """A timed job over the whole subject with direct I/O, so that no cache but the host's
        page cache, where the cache mode uses it, stands between fio and the disk."""
        settings = read_settings(plan)
        options = [
            f"--name={plan.name}",
            f"--filename={subject.path}",
            f"--size={subject.size}",
            f"--rw={settings.rw}",
            f"--bs={parse_size(settings.bs)}",
            f"--iodepth={settings.iodepth}",
            f"--ioengine={settings.ioengine}",
            "--direct=1",
            "--time_based=1",
            f"--runtime={_milliseconds(timing.runtime)}",
            f"--ramp_time={_milliseconds(timing.ramp)}",
            "--group_reporting=1",
            "--randrepeat=0",
            "--norandommap=1",
            "--output-format=json+",
            "--eta=never",
        ]
        if settings.numjobs > 1:
            options.append(f"--numjobs={settings.numjobs}")
        if settings.rwmixread is not None:
            options.append(f"--rwmixread={settings.rwmixread}")
        if settings.fsync is not None:
            options.append(f"--fsync={settings.fsync}")
        expected = timing.runtime + timing.ramp
        return Script(("fio", *options), expected, expected + _SLACK_SECONDS)

    def parse(self, output: str) -> Outcome:
        """Samples of each direction in which operations were done.

        Bandwidth and IOPS are fio's means over the run; latency is from submission to
        completion (`lat`), its percentiles are those of `clat`.
        """
        report = _read_report(output)
        samples: list[Sample] = []
        for job in report.jobs:
            if job.error:
                raise WorkloadError(f"fio job {job.jobname} ended with errno {job.error}")
            for direction, side in ((Direction.READ, job.read), (Direction.WRITE, job.write)):
                samples += _samples(direction, side)
        if not samples:
            raise WorkloadError("fio did not complete a single operation", hint="give it more time")
        return Outcome(tuple(samples), _counted(report), _measured_seconds(report))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _read_report(output: str) -> _Report:
    """fio prints notes before its JSON; everything from the first brace on is the report."""
    start = output.find("{")
    if start < 0:
        said = output.strip().splitlines()[-1:] or ["nothing"]
        raise WorkloadError(f"fio gave no JSON; it said: {said[0]}")
    try:
        value, _ = json.JSONDecoder().raw_decode(output[start:])
        report = _Report.model_validate(value)
    except json.JSONDecodeError as error:
        raise WorkloadError(f"fio's JSON is damaged at character {start + error.pos}") from error
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise WorkloadError(f"fio's report is not as expected at {where!r}") from error
    if not report.jobs:
        raise WorkloadError("fio's report holds no job")
    return report


def _samples(direction: Direction, side: _Side) -> list[Sample]:
    if side.total_ios == 0:
        return []  # not measured: no sample, never a zero
    values = {
        "bandwidth": side.bw_bytes,
        "iops": side.iops,
        "latency_mean": side.lat_ns.mean * _NANOSECOND,
        "latency_max": side.lat_ns.max * _NANOSECOND,
    }
    for metric, key in _PERCENTILES.items():
        if key in side.clat_ns.percentile:
            values[metric] = side.clat_ns.percentile[key] * _NANOSECOND
    return [Sample(metric, direction, value) for metric, value in values.items()]


def _counted(report: _Report) -> Counted:
    return Counted(
        sum(job.read.io_bytes for job in report.jobs),
        sum(job.write.io_bytes for job in report.jobs),
        sum(job.read.total_ios for job in report.jobs),
        sum(job.write.total_ios for job in report.jobs),
    )


def _measured_seconds(report: _Report) -> float:
    return max(max(job.read.runtime, job.write.runtime) for job in report.jobs) / 1000

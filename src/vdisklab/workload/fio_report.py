"""fio's JSON and JSON+, of version 3.0 to 3.42: the jobs of a report and their numbers.

The changes between them, by fio's history of stat.c: `bw_bytes` came with 3.2 (before, only `bw` in
KiB/s, rounded down), `sync` with 3.4. `unified_rw_reporting` puts all directions into `mixed`, and
a report by `fio --client` has `client_stats` in place of `jobs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from operator import mul
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, IoCounters, Sample
from vdisklab.validation import first_problem
from vdisklab.value import Value
from vdisklab.workload.program import ProgramResult

_NANOSECOND = 1e-9

# The percentiles that fio prints by default (HOWTO, percentile_list), by our metric's name
_PERCENTILES = {
    "latency_p50": "50.000000",
    "latency_p99": "99.000000",
    "latency_p99.9": "99.900000",
}

# Python's JSON reader accepts NaN and Infinity, which are not measurements; nor are strings or
# true.
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
_Count = Annotated[int, Field(ge=0, strict=True)]

# fio's own limit (REAL_MAX_JOBS in fio.h). In a hostile report pydantic would need a kilobyte of
# error for each wrong job: 5 million of them took 8 GB.
_MOST_JOBS = 4096

_JOBS_KEY = re.compile(r'"jobs"\s*:\s*\[\s*')
_BETWEEN = re.compile(r"[\s,]*")

_SUM = "All clients"
_LOCAL, _CLIENT = "jobs", "client_stats"


def _wanted(percentiles: object) -> object:
    """The percentiles that vdisklab uses; a report may have any number of others."""
    if not isinstance(percentiles, dict):
        return percentiles
    return {key: percentiles[key] for key in _PERCENTILES.values() if key in percentiles}


class _Latency(BaseModel):
    """Nanoseconds; all are 0 if the job measured none (gtod_reduce, disable_lat)."""

    mean: _Number = 0.0
    max: _Number = 0.0
    percentile: Annotated[dict[str, _Number], BeforeValidator(_wanted)] = {}


class _Side(BaseModel):
    io_bytes: _Count
    bw: _Count | None = None  # KiB/s
    bw_bytes: _Number | None = None
    iops: _Number
    runtime: _Count  # milliseconds
    total_ios: _Count
    lat_ns: _Latency = _Latency()
    clat_ns: _Latency = _Latency()

    @property
    def bandwidth(self) -> float:
        """Bytes per second. If the report has only `bw` (rounded), computed from io_bytes and
        runtime, as fio does.

        Raises WorkloadError if they contradict `bw`, or if there is none.
        """
        if self.bw_bytes is not None:
            return self.bw_bytes
        rate = 1000 * self.io_bytes // self.runtime
        if rate // 1024 != self.bw:
            raise WorkloadError(
                f"fio's report contradicts itself: its bw is {self.bw} KiB/s, and its io_bytes and "
                f"runtime make {rate // 1024} KiB/s"
            )
        return float(rate)


class _Sync(BaseModel):
    lat_ns: _Latency | None = None


class _Trim(BaseModel):
    total_ios: _Count = 0


class FioJob(BaseModel):
    """A job, or a group of jobs, of one host; `hostname` is empty without `fio --client`."""

    jobname: str
    hostname: str = ""
    error: int
    total_err: _Count = 0
    read: _Side | None = None
    write: _Side | None = None
    mixed: _Side | None = None
    trim: _Trim = _Trim()
    sync: _Sync = _Sync()

    @property
    def sides(self) -> tuple[tuple[Direction, _Side], ...]:
        """The job's directions; NONE if fio reports reads and writes as one."""
        every = ((Direction.READ, self.read), (Direction.WRITE, self.write))
        apart = tuple((direction, side) for direction, side in every if side is not None)
        return apart or (((Direction.NONE, self.mixed),) if self.mixed is not None else ())


class _Jobs(BaseModel):
    version: Annotated[str, Field(alias="fio version")] = ""
    jobs: list[FioJob] | None = None
    client_stats: list[FioJob] | None = None


class FioReport(Value):
    """A report; `around` is the text before and after the JSON."""

    version: str
    jobs: tuple[FioJob, ...]
    around: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of `fio --client`; empty without them."""
        return tuple(dict.fromkeys(job.hostname for job in self._reported if job.hostname))

    @property
    def by_name(self) -> tuple[tuple[str, tuple[FioJob, ...]], ...]:
        """The jobs of each name, of all hosts, which ran at the same time."""
        names = dict.fromkeys(job.jobname for job in self._reported)
        return tuple((n, tuple(job for job in self._reported if job.jobname == n)) for n in names)

    @property
    def sum_of_hosts(self) -> FioJob | None:
        """fio's own sum of all jobs of all hosts; None for a single host."""
        return next((job for job in self.jobs if job.jobname == _SUM), None)

    @property
    def _reported(self) -> tuple[FioJob, ...]:
        return tuple(job for job in self.jobs if job.jobname != _SUM)


def read_report(output: str) -> FioReport:
    """The report: everything from the first brace, because fio prints notes before its JSON.

    Raises WorkloadError for other text.
    """
    start = output.find("{")
    if start < 0:
        last = output.strip().splitlines()[-1:] or ["nothing"]
        raise WorkloadError(f"fio printed no JSON but: {last[0][:200]}")
    try:
        value, end = json.JSONDecoder().raw_decode(output, start)
        _require_few(value)
        report = _Jobs.model_validate(value)
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f"fio's JSON is damaged in line {error.lineno}, at character {error.pos} of the text: "
            f"{error.msg}"
        ) from error
    except ValidationError as error:
        raise WorkloadError(f"fio's report is not as expected: {first_problem(error)}") from error
    except (RecursionError, ValueError) as error:
        # Endlessly nested brackets, or a number of thousands of digits.
        raise WorkloadError(
            "this JSON is not from fio: it is nested too deep, or has a number that is too long"
        ) from error
    jobs = report.jobs or report.client_stats
    if not jobs:
        raise WorkloadError("fio's report has no job")
    return FioReport(report.version, tuple(jobs), f"{output[:start]}\n{output[end:]}")


def parts_of_report(output: str) -> tuple[str, ...]:
    """A report of several groups of jobs as one report for each of them.

    Each has the notes and the head of the whole, and the unchanged text of its job.
    Raises WorkloadError for other text.
    """
    read_report(output)  # explains what is wrong with it
    decoder = json.JSONDecoder()
    match = _JOBS_KEY.search(output, output.find("{"))
    if match is None:
        raise WorkloadError("fio's report has no list of jobs")
    place, spans = match.end(), list[tuple[int, int]]()
    try:
        while output[place] != "]":
            start = place
            _, place = decoder.raw_decode(output, start)
            spans.append((start, place))
            place += len(_BETWEEN.match(output, place)[0])  # type: ignore[index] # matches nothing, too
    except (json.JSONDecodeError, IndexError) as error:
        raise WorkloadError("the list of jobs in fio's report is damaged") from error
    head, tail = output[: match.end()], output[spans[-1][1] :]
    return tuple(head + output[start:end] + tail for start, end in spans)


def _require_few(value: object) -> None:
    """Raises WorkloadError for a report with more jobs than fio can run."""
    for key in (_LOCAL, _CLIENT):
        jobs = value.get(key) if isinstance(value, dict) else None
        if isinstance(jobs, list) and len(jobs) > _MOST_JOBS:
            raise WorkloadError(
                f"this report has {len(jobs)} jobs, and fio runs at most {_MOST_JOBS}"
            )


def outcome_of(jobs: Sequence[FioJob]) -> ProgramResult:
    """The numbers of jobs that ran together: one sample for each measure, direction and job.

    Percentiles are of completion latency (`clat`), fio's default, unless the job set
    `lat_percentiles`. Raises WorkloadError for a job that failed or did nothing.
    """
    samples = tuple(sample for job in jobs for sample in _samples(job))
    if not samples and any(job.trim.total_ios for job in jobs):
        raise WorkloadError("fio's jobs only discarded (trim); vdisklab needs reads or writes")
    if not samples:
        raise WorkloadError(
            "fio did not complete a single operation", hint="choose a longer --runtime"
        )
    milliseconds = [side.runtime for job in jobs for _, side in job.sides]
    return ProgramResult(samples, _counted(jobs), max(milliseconds) / 1000)


def sum_of(jobs: Sequence[FioJob]) -> ProgramResult:
    """The numbers of jobs of several hosts that ran together: rates are added, latencies are means
    weighted by operations and the largest of all. Percentiles cannot be added, and are left out.

    Raises WorkloadError as `outcome_of` does, if one of them failed.
    """
    outcomes = [outcome_of([job]) for job in jobs]
    every = [
        {(sample.metric, sample.direction): sample.value for sample in out.samples}
        for out in outcomes
    ]
    added: dict[tuple[str, Direction], float] = {}
    for metric, direction in dict.fromkeys(key for values in every for key in values):
        parts = [values for values in every if (metric, direction) in values]
        numbers = [values[metric, direction] for values in parts]
        weights = [values.get(("iops", direction), 0.0) for values in parts]
        if metric in ("bandwidth", "iops"):
            added[metric, direction] = sum(numbers)
        elif metric.endswith("_max"):
            added[metric, direction] = max(numbers)
        elif metric.endswith("_mean") and all(weights):
            weighed = sum(map(mul, numbers, weights))
            added[metric, direction] = weighed / sum(weights)
    samples = tuple(
        Sample(metric, direction, value) for (metric, direction), value in added.items()
    )
    seconds = [out.measured_seconds for out in outcomes if out.measured_seconds is not None]
    return ProgramResult(samples, _counted(jobs), max(seconds, default=None))


def slowest_request(jobs: Sequence[FioJob]) -> float:
    """Seconds of the slowest request, an fsync included."""
    slowest = [side.lat_ns.max for job in jobs for _, side in job.sides if side.total_ios]
    slowest += [job.sync.lat_ns.max for job in jobs if job.sync.lat_ns is not None]
    return max(slowest, default=0.0) * _NANOSECOND


def _samples(job: FioJob) -> list[Sample]:
    if job.error:
        raise WorkloadError(
            f"fio job {job.jobname[:60]} ended with errno {job.error}",
            hint="its numbers are of a run that failed: measure again",
        )
    if job.total_err:
        raise WorkloadError(
            f"fio job {job.jobname[:60]} went on after {job.total_err} errors (continue_on_error)"
        )
    if not job.sides:
        raise WorkloadError(f"fio job {job.jobname[:60]} has no 'read', 'write' or 'mixed'")
    samples = [sample for direction, side in job.sides for sample in _side_samples(direction, side)]
    return samples + _sync_samples(job.sync)


def _side_samples(direction: Direction, side: _Side) -> list[Sample]:
    if side.total_ios == 0:
        return []  # not measured: no sample, never a zero
    values: dict[str, float] = {}
    if side.runtime:  # otherwise it took less than a millisecond, and fio's rates are 0
        values |= {"bandwidth": side.bandwidth, "iops": side.iops}
    if side.lat_ns.max:
        values |= {
            "latency_mean": side.lat_ns.mean * _NANOSECOND,
            "latency_max": side.lat_ns.max * _NANOSECOND,
        }
    timed = side.lat_ns if side.lat_ns.percentile else side.clat_ns
    for metric, key in _PERCENTILES.items():
        if key in timed.percentile and timed.max:
            values[metric] = timed.percentile[key] * _NANOSECOND
    return [Sample(metric, direction, value) for metric, value in values.items()]


def _sync_samples(sync: _Sync) -> list[Sample]:
    """The latency of fsync and fdatasync, which fio counts separately from writes."""
    # Not by its `total_ios`: observed with the engine `sync` of fio 3.33, it is 0 beside 10,029
    # latencies.
    if sync.lat_ns is None or sync.lat_ns.max == 0:
        return []
    latency = sync.lat_ns
    values = {
        "sync_mean": latency.mean,
        "sync_p99": latency.percentile.get(_PERCENTILES["latency_p99"]),
        "sync_max": latency.max,
    }
    return [
        Sample(metric, Direction.WRITE, value * _NANOSECOND)
        for metric, value in values.items()
        if value is not None
    ]


def _counted(jobs: Sequence[FioJob]) -> IoCounters | None:
    """None if fio does not tell reads from writes."""
    reads = [job.read for job in jobs if job.read is not None]
    writes = [job.write for job in jobs if job.write is not None]
    if not len(reads) == len(writes) == len(jobs):
        return None
    return IoCounters(
        sum(side.io_bytes for side in reads),
        sum(side.io_bytes for side in writes),
        sum(side.total_ios for side in reads),
        sum(side.total_ios for side in writes),
    )

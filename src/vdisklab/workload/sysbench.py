"""sysbench's fileio test: random and sequential reads and writes on a set of files."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, IoCounters, Sample, Series
from vdisklab.units import MIB, parse_size
from vdisklab.workload import program

_SLACK_SECONDS = 300.0
_PREPARE_SECONDS = 4 * 3600.0

_INTERVAL = re.compile(
    r"^\[ ([0-9]+)s \] reads: ([0-9.]+) MiB/s writes: ([0-9.]+) MiB/s ", re.MULTILINE
)
_SECTIONS = {
    "read_ops": r"reads/s:\s+([0-9.]+)$",
    "write_ops": r"writes/s:\s+([0-9.]+)$",
    "read": r"read, MiB/s:\s+([0-9.]+)$",
    "written": r"written, MiB/s:\s+([0-9.]+)$",
}
# 1.1 has a line for each direction: `read:  IOPS=4331.55 67.68 MiB/s (70.97 MB/s)`.
_DIRECTIONS = re.compile(
    r"^ *(read|write): +IOPS=([0-9.]+) ([0-9.]+) MiB/s \([0-9.]+ MB/s\)$", re.MULTILINE
)
_OLD_OPERATIONS = re.compile(
    r"Operations performed:\s+([0-9]{1,19}) [Rr]eads?, ([0-9]{1,19}) [Ww]rites?, "
)
_OLD_BYTES = re.compile(
    r"Read ([0-9.]+)((?:[KMGT]i?)?)b\s+Written ([0-9.]+)((?:[KMGT]i?)?)b\s+Total ", re.I | re.ASCII
)
_TIME = re.compile(r"total time:\s+([0-9.]+)s$", re.MULTILINE)
_EVENTS = re.compile(r"total number of events:\s+([0-9]{1,19})$", re.MULTILINE)
# 0.4 and 0.5 write `avg: 0.07ms`, 1.0 has the unit in the heading `Latency (ms):`.
_LATENCY = re.compile(
    r"^[ \t]+(min|avg|max|sum|(?:approx\.\s+)?([0-9]+)(?:th)? percentile):\s+([0-9.]+)(ms)?$",
    re.MULTILINE,
)
# `--histogram` of 1.0: upper bounds of latencies in ms, and how many operations took no longer.
_HISTOGRAM = re.compile(r"^ +([0-9]{1,12}\.[0-9]{3}) \|\** +([0-9]{1,19})$", re.MULTILINE)
_PERCENTILES = {"latency_p50": 0.5, "latency_p99": 0.99, "latency_p99.9": 0.999}


_QUERIES = re.compile(r"^ +(read|write): +([0-9]{1,19})$", re.MULTILINE)
_TRANSACTIONS = re.compile(
    r"^ +transactions: +([0-9]{1,19}) +\(([0-9.]{1,20}) per sec\.\)$", re.MULTILINE
)

_OLTP_NAMES = {(True, True): "oltp-read-write", (False, True): "oltp-write-only",
               (True, False): "oltp-read-only"}  # fmt: skip

_THREADS = re.compile(r"^Number of threads: ([0-9]{1,6})$", re.MULTILINE)


class SysbenchSettings(program.Settings):
    """Settings of a sysbench measurement, named like its options, with sysbench's defaults.

    `size` is the total of all files; the default is half of the disk.
    """

    mode: Literal["rndrd", "rndwr", "rndrw", "seqrd", "seqwr", "seqrewr"]
    size: str | None = None
    files: Annotated[int, Field(ge=1, le=10_000)] = 128
    block_size: str = "16k"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    flags: Literal["", "sync", "dsync", "direct"] = ""
    fsync_freq: Annotated[int, Field(ge=0)] = 100
    fsync_all: bool = False
    fsync_end: bool = True


class Sysbench(program.Workload):
    """sysbench fileio."""

    needs_directory = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """Creates the files first; all fsync options are spelled out, as they decide the result."""
        settings = program.read_settings(plan, SysbenchSettings)
        total = subject.size // 2 if settings.size is None else parse_size(settings.size)
        total = max(MIB, round(total * timing.scale) // MIB * MIB)
        program.require_room(plan, total, subject.room_for_files)
        arguments = (
            f"--file-num={settings.files}", f"--file-total-size={total}",
            f"--file-block-size={parse_size(settings.block_size)}",
        )  # fmt: skip
        options = (
            f"--file-test-mode={settings.mode}", "--file-io-mode=sync",
            f"--file-extra-flags={settings.flags}", *fsync_options(settings),
            f"--threads={settings.threads}", f"--time={max(1, round(timing.runtime))}",
            "--events=0", "--report-interval=1", "--percentile=99", "--histogram=on",
        )  # fmt: skip
        sysbench = program.in_directory(subject.path, ("sysbench", "fileio", *arguments))
        return program.Script(
            (*sysbench, *options, "run"),
            timing.runtime,
            timing.runtime + _SLACK_SECONDS,
            prepare=(program.SideCommand((*sysbench, "prepare"), _PREPARE_SECONDS),),
            conclude=(program.SideCommand((*sysbench, "cleanup"), 600),),
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """The summary, and bandwidth over time from sysbench's report of each second."""
        del plan
        outcome = parse_text(output.stdout)
        series = _series(output.stdout, {sample.direction for sample in outcome.samples})
        worst = tuple(program.worst_second(side) for side in series)
        return program.ProgramResult(
            (*outcome.samples, *worst), outcome.counted, outcome.measured_seconds, series
        )


def fsync_options(settings: SysbenchSettings) -> tuple[str, ...]:
    """The options for fsync, which decide what a write costs."""
    return (
        f"--file-fsync-freq={settings.fsync_freq}",
        f"--file-fsync-all={_switch(settings.fsync_all)}",
        f"--file-fsync-end={_switch(settings.fsync_end)}",
    )


def _switch(value: bool) -> str:
    return "on" if value else "off"


def parse_text(text: str) -> program.ProgramResult:
    """The summary of sysbench 0.4 to 1.1. Raises WorkloadError for another text."""
    seconds: float | None
    if "Operations performed:" in text:
        samples, seconds, counted = _old(text)
    elif _DIRECTIONS.search(text) is not None:
        samples, seconds, counted = _newest(text), None, None  # 1.1 does not print the time
    else:
        samples, seconds, counted = _new(text), _number(_TIME, text, "total time"), None
    if not samples:
        raise WorkloadError("sysbench did not complete a single request")
    return program.ProgramResult((*samples, *_latency(text, samples)), counted, seconds)


def is_oltp(text: str) -> bool:
    """True for the output of a database test."""
    return "SQL statistics:" in text or "OLTP test statistics:" in text


def parse_oltp(text: str) -> program.NamedResult:
    """A database test of sysbench 0.4 to 1.1, named for its queries and number of threads.

    Raises WorkloadError for a text without transactions.
    """
    done, queries = _TRANSACTIONS.search(text), dict(_QUERIES.findall(text))
    if done is None or set(queries) != {"read", "write"} or not _float(done[2]):
        raise WorkloadError(
            "sysbench's database test completed no transaction, or was cut off",
            hint="import everything that `sysbench oltp_… run` printed",
        )
    kind = _OLTP_NAMES.get((int(queries["read"]) > 0, int(queries["write"]) > 0))
    threads = _THREADS.search(text)
    if kind is None or threads is None:
        raise WorkloadError("sysbench's database test has no query, or no line `Number of threads`")
    direction = Direction.WRITE if int(queries["write"]) else Direction.READ
    transactions = Sample("transactions", direction, _float(done[2]))
    samples = (transactions, *_latency(text, [transactions]))
    outcome = program.ProgramResult(samples, None, _number(_TIME, text, "total time"))
    return program.NamedResult(f"{kind}-c{threads[1]}", outcome)


def _new(text: str) -> list[Sample]:
    samples_found = {
        name: _number(re.compile(pattern, re.MULTILINE), text, name)
        for name, pattern in _SECTIONS.items()
    }
    return [
        *_rates(Direction.READ, samples_found["read_ops"], samples_found["read"]),
        *_rates(Direction.WRITE, samples_found["write_ops"], samples_found["written"]),
    ]


def _newest(text: str) -> list[Sample]:
    lines = {name: (iops, rate) for name, iops, rate in _DIRECTIONS.findall(text)}
    if len(lines) != 2:
        raise WorkloadError("sysbench's summary has only one of the lines `read:` and `write:`")
    return [
        sample
        for name, (iops, rate) in lines.items()
        for sample in _rates(Direction(name), _float(iops), _float(rate))
    ]


def _rates(direction: Direction, operations: float, mebibytes: float) -> Iterator[Sample]:
    """IOPS and bandwidth; a direction in which nothing was done has none."""
    if operations > 0:
        yield Sample("iops", direction, operations)
    if mebibytes > 0:
        yield Sample("bandwidth", direction, mebibytes * MIB)


def _old(text: str) -> tuple[list[Sample], float, IoCounters]:
    """Versions 0.4 and 0.5 count in units of 1024 (sb_print_value_size), named `Mb` or `Mib`."""
    operations, moved = _OLD_OPERATIONS.search(text), _OLD_BYTES.search(text)
    if operations is None or moved is None:
        raise WorkloadError("sysbench's line `Read … Written … Total transferred` is missing")
    seconds = _number(_TIME, text, "total time")
    if seconds <= 0:
        raise WorkloadError("sysbench's total time is 0")
    counts = int(operations[1]), int(operations[2])
    sizes = _bytes(moved[1], moved[2]), _bytes(moved[3], moved[4])
    samples: list[Sample] = []
    for direction, count, size in zip(
        (Direction.READ, Direction.WRITE), counts, sizes, strict=True
    ):
        if count:
            samples.append(Sample("iops", direction, count / seconds))
            samples.append(Sample("bandwidth", direction, size / seconds))
    return samples, seconds, IoCounters(round(sizes[0]), round(sizes[1]), *counts)


def _bytes(number: str, unit: str) -> float:
    power = "KMGT".index(unit[0].upper()) + 1 if unit else 0
    size = _float(number) * float(1024**power)
    if not math.isfinite(size):
        raise WorkloadError(f"sysbench printed {number}{unit} bytes, which no disk holds")
    return size


def _latency(text: str, samples: list[Sample]) -> Iterator[Sample]:
    """The latencies. A value of 0.00 is below sysbench's resolution and left out.

    sysbench counts fsyncs among the operations, so a direction holds for them in name only.
    """
    directions = {sample.direction for sample in samples}
    direction = directions.pop() if len(directions) == 1 else Direction.NONE
    heading = "Latency (ms):" in text
    values: dict[str, float] = {}
    for name, percentile, number, unit in _LATENCY.findall(text):
        if heading or unit == "ms":
            values[f"p{percentile}" if percentile else name] = _float(number) / 1000
    events = _EVENTS.search(text)
    if values.get("sum") and events is not None and int(events[1]) > 0:
        values["avg"] = values["sum"] / int(events[1])  # `avg` itself has only two digits
    names = {
        "avg": "latency_mean",
        "max": "latency_max",
        "p95": "latency_p95",
        "p99": "latency_p99",
    }
    samples_found = {
        metric: values[name] for name, metric in names.items() if values.get(name, 0.0) > 0
    }
    for metric, value in (samples_found | _percentiles(text)).items():
        yield Sample(metric, direction, value)


def _percentiles(text: str) -> dict[str, float]:
    """Percentiles from sysbench's histogram, with a resolution of 1 us.

    By nearest rank, as sysbench does it (sb_histogram.c). Raises WorkloadError if the histogram
    does not hold all events.
    """
    rows = [(float(value) / 1000, int(count)) for value, count in _HISTOGRAM.findall(text)]
    total = sum(count for _, count in rows)
    events = _EVENTS.search(text)
    if rows and events is not None and int(events[1]) != total:
        raise WorkloadError(
            f"sysbench's histogram holds {total} of the {events[1]} events that it counted"
        )
    reached = list(itertools.accumulate(count for _, count in rows))
    samples_found = {}
    for metric, share in _PERCENTILES.items():
        rank = max(1, math.floor(total * share + 0.5))
        value = next((row[0] for row, so_far in zip(rows, reached, strict=True)
                      if so_far >= rank), 0.0)  # fmt: skip
        if value > 0:
            samples_found[metric] = value
    return samples_found


def _series(text: str, directions: set[Direction]) -> tuple[Series, ...]:
    lines = _INTERVAL.findall(text)
    if not lines:
        return ()
    columns = {Direction.READ: 1, Direction.WRITE: 2}
    return tuple(
        Series("bandwidth", direction, 1.0, tuple(_float(line[column]) * MIB for line in lines))
        for direction, column in columns.items()
        if direction in directions
    )


def _number(pattern: re.Pattern[str], text: str, what: str) -> float:
    samples_found = pattern.search(text)
    if samples_found is None:
        raise WorkloadError(f"sysbench's output lacks {what!r}")
    return _float(samples_found[1])


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise WorkloadError(f"sysbench printed {text!r} instead of a number") from error

"""PostgreSQL: pgbench's transactions against a server whose data is on the measured disk.

The protocol is of docs/databases.md: each measurement works on a full copy of one prepared data
directory; one checkpoint cycle (the ramp) is thrown away, then two are measured. The settings are
read back, and what the numbers rely on is stored as gates beside them.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Check, Direction, Sample, Series
from vdisklab.units import MIB
from vdisklab.value import Value
from vdisklab.workload import program

CYCLE = 30.0
"""Seconds between two timed checkpoints: the least that PostgreSQL allows."""

_CYCLES = 2
_SCALE_BYTES = 16 * MIB  # of pgbench's tables and indexes for each unit of scale, rounded up
_BASE_BYTES = 64 * MIB  # of an empty cluster with its first WAL segments
_USUAL_MEMORY = 512 * MIB
_COPY_RATE = 40 * MIB  # bytes a second, into an emulated guest
_START_SECONDS = 20.0
_SLACK_SECONDS = 600.0
_COPY_SECONDS = 4 * 3600.0
_CONNECT = ("-h", "/proc/self/cwd", "-U", "postgres")

_WANTED = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "data_checksums": "on",
    "wal_sync_method": "fdatasync",
    "autovacuum": "off",
    "jit": "off",
}
"""Settings that decide what a commit costs; a server with others is not measured."""

_TPS = re.compile(
    r"^tps = ([0-9]{1,9}\.[0-9]{1,9}) \((?:without initial connection time|excluding connections "
    r"establishing|without connections establishing)\)$", re.MULTILINE,
)  # fmt: skip
_LINES = {
    "version": re.compile(r"^pgbench \((?:PostgreSQL )?([0-9][0-9.a-z]*)", re.MULTILINE),
    "kind": re.compile(r"^transaction type: (.{1,120})$", re.MULTILINE),
    "scale": re.compile(r"^scaling factor: ([0-9]{1,9})$", re.MULTILINE),
    "clients": re.compile(r"^number of clients: ([0-9]{1,6})$", re.MULTILINE),
    "done": re.compile(
        r"^number of transactions actually processed: ([0-9]{1,18})(?:/[0-9]{1,18})?$", re.MULTILINE
    ),
    "mean": re.compile(r"^latency average(?: =|:) ([0-9]{1,12}\.[0-9]{1,6}) ms$", re.MULTILINE),
    "seconds": re.compile(r"^duration: ([0-9]{1,9}) s$", re.MULTILINE),
}
_KINDS = {"TPC-B (sort of)": "tpcb-like", "simple update": "simple-update",
          "select only": "select-only"}  # fmt: skip
_COUNT = re.compile(
    r"^(?:(?P<what>setting|before|after) (?P<name>\S+) (?P<value>.*)"
    r"|(?P<kind>probe|log|latency|second) (?P<numbers>[0-9. ]+))$"
)


class PostgresqlSettings(program.Settings):
    """Settings of a PostgreSQL measurement.

    `script` is one of pgbench's, `scale` its scale: the default makes four times as much data as
    the guest has memory, or as much as fits. With `rate_percent` transactions are due at this share
    of the rate that the ramp reached, and latencies count from when they were due.
    """

    script: Literal["tpcb-like", "simple-update", "select-only"] = "tpcb-like"
    clients: Annotated[int, Field(ge=1, le=1000)] = 1
    scale: Annotated[int, Field(ge=1, le=100_000)] | None = None
    rate_percent: Annotated[int, Field(ge=1, le=100)] | None = None


class Postgresql(program.Workload):
    """PostgreSQL's server and pgbench."""

    needs_directory = True
    by_server = True
    clients_setting = "clients"

    def files(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.PreparedFiles:
        """The data directory, which the host's own PostgreSQL makes."""
        scale = _scale(program.read_settings(plan, PostgresqlSettings), subject, timing)
        return program.PreparedFiles(
            f"pgbench-{scale}", program.database_script("postgresql"), (str(scale),),
            ("postgres", "initdb", "setpriv"), scale * _SCALE_BYTES + _BASE_BYTES,
        )  # fmt: skip

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """pgbench, and around it the steps of scripts/postgresql.sh."""
        settings = program.read_settings(plan, PostgresqlSettings)
        files = self.files(plan, subject, timing)
        program.require_room(
            plan, files.size + _wal(subject), subject.room_for_files,
            or_less=", or a smaller --guest-memory or scale",
        )  # fmt: skip
        counts, log = (f"{subject.scratch}/{plan.name}{subject.mark}.{end}" for end in ("pg", "tx"))
        pgbench = (
            "pgbench", *_CONNECT, "-n", "-M", "prepared", "-b", settings.script,
            "-c", str(settings.clients), "-j", str(min(settings.clients, 4)),
        )  # fmt: skip
        ramp, runtime = math.ceil(timing.ramp), math.ceil(timing.runtime)
        memory = max(16, (subject.memory or _USUAL_MEMORY) // MIB // 4)
        values = (
            f"shared_buffers={memory}MB", f"max_wal_size={_wal(subject) // MIB}MB",
            f"checkpoint_timeout={CYCLE:.0f}s", f"max_connections={settings.clients + 10}",
            *(f"{name}={value}" for name, value in _WANTED.items() if name != "data_checksums"),
        )  # fmt: skip
        source = subject.packages.get(files.name, files.name)
        percent = str(settings.rate_percent or 100)

        def step(
            verb: str, *arguments: str, timeout: float = _SLACK_SECONDS
        ) -> program.SideCommand:
            return program.step(files.script, verb, subject.path, *arguments, timeout=timeout)

        warm = (*pgbench, "-T", str(max(1, ramp)), "postgres")
        measured = (*pgbench, "-T", str(runtime), "-l", f"--log-prefix={log}", "postgres")
        return program.Script(
            program.in_directory(f"{subject.path}/data", measured)
            if settings.rate_percent is None
            else ("sh", "-c", 'cd "$0" && exec "$@" -R "$(cat vdisklab.rate)"',
                  f"{subject.path}/data", *measured),
            float(runtime),
            runtime + _SLACK_SECONDS,
            prepare=(step("copy", source, *files.arguments, timeout=_COPY_SECONDS),),
            warm=(
                step("start", *values),
                step("warm", percent, *warm, timeout=ramp + _SLACK_SECONDS),
                step("before", counts),
            ),
            count=(step("after", counts, log),),
            conclude=(step("stop"),),
            collect=(counts,),
            before=files.size / _COPY_RATE + _START_SECONDS + ramp,
            log=f"{subject.path}/data/server.log",
        )  # fmt: skip

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Transactions per second and latencies; settings, counters and cycles as states.

        Raises WorkloadError if a setting is not the wanted one, or a transaction failed.
        """
        settings = program.read_settings(plan, PostgresqlSettings)
        report = read_report(output.stdout)
        counts = _read_counts("\n".join(output.files.values()))
        wrong = [
            f"{name} is {counts.settings.get(name, 'unknown')}, not {value}"
            for name, value in _WANTED.items()
            if counts.settings.get(name) != value
        ]
        if wrong:
            raise WorkloadError(f"PostgreSQL was not measured as meant: {', '.join(wrong)}")
        if counts.failed or counts.count != report.done:
            raise WorkloadError(
                f"pgbench's log holds {counts.count} of {report.done} transactions, and "
                f"{counts.failed} that failed"
            )
        direction = _direction(settings.script)
        samples = (Sample("transactions", direction, report.tps), *_latencies(counts, direction))
        inner = tuple(count for _, count in sorted(counts.seconds.items()))[1:-1]
        series = Series("transactions", direction, 1.0, tuple(map(float, inner)))
        checks = tuple(
            Check(f"{plan.name}.{name}", _WANTED.get(name), value)
            for name, value in (*counts.settings.items(), *_facts(counts, inner))
        )
        return program.ProgramResult(
            samples, None, report.seconds, (series,) if inner else (), checks
        )

    def gates(
        self, plan: MeasurementPlan, outcome: program.ProgramResult, around: program.Around
    ) -> Iterator[program.Gate]:
        """What has to hold for a ranking: flushes, the disk's speed, checkpoints, processors."""
        settings = program.read_settings(plan, PostgresqlSettings)
        facts = program.facts_of(plan, outcome)
        alone = settings.clients == 1 and settings.script != "select-only"
        commits = "commits" if alone else None
        rate = outcome.samples[0].value
        yield from program.server_gates(facts, rate, commits, around)
        yield from _checkpoint_gates(facts, around.runtime)
        if settings.script != "select-only":
            yield program.Gate.at_least(
                "scale ÷ clients", float(facts["scale"]) / settings.clients,
                10 if settings.clients > 1 else 1, only_said=True,
            )  # fmt: skip


def _checkpoint_gates(facts: Mapping[str, str], runtime: float) -> Iterator[program.Gate]:
    """A timed checkpoint for each whole cycle, none requested. A run of less than two says so."""
    if "checkpoints_timed" not in facts:
        return
    timed, requested = (float(facts[f"checkpoints_{kind}"]) for kind in ("timed", "requested"))
    cycles = max(_CYCLES, runtime // CYCLE)
    yield program.Gate(
        "timed checkpoints", timed == cycles, timed, f"exactly {cycles:g}",
        only_said=runtime < _CYCLES * CYCLE,
    )  # fmt: skip
    yield program.Gate.at_most("requested checkpoints", requested, 0)


def _direction(script: str) -> Direction:
    return Direction.READ if script == "select-only" else Direction.WRITE


def _wal(subject: program.Subject) -> int:
    """max_wal_size in bytes: an eighth of the disk."""
    return max(64 * MIB, subject.nominal // 8 // MIB * MIB)


def _scale(settings: PostgresqlSettings, subject: program.Subject, timing: program.Timing) -> int:
    """pgbench's scale: as set, else four guest memories or what fits, times --scale."""
    if settings.scale is not None:
        return settings.scale
    room = (subject.nominal * 8 // 10 - _wal(subject) - _BASE_BYTES) // _SCALE_BYTES
    # With fewer than ten branches for each of the profile's eight clients, they wait for rows.
    wanted = room if subject.memory is None else max(80, -(-4 * subject.memory // (15 * 10**6)))
    return max(1, round(min(room, wanted) * timing.scale))


class PgbenchReport(Value):
    """pgbench's own summary; `mean` is in seconds. What an old version does not print is None."""

    version: str | None
    script: str
    scale: int | None
    clients: int
    done: int
    tps: float
    mean: float | None
    seconds: float | None

    @property
    def name(self) -> str:
        """The measurement's name, as in the built-in profiles."""
        return f"{self.script}-c{self.clients}"


def read_report(text: str) -> PgbenchReport:
    """pgbench's summary, versions 9.6 to 17. Raises WorkloadError for a text without one."""
    tps = _TPS.findall(text)
    found = {name: form.search(text) for name, form in _LINES.items()}
    values = {name: match[1] for name, match in found.items() if match is not None}
    lacking = [name for name in ("kind", "clients", "done") if name not in values]
    if len(tps) != 1 or lacking:
        raise WorkloadError(
            "pgbench's summary with its line `tps = …` is missing"
            if len(tps) != 1
            else f"pgbench's summary lacks its {' and '.join(lacking)}"
        )
    done = int(values["done"])
    if not done or not float(tps[0]):
        raise WorkloadError("pgbench did not complete a single transaction")
    kind = re.sub(r"^<builtin: (.*)>$", r"\1", values["kind"])
    return PgbenchReport(
        version=values.get("version"),
        script=_KINDS.get(kind, "pgbench"),
        scale=int(values["scale"]) if "scale" in values else None,
        clients=int(values["clients"]),
        done=done,
        tps=float(tps[0]),
        mean=float(values["mean"]) / 1000 if float(values.get("mean", 0)) else None,
        seconds=float(values["seconds"]) if "seconds" in values else None,
    )


def imported(text: str) -> tuple[program.Report, ...]:
    """The measurement in what pgbench printed."""
    report = read_report(text)
    direction = _direction(report.script)
    samples = [Sample("transactions", direction, report.tps)]
    if report.mean is not None:
        samples.append(Sample("latency_mean", direction, report.mean))
    outcome = program.ProgramResult(tuple(samples), None, report.seconds)
    return (
        program.Report(
            "pgbench", report.version, None, (program.NamedResult(report.name, outcome),)
        ),
    )


@dataclass(slots=True)
class _ServerCounts:
    """What scripts/postgresql.sh counted around pgbench; latencies in microseconds."""

    settings: dict[str, str]
    views: dict[tuple[str, str], Mapping[str, Any]]
    cpu: dict[str, tuple[int, ...]]
    latencies: dict[float, int]
    seconds: dict[int, int]
    fdatasync: float | None = None
    count: int = 0
    failed: int = 0
    total: float = 0.0
    most: float = 0.0

    def grown(self, view: str, *columns: str) -> int | None:
        """How much a counter grew; None if this version of PostgreSQL has none of these columns."""
        for column in columns:
            values = [self.views.get((when, view), {}).get(column) for when in ("before", "after")]
            if all(isinstance(value, int) for value in values):
                return int(values[1] or 0) - int(values[0] or 0)
        return None


def _read_counts(text: str) -> _ServerCounts:
    counts = _ServerCounts({}, {}, {}, {}, {})
    for line in text.splitlines():
        match = _COUNT.match(line)
        if match is None:
            raise WorkloadError(f"the counts around pgbench have the unknown line {line[:80]!r}")
        try:
            _count_line(counts, match)
        except (ValueError, IndexError) as error:
            raise WorkloadError(
                f"the counts around pgbench are damaged at {line[:80]!r}"
            ) from error
    if counts.count != sum(counts.latencies.values()) or not counts.count:
        raise WorkloadError(
            f"pgbench's histogram holds {sum(counts.latencies.values())} of {counts.count} "
            "transactions"
        )
    return counts


def _count_line(counts: _ServerCounts, match: re.Match[str]) -> None:
    if match["what"] == "setting":
        counts.settings[match["name"]] = match["value"]
    elif match["name"] == "cpu":
        counts.cpu[match["what"]] = tuple(map(int, match["value"].split()))
    elif match["what"]:
        row = json.loads(match["value"])
        if not isinstance(row, dict):
            raise ValueError
        counts.views[match["what"], match["name"]] = row
    else:
        first, second, *rest = map(float, match["numbers"].split())
        match match["kind"]:
            case "probe":
                counts.fdatasync = min(second / first, counts.fdatasync or math.inf)
            case "log":
                counts.count, counts.failed = int(first), int(second)
                counts.total, counts.most = rest[0], rest[1]
            case "latency":
                counts.latencies[first] = int(second)
            case _:
                counts.seconds[int(first)] = int(second)


def _latencies(counts: _ServerCounts, direction: Direction) -> Iterator[Sample]:
    """The mean and the greatest, and percentiles by nearest rank from the histogram."""
    yield Sample("latency_mean", direction, counts.total / counts.count / 1e6)
    yield Sample("latency_max", direction, counts.most / 1e6)
    rows = sorted(counts.latencies.items())
    reached = list(itertools.accumulate(count for _, count in rows))
    for metric, share in program.PERCENTILES.items():
        rank = max(1, math.ceil(counts.count * share - 1e-9))
        # Above the largest transaction's rank a percentile would be the maximum.
        if counts.count * (1 - share) >= 1:
            microseconds = next(
                row[0] for row, sofar in zip(rows, reached, strict=True) if sofar >= rank
            )
            yield Sample(metric, direction, microseconds / 1e6)


def _facts(counts: _ServerCounts, seconds: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Counters of the measured time, as states to show."""
    yield "commits", str(counts.count)
    if counts.fdatasync:
        yield "fdatasync", f"{counts.fdatasync:.6f}"
    background, checkpointer = "pg_stat_bgwriter", "pg_stat_checkpointer"
    numbers = {
        "wal_flushes": counts.grown("pg_stat_wal", "wal_sync"),
        "wal_bytes": counts.grown("pg_stat_wal", "wal_bytes"),
        "wal_full_pages": counts.grown("pg_stat_wal", "wal_fpi"),
        "blocks_read": counts.grown("pg_stat_database", "blks_read"),
        "checkpoints_timed": _first(
            counts.grown(background, "checkpoints_timed"), counts.grown(checkpointer, "num_timed")
        ),
        "checkpoints_requested": _first(
            counts.grown(background, "checkpoints_req"), counts.grown(checkpointer, "num_requested")
        ),
    }
    yield from ((name, str(value)) for name, value in numbers.items() if value is not None)
    cpu = [counts.cpu.get(when) for when in ("before", "after")]
    if cpu[0] and cpu[1]:
        spent = [after - before for before, after in zip(cpu[0], cpu[1], strict=True)]
        if busy := program.busy_share(spent):
            yield "cpu", busy
    length = int(CYCLE)
    if len(seconds) >= 2 * length - 2:
        for cycle in range(_CYCLES):
            part = seconds[cycle * length : (cycle + 1) * length]
            yield f"cycle_{cycle + 1}_transactions", f"{sum(part) / len(part):.1f}"


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

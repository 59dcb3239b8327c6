"""RocksDB: its own db_bench, on a database in a file system of the measured disk."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Check, Direction, Sample
from vdisklab.units import MIB
from vdisklab.workload import program

_KEY_BYTES = 450  # a key of 16 bytes, a value of 400, and their share of index and blocks
_COPY_RATE = 40 * MIB
_SLACK_SECONDS = 600.0
_COPY_SECONDS = 4 * 3600.0

_LINE = re.compile(
    r"^(?P<name>[a-z]+) +: +[0-9.]+ micros/op [0-9]+ ops/sec (?P<seconds>[0-9.]{1,15}) seconds "
    r"(?P<done>[0-9]{1,18}) operations;", re.MULTILINE,
)  # fmt: skip
_HISTOGRAM = re.compile(
    r"^Count: [0-9]{1,18} Average: (?P<mean>[0-9.]{1,20}) .*\n"
    r"Min: .* Max: (?P<most>[0-9]{1,15})\n"
    r"Percentiles: P50: (?P<p50>[0-9.]{1,20}) .* P99: (?P<p99>[0-9.]{1,20}) "
    r"P99\.9: (?P<p999>[0-9.]{1,20}) ", re.MULTILINE,
)  # fmt: skip
_SYNCS = re.compile(r"^Cumulative WAL: [0-9]+[KMG]? writes, ([0-9]+)([KMG]?) syncs,", re.MULTILINE)
_FACTORS = {"": 1, "K": 1000, "M": 1_000_000, "G": 1_000_000_000}


class RocksdbSettings(program.Settings):
    """Settings of a RocksDB measurement: db_bench's benchmark and number of threads.

    `keys` is how many keys of 16 bytes and values of 400 are read; the default makes four times as
    much data as the guest has memory, or as much as fits. fillsync begins with an empty database.
    """

    benchmark: Literal["fillsync", "readrandom", "readwhilewriting"]
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    keys: Annotated[int, Field(ge=1000, le=10**10)] | None = None


class Rocksdb(program.Workload):
    """db_bench, of the package rocksdb-tools."""

    needs_directory = True
    clients_setting = "threads"

    def files(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.PreparedFiles | None:
        """The database to read, which the host's own db_bench makes."""
        settings = program.read_settings(plan, RocksdbSettings)
        if settings.benchmark == "fillsync":
            return None
        usual = round(program.default_data(subject) * timing.scale) // _KEY_BYTES
        keys = settings.keys or max(1000, usual)
        return program.PreparedFiles(
            f"rocksdb-{keys}", program.database_script("rocksdb"), (str(keys),), ("db_bench",),
            keys * _KEY_BYTES + 16 * MIB,
        )  # fmt: skip

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """db_bench for the ramp, and then for the run time."""
        settings = program.read_settings(plan, RocksdbSettings)
        files, script = self.files(plan, subject, timing), program.database_script("rocksdb")
        size = 64 * MIB if files is None else files.size * 5 // 4
        less = "" if files is None else ", or a smaller --scale"
        program.require_room(plan, size, subject.room_for_files, or_less=less)
        ramp, runtime = max(1, math.ceil(timing.ramp)), math.ceil(timing.runtime)
        cache = (subject.memory or 512 * MIB) // 4
        keys = "100000000" if files is None else files.arguments[0]

        def bench(seconds: int) -> tuple[str, ...]:
            return (
                "db_bench", f"--benchmarks={settings.benchmark},stats", f"--db={subject.path}/data",
                f"--num={keys}", f"--duration={seconds}", f"--threads={settings.threads}",
                "--value_size=400", "--compression_type=none", f"--cache_size={cache}",
                f"--use_existing_db={int(files is not None)}", "--histogram=1",
                "--ops_between_duration_checks=10",
            )  # fmt: skip

        arguments: tuple[str, ...] = ()
        if files is not None:
            arguments = (subject.packages.get(files.name, files.name), *files.arguments)
        verb = "new" if files is None else "copy"
        make = program.step(script, verb, subject.path, *arguments, timeout=_COPY_SECONDS)
        warm = program.SideCommand(bench(ramp), ramp + _SLACK_SECONDS)
        return program.Script(
            bench(runtime),
            float(runtime),
            runtime + _SLACK_SECONDS,
            prepare=(make,),
            warm=(warm,),
            conclude=(program.step(script, "stop", subject.path, timeout=_SLACK_SECONDS),),
            before=ramp + size / _COPY_RATE,
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Operations per second, and latencies from RocksDB's own histogram.

        Raises WorkloadError if writes of fillsync were not synced.
        """
        settings = program.read_settings(plan, RocksdbSettings)
        line, histogram = _LINE.search(output.stdout), _HISTOGRAM.search(output.stdout)
        if line is None or histogram is None or line["name"] != settings.benchmark:
            last = (output.stderr.strip() or output.stdout.strip() or "nothing").splitlines()[-1]
            raise WorkloadError(f"db_bench did not finish; its last line was: {last[:200]}")
        done, seconds = int(line["done"]), _number(line["seconds"])
        if not done or not seconds:
            raise WorkloadError("db_bench did not complete a single operation")
        direction = Direction.WRITE if settings.benchmark == "fillsync" else Direction.READ
        syncs = _SYNCS.search(output.stdout)
        # With K, M or G the count is cut off.
        unit = 1 if syncs is None else _FACTORS[syncs[2]]
        synced = 0 if syncs is None else int(syncs[1]) * unit
        # RocksDB joins the writes of waiting threads in a group, which its leader syncs once
        # (DBImpl::WriteImpl).
        if direction is Direction.WRITE and synced + unit <= 0.99 * done / settings.threads:
            raise WorkloadError(f"db_bench synced {synced} of {done} writes")
        latencies = {
            "latency_mean": histogram["mean"], "latency_p50": histogram["p50"],
            "latency_p99": histogram["p99"], "latency_p99.9": histogram["p999"],
            "latency_max": histogram["most"],
        }  # fmt: skip
        samples = (
            Sample("transactions", direction, done / seconds),
            *(Sample(name, direction, _number(text) / 1e6)
              for name, text in latencies.items() if _number(text) > 0),
        )  # fmt: skip
        checks = (
            Check(f"{plan.name}.operations", None, str(done)),
            Check(f"{plan.name}.wal_syncs", None, str(synced)),
        )
        return program.ProgramResult(samples, None, seconds, (), checks)

    def gates(
        self, plan: MeasurementPlan, outcome: program.ProgramResult, around: program.Around
    ) -> Iterator[program.Gate]:
        """Each synced write of one thread is a flush of the guest."""
        settings = program.read_settings(plan, RocksdbSettings)
        if settings.benchmark == "fillsync" and settings.threads == 1:
            done = float(program.facts_of(plan, outcome)["operations"])
            yield from program.flushed("writes", done, around)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise WorkloadError(f"db_bench printed {text!r} instead of a number") from error

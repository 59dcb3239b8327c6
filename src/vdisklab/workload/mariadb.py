"""MariaDB: sysbench's database tests on InnoDB, with the data on the measured disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Check
from vdisklab.units import MIB
from vdisklab.workload import program, sysbench

_TABLES = 4
_ROW_BYTES = 250  # of InnoDB's table and its second index
_BASE_BYTES = 320 * MIB  # log, undo, temporary and system tablespaces
_COPY_RATE = 40 * MIB
_SLACK_SECONDS = 600.0
_COPY_SECONDS = 4 * 3600.0

_WANTED = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "log_bin": "OFF"}
"""Settings that decide what a commit costs; a server with others is not measured."""


class MariadbSettings(program.Settings):
    """Settings of a MariaDB measurement: sysbench's test and its threads.

    `rows` is the number of rows in each of four tables; the default makes four times as much data
    as the guest has memory, or as much as fits.
    """

    test: Literal["oltp_read_write", "oltp_write_only", "oltp_read_only"]
    threads: Annotated[int, Field(ge=1, le=1000)] = 1
    rows: Annotated[int, Field(ge=1000, le=10**9)] | None = None


class Mariadb(program.Workload):
    """MariaDB's server and sysbench."""

    needs_directory = True
    by_server = True
    clients_setting = "threads"

    def files(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.PreparedFiles:
        """The data directory, which the host's own MariaDB makes."""
        settings = program.read_settings(plan, MariadbSettings)
        size = min(program.default_data(subject), subject.nominal * 7 // 10 - _BASE_BYTES)
        usual = round(size * timing.scale) // (_TABLES * _ROW_BYTES)
        rows = settings.rows or max(1000, usual)
        return program.PreparedFiles(
            f"mariadb-{rows}", program.database_script("mariadb"), (str(rows),),
            ("mariadbd", "mariadb-install-db", "mariadb", "sysbench", "setpriv"),
            rows * _TABLES * _ROW_BYTES + _BASE_BYTES,
        )  # fmt: skip

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """sysbench, and around it the steps of scripts/mariadb.sh."""
        settings = program.read_settings(plan, MariadbSettings)
        files = self.files(plan, subject, timing)
        program.require_room(plan, files.size * 9 // 8, subject.room_for_files)
        ramp, runtime = max(1, math.ceil(timing.ramp)), math.ceil(timing.runtime)
        test = (
            "sysbench", settings.test, "--db-driver=mysql", "--mysql-user=root",
            "--mysql-socket=/proc/self/cwd/mysql.sock", f"--tables={_TABLES}",
            f"--table_size={files.arguments[0]}", f"--threads={settings.threads}",
            "--percentile=99", "--histogram=on",
        )  # fmt: skip
        pool = max(16, (subject.memory or 512 * MIB) // MIB // 4)
        values = (
            f"innodb_buffer_pool_size={pool}M", f"max_connections={settings.threads + 10}",
            "innodb_flush_log_at_trx_commit=1", "innodb_doublewrite=1", "skip_log_bin",
        )  # fmt: skip
        source = subject.packages.get(files.name, files.name)
        counts = f"{subject.scratch}/{plan.name}{subject.mark}.sql"

        def step(
            verb: str, *arguments: str, timeout: float = _SLACK_SECONDS
        ) -> program.SideCommand:
            return program.step(files.script, verb, subject.path, *arguments, timeout=timeout)

        return program.Script(
            program.in_directory(f"{subject.path}/data", (*test, f"--time={runtime}", "run")),
            float(runtime),
            runtime + _SLACK_SECONDS,
            prepare=(step("copy", source, *files.arguments, timeout=_COPY_SECONDS),),
            warm=(
                step("start", *values),
                step("warm", *test, f"--time={ramp}", "run", timeout=ramp + _SLACK_SECONDS),
                step("before", counts),
            ),
            count=(step("after", counts),),
            conclude=(step("stop"),),
            collect=(counts,),
            before=files.size / _COPY_RATE + 20.0 + ramp,
            log=f"{subject.path}/data/server.log",
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Transactions per second and latencies; settings and counters as states.

        Raises WorkloadError if a setting is not the wanted one.
        """
        measured = sysbench.parse_oltp(output.stdout).outcome
        lines = "\n".join(output.files.values()).splitlines()
        settings = dict(_pairs(lines, "setting", plan))
        wrong = [
            f"{name} is {settings.get(name, 'unknown')}, not {value}"
            for name, value in _WANTED.items()
            if settings.get(name) != value
        ]
        if wrong:
            raise WorkloadError(f"MariaDB was not measured as meant: {', '.join(wrong)}")
        before, after = (dict(_pairs(lines, when, plan)) for when in ("before", "after"))
        facts = {**settings, **dict(_grown(before, after))}
        probes = [line.split()[1:] for line in lines if line.startswith("probe ")]
        if probes and all(len(probe) == 2 for probe in probes):
            fastest = min(float(seconds) / float(count) for count, seconds in probes)
            facts["fdatasync"] = f"{fastest:.6f}"
        checks = tuple(
            Check(f"{plan.name}.{name}", _WANTED.get(name), value) for name, value in facts.items()
        )
        return program.ProgramResult(measured.samples, None, measured.measured_seconds, (), checks)

    def gates(
        self, plan: MeasurementPlan, outcome: program.ProgramResult, around: program.Around
    ) -> Iterator[program.Gate]:
        """Flushes for each commit of one thread, the disk's speed, processors, amount of data."""
        settings = program.read_settings(plan, MariadbSettings)
        facts = program.facts_of(plan, outcome)
        alone = settings.threads == 1 and settings.test != "oltp_read_only"
        commits = "com_commit" if alone else None
        rate = outcome.samples[0].value
        yield from program.server_gates(facts, rate, commits, around)


def _pairs(lines: list[str], kind: str, plan: MeasurementPlan) -> Iterator[tuple[str, str]]:
    """The names and values in the lines of a kind. Raises WorkloadError if there are none."""
    found = [line.split(" ", 2)[1:] for line in lines if line.startswith(f"{kind} ")]
    if not found or any(len(pair) != 2 for pair in found):
        raise WorkloadError(f"{plan.name}: the counts around sysbench lack their lines `{kind} …`")
    yield from ((name, value) for name, value in found)


def _grown(before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[str, str]]:
    """By how much each counter grew; of `cpu` the busy share."""
    for name in before.keys() & after.keys():
        try:
            first, other = ([int(word) for word in of[name].split()] for of in (before, after))
        except ValueError as error:
            raise WorkloadError(f"the counter {name} around sysbench is not a number") from error
        grown = [b - a for a, b in zip(first, other, strict=False)]
        if name != "cpu":
            yield name, str(grown[0])
        elif busy := program.busy_share(grown):
            yield name, busy

"""SQLite: small transactions, each committed to disk before the next one begins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction, Sample
from vdisklab.units import MIB
from vdisklab.workload import program

_TIMEOUT = 2 * 3600.0
_NOW = "printf('%.3f', (julianday('now') - 2440587.5) * 86400)"

_MOMENT = re.compile(r"^(begin|end)\|([0-9]{1,12}\.[0-9]{3})\|([0-9]{1,12})$", re.MULTILINE)
_TIMER = re.compile(r"^Run Time: real ([0-9]{1,9}\.[0-9]{1,9}) ", re.MULTILINE)


class SqliteSettings(program.Settings):
    """Settings of a SQLite measurement: its journal mode and its transactions, of one row each."""

    journal: Literal["wal", "delete", "truncate", "persist"]
    transactions: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    row_bytes: Annotated[int, Field(ge=1, le=65_536)] = 100


class Sqlite(program.Workload):
    """The sqlite3 shell."""

    needs_directory = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """One INSERT per transaction with synchronous=FULL: SQLite syncs at each commit."""
        settings = program.read_settings(plan, SqliteSettings)
        count = max(1, round(settings.transactions * timing.scale))
        program.require_room(plan, 4 * count * (settings.row_bytes + 4096) + 16 * MIB, subject.size)
        file = f"{subject.path}/{plan.name}.db"
        make = (
            f"PRAGMA journal_mode={settings.journal};\n"
            "CREATE TABLE entry (key INTEGER PRIMARY KEY, value BLOB);\n"
        )
        command = ("sqlite3", "-batch", file)
        remove = program.SideCommand(
            ("rm", "-f", file, f"{file}-wal", f"{file}-shm", f"{file}-journal"), 60
        )
        return program.Script(
            command,
            0.0,
            _TIMEOUT,
            stdin=_statements(settings, count),
            prepare=(program.SideCommand(command, 60, make),),
            conclude=(remove,),
        )

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Transactions per second, and the latencies that sqlite3's timer shows.

        The timer has a resolution of 1 ms: a percentile below it has no sample.
        """
        settings = program.read_settings(plan, SqliteSettings)
        _confirm(settings, output)
        moments = {
            name: (float(seconds), int(rows))
            for name, seconds, rows in _MOMENT.findall(output.stdout)
        }
        if set(moments) != {"begin", "end"}:
            raise WorkloadError("sqlite3 ended early: its first or last line is missing")
        seconds = moments["end"][0] - moments["begin"][0]
        rows = moments["end"][1] - moments["begin"][1]
        durations = sorted(float(real) for real in _TIMER.findall(output.stdout))
        if rows < 1 or len(durations) != rows:
            raise WorkloadError(
                f"sqlite3 stored {rows} rows and timed {len(durations)} transactions"
            )
        if seconds <= 0:
            raise WorkloadError("sqlite3 took less than a millisecond", hint="raise `transactions`")
        samples = [
            Sample("transactions", Direction.WRITE, rows / seconds),
            Sample("latency_mean", Direction.WRITE, seconds / rows),
            *_percentiles(durations),
        ]
        return program.ProgramResult(tuple(samples), None, seconds)


def _statements(settings: SqliteSettings, count: int) -> str:
    insert = f"INSERT INTO entry (value) VALUES (randomblob({settings.row_bytes}));\n"  # noqa: S608
    return "".join(
        (
            # `synchronous` belongs to the connection; the journal mode to the file (WAL) or to the
            # connection (the others). Both are set here and read back.
            f"PRAGMA journal_mode={settings.journal};\nPRAGMA synchronous=FULL;\n"
            "SELECT 'synchronous', synchronous FROM pragma_synchronous;\n",
            f"SELECT 'begin', {_NOW}, count(*) FROM entry;\n.timer on\n",  # noqa: S608
            insert * count,
            f".timer off\nSELECT 'end', {_NOW}, count(*) FROM entry;\n",
        )
    )


def _confirm(settings: SqliteSettings, output: program.Outputs) -> None:
    lines = output.stdout.splitlines()
    if not lines or lines[0] != settings.journal or "synchronous|2" not in lines:
        raise WorkloadError(
            f"sqlite3 does not confirm journal_mode={settings.journal} and synchronous=FULL; "
            f"it printed {' '.join(lines[:2])[:120]!r} {output.stderr.strip()[:120]}"
        )


def _percentiles(seconds: Sequence[float]) -> list[Sample]:
    """Percentiles by nearest rank of times in ascending order.

    With fewer than a thousand the 99.9th would be the maximum, and is left out.
    """
    wanted = {"latency_p50": 0.5, "latency_p99": 0.99, "latency_max": 1.0, "longest_stall": 1.0}
    if len(seconds) >= 1000:
        wanted["latency_p99.9"] = 0.999
    # Floating point may make a whole product slightly larger.
    ranks = {name: max(1, math.ceil(len(seconds) * share - 1e-9)) for name, share in wanted.items()}
    by_metric = {name: seconds[rank - 1] for name, rank in ranks.items()}
    return [Sample(name, Direction.WRITE, value) for name, value in by_metric.items() if value > 0]

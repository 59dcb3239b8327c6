"""Damages every column of every table of a database in turn, and asks every verb that reads one.

    bench/damaged_values.py [--only TABLE[.COLUMN] …] [--every N] [--part K]

In each case one value of one row is replaced past SQLite's checks, as a bad sector would, by NULL,
text, bytes, a negative number, a huge one or a key that does not exist. A verb passes if it names
the damage (exit status 7), or answers with what the value permits: if vdisklab can never have
stored the value, that is the answer of the undamaged database. No verb may end in a traceback or
print NaN, infinity or None. Prints one JSON document; ends with 1 if there is a fault. `--every N
--part K` takes the cases K, K+N, K+2N, ….
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_inputs import ROOT
from machine import machine_facts, print_result
from vdisklab.actions.export_data import import_campaigns
from vdisklab.cli.shell.main import EXIT_BUG
from vdisklab.cli.shell.main import main as run_verb
from vdisklab.errors import DatabaseError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results import schema
from vdisklab.results.model import Failure, FailureKind, GuestGroup, HostLoad, Member
from vdisklab.results.power_cut import Counterexample, PowerCut
from vdisklab.results.store import Store, open_store

sys.path.insert(0, str(ROOT))
from tests.unit.results.damaging import unchecked

from vdisklab.value import replace

PATHS = ("ext4/raw/none", "ext4/qcow2/none", "ext4/raw/writeback", "host")
DENSITY_PATH = "raw/none/virtio:guests={}"
MISSING_KEY = 987654321
TEXT, BYTES = "x", b"\xff\0"
NUMBERS: tuple[object, ...] = (-5, -0.5, 1 << 40, (1 << 63) - 1, 1e300, float("inf"))
ORDINARY: tuple[object, ...] = (None, TEXT, "", BYTES)
DOMAIN = """<domain type='kvm'><name>web</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2' cache='none'/><source file='/nowhere/web.qcow2'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""
NO_NUMBER = re.compile(r"(?<![\w.])(?:NaN|nan|None|inf|Infinity)(?![\w.])")
CLOCK = re.compile(r"\d\d:\d\d:\d\d|\d+ (?:second|minute|hour|day)s? ago")

VERBS: Mapping[str, tuple[str, ...]] = {
    "runs": ("runs",),
    "runs of a campaign": ("runs", "CAMPAIGN"),
    "show": ("show", "RUN", "--raw"),
    "show a failed run": ("show", "FAILED"),
    "show guests": ("show", "GUESTS"),
    "rank": ("rank",),
    "rank as JSON": ("rank", "--format", "json"),
    "rank by latency": ("rank", "--metric", "randread-4k-q1/read/latency_p99", "--bars"),
    "rank by several": ("rank", "--pareto", "read/write/cpu"),
    "rank of hosts": ("rank", "--hosts", "all"),
    "compare": ("compare", "ext4/raw/none", "ext4/qcow2/none", "--all"),
    "compare hosts": ("compare", "ext4/raw/none", "ext4/qcow2/none", "--hosts", "all"),
    "published": ("compare", "--published", "debatty-2024"),
    "table": ("table",),
    "table as JSON": ("table", "--format", "json"),
    "table as a grid": ("table", "--as", "grid"),
    "recommend": ("recommend",),
    "recommend by weights": ("recommend", "--weights", "read=3,write=1", "--format", "json"),
    "recommend for hosts": ("recommend", "--hosts", "all"),
    "recommend for guests": ("recommend", "--guests", "1"),
    "claims": ("claims",),
    "claims of hosts": ("claims", "--hosts", "all", "--format", "json"),
    "audit": ("audit", "DOMAIN"),
    "advise": ("advise", "DOMAIN", "--format", "json"),
    "export": ("export", "ext4/raw/none", "--need", "durable"),
    "export-data": ("export-data", "OUT.json"),
    "numbers": ("export-data", "OUT.csv"),
    "report": ("report", "--format", "json", "-o", "OUT.json"),
    "report as a page": ("report", "-o", "OUT.html"),
    "report of hosts": ("report", "--hosts", "all", "-o", "OUT.html"),
    "plan": ("plan", "ext4/raw/none", "--format", "json"),
}
CHANGES: Mapping[str, tuple[str, ...]] = {
    "rename": ("runs", "--rename", "CAMPAIGN", "another name"),
    "delete a run": ("runs", "--delete", "RUN", "--yes"),
    "delete a campaign": ("runs", "--delete", "CAMPAIGN", "--yes"),
    "import": ("import", "EXPORT"),
}
"""Verbs that change the database: they must end in a sentence, but their answers are short."""


@dataclass(frozen=True, slots=True)
class Case:
    """A value to put into a column of the row that every answer uses."""

    table: str
    column: str
    value: object


def cases() -> Iterator[Case]:
    """Every value in every column, except in the rows' own keys."""
    for table in schema.metadata.sorted_tables:
        for column in table.c:
            if column.name == "key":
                continue
            keys = [MISSING_KEY] if column.foreign_keys else []
            for value in (*ORDINARY, *NUMBERS, *keys):
                yield Case(table.name, column.name, value)


class Databases:
    """An undamaged database with every table, and damaged copies of it."""

    def __init__(self, scratch: Path) -> None:
        # Answers name the file they come from, so both are asked for under one name.
        self.whole, self.damaged = scratch / "whole.sqlite", scratch / "results.sqlite"
        export, domain = scratch / "campaign.json", scratch / "web.xml"
        document = small_campaign()
        export.write_text(json.dumps(document))
        domain.write_text(DOMAIN)
        import_campaigns(str(self.whole), [export])
        with open_store(str(self.whole)) as store:
            add_power_cuts(store, document["campaigns"][0]["id"])
            guests = add_density(store, document["campaigns"][0]["id"])
            add_other_hosts(store, document["campaigns"][0]["id"])
            failed = add_failed(store, document["campaigns"][0]["id"])
        self.values = {
            "CAMPAIGN": document["campaigns"][0]["id"],
            "RUN": document["campaigns"][0]["runs"][-1]["id"],
            "FAILED": failed,
            "GUESTS": guests,
            "DOMAIN": str(domain),
            "EXPORT": str(export),
            **{f"OUT.{end}": str(scratch / f"out.{end}") for end in ("csv", "json", "html")},
        }
        self.outputs = [Path(self.values[f"OUT.{end}"]) for end in ("csv", "json", "html")]

    def damage(self, case: Case) -> bool:
        """Makes a damaged copy; False if SQLite cannot hold the value there."""
        shutil.copyfile(self.whole, self.damaged)
        try:
            with unchecked(self.damaged) as connection:
                self._change(connection, case)
        except (sqlite3.IntegrityError, OverflowError):
            return False
        return True

    def refuses(self, case: Case) -> bool:
        """True if the tables do not take the value, so that vdisklab cannot have stored it."""
        shutil.copyfile(self.whole, self.damaged)
        with closing(sqlite3.connect(self.damaged)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            try:
                self._change(connection, case)
            except (sqlite3.Error, OverflowError):
                return True
        return False

    def _change(self, connection: sqlite3.Connection, case: Case) -> None:
        table = schema.metadata.tables[case.table]
        keys = [key.name for key in table.primary_key]
        names = ", ".join(keys)
        rows = f"SELECT {names} FROM {table} WHERE {_used(case)} ORDER BY {names}"  # noqa: S608
        where = " AND ".join(f"{key} = ?" for key in keys)
        change = f"UPDATE {table} SET {case.column} = ? WHERE {where}"  # noqa: S608
        connection.execute(change, (case.value, *connection.execute(rows).fetchone()))

    def ask(self, command_line: Sequence[str]) -> tuple[int, str, str]:
        """Exit status and what is printed on both streams."""
        told, said = io.StringIO(), io.StringIO()
        for output in self.outputs:
            output.unlink(missing_ok=True)
        arguments = [self.values.get(word, word) for word in command_line]
        with redirect_stdout(said), redirect_stderr(told):
            status = run_verb((*arguments, "--db", str(self.damaged)))
        found = "".join(output.read_text() for output in self.outputs if output.exists())
        text = said.getvalue() + found
        return status, CLOCK.sub("", text), told.getvalue()


_RANDREAD = "measurement IN (SELECT key FROM measurement WHERE name = 'randread-4k-q1')"
_USED: Mapping[str, str] = {
    "metric": "name = 'latency_p99'",
    "campaign": "label != 'density'",
    "measurement": "name = 'randread-4k-q1'",
    "sample": f"metric = 'latency_p99' AND {_RANDREAD}",
}


def _used(case: Case) -> str:
    """The condition for rows that the answers use."""
    if case.table == "run":
        return "failure_kind IS " + ("NOT NULL" if case.column.startswith("failure") else "NULL")
    return _USED.get(case.table, "1")


def small_campaign() -> dict[str, Any]:
    """The recorded campaign with a few of its paths."""
    packed = (ROOT / "docs/images/campaign.json.gz").read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(packed))
    (campaign,) = document["campaigns"]
    campaign["runs"] = [run for run in campaign["runs"] if run["path"] in PATHS]
    for run in campaign["runs"]:
        for measurement in run["measurements"]:
            measurement["raw"] = "{}"
    return document


def add_failed(store: Store, campaign: str) -> str:
    """A run that failed, of a cell that was measured in the other rounds."""
    (*_, last) = store.runs(campaign)
    failure = Failure(FailureKind.GUEST, "the guest died")
    run = replace(last, id="fa11ed", round=last.round + 1, failure=failure, measurements=())
    store.add_run(run)
    return run.id


def add_other_hosts(store: Store, like: str) -> None:
    """Older campaigns of the same plan on two other machines."""
    model, runs = store.campaign(like), list(store.runs(like))
    before = model.started.replace(year=model.started.year - 2)
    for name in ("kvm2", "kvm3"):
        host = replace(model.host, machine_id=name, hostname=name)
        campaign = replace(model, id=f"07be6{name}", host=host, started=before)
        store.add_campaign(campaign)
        for run in runs:
            store.add_run(replace(run, id=f"{name}-{run.id}", campaign=campaign.id))


def add_density(store: Store, like: str) -> str:
    """An older campaign that searched how many guests a path carries; the id of one run."""
    model = store.campaign(like)
    cells = [DENSITY_PATH.format(number) for number in (1, 2, 3)]
    plan = {"load": 100, "until": "latency_p99<=5ms", "most": 3, "cells": cells, "measurements": []}
    before = model.started.replace(year=model.started.year - 1)
    campaign = replace(
        model, id="de551717", fingerprint="d", plan=plan, started=before, label="density"
    )
    store.add_campaign(campaign)
    (first, *_) = store.runs(like)
    for round, guests in enumerate((1, 2, 3, 2, 3, 2, 3), 1):
        late = 0.02 if guests == 3 else 0.002
        members = tuple(
            Member(number, 0.0, 100.0, late / 3, late / 4, late, late, 1000, 1000)
            for number in range(1, guests + 1)
        )
        group = GuestGroup(10.0, members, HostLoad(0.5, 0.01, 0.9, 3.0, "IO", 0.7))
        path = DENSITY_PATH.format(guests)
        measured = replace(first.measurements[-1], group=group)
        store.add_run(
            replace(
                first, id=f"9e575{round}", campaign=campaign.id, path=path, round=round,
                cell=MeasuredCell(path).fingerprint, measurements=(measured,),
            )
        )  # fmt: skip
    return "9e5751"


def add_power_cuts(store: Store, campaign: str) -> None:
    """A verdict that a path keeps flushed data, and one that another loses it."""
    host, started = store.campaign(campaign).host, store.campaign(campaign).started
    kept = PowerCut(
        id="c0ffee00", fingerprint="k", path="ext4/raw/none", client="flushes", access="nbd",
        host=host, started=started, wall_seconds=1.5, survives=True, claim="it survives",
        states=60, possible=1e9, exhaustive=False, acknowledged=20, flushes=7, leaked_states=0,
        repaired_states=0, post_recovery_states=2, outcomes={"kept": 60}, settings={"writes": 80},
        observed={"loop.fua": "0"},
    )  # fmt: skip
    lost = replace(
        kept, id="c0ffee01", fingerprint="l", path="ext4/qcow2/none", survives=False,
        outcomes={"kept": 50, "lost": 10}, counterexample=Counterexample("12-3f", "lost", "7"),
    )  # fmt: skip
    for cut in (kept, lost):
        store.add_power_cut(cut)


def fault_of(
    refused: bool, status: int, text: str, told: str, undamaged: tuple[int, str, str] | None
) -> str | None:
    """What is wrong with an answer, or None; `refused` as in `Databases.refuses`."""
    if status == EXIT_BUG or "Traceback" in told:
        return f"a bug: {told[:300]}"
    strange = Counter(NO_NUMBER.findall(text + told))
    strange -= Counter() if undamaged is None else Counter(NO_NUMBER.findall(undamaged[1]))
    if strange and status != DatabaseError.exit_code:
        return f"it prints {', '.join(strange)}"
    if status == DatabaseError.exit_code or undamaged is None or not refused:
        return None
    if (status, text) == undamaged[:2]:
        return None
    return f"another answer (exit status {status}): {told[:200]} {_difference(undamaged[1], text)}"


def _difference(before: str, after: str) -> str:
    """The first line that differs, as it was and as it is."""
    for old, new in zip([*before.splitlines(), ""], [*after.splitlines(), ""], strict=False):
        if old != new:
            place = next((index for index, pair in enumerate(zip(old, new, strict=False))
                          if pair[0] != pair[1]), 0)  # fmt: skip
            start = max(0, place - 60)
            return f"{old[start : start + 160]!r} became {new[start : start + 160]!r}"
    return ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="+", metavar="TABLE[.COLUMN]", default=[])
    options.add_argument("--verbs", nargs="+", metavar="VERB", default=[])
    options.add_argument("--every", type=int, default=1)
    options.add_argument("--part", type=int, default=0)
    wanted = options.parse_args()
    result: dict[str, object] = machine_facts(Path.cwd())
    started = time.monotonic()
    chosen = [
        case for case in cases()
        if not wanted.only or {case.table, f"{case.table}.{case.column}"} & set(wanted.only)
    ][wanted.part :: wanted.every]  # fmt: skip
    faults: dict[str, str] = {}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="vdisklab-damaged-") as scratch:
        os.environ |= {"VDISKLAB_STATE": scratch, "COLUMNS": "120"}
        databases = Databases(Path(scratch))
        verbs = {
            name: arguments for name, arguments in VERBS.items() if name in (wanted.verbs or VERBS)
        }
        changes = {name: arguments for name, arguments in CHANGES.items() if not wanted.verbs}
        shutil.copyfile(databases.whole, databases.damaged)
        undamaged = {name: databases.ask(arguments) for name, arguments in verbs.items()}
        for name, (status, text, told) in undamaged.items():
            counts[f"undamaged status {status}"] += 1
            if status not in (0, 9, 10) or not text:
                faults[f"{name}, undamaged"] = f"exit status {status}: {told[:300]}"
        for case in chosen:
            refused = databases.refuses(case)
            if not databases.damage(case):
                counts["cases that SQLite cannot hold"] += 1
                continue
            counts["cases"] += 1
            counts["cases that the tables refuse"] += refused
            for name, arguments in (verbs | changes).items():
                if name in changes:
                    databases.damage(case)
                try:
                    status, text, told = databases.ask(arguments)
                except Exception:  # noqa: BLE001 - that is what is looked for
                    status, text, told = EXIT_BUG, "", traceback.format_exc()[-500:]
                counts["answers"] += 1
                counts["damage named"] += status == DatabaseError.exit_code
                counts["undamaged answers"] += (status, text) == undamaged.get(name, (0, ""))[:2]
                fault = fault_of(refused, status, text, told, undamaged.get(name))
                if fault is not None:
                    faults[f"{name}: {case.table}.{case.column} = {case.value!r}"] = fault
    result |= {
        "counts": dict(sorted(counts.items())),
        "seconds": round(time.monotonic() - started, 1),
        "faults": faults,
    }
    print_result(result)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Fails the Nth command, write, sync and allocation of a small campaign, for every N.

    PYTHONPATH=. python bench/faults.py [--only KIND …] [--stride N] [--dir DIR] [--keep]
                                        [--import FILE]

With --import no campaign is measured, and only what fails in the import of FILE's is tried.

The campaign measures two paths on the host. One round is stored before; each attempt measures the
second one, and one thing fails in it, once (`… once`) or from then on:

* command: a program of the host's door is refused, or ends with 1 after it has run
* write, sync: of a file below the lab's directory: database, journal, ledger, work directory
* allocation: of SQLite, in an import of the campaign, because there are thousands
* interleaved: the campaign stands still at a lock, write or sync of the database, while another
  program stores a run and reads all of them

Writes, syncs, allocations and locks are met by `faults.c` (LD_PRELOAD), in vdisklab's own process
only. After each attempt, every run that was stored or reported must be there, unchanged; SQLite
must find the file undamaged; what was printed must hold one error at most, and no traceback; and
after `vdisklab clean`, which must end with 0, nothing may be left. Exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from tests.conftest import look_around
from tests.lab import Lab
from tests.unit.results.values import a_campaign, a_run

from killed import load_all_modules, revision
from machine import machine_facts, print_result
from pages import keep_record, record_of
from vdisklab.actions import measure
from vdisklab.cli.shell.main import main as vdisklab
from vdisklab.errors import CommandError, DatabaseBusyError
from vdisklab.host.command import Completed, LocalHost
from vdisklab.results.model import Run
from vdisklab.results.store import open_store

RECORD = "faults.json.gz"
_SOURCE = Path(__file__).with_suffix(".c")
_WRITE, _SYNC, _ALLOCATION, _LOCK = range(1, 5)
_ONCE, _FROM_THEN_ON, _STOP = range(3)
_BUG = 70
_PROFILE = """
name = "one"
title = "One read"

[[measurement]]
name = "read"
program = "fio"
rw = "randread"
bs = "4k"
"""

Arm = Callable[[int], None]
"""Prepares a process whose Nth thing is to fail; 0 only counts."""


@dataclass
class Totals:
    """The attempts of one kind, at some of its `of` calls. `statuses` counts exit statuses,
    `sentences` the errors printed."""

    of: int = 0
    revision: str = ""
    injections: int = 0
    lost: int = 0
    left_for_clean: int = 0
    left: int = 0
    tracebacks: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    sentences: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Injector:
    """Runs the campaign in a child whose Nth call fails."""

    def __init__(self, directory: Path, library: Path) -> None:
        # The output is kept outside the lab's directory, which must be empty afterwards.
        (directory / "lab").mkdir()
        self.lab = Lab(directory / "lab", directory / "lab" / "state")
        self.temporary = directory / "tmp"
        self._printed = directory / "printed.txt"
        self._counted = directory / "counted.txt"
        self._stored = {name: directory / f"{name}.sqlite" for name in ("run", "import")}
        self._before: dict[str, dict[str, Run]] = {}
        self._exported = directory / "exported.json.gz"
        self._added = 0  # what an attempt adds in which nothing fails
        self._library = ctypes.CDLL(str(library))
        self._library.faults_counted.restype = ctypes.c_long

    def prepare(self, exported: Path | None) -> None:
        """Stores the first round, or takes the campaign that was exported elsewhere."""
        self.lab.prepare()
        (self.lab.directory / "one.toml").write_text(_PROFILE)
        self.temporary.mkdir()
        os.environ |= {"TMPDIR": str(self.temporary), "VDISKLAB_STATE": str(self.lab.state)}
        tempfile.tempdir = None
        if exported is None:
            self._measure_one_round()
        else:
            shutil.copy(exported, self._exported)
        other = a_campaign()
        with open_store(str(self.lab.database)) as store:
            store.add_campaign(other)
            store.add_run(a_run(other))
        self._keep("import")

    def _measure_one_round(self) -> None:
        status = self._finish(self._start(lambda: None, "run", rounds=1))
        arguments = ("export-data", str(self._exported), "--db", str(self.lab.database))
        with redirect_stdout(StringIO()):
            exported = vdisklab(arguments)
        if status != 0 or exported != 0:
            raise SystemExit(f"the campaign fails by itself: {self._printed.read_text()}")
        self._keep("run")
        self.lab.database.unlink()

    def _keep(self, task: str) -> None:
        shutil.copy(self.lab.database, self._stored[task])
        self._before[task] = {run.id: run for run in self.lab.runs()}

    def preloaded(self, kind: int, error: int, mode: int, below: Path) -> Arm:
        """Arms the library."""
        return lambda nth: self._library.faults_arm(
            kind, ctypes.c_long(nth), error, mode, os.fsencode(below)
        )

    def count(self, kind: Kind) -> int:
        """The calls of an attempt in which nothing fails."""
        self._renew(kind.task)
        self._finish(self._start(partial(kind.arm, 0), kind.task))
        self._added = len(self.lab.runs()) - len(self._before[kind.task])
        return int(self._counted.read_text())

    def attempt(self, kind: Kind, nth: int, totals: Totals) -> None:
        """One attempt, judged."""
        self._renew(kind.task)
        begin = time.monotonic()
        child = self._start(partial(kind.arm, nth), kind.task)
        before = self._before[kind.task] | (self._beside(child) if kind.beside else {})
        status = self._finish(child)
        faults = [*self._lost(status, before), *self._uncleaned(totals)]
        said = self._printed.read_text()
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if "Traceback" in said or status == _BUG or status < 0:
            totals.tracebacks += 1
            faults.append(f"status {status}: {said[-300:]}")
        elif len(errors) != (status not in (0, 8)):
            faults.append(f"status {status} with {len(errors)} errors: {errors}")
        totals.injections += 1
        for counts, arguments in ((totals.statuses, [str(status)]), (totals.sentences, errors)):
            for word in arguments:
                plain = re.sub(r"/\S+|[0-9a-f]{8}|\d+(?!$)", "…", word)
                counts[plain] = counts.get(plain, 0) + 1
        totals.faults += [f"{nth}: {fault}" for fault in faults]
        totals.lost += sum("lost" in fault or "changed" in fault for fault in faults)
        totals.seconds += time.monotonic() - begin

    def _renew(self, task: str) -> None:
        for file in self.lab.directory.glob("lab.sqlite*"):
            file.unlink()
        shutil.copy(self._stored[task], self.lab.database)

    def _start(self, arm: Callable[[], None], task: str, rounds: int = 2) -> int:
        child = os.fork()
        if child == 0:
            sink = os.open(self._printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            measure._RETRY_SECONDS, measure._PAUSE_SECONDS = 1.0, 0.05
            status = 1
            try:
                arm()
                options: dict[str, Any] = {"runtime": "50ms", "profile": "one"}
                arguments = self.lab.arguments("{,ext4/}host", rounds=rounds, **options)
                arguments = [word.replace("32M", "16M") for word in arguments]
                if task == "import":
                    arguments = ["import", str(self._exported), "--db", str(self.lab.database)]
                status = vdisklab(list(arguments))
                sys.stdout.flush()
            finally:
                counted = self._library.faults_counted() or _COMMANDS[0]
                self._library.faults_arm(0, ctypes.c_long(0), 0, 0, b"")
                self._counted.write_text(str(counted))
                os._exit(status)
        return child

    def _finish(self, child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _beside(self, child: int) -> dict[str, Run]:
        """What another program stores while the child stands still, or else right afterwards."""
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise SystemExit(f"the campaign did not stop: {self._printed.read_text()}")
        campaign = a_campaign()
        run = a_run(campaign)
        done = False
        while not done:
            try:
                with open_store(str(self.lab.database), patience=0.05) as store:
                    if campaign.id not in {each.id for each in store.campaigns()}:
                        store.add_campaign(campaign)
                    store.add_run(run)
                    assert run.id in {each.id for each in store.runs()}
                done = True
            except DatabaseBusyError:
                os.kill(child, signal.SIGCONT)
        os.kill(child, signal.SIGCONT)
        return {run.id: run}

    def _lost(self, status: int, before: dict[str, Run]) -> Iterator[str]:
        """Runs that are missing or changed, and SQLite's message about a damaged file."""
        with closing(sqlite3.connect(self.lab.database)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            yield f"lost: the database: {verdict}"
            return
        now = {run.id: run for run in self.lab.runs()}
        for name, run in before.items():
            if now.get(name) != run:
                yield f"run {name} is {'changed' if name in now else 'lost'}"
        lines = self._printed.read_text().splitlines()
        reported = sum(line.lstrip()[:1] in ("✓", "✗") for line in lines)
        added = len(now) - len(before)
        if added < reported or (status == 0 and added != self._added):
            yield f"lost: {reported} runs were reported with status {status}, {added} are stored"

    def _uncleaned(self, totals: Totals) -> Iterator[str]:
        """The things that are left after `clean`."""
        totals.left_for_clean += bool(self._leftovers())
        output = StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            status = vdisklab(["clean"])
        left = self._leftovers()
        totals.left += len(left)
        yield from (f"clean left {thing}" for thing in left)
        if status != 0:
            yield f"clean: {output.getvalue()}"

    def _leftovers(self) -> list[str]:
        around = look_around(self.lab.state, (self.lab.work, self.temporary))
        return [*self.lab.leftovers(), *around.processes, *map(str, self.temporary.iterdir())]


_COMMANDS = [0]


def refusing_commands(nth: int, *, after: bool) -> None:
    """Makes the Nth command of this process fail, before or after it has run."""
    real = LocalHost.run
    _COMMANDS[0] = 0

    def run(self: LocalHost, *argv: Any, **options: Any) -> Completed:  # noqa: ANN401
        _COMMANDS[0] += 1
        if _COMMANDS[0] != nth:
            return real(self, *argv, **options)
        if after:
            real(self, *argv, **options)
        raise CommandError(tuple(map(os.fspath, argv)), 1, "refused by bench/faults.py")

    LocalHost.run = run  # type: ignore[method-assign]


@dataclass(frozen=True)
class Kind:
    """What fails, how a process is armed, in which task, and whether another program stores a run
    while it stands still."""

    name: str
    arm: Arm
    task: str = "run"
    beside: bool = False


def kinds(injector: Injector) -> Iterator[Kind]:
    """The kinds of faults."""
    lab, database = injector.lab.directory, injector.lab.database
    yield Kind("command refused", partial(refusing_commands, after=False))
    yield Kind("command fails after it ran", partial(refusing_commands, after=True))
    for name, call, error in (
        ("write, no space", _WRITE, errno.ENOSPC),
        ("write, I/O error", _WRITE, errno.EIO),
        ("sync, I/O error", _SYNC, errno.EIO),
        ("allocation", _ALLOCATION, errno.ENOMEM),
    ):
        task = "import" if call == _ALLOCATION else "run"
        yield Kind(f"{name}, once", injector.preloaded(call, error, _ONCE, lab), task)
        yield Kind(
            f"{name}, from then on", injector.preloaded(call, error, _FROM_THEN_ON, lab), task
        )
    for name, call in (("lock", _LOCK), ("write", _WRITE), ("sync", _SYNC)):
        arm = injector.preloaded(call, 0, _STOP, database)
        yield Kind(f"interleaved at a {name}", arm, beside=True)


def inject(
    directory: Path,
    library: Path,
    only: Sequence[str],
    stride: int,
    most: int,
    *,
    exported: Path | None = None,
    note: Callable[[dict[str, Totals]], object] = lambda _found: None,
) -> dict[str, Totals]:
    """The totals of each kind; `note` gets those so far, now and then."""
    injector = Injector(directory, library)
    load_all_modules()
    injector.prepare(exported)
    found: dict[str, Totals] = {}
    for kind in kinds(injector):
        if only and not any(kind.name.startswith(word) for word in only):
            continue
        if exported is not None and kind.task != "import":
            continue
        calls = injector.count(kind)
        steps = range(1, calls + 1, max(stride, -(-calls // most)))
        totals = found[kind.name] = Totals(calls, revision())
        for done, nth in enumerate(steps, 1):
            injector.attempt(kind, nth, totals)
            if done % 50 == 0 or done == len(steps):
                note(found)
        print(f"{kind.name}: {totals}", file=sys.stderr, flush=True)
    return found


def shown(arguments: Sequence[str]) -> str:
    """The table of the record, a row for each kind; see pages.py."""
    del arguments
    rows = ["| what fails | calls | injections | results lost | left after `clean` | tracebacks |"]
    rows.append("|---|---|---|---|---|---|")
    for name, kind in record_of(RECORD)["kinds"].items():
        figures = (kind[key] for key in ("of", "injections", "lost", "left", "tracebacks"))
        rows.append(f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |")
    return "\n".join(rows)


def keep(facts: dict[str, object], found: dict[str, Totals]) -> None:
    """Writes the record. A kind of which fewer calls have failed so far stays as it was."""
    recorded_kinds = (
        record_of(RECORD)["kinds"] if (_SOURCE.parent / "results" / RECORD).exists() else {}
    )
    for name, totals in found.items():
        if totals.faults or totals.injections >= recorded_kinds.get(name, {}).get("injections", 0):
            recorded_kinds[name] = to_builtins(totals)
    keep_record(RECORD, {"bench": "faults", **facts, "kinds": recorded_kinds})


def print_totals(found: dict[str, Totals]) -> None:
    """Prints the totals so far."""
    print_result({name: to_builtins(totals) for name, totals in found.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--most", type=int, default=1 << 30, help="injections of each kind")
    parser.add_argument("--import", type=Path, dest="exported", metavar="FILE")
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--keep", action="store_true", help=f"write results/{RECORD}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        dir=options.dir, prefix="faults-", ignore_cleanup_errors=True
    ) as name:
        library = Path(name) / "faults.so"
        if "LD_PRELOAD" not in os.environ:
            kept = options.dir.absolute() / "faults.so"
            command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(kept), str(_SOURCE), "-ldl"]
            subprocess.run(command, check=True)
            os.environ["LD_PRELOAD"] = str(kept)
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - itself
        library = Path(os.environ["LD_PRELOAD"])
        note = partial(keep, machine_facts(options.dir)) if options.keep else print_totals
        arguments = (options.only, options.stride, options.most)
        place = Path(name).absolute()
        found = inject(place, library, *arguments, exported=options.exported, note=note)
    raise SystemExit(any(totals.faults for totals in found.values()))


if __name__ == "__main__":
    main()

"""SIGKILLs of campaigns at random moments: is every completed run kept, is nothing left by `clean`?

    PYTHONPATH=. python bench/killed.py [--kills 25] [--seconds S] [--guests SHARE] [--seed N]
                                        [--dir DIR] [--add bench/results/killed.json]

Each kill starts or continues a campaign of three rounds, waits for a random moment within the time
that one round takes here, and kills the program. In a quarter of them it kills the guests' QEMU
first, and the program within the next half second; it counts as such a kill only if there was a
guest to kill. The program is a child process that calls the command line's `main` with all modules
loaded, so that no moment is spent on Python's imports. Afterwards

* every run that the database held, or that the program had reported, must be there, unchanged;
* SQLite must find the file undamaged;
* `vdisklab clean` must end with status 0 and leave no loop device, mount, QEMU, measuring program,
  file or ledger entry.

The same campaign is then continued, so most kills hit one that was killed before. A program that
ends before its moment does not count as a kill: its campaign is complete, and the next one begins.
Exit status 1 if anything was lost or left. `--add` adds these kills to those of a record.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import pkgutil
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from tests.conftest import look_around
from tests.lab import Lab

import vdisklab as package
from machine import machine_facts, print_result
from pages import record_of
from vdisklab.cli.shell.main import main as vdisklab
from vdisklab.host.syscalls import die_with_parent
from vdisklab.results.model import Run

HALF_A_SECOND = 0.5
ROUNDS = 3
# Of the campaigns with guests. A fifth of these moments comes before the first guest runs.
QEMU_FIRST_SHARE = 0.75
# 8: cells failed, because their QEMU was killed before, or on a busy machine, where fio may not
# complete a single operation in 200 ms.
_BY_ITSELF = (0, 8)


class Kind(StrEnum):
    """The process that is killed."""

    HOST = "campaign on the host"
    GUEST = "campaign with guests"
    QEMU_FIRST = "campaign with guests, QEMU killed first"


PATHS = {
    Kind.HOST: ("{,ext4/}host",),
    Kind.GUEST: ("raw/none", "xfs/qcow2/writeback"),
}
PATHS[Kind.QEMU_FIRST] = PATHS[Kind.GUEST]


@dataclass
class Totals:
    """The results of the kills. `faults` has one line for each thing lost, damaged or left."""

    kills: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    guests_killed: int = 0
    campaigns_completed: int = 0
    runs_kept: int = 0
    kills_that_left_something_to_clean: int = 0
    things_removed_by_clean: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Adds the results of other kills."""
        for name, value in to_builtins(other).items():
            if isinstance(value, dict):
                for kind, count in value.items():
                    self.by_kind[kind] = self.by_kind.get(kind, 0) + count
            else:
                setattr(self, name, getattr(self, name) + value)


class Killer:
    """Kills campaigns in one work directory, database and state."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.lab = Lab(directory, directory / "state")
        self.temporary = directory / "tmp"
        self.totals = Totals()
        self._printed = directory / "printed.txt"
        self._chance = chance
        self._campaigns = dict.fromkeys(Kind, 0)
        self._child: int | None = None
        self._longest: dict[tuple[str, ...], float] = {}

    def prepare(self) -> None:
        """Makes the directories."""
        self.lab.prepare()
        self.temporary.mkdir()
        os.environ |= {"TMPDIR": str(self.temporary), "VDISKLAB_STATE": str(self.lab.state)}
        tempfile.tempdir = None

    def time_a_round(self, kind: Kind) -> None:
        """Times a whole campaign of one round; the first one also makes the guest's image."""
        for _ in range(2):
            begin = time.monotonic()
            status = _status(self._start(self.lab.arguments(*PATHS[kind])))
            self._longest[PATHS[kind]] = time.monotonic() - begin
            if status not in _BY_ITSELF:
                printed = self._printed.read_text()
                raise SystemExit(f"a campaign that nobody kills ends with {status}: {printed}")
            self.lab.database.unlink()

    def kill_once(self, kind: Kind) -> bool:
        """Kills a campaign at a random moment. False if it was complete before."""
        earlier = self.runs()
        moment = self._chance.uniform(0.01, self._longest[PATHS[kind]])
        process = self._start(self._arguments(kind))
        end = time.monotonic() + moment
        while time.monotonic() < end:
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._complete(kind, _status(process))
                return False
            time.sleep(min(0.02, max(0.0, end - time.monotonic())))
        self._kill(kind, moment, process, earlier)
        return True

    def stop(self) -> None:
        """Ends what an interrupted kill left: a child that was not waited for yet."""
        if self._child is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                os.kill(self._child, signal.SIGKILL)
                _status(self._child)
        with contextlib.redirect_stdout(sys.stderr):
            vdisklab(["clean"])

    def _start(self, arguments: Sequence[str]) -> int:
        """The process of a command line; its output goes to a file."""
        process = os.fork()
        if process == 0:
            die_with_parent(signal.SIGKILL)
            sink = os.open(self._printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            status = 1
            try:
                status = vdisklab(list(arguments))
            finally:
                sys.stdout.flush()
                os._exit(status)
        self._child = process
        return process

    def _complete(self, kind: Kind, status: int) -> None:
        self._campaigns[kind] += 1
        self.totals.campaigns_completed += 1
        if status not in _BY_ITSELF:
            self.totals.faults.append(f"{kind}: ended by itself with {status}")

    def _arguments(self, kind: Kind) -> Sequence[str]:
        seed = str(1 + self._campaigns[kind])
        return (*self.lab.arguments(*PATHS[kind], rounds=ROUNDS), "--seed", seed)

    def _kill(self, kind: Kind, moment: float, process: int, earlier: Mapping[str, Run]) -> None:
        begin = time.monotonic() - moment
        if kind is Kind.QEMU_FIRST:
            guests = self.lab.guests()
            for guest in guests:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(guest, signal.SIGKILL)
            self.totals.guests_killed += len(guests)
            kind = kind if guests else Kind.GUEST
            time.sleep(self._chance.uniform(0, HALF_A_SECOND))
        stored = self.runs()
        os.kill(process, signal.SIGKILL)
        _status(process)
        where = f"{kind}, killed after {moment:.2f} s"
        self.totals.kills += 1
        self.totals.by_kind[kind] = self.totals.by_kind.get(kind, 0) + 1
        faults = [*self._lost(stored, earlier), *self._uncleaned()]
        self.totals.faults += [f"{where}: {fault}" for fault in faults]
        self.totals.runs_kept += len(stored)
        self.totals.seconds += time.monotonic() - begin

    def _lost(self, stored: Mapping[str, Run], earlier: Mapping[str, Run]) -> list[str]:
        """Runs that are missing or changed, and SQLite's message about a damaged file."""
        now = self.runs()
        faults = [f"run {name} is lost" for name in stored if name not in now]
        faults += [f"run {name} has changed" for name in stored if stored[name] != now.get(name)]
        lines = self._printed.read_text().splitlines() if self._printed.exists() else []
        reported = sum(line.lstrip()[:1] in ("✓", "✗") for line in lines)
        if len(now) - len(earlier) < reported:
            faults.append(f"{reported} runs were reported, {len(now) - len(earlier)} are stored")
        if self.lab.database.exists():
            with closing(sqlite3.connect(self.lab.database)) as connection:
                (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
            faults += [] if verdict == "ok" else [f"the database: {verdict}"]
        return faults

    def _uncleaned(self) -> list[str]:
        """The things that are left after `clean`."""
        self.totals.kills_that_left_something_to_clean += bool(self._leftovers())
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = vdisklab(["clean"])
        said = output.getvalue()
        self.totals.things_removed_by_clean += said.count("removed ")
        faults = [f"clean left {thing}" for thing in self._leftovers()]
        return faults if status == 0 else [*faults, f"clean: {said}"]

    def _leftovers(self) -> list[str]:
        around = look_around(self.lab.state, (self.lab.work, self.temporary))
        temporary = [str(path) for path in self.temporary.iterdir()]
        return [*self.lab.leftovers(), *around.processes, *temporary]

    def runs(self) -> dict[str, Run]:
        """All stored runs by their names."""
        if not self.lab.database.exists():
            return {}
        return {run.id: run for run in self.lab.runs()}


def _status(process: int) -> int:
    """The exit status of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def load_all_modules() -> None:
    """Imports what a campaign would import."""
    for module in pkgutil.walk_packages(package.__path__, "vdisklab."):
        if "migrations" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def draw_kind(guests: float, chance: random.Random) -> Kind:
    """A random kind: `guests` is the share of campaigns with guests."""
    draw = chance.random()
    if draw < QEMU_FIRST_SHARE * guests:
        return Kind.QEMU_FIRST
    return Kind.GUEST if draw < guests else Kind.HOST


def kill(directory: Path, count: int, guests: float, seed: int, seconds: float) -> Totals:
    """The result of `count` kills below a directory, or of as many as there is time for."""
    end = time.monotonic() + seconds
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    killer = Killer(directory, chance)
    killer.prepare()
    load_all_modules()
    try:
        for kind in (Kind.HOST, Kind.GUEST) if guests else (Kind.HOST,):
            killer.time_a_round(kind)
        while killer.totals.kills < count and not killer.totals.faults and time.monotonic() < end:
            killer.kill_once(draw_kind(guests, chance))
    finally:
        killer.stop()
    return killer.totals


def revision() -> str:
    """The commit of this checkout; "?" if it has none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "?"


def shown(arguments: Sequence[str]) -> str:
    """The record's totals, a row for each kind of kill; see pages.py."""
    del arguments
    record = record_of("killed.json")
    totals = record["totals"]
    rows = [f"| {kind} | {kills} |" for kind, kills in sorted(totals["by_kind"].items())]
    rows = ["| killed at a random moment | kills |", "|---|---|", *rows]
    rows.append(f"| together, at commit {record['portions'][0]['revision']} | {totals['kills']} |")
    rows.append(f"| runs stored before a kill, summed over the kills | {totals['runs_kept']} |")
    rows.append(f"| things that `clean` removed | {totals['things_removed_by_clean']} |")
    rows.append(f"| runs lost, or things left after `clean` | {len(totals['faults'])} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--guests", type=float, default=0.42, help="share with guests")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    parser.add_argument("--add", type=Path)
    options = parser.parse_args()
    facts = machine_facts(options.dir)
    portion: dict[str, Any] = {
        "date": facts.pop("date"),
        "load": facts.pop("load_before"),
        "revision": revision(),
        "guests": options.guests,
        "seed": options.seed,
    }
    record: dict[str, Any] = {"totals": {}, "mended": [], "portions": []}
    if options.add and options.add.exists():
        record |= json.loads(options.add.read_text())
    totals = Totals(**record["totals"])
    # A directory that cannot be removed is a fault that must not hide what was found.
    with tempfile.TemporaryDirectory(
        dir=options.dir, prefix="killed-", ignore_cleanup_errors=True
    ) as name:
        found = kill(Path(name), options.kills, options.guests, options.seed, options.seconds)
    totals.add(found)
    record["portions"].append({**portion, "kills": found.kills})
    result = {"bench": "killed", **facts, **record, "totals": to_builtins(totals)}
    if options.add:
        options.add.write_text(json.dumps(result, indent=2) + "\n")
    print_result(result)
    raise SystemExit(bool(found.faults))


if __name__ == "__main__":
    main()

"""The work of a worker for a task: one `vdisklab run` at a time, as a child of its own session.

The child holds a lock while it lives. A restarted worker finds the child by the lock, waits for its
end, and gives the same command again, which continues the campaign or has nothing to do. Only text
is sent.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from vdisklab.errors import EXIT_INTERRUPTED, DatabaseError, HostError, VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import leftovers
from vdisklab.host.mounts import free_bytes, require_work_directory
from vdisklab.host.progress_file import CAMPAIGNS_FILE
from vdisklab.host.safe_places import make_state_directory, open_file
from vdisklab.host.state_directory import state_directory
from vdisklab.host.waiting import patience
from vdisklab.results.store import open_store

LAST_LINES = 5
RETRIES = 5
"""How often a command that was killed is given again."""

DATABASE_SECONDS = 20.0
"""Seconds between attempts to reach a database that does not answer."""

_STARTING_SECONDS = 3.0
_TAIL_BYTES = 4096


def _file(name: str) -> Path:
    directory = state_directory()
    try:
        make_state_directory(directory)
    except OSError as error:
        raise HostError(
            f"the directory {directory} cannot be created: {error.strerror}",
            hint="set VDISKLAB_STATE to a directory that can be written",
        ) from error
    return directory / name


def measure_here(task: str) -> str:
    """Runs the task's command to its end; returns exit status, last lines and campaigns as JSON.

    A task is `{"arguments": […], "db": URL}`; the URL has no password. An earlier command that
    still runs is waited for. After `stop_here` the command is not begun. If it is killed, the host
    is cleaned and the command given again, up to five times; also if PostgreSQL is restarting.
    """
    given = json.loads(task)
    began = time.time_ns()
    environment = child_environment(os.environ, given.get("db"))
    opened = open_file(_file("fleet.lock"), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    with os.fdopen(opened, "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)  # the number of an earlier process may be another's by now
        status, log = EXIT_INTERRUPTED, _file("fleet.log")
        campaigns = _file("fleet.campaigns")
        environment[CAMPAIGNS_FILE] = str(campaigns)
        for _ in range(1 + RETRIES):
            campaigns.unlink(missing_ok=True)
            if _stopped_since(began):
                return json.dumps({"status": EXIT_INTERRUPTED, "lines": ["stopped"]})
            if _entries_left():  # by a command that was killed
                _vdisklab("clean", environment=environment, log=log, lock=lock).wait()
            arguments = ("run", *given["arguments"])
            child = _vdisklab(*arguments, environment=environment, log=log, lock=lock)
            if _stopped_since(began):  # it came while the command was started
                child.send_signal(signal.SIGINT)
            # The lock is never unlocked but closed: the child keeps it if this worker is killed.
            status = child.wait()
            if _database_is_away(status, log):
                time.sleep(DATABASE_SECONDS)
            elif status >= 0:
                break
        measured = _ids_in(campaigns)
    return json.dumps({"status": status, "lines": last_lines(log), "campaigns": measured})


def _ids_in(campaigns: Path) -> list[str]:
    """The campaigns that the command named; none if it ended before."""
    with suppress(OSError):
        return campaigns.read_text(encoding="utf-8").split()
    return []


def _database_is_away(status: int, log: Path) -> bool:
    """True if the command failed because the database does not answer."""
    return status == DatabaseError.exit_code and any(
        line.startswith("error: ") and "does not answer" in line for line in last_lines(log)
    )


def _vdisklab(
    *arguments: str, environment: Mapping[str, str], log: Path, lock: TextIO
) -> subprocess.Popen[bytes]:
    """Starts vdisklab in a session of its own; the lock lives as long as it does."""
    descriptor = open_file(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "vdisklab", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
    lock.seek(0)
    lock.truncate()
    lock.write(json.dumps({"pid": child.pid, "since": time.time()}))
    lock.flush()
    return child


def child_environment(host_variables: Mapping[str, str], url: str | None) -> dict[str, str]:
    """The environment of `vdisklab run`: the host's own database wins over the client's.

    It is not an argument, because every user can list those.
    """
    return {**({} if url is None else {"VDISKLAB_DB": url}), **host_variables, "NO_COLOR": "1"}


def running() -> dict[str, Any] | None:
    """The campaign that runs here: `pid` and `since`; None if there is none."""
    with suppress(OSError, HostError), _file("fleet.lock").open("r+", encoding="utf-8") as lock:
        end = time.monotonic() + _STARTING_SECONDS * patience()
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may look at the same time
            except BlockingIOError:
                lock.seek(0)
                with suppress(ValueError):
                    state: dict[str, Any] = json.loads(lock.read())
                    return state
                time.sleep(0.01)  # it is being started: its number is not written yet
            else:
                break
    return None


def host_state() -> str:
    """This host's activity for `fleet status`: the start of its campaign, and its last line."""
    campaign = running()
    if campaign is None:
        return "{}"
    lines = last_lines(_file("fleet.log"))
    return json.dumps({"since": campaign["since"], "line": lines[-1] if lines else ""})


def host_facts() -> dict[str, str]:
    """The facts that `fleet run --hosts FACT=VALUE` compares."""
    facts = collect_facts(LocalHost())
    named = {"cpu": facts.cpu, "kernel": facts.kernel, "qemu": facts.qemu, "fio": facts.fio}
    return {name: value for name, value in (named | dict(facts.more)).items() if value}


def stop_here(deadline: float = 600.0) -> str:
    """Interrupts the campaign, which then removes all that it has built, and waits for its end.

    Returns what happened, in words.
    """
    descriptor = open_file(_file("fleet.stop"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stop:
        stop.write(str(time.time_ns()))
    campaign = running()
    if campaign is None:
        return "nothing was running"
    with suppress(ProcessLookupError):
        os.kill(int(campaign["pid"]), signal.SIGINT)
    end = time.monotonic() + deadline
    while (now := running()) is not None and now["pid"] == campaign["pid"]:
        if time.monotonic() > end:
            return f"process {campaign['pid']} still runs after {deadline:.0f} s"
        time.sleep(0.2)
    return "stopped"


def check_here(url: str, directory: str | None) -> str:
    """Whether this host reaches the database and can build images in the directory, and how much
    killed runs left behind, as JSON."""
    address = os.environ.get("VDISKLAB_DB") or url
    database = ""
    try:
        with open_store(address, create=False, patience=30):
            pass
    except VdisklabError as error:
        database = f"{error} ({error.hint})"
    report = {"database": database, "leftovers": _entries_left()}
    return json.dumps(report | (_directory_here(Path(directory)) if directory else {}))


def _directory_here(directory: Path) -> dict[str, Any]:
    try:
        require_work_directory(directory)
        with tempfile.TemporaryFile(dir=directory):
            return {"directory": "", "free_bytes": free_bytes(directory)}
    except VdisklabError as error:
        return {"directory": f"{error} ({error.hint})"}
    except OSError as error:
        return {"directory": f"nothing can be written in {directory}: {error.strerror}"}


def _entries_left() -> int | None:
    """How many things killed commands left on this host; None if that cannot be seen."""
    with suppress(VdisklabError, OSError), leftovers() as ledgers:
        return sum(len(ledger.entries) for ledger in ledgers)
    return None


def _stopped_since(moment: int) -> bool:
    with suppress(OSError, ValueError):
        return int(_file("fleet.stop").read_text(encoding="utf-8")) > moment
    return False


def last_lines(log: Path) -> list[str]:
    """The last lines of a log that are not blank."""
    with suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = stream.read().decode(errors="replace").replace("\r", "\n")
        return list(deque((line for line in text.splitlines() if line.strip()), LAST_LINES))
    return []

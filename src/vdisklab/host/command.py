"""Runs programs on the host: without a shell, in a fixed locale, under a deadline.

The programs that vdisklab runs: the package that contains each, and what it is for.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import IO, Protocol

from vdisklab.errors import CommandError, CommandTimeoutError, HostError
from vdisklab.host.waiting import interrupts_held, patience, pause_after
from vdisklab.path.named_target import HIDDEN_VARIABLE
from vdisklab.value import Value

_NO_PACKAGE = "-"


log = logging.getLogger(__name__)
PathArg = str | os.PathLike[str]
# losetup and mkfs are here, and the PATH of a cron job may lack these directories.
_ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_SECRET = frozenset({"PGPASSWORD", "VDISKLAB_DB"})
_END_SECONDS = 5.0
_WATCH_SECONDS = 0.2
# Commands that change nothing, and whose answer decides later commands.
_QUERIES = (("zpool", "get"), ("zfs", "get"))


class HostProgram(Value):
    """A program's packages, and what cannot be done without it.

    `packages` has one name for each package manager, in the order of MANAGERS.
    """

    packages: tuple[str, ...]
    purpose: str


def _rows(*kinds: str) -> Iterator[str]:
    """The rows of those kinds in packages.txt, which script/install reads too."""
    text = resources.files("vdisklab.host").joinpath("packages.txt").read_text("utf-8")
    for line in text.splitlines():
        kind, _, row = line.partition(" ")
        if kind.partition("@")[0] in kinds:  # @ and the architecture of the hosts that want it
            yield row


def _programs() -> Iterator[tuple[str, HostProgram]]:
    for row in _rows("needed", "optional", "database", "other"):
        programs, *packages, purpose = row.split(maxsplit=1 + len(MANAGERS))
        for program in programs.split(","):
            yield program, HostProgram(tuple(packages), purpose)


MANAGERS = dict(row.split(maxsplit=1) for row in _rows("manager"))
"""The package managers, each with the command that installs packages."""
PROGRAMS: Mapping[str, HostProgram] = dict(_programs())


def layer_programs(layer: str) -> tuple[str, ...]:
    """The programs of a host layer, the first of each package."""
    purpose = f"layer {layer}"
    rows = [(program, row) for program, row in PROGRAMS.items() if row.purpose == purpose]
    first = {row.packages: program for program, row in reversed(rows)}
    return tuple(reversed(first.values()))


def install_hint(programs: Iterable[str]) -> str:
    """How to get programs here: the command of this system's package manager.

    Programs without a known package are only named; without a known manager all are.
    """
    wanted = tuple(programs)
    manager = next((name for name in MANAGERS if shutil.which(name)), None)
    packages = {program: _package(program, manager) for program in wanted}
    unknown = [program for program, package in packages.items() if package == _NO_PACKAGE]
    if manager is None or unknown:
        return f"install the package that contains {', '.join(unknown)}"
    return f"{MANAGERS[manager]} {' '.join(dict.fromkeys(packages.values()))}"


def _package(program: str, manager: str | None) -> str:
    if manager is None or program not in PROGRAMS:
        return _NO_PACKAGE
    return PROGRAMS[program].packages[list(MANAGERS).index(manager)]


def not_installed(program: str) -> HostError:
    """The error for a missing program."""
    return HostError(f"{program} is not installed", hint=install_hint([program]))


def _is_secret(variable: str) -> bool:
    """True for a variable that no program needs, and whose value nobody else may see."""
    return variable in _SECRET or variable.startswith(HIDDEN_VARIABLE)


class Completed(Value):
    """A program that ended with an allowed status, and its output."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


class Host(Protocol):
    """The place where programs run: this machine, a recording, or a script in a test."""

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        """Runs a program to its end and calls `watch` with its process id meanwhile.

        Raises CommandError for a status outside `allowed`, and HostError for a missing program
        or one that has not ended within `timeout` seconds.
        """

    def which(self, program: str) -> Path | None:
        """The path of a program, or None."""


def environment() -> dict[str, str]:
    """The process's environment with a fixed locale, and with /sbin and the like on PATH.

    The database's password is left out, so QEMU and fio never see it.
    """
    path = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    path += [extra for extra in (*_ADMIN_PATHS, *_postgresql_paths()) if extra not in path]
    inherited = {name: value for name, value in os.environ.items() if not _is_secret(name)}
    return {**inherited, "LC_ALL": "C.UTF-8", "PATH": ":".join(path)}


@cache
def _postgresql_paths() -> tuple[str, ...]:
    """The directories of PostgreSQL's programs in Debian's and in the project's own packages, which
    keep several versions side by side; the newest first."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    numbers = {path: re.sub(r"\D", "", path.parent.name) for path in found}
    return tuple(map(str, sorted(found, key=lambda path: int(numbers[path] or 0), reverse=True)))


class LocalHost:
    """Runs programs on this machine."""

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        """See `Host.run`. Bytes that are not UTF-8 become replacement characters.

        `watch` is called about five times a second, but never uses more than 1 % of a CPU.
        """
        command = tuple(os.fspath(arg) for arg in argv)
        log.debug("+ %s", shlex.join(command))
        program = self.which(command[0])
        if program is None:
            raise not_installed(command[0])
        with _in_memory(stdin or "") as given, _in_memory() as output, _in_memory() as errors:
            process = None
            try:
                with interrupts_held():
                    process = _started(command, program, given, output, errors)
                _await_end(process, timeout * patience(), watch)
            except BaseException as error:
                if process is not None:
                    _end(process)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise CommandTimeoutError(
                    f"`{shlex.join(command)}` gave no answer within {timeout:.0f} s"
                ) from error
            stdout, stderr = _text_of(output), _text_of(errors)
        if process.returncode not in allowed:
            raise CommandError(command, process.returncode, stderr or stdout)
        return Completed(command, process.returncode, stdout, stderr)

    def which(self, program: str) -> Path | None:
        """The absolute path of a program, or None.

        A name with a slash is a path; another name is looked up in PATH, /sbin and its like.
        """
        path = shutil.which(program, path=environment()["PATH"])
        return Path(path).absolute() if path else None


def require_programs(host: Host, *programs: str) -> None:
    """Raises HostError for the first program that is not installed."""
    for program in programs:
        if host.which(program) is None:
            raise not_installed(program)


class RecordingHost:
    """Records commands instead of running them; only queries run, on the real host."""

    def __init__(self, real: Host) -> None:
        self.commands: list[tuple[str, ...]] = []
        self._real = real

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,  # noqa: ARG002 - the protocol's
        watch: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        """Records the command. Returns empty output and status 0; for a query, the real answer."""
        command = tuple(os.fspath(word) for word in argv)
        if command[:2] in _QUERIES:
            return self._real.run(*command, timeout=timeout, allowed=allowed)
        self.commands.append(command)
        return Completed(command, 0, "", "")

    def which(self, program: str) -> Path | None:
        """The path of a program on the real host, or None."""
        return self._real.which(program)


def _in_memory(text: str = "") -> IO[str]:
    """A file in memory with the text, to be a program's input or output.

    A pipe is worse for both. QEMU's monitor does not wait for the reader of a full pipe: on `quit`
    it drops the rest of its answer. And `communicate` of Python 3.11 loses the rest of its input
    when it is called again after a timeout.
    """
    descriptor = os.memfd_create("vdisklab")
    file = os.fdopen(descriptor, "w+", encoding="utf-8", errors="replace")
    os.write(descriptor, text.encode(errors="surrogateescape"))
    file.seek(0)
    return file


def _text_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _started(
    command: tuple[str, ...], program: Path, given: IO[str], output: IO[str], errors: IO[str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            executable=program,
            stdin=given,
            stdout=output,
            stderr=errors,
            env=environment(),
            process_group=0,  # the terminal must not send Ctrl-C to a running umount
        )
    except OSError as error:
        raise HostError(
            f"{command[0]} cannot be started: {error.strerror}",
            hint="the file may be built for another architecture, or not be executable: "
            "reinstall its package",
        ) from error


def _await_end(
    process: subprocess.Popen[bytes], timeout: float, watch: Callable[[int], None] | None
) -> None:
    """Waits for a program and calls `watch`. Raises TimeoutExpired after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with _waiting_for(process) as ended:
        while True:
            left = deadline - time.monotonic()
            pause = left
            if watch is not None:
                pause = min(left, pause_after(partial(watch, process.pid), least=_WATCH_SECONDS))
            if ended(max(0.0, pause)):
                return
            if left <= pause:
                raise subprocess.TimeoutExpired(process.args, timeout)


@contextmanager
def _waiting_for(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits so many seconds for the program's end: True if it has ended.

    Popen's own `wait` with a timeout looks only every 50 ms.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        yield lambda seconds: bool(ended.poll(seconds * 1000)) and process.wait() is not None
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program and its children: first by SIGTERM, so that it can clean up.

    SIGKILL does not end one whose request to a dead NFS server is under way: it stays behind.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS * patience())
            return

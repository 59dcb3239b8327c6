"""Runs programs on the host: without a shell, in a fixed locale, under a deadline."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from vdisklab.errors import CommandError, CommandTimeoutError, HostError
from vdisklab.host.programs import not_installed
from vdisklab.host.waiting import patience, pause_after

log = logging.getLogger(__name__)

PathArg = str | os.PathLike[str]

# losetup and mkfs are here, and the PATH of a cron job may lack these directories.
_ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_SECRET = frozenset({"PGPASSWORD", "VDISKLAB_DB"})

_END_SECONDS = 5.0
_WATCH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Completed:
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
    path += [extra for extra in _ADMIN_PATHS if extra not in path]
    own = {name: value for name, value in os.environ.items() if name not in _SECRET}
    return {**own, "LC_ALL": "C.UTF-8", "PATH": ":".join(path)}


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
        input_file = _in_memory(stdin or "")
        try:
            process = subprocess.Popen(
                command,
                executable=program,
                stdin=input_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment(),
                process_group=0,  # the terminal must not send Ctrl-C to a running umount
            )
        except OSError as error:
            raise HostError(
                f"{command[0]} cannot be started: {error.strerror}",
                hint="the file may be built for another architecture, or not be executable: "
                "reinstall its package",
            ) from error
        finally:
            os.close(input_file)
        with process:
            try:
                stdout, stderr = _communicate(process, timeout * patience(), watch)
            except subprocess.TimeoutExpired as error:
                _end(process)
                raise CommandTimeoutError(
                    f"`{shlex.join(command)}` gave no answer within {timeout:.0f} s"
                ) from error
            except BaseException:
                _end(process)
                raise
        if process.returncode not in allowed:
            raise CommandError(command, process.returncode, stderr or stdout)
        return Completed(command, process.returncode, stdout, stderr)

    def which(self, program: str) -> Path | None:
        """The path of a program, or None; searches /sbin and its like too."""
        path = shutil.which(program, path=environment()["PATH"])
        return Path(path) if path else None


def require_programs(host: Host, *programs: str) -> None:
    """Raises HostError for the first program that is not installed."""
    for program in programs:
        if host.which(program) is None:
            raise not_installed(program)


# Commands that change nothing, and whose answer decides later commands.
_QUERIES = (("zpool", "get"), ("zfs", "get"))


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


def _in_memory(text: str) -> int:
    """A file descriptor with the text, to be read as standard input.

    With a pipe, `communicate` would have to write the text, and in Python 3.11 it loses the rest
    of its input when it is called again after a timeout.
    """
    descriptor = os.memfd_create("stdin")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(text.encode(errors="surrogateescape"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _communicate(
    process: subprocess.Popen[str], timeout: float, watch: Callable[[int], None] | None
) -> tuple[str, str]:
    """Standard output and error of a program. Raises TimeoutExpired after `timeout` seconds."""
    if watch is None:
        return process.communicate(timeout=timeout)
    deadline = time.monotonic() + timeout
    while True:
        pause = pause_after(partial(watch, process.pid), least=_WATCH_SECONDS)
        left = deadline - time.monotonic()
        try:
            return process.communicate(timeout=max(0.0, min(left, pause)))
        except subprocess.TimeoutExpired:
            if left <= pause:
                raise


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a program and its children: first by SIGTERM, so that it can clean up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            return

"""One door to the host: programs run without a shell, in a fixed locale, under a deadline."""

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
from pathlib import Path
from typing import Protocol

from vdisklab.errors import CommandError, HostError
from vdisklab.host.deadline import patience

log = logging.getLogger(__name__)

PathArg = str | os.PathLike[str]

# Administrators' programs (losetup, mkfs) live here, and a cron job's PATH may lack it.
_ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_END_SECONDS = 5.0
_BETWEEN_LOOKS = 0.2
# Of a processor's time: a look at the 40 processes of a fio job takes 7 ms.
_SHARE_OF_LOOKS = 0.01


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program that ended as allowed left behind."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


class Host(Protocol):
    """Where programs run: this machine, or a script in a test."""

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        """Runs a program to its end; `watch` is called with its number meanwhile.

        Raises CommandError for a status outside `allowed`, HostError for a missing program
        or one that gave no answer within `timeout` seconds.
        """

    def which(self, program: str) -> Path | None:
        """Where a program is, or None."""


def environment() -> dict[str, str]:
    """Our environment with the locale fixed and the administrators' directories on PATH."""
    path = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    path += [extra for extra in _ADMIN_PATHS if extra not in path]
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": ":".join(path)}


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
        """See `Host.run`. Output that is not UTF-8 is kept with replacement characters.

        `watch` is called about five times a second, or as often as it takes no more than a
        hundredth of a processor.
        """
        command = tuple(os.fspath(arg) for arg in argv)
        log.debug("+ %s", shlex.join(command))
        program = self.which(command[0])
        if program is None:
            raise HostError(
                f"{command[0]} is not installed", hint="`vdisklab doctor` says which package has it"
            )
        given = _in_memory(stdin or "")
        try:
            process = subprocess.Popen(
                command,
                executable=program,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment(),
                process_group=0,  # Ctrl-C is ours to handle, also where umount runs just now
            )
        except OSError as error:
            raise HostError(
                f"{command[0]} cannot be started: {error.strerror}",
                hint="its file may be of another architecture, or not executable: install its "
                "package again",
            ) from error
        finally:
            os.close(given)
        with process:
            try:
                stdout, stderr = _communicate(process, timeout * patience(), watch)
            except subprocess.TimeoutExpired as error:
                _end(process)
                raise HostError(
                    f"`{shlex.join(command)}` gave no answer within {timeout:.0f} s"
                ) from error
            except BaseException:
                _end(process)
                raise
        if process.returncode not in allowed:
            raise CommandError(command, process.returncode, stderr or stdout)
        return Completed(command, process.returncode, stdout, stderr)

    def which(self, program: str) -> Path | None:
        """Where a program is, the administrators' directories included, or None."""
        place = shutil.which(program, path=environment()["PATH"])
        return Path(place) if place else None


# Programs of a build whose answer decides later commands, and which change nothing.
_QUERIES = (("zpool", "get"), ("zfs", "get"))


class RecordingHost:
    """Records programs in `commands` instead of running them; the real host answers queries."""

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
        """Success without output; a query's real answer."""
        command = tuple(os.fspath(word) for word in argv)
        if command[:2] in _QUERIES:
            return self._real.run(*command, timeout=timeout, allowed=allowed)
        self.commands.append(command)
        return Completed(command, 0, "", "")

    def which(self, program: str) -> Path | None:
        """Where the real host has a program, or None."""
        return self._real.which(program)


def _in_memory(text: str) -> int:
    """A descriptor that a program reads the text from.

    A pipe would have to be filled by `communicate`, which forgets what is left of its input when it
    is called again after a timeout (seen in Python 3.11).
    """
    descriptor = os.memfd_create("stdin")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(text.encode(errors="surrogateescape"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _communicate(
    process: subprocess.Popen[str], timeout: float, watch: Callable[[int], None] | None
) -> tuple[str, str]:
    """All that a program says. Raises TimeoutExpired after `timeout` seconds."""
    if watch is None:
        return process.communicate(timeout=timeout)
    until = time.monotonic() + timeout
    while True:
        began = time.thread_time()
        watch(process.pid)
        pause = max(_BETWEEN_LOOKS, (time.thread_time() - began) / _SHARE_OF_LOOKS)
        left = until - time.monotonic()
        try:
            return process.communicate(timeout=max(0.0, min(left, pause)))
        except subprocess.TimeoutExpired:
            if left <= pause:
                raise


def _end(process: subprocess.Popen[str]) -> None:
    """Asks a program and those that it started to end, so that it takes down what it made."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            return

"""One door to the host: programs run without a shell, in a fixed locale, under a deadline."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vdisklab.errors import CommandError, HostError
from vdisklab.host.deadline import patience

log = logging.getLogger(__name__)

PathArg = str | os.PathLike[str]

# Administrators' programs (losetup, mkfs) live here, and a cron job's PATH may lack it.
_ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


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
    ) -> Completed:
        """Runs a program to its end.

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
    ) -> Completed:
        """See `Host.run`. Output that is not UTF-8 is kept with replacement characters."""
        command = tuple(os.fspath(arg) for arg in argv)
        log.debug("+ %s", shlex.join(command))
        program = self.which(command[0])
        if program is None:
            raise HostError(
                f"{command[0]} is not installed", hint="`vdisklab doctor` says which package has it"
            )
        try:
            done = subprocess.run(
                command,
                executable=program,
                input=stdin or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout * patience(),
                env=environment(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"`{shlex.join(command)}` gave no answer within {timeout:.0f} s"
            ) from error
        except OSError as error:
            raise HostError(
                f"{command[0]} cannot be started: {error.strerror}",
                hint="its file may be of another architecture, or not executable: install its "
                "package again",
            ) from error
        if done.returncode not in allowed:
            raise CommandError(command, done.returncode, done.stderr or done.stdout)
        return Completed(command, done.returncode, done.stdout, done.stderr)

    def which(self, program: str) -> Path | None:
        """Where a program is, the administrators' directories included, or None."""
        found = shutil.which(program, path=environment()["PATH"])
        return Path(found) if found else None

"""Every error that a user can be told of, as one tree with an exit status by kind.

    VdisklabError            1
    ├── PlanError            2   what was asked cannot be
    ├── HostError            3   this machine cannot do it
    │   └── CommandError         a program ended with a status we did not allow
    ├── DirtyHostError       4   something could not be taken down again
    ├── GuestError           5   the virtual machine or its agent failed
    ├── WorkloadError        6   the measuring program failed or said something unexpected
    ├── DatabaseError        7   the results cannot be read or written
    │   └── DatabaseBusyError    not now: locked, on a full disk, or out of reach
    └── PowercutError       11   a power cut cannot be judged

A campaign that finished with failed cells ends with 8, an interrupted one with 130. `claims` ends
with 9 when a claim fails, with 10 when none fails but not every one is shown to hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

EXIT_CELLS_FAILED = 8
EXIT_CLAIM_FAILS = 9
EXIT_CLAIM_OPEN = 10
EXIT_INTERRUPTED = 130


class VdisklabError(Exception):
    """A sentence for the user, and in `hint` the way out."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PlanError(VdisklabError):
    """What was asked for cannot exist or is not understood."""

    exit_code = 2


class HostError(VdisklabError):
    """This machine lacks something: a program, a right, room, a kernel feature."""

    exit_code = 3


class CommandError(HostError):
    """A program ended with a status that its caller did not allow."""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
        super().__init__(self._describe())

    def _describe(self) -> str:
        lines = [line.strip() for line in self.stderr.strip().splitlines() if line.strip()]
        ended = (
            f"was killed by signal {-self.status}"
            if self.status < 0
            else (f"exited with {self.status}")
        )
        text = f"`{shlex.join(self.argv)}` {ended}"
        return f"{text}: {' | '.join(lines[-3:])}" if lines else text


class DirtyHostError(VdisklabError):
    """Something that we made is still there; no further measurement is to be trusted."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or "end what uses it, then run `vdisklab clean`")


class GuestError(VdisklabError):
    """The virtual machine, its monitor or its agent failed."""

    exit_code = 5


class RefusedError(GuestError):
    """QEMU or the guest agent answered a command with an error."""


class WorkloadError(VdisklabError):
    """The measuring program failed, or answered in a form we do not know."""

    exit_code = 6


class DatabaseError(VdisklabError):
    """The database of results cannot be opened, read or written."""

    exit_code = 7


class DatabaseBusyError(DatabaseError):
    """The database cannot be used now, and may be later: locked, on a full disk, out of reach."""


class PowercutError(VdisklabError):
    """A power cut cannot be judged: a log or case is damaged, or an instrument failed its test."""

    exit_code = 11

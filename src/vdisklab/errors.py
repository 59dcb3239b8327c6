"""All errors that vdisklab reports, as one class tree with an exit status for each kind.

    VdisklabError            1
    ├── PlanError            2   the request is impossible or malformed
    │   └── SeparateCampaignsError   campaigns that cannot share one answer
    ├── HostError            3   this machine cannot do it
    │   ├── LayersMissingError   the host layers of all paths are missing
    │   ├── CommandError         a program ended with an unexpected status
    │   └── CommandTimeoutError  a program did not end in time
    ├── DirtyHostError       4   something that vdisklab created is still there
    ├── GuestError           5   the virtual machine or its agent failed
    │   ├── GuestTimeoutError    a program in the guest did not end in time
    │   ├── SilentGuestError     QEMU or the guest's agent did not answer in time
    │   └── WrongClockError      the guest's clock does not run like the host's
    ├── WorkloadError        6   the measuring program failed, or its output is not as expected
    │   ├── TooSlowError         it did not end in time
    │   └── LoadError            a recording of a guest's requests cannot be read
    ├── DatabaseError        7   the results cannot be read or written
    │   ├── NoDatabaseError      there is none yet
    │   └── DatabaseBusyError    not at the moment: locked, disk full, unreachable
    └── PowercutError       11   a power cut cannot be judged

A campaign that finished with failed cells ends with 8, an interrupted one with 130. `claims` ends
with 9 if a claim fails, with 10 if none fails but some could not be shown to hold. `trend` ends
with 9 if the newest campaign is worse than allowed. `rank` and `recommend` end with 2 if there are
fewer rounds, or hosts, than a rank needs.
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

EXIT_CELLS_FAILED = 8
EXIT_CLAIM_FAILS = 9
EXIT_CLAIM_OPEN = 10
EXIT_INTERRUPTED = 130

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end vdisklab, after it has removed everything that it built."""


IN_DIRECTORY = ("sh", "-c", 'cd "$0" && exec "$@"')
"""Runs the command that follows a directory in that directory."""

_WAYS = {
    "no space left on device": "the guest's disk or memory is full: choose a larger --size or "
    "--guest-memory",
    "cannot allocate memory": "choose a larger --guest-memory",
    "out of memory": "choose a larger --guest-memory",
    "input/output error": "the disk refused a request: see `dmesg`, or the log of the server that "
    "has the disk, which may be full or read-only by now",
}

_LONGEST_COMMAND = 160
_SHOWN_COMMANDS = 3
_DATA = re.compile(r"}|[0-9]+(, *[0-9]+)+")


def extra_hint(extra: str) -> str:
    """The command that installs the Python packages of an optional part, such as `parquet`.

    No package index has vdisklab, so `pip install 'vdisklab[parquet]'` would find nothing: outside
    the environment that script/install made, the packages themselves are named.
    """
    from importlib import metadata  # noqa: PLC0415 - for errors only

    checkout = Path(__file__).parents[2]
    if (checkout / "script" / "install").is_file() and Path(sys.prefix) == checkout / ".venv":
        script = shlex.quote(str(checkout / "script" / "install"))
        return script if extra == "watch" else f"{script} --extras"
    try:
        required = metadata.requires("vdisklab") or ()
    except metadata.PackageNotFoundError:
        return f"install the Python packages of the extra {extra!r} in pyproject.toml"
    marked = re.compile(rf"""; *extra == ['"]{extra}['"]$""")
    wanted = [marked.sub("", requirement) for requirement in required if marked.search(requirement)]
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])


class ReaderGoneError(Exception):
    """Nobody reads standard output any more, as after `| head -1`: no error, and nothing to say.

    Not a BrokenPipeError, at which rich and typer end the program with status 1.
    """


class VdisklabError(Exception):
    """A sentence for the user; `hint` says what to do about it.

    A sentence that was to end with what a program printed ends without its colon if the program
    printed nothing.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = message.rstrip().removesuffix(":")
        super().__init__(message)
        self.message = message
        self.hint = hint

    def reword(self, reworded: Callable[[str], str]) -> None:
        """Changes the words of message and hint, such as the names of directories."""
        self.message = reworded(self.message)
        self.args = (self.message,)
        self.hint = self.hint and reworded(self.hint)


class PlanError(VdisklabError):
    """The request is impossible or malformed."""

    exit_code = 2


class SeparateCampaignsError(PlanError):
    """Campaigns that cannot share one answer, with those of them that can.

    `together` are the campaigns of each answer, `over_hosts` those of each answer from several
    hosts, `side_by_side` all of them if `table` shows them in one table.
    """

    def __init__(
        self,
        message: str,
        *,
        together: Sequence[Sequence[str]],
        over_hosts: Sequence[Sequence[str]] = (),
        side_by_side: Sequence[str] = (),
    ) -> None:
        self.together, self.over_hosts = tuple(together), tuple(over_hosts)
        self.side_by_side = tuple(side_by_side)
        super().__init__(message, hint=self.ways("vdisklab rank"))

    def ways(self, ask: str, *, from_hosts: bool = True) -> str:
        """The commands that answer: `ask` with the campaigns of each answer, first those
        `from_hosts` together."""
        over = self.over_hosts if from_hosts else ()
        of_hosts = [f"{ask} --hosts all {_options(names)}" for names in over]
        alone = [f"{ask} {_options(names)}" for names in self.together]
        beside = (
            [f"vdisklab table {_options(self.side_by_side)}"]
            if self.side_by_side and not of_hosts
            else []
        )
        said = [
            f"{what}: {_commands(commands)}"
            for what, commands in (
                ("one answer from several hosts", of_hosts),
                ("one at a time", alone),
                ("their numbers side by side", beside),
            )
            if commands
        ]
        return "; ".join(said) or "`vdisklab runs` lists all campaigns"


def _options(campaigns: Sequence[str]) -> str:
    return " ".join(f"--campaign {name}" for name in campaigns)


def _commands(commands: Sequence[str]) -> str:
    """The first commands of a list, as many as an error has room for."""
    more = len(commands) - _SHOWN_COMMANDS
    shown = ", ".join(f"`{command}`" for command in commands[:_SHOWN_COMMANDS])
    return f"{shown} and {more} more" if more > 0 else shown


class HostError(VdisklabError):
    """This machine lacks something: a program, a permission, space, a kernel feature."""

    exit_code = 3


class LayersMissingError(HostError):
    """Paths whose host layers cannot be built; `paths` are the same without these layers, if a
    guest can have them here."""

    def __init__(self, message: str, *, hint: str | None, paths: Sequence[str]) -> None:
        super().__init__(message, hint=hint)
        self.paths = tuple(paths)


class MemoryFullError(HostError):
    """Memory is full, so recent reads and writes cannot be trusted."""


def memory_full(purpose: str) -> MemoryFullError:
    """The error, naming the purpose of the memory."""
    return MemoryFullError(
        f"there is no room in memory for {purpose}",
        hint="free some memory (`free -h` shows it), or write less with --writes",
    )


def way_out(said: str) -> str | None:
    """What to do about a program in a guest that said this; None if that is not known."""
    return next((way for output, way in _WAYS.items() if output in said.lower()), None)


def shown_command(argv: Sequence[str]) -> str:
    """A command as errors show it: a script from standard input and a long command without all of
    their arguments, a script of several lines as `…`, and a program without the shell that only
    changes to a directory.
    """
    step = tuple(argv[:3]) == ("sh", "-s", "--") and len(argv) > 4
    if tuple(argv[:3]) == IN_DIRECTORY:
        argv = argv[4:]
    if any("\n" in word for word in argv):  # the start of a script would not say what failed
        return " ".join("…" if "\n" in word else shlex.quote(word) for word in argv)
    whole = shlex.join(argv)
    return f"{shlex.join(argv[:4])} …" if step or len(whole) > _LONGEST_COMMAND else whole


def last_words(argv: Sequence[str], printed: str) -> str:
    """Why a program ended, from what it printed: its last three lines, or only those that it signed
    with its name if it printed other things there: a document in JSON, or fio's log of bandwidth.
    """
    lines = [line.strip() for line in printed.strip().splitlines() if line.strip()]
    if lines and _DATA.fullmatch(lines[-1]):
        signed = f"{argv[0].rpartition('/')[2]}:"
        lines = [line for line in lines if line.startswith(signed)] or lines
    return " | ".join(lines[-3:])


class CommandError(HostError):
    """A program ended with a status that its caller does not accept."""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
        super().__init__(self._describe())

    def _describe(self) -> str:
        ended = (
            f"was killed by signal {-self.status}"
            if self.status < 0
            else (f"exited with {self.status}")
        )
        text = f"`{shown_command(self.argv)}` {ended}"
        said = last_words(self.argv, self.stderr)
        return f"{text}: {said}" if said else text


class CommandTimeoutError(HostError, TimeoutError):
    """A program on the host did not end in time and was ended."""


class DirtyHostError(VdisklabError):
    """Something that vdisklab created is still there, so further measurements are unreliable."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or "stop the program that uses it, then run `vdisklab clean`"
        )


class LeftOnTargetError(DirtyHostError):
    """Something stays on a target that takes no writes any more, such as a server that is gone.

    Nothing on this host lies on it, so all that was made on this host is removed.
    """


class GuestError(VdisklabError):
    """The virtual machine, its monitor or its agent failed; `printed` is what its QEMU printed."""

    exit_code = 5
    printed: tuple[str, ...] = ()


class GuestTimeoutError(GuestError, TimeoutError):
    """A program in the guest did not end before its deadline, and was killed."""


class SilentGuestError(GuestError):
    """QEMU or the guest's agent did not answer before the deadline."""


class StoppedGuestError(GuestError):
    """QEMU has stopped the guest at a request of its disk, so nothing in it goes on."""


class OperationError(GuestError):
    """An operation on a running guest's disk failed, or did not end."""


class ServerGoneError(GuestError):
    """The server of a disk does not answer, and who uses the disk waits for it."""


class WrongClockError(GuestError):
    """The guest's clock does not run like the host's, so nothing can be measured in that guest."""


class RefusedError(GuestError):
    """QEMU or the guest agent answered a command with an error."""


class WorkloadError(VdisklabError):
    """The measuring program failed, or its output is not as expected."""

    exit_code = 6


class TooSlowError(WorkloadError):
    """A measurement did not end in time: how slow it is remains unknown."""


class LoadError(WorkloadError):
    """A recording of a guest's requests cannot be read, or holds what no disk can have done."""


class DatabaseError(VdisklabError):
    """The database of results cannot be opened, read or written."""

    exit_code = 7


class NoDatabaseError(DatabaseError):
    """There is no file of that name."""


class DamagedError(DatabaseError):
    """A stored value cannot be used."""


class UnstorableError(DatabaseError):
    """A value that no program can have measured, or that no database holds."""


class DatabaseBusyError(DatabaseError):
    """The database cannot be used at the moment: locked, disk full, or unreachable."""


class PowercutError(VdisklabError):
    """A power cut cannot be judged: the log or case is damaged, or a control failed."""

    exit_code = 11

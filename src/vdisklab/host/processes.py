"""Processes of other programs, as far as they can be believed.

Anybody may start a process under any name with any arguments. So a process counts by the file that
it runs (/proc/PID/exe in proc(5)) and by its user, never by what it calls itself.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from vdisklab.host.image_file import OpenFiles, id_of
from vdisklab.value import Value

_DELETED = " (deleted)"
"""The kernel appends it if the file was replaced, as by an upgrade of QEMU under its guests."""

_O_PATH = 0o10000000
"""Linux's flag as /proc/PID/fdinfo shows it: such a descriptor needs no right to read."""


class Process(Value):
    """A process: its directory in /proc, the name of its program's file, its user's number.

    `arguments` are those after the program's name.
    """

    directory: Path
    program: str
    user: int
    arguments: tuple[str, ...]

    @property
    def number(self) -> str:
        """Its PID."""
        return self.directory.name

    def preloaded(self) -> tuple[str, ...]:
        """The libraries that its environment puts before all others, and those that it has loaded;
        none of a process that we may not look into, or that has ended."""
        found: list[str] = []
        with suppress(OSError):
            variables = (self.directory / "environ").read_bytes().split(b"\0")
            found += (os.fsdecode(each) for each in variables if each.startswith(b"LD_PRELOAD="))
        with suppress(OSError):
            maps = (self.directory / "maps").read_text(errors="replace").splitlines()
            found += {line.rpartition("/")[2] for line in maps if ".so" in line}
        return tuple(sorted(found))

    def open_files(self) -> OpenFiles:
        """The files and block devices that it has open for reading; none if it has ended."""
        found: set[tuple[int, int]] = set()
        with suppress(OSError):
            for entry in sorted((self.directory / "fd").iterdir()):
                with suppress(OSError, ValueError):
                    flags = _flags(self.directory / "fdinfo" / entry.name)
                    if not flags & _O_PATH and flags & os.O_ACCMODE != os.O_WRONLY:
                        found.update(filter(None, [id_of(entry.stat())]))
        return frozenset(found)


class Stranger(Value):
    """A process that calls itself such a program and is not believed, and why, as a clause."""

    number: str
    why: str

    def __str__(self) -> str:
        return f"process {self.number} ({self.why})"


def callers() -> frozenset[int]:
    """The users of this command: its own, and with sudo the one who called sudo."""
    user = os.geteuid()
    by_sudo = os.environ.get("SUDO_UID", "") if user == 0 else ""
    sudo = {int(by_sudo)} if re.fullmatch("[0-9]{1,10}", by_sudo) else set()
    return frozenset({user, *sudo})


def numbers_of(names: Iterable[str]) -> frozenset[int]:
    """The numbers of those users that this host has."""
    found: set[int] = set()
    for name in names:
        with suppress(KeyError):
            found.add(pwd.getpwnam(name).pw_uid)
    return frozenset(found)


def user_name(user: int) -> str:
    """A user's name; `user 1234` for one that this host does not know."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def processes_of(
    programs: re.Pattern[str], users: frozenset[int], processes: Path = Path("/proc")
) -> Iterator[Process | Stranger]:
    """The processes that run one of the programs as one of these users, in the order of PIDs.

    A process of another user, and one that only calls itself such a program, is a Stranger. Both
    its users count: that of a program with the set-user-ID bit is root, and its arguments are
    anybody's.
    """
    entries = (entry for entry in processes.glob("[0-9]*") if entry.name.isascii())
    for entry in sorted(entries, key=lambda entry: entry.name.zfill(20)):
        with suppress(OSError, ValueError):  # it has ended
            found = _looked_at(entry, programs, users)
            if found is not None:
                yield found


def _looked_at(
    entry: Path, programs: re.Pattern[str], users: frozenset[int]
) -> Process | Stranger | None:
    text = (entry / "cmdline").read_text(errors="replace")
    called, *arguments = text.removesuffix("\0").split("\0")
    called = called.rpartition("/")[2]
    try:
        file = os.readlink(entry / "exe").removesuffix(_DELETED)  # noqa: PTH115 - text, not a path
    except PermissionError:
        file = called  # another user's; only root may look, and opens what root may not believe
    if not (programs.fullmatch(called) or programs.fullmatch(file.rpartition("/")[2])):
        return None
    owners = set(_users(entry / "status"))
    if not owners <= users:
        return Stranger(entry.name, f"belongs to {user_name(min(owners - users))}")
    if not programs.fullmatch(file.rpartition("/")[2]):
        return Stranger(entry.name, f"is {file}")
    return Process(entry, file.rpartition("/")[2], max(owners), tuple(arguments))


def _users(status: Path) -> tuple[int, ...]:
    """The real, effective and saved user of a process. Raises OSError, ValueError."""
    match = re.search(r"^Uid:\t([0-9]+)\t([0-9]+)\t([0-9]+)", status.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{status} has no users")
    return int(match[1]), int(match[2]), int(match[3])


def _flags(fdinfo: Path) -> int:
    """The flags with which a descriptor was opened. Raises OSError, ValueError."""
    match = re.search(r"^flags:\t([0-7]+)", fdinfo.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{fdinfo} has no flags")
    return int(match[1], 8)

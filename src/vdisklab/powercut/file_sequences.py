"""Short sequences of file operations as the client, and what of each must be there after a cut.

CrashMonkey's ACE found most known crash bugs of file systems with one or two operations on few
files and a sync after them (Mohan et al., OSDI 2018). The sequences here are all of one or two
operations of create, rename, link and fallocate in a directory of their own, each followed by fsync
of the file, of the directory, or of both. The guest's file system and the path below are judged as
one: a loss says that the two together do not keep what fsync promised.

What is expected is what fsync(2) says and no more: of the file its content, under whatever names it
has then; of the directory its names. A name that was not synced may be what it was before or after
any step, and a name that a rename replaced is always there.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import mount_command
from vdisklab.path.architecture import GUEST
from vdisklab.path.power_cut_words import StateOutcome
from vdisklab.powercut.client import FIRST_VERSION
from vdisklab.powercut.crash_states import FutureVersionError
from vdisklab.powercut.guest_clients import (
    MOUNTPOINT,
    PERL,
    DueTransactions,
    GuestDatabase,
    guest_program,
    guest_script,
)
from vdisklab.units import whole_number
from vdisklab.value import Value

FILESYSTEM = "ext4"

_SHELL = "/usr/bin/sh"
_SECONDS = 60.0
_OLD_BYTES, _NEW_BYTES, _ADDED_BYTES = 5000, 9000, 8192
_FIRST = "old"


class FileStep(StrEnum):
    """An operation on the current file: at first `old`, then the one that the last step names."""

    CREATE = "create"
    RENAME = "rename"
    LINK = "link"
    FALLOCATE = "fallocate"


class Synced(StrEnum):
    """What fsync is called for at the end."""

    FILE = "file"
    DIRECTORY = "directory"
    BOTH = "both"


class FileSequence(Value):
    """Its steps, and what is synced after them."""

    steps: tuple[FileStep, ...]
    synced: Synced

    def __str__(self) -> str:
        return f"{', '.join(self.steps)}, fsync of {self.synced}"


SEQUENCES: Sequence[FileSequence] = tuple(
    FileSequence(steps, synced)
    for length in (1, 2)
    for steps in itertools.product(FileStep, repeat=length)
    for synced in Synced
)


def sequence_of(version: int) -> FileSequence:
    """The sequence that transaction `version` runs."""
    return SEQUENCES[(version - FIRST_VERSION) % len(SEQUENCES)]


class Expected(Value):
    """For each name the contents that it may have after the sequence; None stands for no such file,
    ANYTHING for a file with any content."""

    names: Mapping[str, frozenset[bytes | None]]


ANYTHING = b"*"
"""The content of a file that was not synced."""


def content(version: int, name: str) -> bytes:
    """What is written to a file when it is made."""
    length = _OLD_BYTES if name == _FIRST else _NEW_BYTES
    return (f"{version}.{name}." * length)[:length].encode()


def expected(version: int, sequence: FileSequence) -> Expected:
    """What must be in the directory of a sequence after its syncs have returned."""
    names: dict[str, str] = {_FIRST: _FIRST}  # a file is called by the name that it was made with
    files = {_FIRST: content(version, _FIRST)}
    durable = {_FIRST: {files[_FIRST]}}
    moments = [dict(names)]
    current = _FIRST
    for number, step in enumerate(sequence.steps, 1):
        match step:
            case FileStep.CREATE:
                current = f"new{number}"
                names[current] = current
                files[current] = content(version, current)
                durable[current] = {ANYTHING}
            case FileStep.RENAME:
                target = f"moved{number}" if current == _FIRST else _FIRST
                names[target] = names.pop(current)
                current = target
            case FileStep.LINK:
                names[f"link{number}"] = names[current]
            case FileStep.FALLOCATE:
                file = names[current]
                files[file] += bytes(_ADDED_BYTES)
                durable[file] |= {files[file]}
        moments.append(dict(names))
    if sequence.synced is not Synced.DIRECTORY:
        durable[names[current]] = {files[names[current]]}
    if sequence.synced is not Synced.FILE:
        moments = moments[-1:]
        every = {name for moment in (names, {_FIRST: ""}) for name in moment}
    else:
        every = {name for moment in moments for name in moment}
    every |= {f"{kind}{number}" for kind in ("new", "moved", "link") for number in (1, 2)}
    possible = {
        name: frozenset(
            value
            for moment in moments
            for value in (durable[moment[name]] if name in moment else {None})
        )
        for name in sorted(every)
    }
    return Expected(possible)


def judge_sequences(mountpoint: Path, first: int, due: DueTransactions) -> tuple[StateOutcome, str]:
    """The outcome of all sequences from `first` on. Raises FutureVersionError."""
    try:
        found = {entry.name for entry in mountpoint.iterdir()}
        numbers = {name: whole_number(name.removeprefix("s")) or 0 for name in found}
        later = [name for name, number in numbers.items() if number > due.newest]
        if later:
            raise FutureVersionError(f"the guest's disk holds {later[0]}, which had not begun")
        for version in range(first, due.oldest + 1):
            problem = _problem(mountpoint / f"s{version}", version)
            if problem is not None:
                outcome, detail = problem
                return outcome, f"{detail} ({sequence_of(version)})"
    except OSError as error:  # the file system's own data are damaged
        if error.errno == errno.ENOMEM:
            raise
        return StateOutcome.DATABASE, f"the guest's file system: {error.strerror}"
    return StateOutcome.KEPT, ""


def _problem(directory: Path, version: int) -> tuple[StateOutcome, str] | None:
    if not directory.is_dir():
        return StateOutcome.LOST, f"directory {directory.name} was synced and is missing"
    for name, possible in expected(version, sequence_of(version)).names.items():
        file = directory / name
        there = file.read_bytes() if file.exists() else None
        if there in possible or (there is not None and ANYTHING in possible):
            continue
        where = f"{directory.name}/{name}"
        if there is None:
            return StateOutcome.LOST, f"{where} was synced and is missing"
        if possible == {None}:
            return StateOutcome.LOST, f"{where} was renamed or never made, and is there"
        return StateOutcome.LOST, f"{where} does not have the content that was synced"
    return None


class FilesClient(GuestDatabase):
    """A `ClientDisk` on which each write is one sequence."""

    title: ClassVar[str] = "the client of files"
    farewell: ClassVar[str] = "quit\n"

    def statement(self, version: int) -> str:
        """The sequence as a line for `files.pl`."""
        sequence = sequence_of(version)
        return f"{version} {sequence.synced} {' '.join(sequence.steps)}\n"


@contextmanager
def files_in_guest(
    machine: Machine, device: str, observed: Mapping[str, str], name: str, *, synced: bool
) -> Iterator[FilesClient]:
    """The client on a new file system on the guest's disk `device`, synced when the context opens.

    `synced=False` is the control whose fsyncs are left out. `name` must be unique on this host.
    Raises GuestError and WorkloadError.
    """
    agent = machine.agent
    agent.run((f"/usr/sbin/mkfs.{FILESYSTEM}", "-q", "-F", device), timeout=_SECONDS)
    agent.run(mount_command(device, FILESYSTEM, (), MOUNTPOINT), timeout=_SECONDS)
    calls = GUEST.system_calls
    argv = (
        _SHELL, "-c", guest_script("database.sh"), "database", name,
        PERL, "-e", guest_script("files.pl"), MOUNTPOINT, "1" if synced else "0",
        str(calls.fsync), str(calls.fallocate),
        *map(str, (_OLD_BYTES, _NEW_BYTES, _ADDED_BYTES)),
    )  # fmt: skip
    with guest_program(machine, name, argv, "the client of files") as program:
        client = FilesClient(program, {**observed, "guest.filesystem": FILESYSTEM})
        client.ask("ready\n", "ready")
        agent.run(("/usr/bin/sync",), timeout=_SECONDS)
        yield client
        client.quit()
    agent.run(("/usr/bin/umount", MOUNTPOINT), timeout=_SECONDS)

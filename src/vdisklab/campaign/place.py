"""Where a program runs: inside the guest, or on the host; and what it is given to work on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vdisklab.campaign.time_series import Watch
from vdisklab.errors import HostError, PlanError, VdisklabError, WorkloadError
from vdisklab.guest.guest_filesystem import guest_filesystem
from vdisklab.guest.machine import Machine
from vdisklab.guest.system.guest_system import Family
from vdisklab.host.ledger import Kind
from vdisklab.host.pagecache import evict
from vdisklab.storage.site import Site
from vdisklab.workload.program import Output, Script, Step, Subject, program_of

_LARGEST_FILE = 64 << 20


@dataclass(frozen=True, slots=True)
class Workspace:
    """The subject of one measurement; `empty_cache` takes it out of the page cache of the
    machine that runs the program."""

    subject: Subject
    empty_cache: Callable[[], None]


class Place(Protocol):
    """Where programs run."""

    def workspace(self, filesystem: str | None) -> AbstractContextManager[Workspace]:
        """The disk itself, or a directory on a file system of that kind, for one measurement."""

    def step(self, step: Step) -> None:
        """Runs a program beside the measurement to its end."""

    def run(self, script: Script, watch: Watch) -> Output:
        """Runs the measured program, watched; its files are not read yet."""

    def collect(self, name: str) -> str:
        """The text of a file that it wrote; nothing is left of it on the host."""


@contextmanager
def prepared(place: Place, script: Script) -> Iterator[None]:
    """Runs the script's steps before, and its steps after, however the block ends.

    Of several errors the first is told: those on the way back are mostly its echoes.
    """
    try:
        for step in script.prepare:
            place.step(step)
        yield
    except BaseException:
        _conclude(place, script)
        raise
    problem = _conclude(place, script)
    if problem is not None:
        raise problem


def _conclude(place: Place, script: Script) -> VdisklabError | None:
    """Runs every step after; the first error, if any."""
    first = None
    for step in script.conclude:
        try:
            place.step(step)
        except VdisklabError as error:
            first = first or error
    return first


def with_files(place: Place, script: Script, said: Output) -> Output:
    """What a program said, with the files that it wrote."""
    return replace(said, files={name: place.collect(name) for name in script.collect})


@dataclass(frozen=True, slots=True)
class GuestPlace:
    """Inside a guest; `disk` is the whole of the measured disk there."""

    machine: Machine
    disk: Subject

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        """A new file system for each measurement that asks for one."""
        if filesystem is None:
            yield Workspace(self.disk, lambda: None)
            return
        if self.machine.system.family is Family.WINDOWS:
            raise PlanError(
                "files in a Windows guest are not measured",
                hint="choose measurements that work on the disk itself",
            )
        with guest_filesystem(self.machine, self.disk.path, filesystem) as mounted:
            subject = replace(
                self.disk,
                path=mounted.mount_point,
                size=mounted.free,
                is_device=False,
                is_directory=True,
            )
            yield Workspace(subject, mounted.empty_cache)

    def step(self, step: Step) -> None:
        """Through the guest agent."""
        self.machine.agent.run(step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Output:
        """Through the guest agent."""
        ended = self.machine.agent.run(
            script.command,
            timeout=script.timeout,
            expected=script.expected,
            watch=watch,
            stdin=script.stdin,
        )
        return Output(ended.stdout, ended.stderr)

    def collect(self, name: str) -> str:
        """Through the guest agent. The file stays, and goes with the guest's memory."""
        return self.machine.agent.read_file(name)


@dataclass(frozen=True, slots=True)
class HostPlace:
    """On the host; `directory` is the top of the stack, None where that is a device."""

    site: Site
    disk: Subject
    directory: Path | None

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        """A directory on the stack stands for the guest's file system, whatever its kind."""
        if filesystem is None:
            yield Workspace(self.disk, lambda: None)
            return
        if self.directory is None:
            raise HostError(
                "this path ends on a block device, and the measurement works on files",
                hint="put a file system into the path, as in lvm/ext4/host",
            )
        directory = self.directory / f"files-{secrets.token_hex(4)}"
        with self.site.tracked(Kind.DIRECTORY, directory):
            directory.mkdir()
            subject = replace(self.disk, path=str(directory), is_device=False, is_directory=True)
            yield Workspace(subject, lambda: _evict_all(directory))

    def step(self, step: Step) -> None:
        """As a program of the host."""
        _require(self.site, step.command)
        self.site.host.run(*step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Output:
        """As a program of the host."""
        _require(self.site, script.command)
        done = self.site.host.run(
            *script.command, timeout=script.timeout, stdin=script.stdin, watch=watch
        )
        return Output(done.stdout, done.stderr)

    def collect(self, name: str) -> str:
        """Raises WorkloadError for a file that is missing or enormous."""
        file = Path(name)
        try:
            if file.stat().st_size > _LARGEST_FILE:
                raise WorkloadError(f"{file.name} is larger than {_LARGEST_FILE >> 20} MiB")
            text = file.read_text(errors="replace")
            file.unlink()
        except OSError as error:
            raise WorkloadError(f"{file.name} was not written: {error.strerror}") from error
        return text


def _require(site: Site, command: tuple[str, ...]) -> None:
    """Raises HostError when a program is missing that a shell starts, which would only say 127."""
    program = program_of(command)
    if program != command[0] and site.host.which(program) is None:
        raise HostError(
            f"{program} is not installed", hint="`vdisklab doctor` says which package has it"
        )


def _evict_all(directory: Path) -> None:
    for file in directory.rglob("*"):
        if file.is_file():
            evict(file)


def host_subject(site: Site, path: Path, size: int, memory: int, *, is_device: bool) -> Subject:
    """What a program on the host works on, with the guest's memory for rules that go by it."""
    return Subject(
        str(path),
        size,
        is_device,
        scratch=str(site.directory),
        memory=memory,
        as_root=os.geteuid() == 0,
    )

"""Where a program runs, inside the guest or on the host, and the disk or files that it works on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vdisklab.campaign.watches import Watch
from vdisklab.errors import (
    CommandTimeoutError,
    GuestTimeoutError,
    HostError,
    PlanError,
    TooSlowError,
    VdisklabError,
    WorkloadError,
)
from vdisklab.guest.guest_filesystem import guest_filesystem
from vdisklab.guest.machine import Machine
from vdisklab.guest.systems import Family
from vdisklab.host.ledger import Kind
from vdisklab.host.pagecache import evict
from vdisklab.results.model import Check
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Directory, Share
from vdisklab.workload.program import Output, Script, SideCommand, Subject, program_of

_LARGEST_FILE = 64 << 20


@dataclass(frozen=True, slots=True)
class Workspace:
    """The disk or directory of one measurement. `empty_cache` drops its pages on the machine that
    runs the program. `checks` are states of its file system that were read back.
    """

    subject: Subject
    empty_cache: Callable[[], None]
    checks: tuple[Check, ...] = ()


class Place(Protocol):
    """Where programs run."""

    def workspace(self, filesystem: str | None) -> AbstractContextManager[Workspace]:
        """Yields the disk itself, or a directory on a file system of that kind."""

    def step(self, step: SideCommand) -> None:
        """Runs a preparing or concluding program to its end."""

    def run(self, script: Script, watch: Watch) -> Output:
        """Runs the measured program under a watch; its output files are not read yet."""

    def collect(self, name: str) -> str:
        """The text of a file that the program wrote; on the host the file is removed."""


@contextmanager
def prepared(place: Place, script: Script) -> Iterator[None]:
    """Runs the script's preparing steps, and its concluding steps however the body ends.

    If several steps fail, the first error is raised: later ones are usually consequences.
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
    """Runs every concluding step; returns the first error, if any."""
    first = None
    for step in script.conclude:
        try:
            place.step(step)
        except VdisklabError as error:
            first = first or error
    return first


def with_files(place: Place, script: Script, output: Output) -> Output:
    """A program's output, with the files that it wrote."""
    return replace(output, files={name: place.collect(name) for name in script.collect})


@dataclass(frozen=True, slots=True)
class GuestPlace:
    """Inside a guest; `disk` is the whole measured disk there, or a shared directory by its tag.

    `filesystem` replaces the one of each measurement that uses files; None leaves it as it is.
    """

    machine: Machine
    disk: Subject
    filesystem: str | None = None
    mount_options: tuple[str, ...] = ()

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        """The disk, or a new file system on it for a measurement that needs one."""
        if filesystem is None:
            yield Workspace(self.disk, lambda: None)
            return
        if self.machine.system.family is Family.WINDOWS:
            raise PlanError(
                "files in a Windows guest are not measured",
                hint="choose measurements that work on the disk itself",
            )
        kind, options = self.filesystem or filesystem, self.mount_options
        with guest_filesystem(self.machine, self.disk.path, kind, options) as mounted:
            subject = replace(
                self.disk,
                path=mounted.mount_point,
                size=min(mounted.free, self.disk.size),
                is_device=False,
                is_directory=True,
            )
            yield Workspace(subject, mounted.empty_cache, mounted.checks)

    def step(self, step: SideCommand) -> None:
        """Runs it through the guest agent."""
        self.machine.agent.run(step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Output:
        """Through the guest agent."""
        try:
            ended = self.machine.agent.run(
                script.command,
                timeout=script.timeout,
                expected=script.expected,
                watch=watch,
                stdin=script.stdin,
            )
        except GuestTimeoutError as error:
            raise TooSlowError(error.message, hint=error.hint) from error
        return Output(ended.stdout, ended.stderr)

    def collect(self, name: str) -> str:
        """Uses the guest agent. The file disappears with the guest's memory."""
        return self.machine.agent.read_file(name)


@dataclass(frozen=True, slots=True)
class HostPlace:
    """On the host; `target` is the top of the stack."""

    site: Site
    disk: Subject
    target: Directory | Device | Share

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        """The image or device, or a directory on the stack in place of a guest's file system."""
        if filesystem is None:
            yield Workspace(self.disk, lambda: None)
            return
        if not isinstance(self.target, Directory):
            raise HostError(
                "this path ends on a block device, but the measurement needs a file system",
                hint="put a file system into the path, as in lvm/ext4/host",
            )
        directory = self.target.path / f"files-{secrets.token_hex(4)}"
        with self.site.tracked(Kind.DIRECTORY, directory):
            directory.mkdir()
            subject = replace(self.disk, path=str(directory), is_device=False, is_directory=True)
            yield Workspace(subject, lambda: evict(directory))

    def step(self, step: SideCommand) -> None:
        """As a program of the host."""
        _require(self.site, step.command)
        self.site.run_marked(*step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Output:
        """As a program of the host."""
        _require(self.site, script.command)
        try:
            done = self.site.run_marked(
                *script.command, timeout=script.timeout, stdin=script.stdin, watch=watch
            )
        except CommandTimeoutError as error:
            raise TooSlowError(error.message, hint=error.hint) from error
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
    """Raises HostError if the program is missing: a shell would only report status 127."""
    program = program_of(command)
    if program != command[0] and site.host.which(program) is None:
        raise HostError(
            f"{program} is not installed", hint="`vdisklab doctor` says which package has it"
        )


def host_subject(site: Site, image: ImageFile, size: int, memory: int) -> Subject:
    """The subject of a program on the host. `memory` is the guest's memory, for programs that size
    their files by it.
    """
    return Subject(
        str(image.path),
        size,
        is_device=isinstance(image.target, Device),
        scratch=str(site.directory),
        memory=memory,
        as_root=os.geteuid() == 0,
    )

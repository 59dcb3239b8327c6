"""Attaches a cell's disk or directory in a guest or on the host, and checks that it matches the
path.

Where a program runs, inside the guest or on the host, and the disk or files that it works on.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from vdisklab import errors
from vdisklab.campaign.context import CampaignContext, host_places, package_checks
from vdisklab.campaign.measured_evidence import (
    Counters,
    StateError,
    Sync,
    WriteBack,
    guest_counters,
    set_page_cache,
    synced,
)
from vdisklab.campaign.watches import DaemonWatch, DiskWatch, ProgramWatch, Watch, shows_waiting
from vdisklab.guest import hotplug, systems
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu import block_nodes, daemons, read_back
from vdisklab.host import facts, ledger, pagecache
from vdisklab.path.bus_options import without_options
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import FORMAT_OPTIONS, PageCache
from vdisklab.results.model import Check
from vdisklab.storage.image import DiskData, ImageFile
from vdisklab.storage.io_limits import limited, limits_of
from vdisklab.storage.memory_limit import BoundedMemory, bounded
from vdisklab.storage.server_url import Url
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Directory, Remote, Share, Target
from vdisklab.value import Value, replace
from vdisklab.workload.program import Outputs, Script, SideCommand, Subject, program_of

_LARGEST_FILE = 64 << 20


class Workspace(Value):
    """The disk or directory of one measurement. `empty_cache` drops its pages on the machine that
    runs the program. `checks` are states of its file system that were read back.
    """

    subject: Subject
    empty_cache: Callable[[], None]
    checks: tuple[Check, ...] = ()


class Place(Protocol):
    """The place where programs run: in a guest or on the host."""

    def workspace(self, filesystem: str | None) -> AbstractContextManager[Workspace]:
        """Yields the disk itself, or a directory on a file system of that kind."""

    def step(self, step: SideCommand) -> None:
        """Runs a preparing or concluding program to its end."""

    def run(self, script: Script, watch: Watch) -> Outputs:
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


def _conclude(place: Place, script: Script) -> errors.VdisklabError | None:
    """Runs every concluding step; returns the first error, if any."""
    first = None
    for step in script.conclude:
        try:
            place.step(step)
        except errors.VdisklabError as error:
            first = first or error
    return first


def run_measured(place: Place, script: Script, watch: Watch) -> Outputs:
    """The measured program's output.

    Raises WorkloadError with the last lines of its server's log if it fails.
    """
    try:
        return place.run(script, watch)
    except (errors.WorkloadError, errors.CommandError) as error:
        lines: list[str] = []
        with suppress(errors.VdisklabError):
            lines = place.collect(script.log).splitlines() if script.log else []
        if not lines:
            raise
        said = " | ".join(line.strip() for line in lines[-3:])
        text = f"{error}; the last lines of the server's log: {said}"
        raise errors.WorkloadError(text, hint=error.hint or errors.way_out(said)) from error


def with_files(place: Place, script: Script, output: Outputs) -> Outputs:
    """A program's output, with the files that it wrote."""
    return replace(output, files={name: place.collect(name) for name in script.collect})


class GuestPlace(Value):
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
        if self.machine.system.family is systems.Family.WINDOWS:
            raise errors.PlanError(
                "files in a Windows guest are not measured",
                hint="choose measurements that work on the disk itself",
            )
        kind, options = self.filesystem or filesystem, self.mount_options
        with hotplug.guest_filesystem(self.machine, self.disk.path, kind, options) as mounted:
            subject = replace(
                self.disk,
                path=mounted.mount_point,
                size=min(mounted.free, self.disk.size),
                is_device=False,
                is_directory=True,
                disk_size=self.disk.size,
            )
            yield Workspace(subject, mounted.empty_cache, mounted.checks)

    def step(self, step: SideCommand) -> None:
        """Runs the command through the guest agent."""
        self.machine.agent.run(step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Outputs:
        """Through the guest agent."""
        try:
            ended = self.machine.agent.run(
                script.command,
                timeout=script.timeout,
                expected=script.expected,
                watch=watch,
                stdin=script.stdin,
            )
        except errors.GuestTimeoutError as error:
            raise errors.TooSlowError(error.message, hint=error.hint) from error
        return Outputs(ended.stdout, ended.stderr)

    def collect(self, name: str) -> str:
        """Uses the guest agent. The file disappears with the guest's memory."""
        return self.machine.agent.read_file(name)


class HostPlace(Value):
    """On the host; `target` is the top of the stack."""

    site: Site
    disk: Subject
    target: Target | Share

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        """The image or device, or a directory on the stack in place of a guest's file system."""
        if filesystem is None:
            yield Workspace(self.disk, lambda: None)
            return
        if not isinstance(self.target, Directory):
            raise errors.HostError(
                "this path ends on a block device, but the measurement needs a file system",
                hint="put a file system into the path, as in lvm/ext4/host",
            )
        directory = self.target.path / f"files-{secrets.token_hex(4)}"
        with self.site.tracked(ledger.Kind.DIRECTORY, directory):
            directory.mkdir()
            subject = replace(self.disk, path=str(directory), is_device=False, is_directory=True)
            yield Workspace(subject, lambda: pagecache.evict(directory))

    def step(self, step: SideCommand) -> None:
        """As a program of the host."""
        _require(self.site, step.command)
        self.site.run_marked(*step.command, timeout=step.timeout, stdin=step.stdin)

    def run(self, script: Script, watch: Watch) -> Outputs:
        """As a program of the host."""
        _require(self.site, script.command)
        try:
            done = self.site.run_marked(
                *script.command, timeout=script.timeout, stdin=script.stdin, watch=watch
            )
        except errors.CommandTimeoutError as error:
            raise errors.TooSlowError(error.message, hint=error.hint) from error
        return Outputs(done.stdout, done.stderr)

    def collect(self, name: str) -> str:
        """Raises WorkloadError for a file that is missing or enormous."""
        file = Path(name)
        try:
            if file.stat().st_size > _LARGEST_FILE:
                raise errors.WorkloadError(f"{file.name} is larger than {_LARGEST_FILE >> 20} MiB")
            text = file.read_text(errors="replace")
            file.unlink()
        except OSError as error:
            raise errors.WorkloadError(f"{file.name} was not written: {error.strerror}") from error
        return text


def _require(site: Site, command: tuple[str, ...]) -> None:
    """Raises HostError if the program is missing: a shell would only report status 127."""
    program = program_of(command)
    if program != command[0] and site.host.which(program) is None:
        raise errors.HostError(
            f"{program} is not installed", hint="`vdisklab doctor` says which package has it"
        )


def host_subject(site: Site, image: ImageFile, size: int, memory: int) -> Subject:
    """The subject of a program on the host. `memory` is the guest's memory, for programs that size
    their files by it.
    """
    return Subject(
        str(image.on_host),
        size,
        is_device=isinstance(image.target, Device),
        scratch=str(site.directory),
        memory=memory,
        as_root=os.geteuid() == 0,
    )


class AttachedDisk(Value):
    """An attached and checked disk: the place where programs run, and the watch on the disk.

    `flush` makes QEMU write what it holds; None if nothing on this host can bring the disk's bytes
    to the device.
    """

    image: DiskData | None
    write_back: WriteBack
    place: Place
    counters: Counters
    watch: Watch
    checks: tuple[Check, ...]
    commands: tuple[str, ...] = ()
    in_windows: bool = False
    flush: Callable[[], None] | None = lambda: None
    memory: BoundedMemory | None = None
    disk: block_nodes.Disk | None = None
    """The disk in QEMU's terms; None outside a guest."""
    plug_seconds: float | None = None
    """How long it took to plug the disk into a running guest; None if it was not plugged."""

    def set_page_cache(self, state: PageCache) -> None:
        """Sets the state of the host's page cache, and the memory that it may take from now on.

        Raises StateError.
        """
        set_page_cache(state, self.image)
        if self.memory is not None:
            self.memory.renew()

    def sync(self) -> Sync | None:
        """Brings everything that was written to the device; None if nothing here can do so."""
        return None if self.flush is None else synced(self.flush, self.write_back, self.counters)


@contextmanager
def attached(
    context: CampaignContext,
    cell: Cell,
    image: DiskData | None,
    write_back: WriteBack,
    *,
    fresh: bool,
    member: int = 0,
) -> Iterator[AttachedDisk]:
    """Attaches the cell's disk or directory while the context is open; `fresh` boots a new guest
    for it.

    `member` is the number of the guest, from 0, if several run at once.

    Raises StateError if a state that was read back does not match the path.
    """
    if isinstance(image, Share):
        with _directory_in_guest(context, cell, image, write_back) as attachment:
            require_confirmed(attachment.checks)
            yield attachment
    elif cell.path.on_host:
        attachment = _on_host(context, cell, image, write_back)
        require_confirmed(attachment.checks)
        yield attachment
    else:
        with _in_guest(context, cell, image, write_back, fresh=fresh, member=member) as attachment:
            require_confirmed(attachment.checks)
            yield attachment


@contextmanager
def naming_a_full_disk(path: DiskPath) -> Iterator[None]:
    """Raises HostError for a guest that QEMU stopped because a write had no space."""
    try:
        yield
    except errors.StoppedGuestError as error:
        disk = without_options(path, ("during",))
        place, way = f"below {disk}", "free some space there, or choose a smaller --size"
        # A guest's write fails if the old data cannot be copied to a backup first.
        if path.attachment.during is not None:
            place = f"where the copy goes or below {disk}"
            way = "free some space where the copy goes, or below the disk"
        raise errors.HostError(
            f"no space is left {place}, so QEMU stopped the guest at a write", hint=way
        ) from error


def require_confirmed(checks: tuple[Check, ...]) -> None:
    """Raises StateError unless every state is as requested."""
    if not all(check.confirmed for check in checks):
        raise StateError(checks)


def _on_host(
    context: CampaignContext, cell: Cell, image: ImageFile | None, write_back: WriteBack
) -> AttachedDisk:
    if image is None:
        raise errors.HostError("there is nothing to measure on the host")
    plan, site = context.plan, context.stacks.site
    subject = host_subject(site, image, plan.size_bytes, plan.guest.memory_bytes)
    subject = replace(subject, packages=host_places(context.packages))
    waiting = shows_waiting(image.on_host.parent)
    return AttachedDisk(
        image,
        write_back,
        HostPlace(site, subject, image.target),
        Counters(
            lambda: None,
            context.stacks.devices_for(cell.path),
            None,
            image.on_host,
            link=context.stacks.link_for(cell.path),
        ),
        ProgramWatch(
            context.progress,
            partial(context.stacks.unanswered, cell.path),
            shows_waiting=waiting,
        ),
        (
            *storage_checks(cell.path, image),
            *context.stacks.device_checks(cell.path),
            *package_checks(context.packages),
        ),
    )


@contextmanager
def _in_guest(
    context: CampaignContext,
    cell: Cell,
    image: ImageFile | None,
    write_back: WriteBack,
    *,
    fresh: bool,
    member: int,
) -> Iterator[AttachedDisk]:
    plan = context.plan
    disk = disk_for(cell.path, image, plan.size_bytes, f"vdl{secrets.token_hex(4)}")
    site = context.stacks.site
    with (
        hotplug.served(site.ledger, site.directory, disk) as serving,
        context.guests.plugged(disk, fresh=fresh, member=member) as (pooled, plugged_disk),
        ExitStack() as entered,
    ):
        daemon = None if serving is None else serving.daemon
        machine, system = pooled.machine, pooled.machine.system
        entered.enter_context(naming_a_full_disk(cell.path))
        opener = machine.pid if daemon is None else daemon.pid
        data = None if image is None else image.file
        limits = entered.enter_context(
            limited(site, opener, data or site.directory, limits_of(disk.attachment))
        )
        amount = plan.settings.cache_memory
        pages = None if amount is None else amount.of(plan.size_bytes)
        memory = entered.enter_context(bounded(site, opener, pages))
        guest_disk = hotplug.with_scheduler(machine, disk, plugged_disk)
        bus = cell.path.attachment
        write_back.wait()  # of an earlier group's guest, whose writes may still move
        checks = read_back.check_state(machine, disk, guest_disk, pooled.at_start, serving)
        queue = read_back.guest_queue_checks(disk, guest_disk)
        subject = _guest_subject(context, system, guest_disk.device, is_device=True)
        stored = () if image is None else storage_checks(cell.path, image)
        devices = context.stacks.devices_for(cell.path)
        yield AttachedDisk(
            image,
            write_back,
            GuestPlace(machine, subject, bus.guest_fs, bus.guest_mount),
            replace(
                guest_counters(
                    machine, disk, devices, data, None if daemon is None else daemon.pid
                ),
                link=context.stacks.link_for(cell.path),
            ),
            DiskWatch(
                machine.monitor,
                disk.names,
                context.progress,
                partial(context.stacks.unanswered, cell.path),
            )
            if daemon is None
            else DaemonWatch(block_nodes.DAEMON, daemon.pid, daemon.alive, context.progress),
            (
                *stored,
                *checks,
                *limits,
                *(() if memory is None else (memory.check(),)),
                *queue,
                *context.stacks.device_checks(cell.path),
                *pooled.facts,
                *package_checks(context.packages),
            ),
            (
                *block_nodes.daemon_commands(disk),
                block_nodes.spell_arguments(machine.argv),
                *block_nodes.plug_commands(disk),
            ),
            in_windows=system.family is systems.Family.WINDOWS,
            memory=memory,
            disk=disk,
            plug_seconds=plugged_disk.plug_seconds,
            flush=_flush_of(cell.path, image, machine, disk, is_served=daemon is not None),
        )


def _flush_of(
    path: DiskPath,
    image: ImageFile | None,
    machine: Machine,
    disk: block_nodes.Disk,
    *,
    is_served: bool,
) -> Callable[[], None] | None:
    """What makes QEMU write all that it holds of a disk.

    A daemon that serves the disk holds nothing of a raw image. None for a disk on a server to which
    QEMU sends no flush: only its server could bring the bytes to a device.
    """
    if image is None or is_served:
        return lambda: None
    if isinstance(image.path, Url) and path.cache.no_flush:
        return None
    return partial(machine.flush, disk.names.node)


@contextmanager
def _directory_in_guest(
    context: CampaignContext, cell: Cell, share: Share, write_back: WriteBack
) -> Iterator[AttachedDisk]:
    """The directory in a guest that is booted for it; virtiofsd or QEMU serves it."""
    plan, site, bus = context.plan, context.stacks.site, cell.path.attachment
    disk = disk_for(cell.path, share, plan.size_bytes, f"vdl{secrets.token_hex(4)}")
    with (
        daemons.shared(site.host, site.ledger, site.directory, disk) as daemon,
        context.guests.dedicated_guest(bus.bus, disk) as guest,
    ):
        machine, system = guest.machine, guest.machine.system
        subject = _guest_subject(context, system, disk.serial, is_device=False)
        devices = context.stacks.devices_for(cell.path)
        pid = None if daemon is None else daemon.pid
        yield AttachedDisk(
            share,
            write_back,
            GuestPlace(machine, subject, bus.guest_fs, bus.guest_mount),
            Counters(lambda: None, devices, machine.pid, share.path, pid),
            DaemonWatch(facts.QEMU, machine.pid, lambda: True, context.progress)
            if daemon is None
            else DaemonWatch(block_nodes.VIRTIOFSD, daemon.pid, daemon.alive, context.progress),
            (
                *storage_checks(cell.path, share),
                *read_back.check_share(machine, disk, daemon),
                *context.stacks.device_checks(cell.path),
                *guest.facts,
                *package_checks(context.packages),
            ),
            (*block_nodes.daemon_commands(disk), block_nodes.spell_arguments(machine.argv)),
            in_windows=system.family is systems.Family.WINDOWS,
        )


def _guest_subject(
    context: CampaignContext, system: systems.GuestSystem, path: str, *, is_device: bool
) -> Subject:
    return Subject(
        path, context.plan.size_bytes, is_device, scratch=system.scratch,
        memory=context.plan.guest.memory_bytes, stderr_log=system.stderr_log,
    )  # fmt: skip


def disk_for(path: DiskPath, image: DiskData | None, size: int, serial: str) -> block_nodes.Disk:
    """The disk that a guest gets for a path and its image, or the directory by its tag."""
    if image is None:
        return block_nodes.Disk(serial, size, None, "null-co", path.cache, path.attachment)
    if isinstance(image, Share):
        return block_nodes.Disk(
            serial, size, image.node(image.path), "", path.cache, path.attachment
        )
    is_part = isinstance(image.target, Remote) and not image.target.holds_files
    part = (("size", image.size),) if is_part and image.format == "raw" else ()
    parts = block_nodes.ImageParts(
        tuple(map(str, image.backing)),
        None if image.data_file is None else str(image.data_file),
        None if image.key_file is None else str(image.key_file),
        (*block_nodes.format_options(path.image), *part),
    )
    return block_nodes.Disk(
        serial, image.size, image.node(), image.format, path.cache, path.attachment, parts,
        image.path.objects if isinstance(image.path, Url) else (),
    )  # fmt: skip


def storage_checks(path: DiskPath, image: DiskData) -> tuple[Check, ...]:
    """The properties read back from stack and image, with the requested values."""
    requested = {"loop.direct_io": "on"}
    if isinstance(image, ImageFile):
        requested["image.virtual_size"] = str(image.size)
    if path.image is not None and isinstance(image, ImageFile):
        for option in FORMAT_OPTIONS[path.image.format]:
            value = path.image.option(option)
            if value is not None:
                requested[f"image.{option}"] = str(value)
        if not path.image.is_thin:
            requested["image.mapped"] = str(image.size)
    for layer in path.layers:
        for option, value in layer.options:
            requested[f"{layer.kind}.{option}"] = layer.kind.facts.options[option].format(value)
    return tuple(
        Check(f"host.{name}", requested.get(name), property_value)
        for name, property_value in sorted(image.properties.items())
    )

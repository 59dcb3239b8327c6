"""The exact commands of a cell, before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.campaign.attachment import daemon_commands, disk_for, plug_commands
from vdisklab.campaign.guests import user_boot
from vdisklab.campaign.host_stacks import HostStacks
from vdisklab.campaign.place import host_subject
from vdisklab.guest.factory import binary_of
from vdisklab.guest.guest_filesystem import MOUNT_POINT, make_commands
from vdisklab.guest.qemu.command_line import BootFiles, Channels, GuestConfig, UserBoot, build_argv
from vdisklab.guest.qemu.plugging import spell_arguments
from vdisklab.guest.system.guest_system import MicroGuest, expected_device
from vdisklab.guest.system.linux import LinuxGuest
from vdisklab.guest.system.windows import WindowsGuest
from vdisklab.host.command import Host, RecordingHost
from vdisklab.host.ledger import Ledger
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import Bus
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator, SystemBus
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import silent
from vdisklab.storage.image import ImageFile, random_source
from vdisklab.storage.site import PlannedSite, site_directory
from vdisklab.workload.program import Subject, Timing
from vdisklab.workload.registry import workload_for

RUN = "RUN"
"""Placeholder for the identifiers that each run generates."""

_NOTHING = BootFiles(Path("-"), Path("-"), Path("-"), "")


@dataclass(frozen=True, slots=True)
class CellCommands:
    """What a cell runs: on the host before, as QEMU and its monitor, and to measure."""

    host: tuple[str, ...]
    qemu: str | None
    qmp: tuple[str, ...]
    measurements: tuple[str, ...]


def preview_cell(
    real: Host, plan: CampaignPlan, cell: Cell, boot: BootFiles | None, accelerator: Accelerator
) -> CellCommands:
    """All commands of one cell, as a run will execute them; `boot` is the micro guest's.

    The same builders as in a run are used, with a host that records commands and a site that reads
    no state.
    """
    recording = RecordingHost(real)
    directory = site_directory(plan.directory, RUN)
    site = PlannedSite(recording, Ledger(Path("/dev/null"), RUN, -1), directory)
    with ExitStack() as opened:
        source = opened.enter_context(random_source(site, plan.size_bytes))
        stacks = HostStacks(site, plan, source, silent)
        opened.callback(stacks.close)
        image = opened.enter_context(stacks.image_for(cell.path))
        user, micro = plan.guest.user, boot or _NOTHING
        guest: BootFiles | UserBoot = micro
        if user is not None and not cell.path.on_host:
            guest = opened.enter_context(user_boot(site, user, f"system-{RUN}"))
        commands = tuple(recording.commands)
    if not any(str(source) in command for command in commands[1:]):
        commands = commands[1:]  # this cell does not use the random bytes
    host_commands = tuple(shlex.join(command) for command in commands)
    if isinstance(image, ImageFile) and cell.path.on_host:
        memory, on_device = plan.guest.memory_bytes, image.is_block
        subject = host_subject(site, image.path, plan.size_bytes, memory, is_device=on_device)
        subject = replace(subject, mark=f"-{RUN}")
        measurements = _measurements(plan, cell.path, subject)
        return CellCommands(host_commands, None, (), measurements)
    subject = _guest_subject(plan, cell.path)
    in_windows = plan.guest.is_windows
    measurements = (
        () if plan.profile.boots else _measurements(plan, cell.path, subject, in_windows=in_windows)
    )
    disk = disk_for(cell.path, image, plan.size_bytes, f"vdl{RUN}")
    plugged = cell.path.attachment.bus.hot_pluggable and not plan.profile.boots
    config = GuestConfig(
        binary_of(plan.qemu(cell.path.attachment.qemu)),
        f"vdisklab-{RUN}",
        cell.path.attachment.bus.machine,
        accelerator,
        plan.guest,
        guest,
        usb=any(other.path.attachment.bus is Bus.USB for other in plan.cells),
        cold_disks=() if plugged else (disk,),
    )
    argv = build_argv(config, Channels(3, 4, directory / f"vdisklab-{RUN}.console"))
    qmp = plug_commands(disk) if plugged else ()
    host_commands = (*host_commands, *daemon_commands(disk))
    return CellCommands(host_commands, spell_arguments(argv), qmp, measurements)


def _measurements(
    plan: CampaignPlan, path: DiskPath, subject: Subject, *, in_windows: bool = False
) -> tuple[str, ...]:
    timing = Timing(plan.runtime, plan.ramp, plan.scale)
    return tuple(
        shlex.join(command)
        for measurement in plan.profile.measurements
        for command in _measurement_commands(
            measurement, path, subject, timing, in_windows=in_windows
        )
    )


def _guest_subject(plan: CampaignPlan, path: DiskPath) -> Subject:
    """The disk as the guest sees it."""
    user = plan.guest.user
    bus = SystemBus.VIRTIO if user is None else user.bus
    system = _system(plan)
    disk = expected_device(system.family, path.attachment.bus, bus)
    return Subject(
        f"vdl{RUN}" if path.is_share else disk, plan.size_bytes, is_device=True,
        scratch=system.scratch, memory=plan.guest.memory_bytes, stderr_log=system.stderr_log,
        mark=f"-{RUN}",
    )  # fmt: skip


def _system(plan: CampaignPlan) -> type[MicroGuest | LinuxGuest | WindowsGuest]:
    """The guest's operating system, as far as it is known before it boots."""
    if plan.guest.user is None:
        return MicroGuest
    return WindowsGuest if plan.guest.is_windows else LinuxGuest


def _measurement_commands(
    plan: MeasurementPlan,
    disk_path: DiskPath,
    subject: Subject,
    timing: Timing,
    *,
    in_windows: bool,
) -> Iterator[tuple[str, ...]]:
    """All programs of one measurement, in order."""
    if plan.filesystem is not None:
        path = MOUNT_POINT
        if subject.is_device:
            bus = disk_path.attachment
            kind = bus.guest_fs or plan.filesystem
            yield from make_commands(subject.path, kind, bus.guest_mount)
        else:
            path = str(Path(subject.path).parent / f"files-{RUN}")
        subject = replace(subject, path=path, is_device=False, is_directory=True)
    script = workload_for(plan, in_windows=in_windows).script(plan, subject, timing)
    yield from (step.command for step in script.prepare)
    yield script.command
    yield from (step.command for step in script.conclude)

"""The exact commands of a cell, before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vdisklab.campaign import context, schedule
from vdisklab.campaign.attachment import disk_for, host_subject
from vdisklab.campaign.host_stacks import guests_of, open_host_stacks
from vdisklab.campaign.measure_life import host_commands as made_host_commands
from vdisklab.campaign.measure_life import planned_disk, planned_first_write
from vdisklab.campaign.preview_during import OperationCommand, preview_operation
from vdisklab.campaign.user_guest import user_boot
from vdisklab.guest.factory import binary_of
from vdisklab.guest.hotplug import MOUNT_POINT, make_commands
from vdisklab.guest.image.guest_image import DiskSystem, write_disk
from vdisklab.guest.qemu.block_nodes import daemon_commands, plug_commands, spell_arguments
from vdisklab.guest.qemu.command_line import BootFiles, Channels, GuestConfig, UserBoot, build_argv
from vdisklab.guest.systems import LinuxGuest, MicroGuest, WindowsGuest, expected_device
from vdisklab.host.command import Host, RecordingHost
from vdisklab.host.ledger import Ledger
from vdisklab.path.cell import Cell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import Bus, PageCache
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import SystemBus
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.progress import silent
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import PlannedSite, site_directory
from vdisklab.value import Value, field, replace
from vdisklab.workload.program import Subject

RUN = "RUN"
"""Placeholder for the identifiers that each run generates."""

_CHOSEN_AT_START = ("--startdelay=", "--randseed=")
"""Options of fio whose values are chosen when several guests start."""

_NOTHING = BootFiles(Path("-"), Path("-"), Path("-"), "")


class GuestFiles(Value):
    """The cached files that a campaign's guests need.

    `boot` is the micro guest; None if no cell needs it. `system` is written to disks that guests
    boot from.
    """

    boot: BootFiles | None = None
    system: DiskSystem | None = None
    packages: context.Packages = field(default_factory=dict)


class CellCommands(Value):
    """The commands of a cell: on the host before, QEMU's own and its monitor's, and the programs.

    Guests that run at once follow each other in `qmp`. `qemu` has a line for each of them if its
    disk is present at boot, else the line that they share. `operation` has the commands of an
    operation and of the load beside it, in order, in the place of `measurements`.
    """

    host: tuple[str, ...]
    qemu: str | None
    qmp: tuple[str, ...]
    measurements: tuple[str, ...]
    operation: tuple[OperationCommand, ...] = ()


def preview_cell(
    real: Host, plan: CampaignPlan, cell: Cell, files: GuestFiles, accelerator: Accelerator
) -> CellCommands:
    """All commands of one cell, as a run will execute them.

    The same builders as in a run are used, with a host that records commands and a site that reads
    no state.
    """
    recording = RecordingHost(real)
    directory = site_directory(plan.directory, RUN)
    site = PlannedSite(recording, Ledger(Path("/dev/null"), RUN, -1), directory)
    write_system = None if files.system is None else partial(write_disk, recording, files.system)
    with ExitStack() as opened:
        stacks = opened.enter_context(open_host_stacks(site, plan, silent, write_system))
        images = [
            opened.enter_context(
                planned_disk(stacks, cell, member)
                if plan.profile.makes_disks
                else stacks.image_for(cell.path, member)
            )
            for member in range(guests_of(cell.path))
        ]
        user = plan.guest.user
        guest: BootFiles | UserBoot = files.boot or _NOTHING
        if user is not None and not cell.path.on_host:
            guest = opened.enter_context(user_boot(site, user, f"system-{RUN}"))
        commands = tuple(recording.commands)
    if not any(str(stacks.source) in command for command in commands[1:]):
        commands = commands[1:]  # this cell does not use the random bytes
    host_commands = tuple(map(shlex.join, commands))
    image = images[0]
    if isinstance(image, ImageFile) and cell.path.on_host:
        subject = host_subject(site, image, plan.size_bytes, plan.guest.memory_bytes)
        subject = replace(subject, mark=f"-{RUN}", packages=context.host_places(files.packages))
        return CellCommands(host_commands, None, (), _measurements(plan, cell, subject))
    if isinstance(image, ImageFile) and plan.profile.without_guests:
        offset = planned_first_write(real, plan)
        used = tuple(map(shlex.join, made_host_commands(cell, image, offset)))
        return CellCommands(host_commands, None, (), used)
    boots, attachment = plan.profile.boots, cell.path.attachment
    disks = [disk_for(cell.path, image, plan.size_bytes, f"vdl{RUN}") for image in images]
    subject = replace(_guest_subject(plan, cell.path), written_at=planned_first_write(real, plan))
    operation: tuple[OperationCommand, ...] = ()
    if attachment.during is not None and isinstance(image, ImageFile):
        operation = preview_operation(
            site, recording, plan, cell, image=image, disk=disks[0], subject=subject
        )
    plugged = attachment.bus.hot_pluggable and not boots
    others = [cell] if boots else plan.cells
    config = GuestConfig(
        binary_of(plan.qemu(attachment.qemu)),
        f"vdisklab-{RUN}",
        attachment.bus.machine,
        accelerator,
        plan.guest,
        guest,
        usb=any(other.path.attachment.bus is Bus.USB for other in others),
        carried=context.carried_disks(files.packages),
    )
    channels = Channels(3, 4, 5, directory / f"vdisklab-{RUN}.console")
    guests = [config] if plugged else [replace(config, cold_disks=(disk,)) for disk in disks]
    return CellCommands(
        (*host_commands, *(line for disk in disks for line in daemon_commands(disk))),
        "\n".join(spell_arguments(build_argv(config, channels)) for config in guests),
        tuple(line for disk in disks if plugged for line in plug_commands(disk)),
        () if boots or operation else _measurements(plan, cell, subject),
        operation,
    )


def _measurements(plan: CampaignPlan, cell: Cell, subject: Subject) -> tuple[str, ...]:
    subject = replace(subject, read_once=cell.page_cache is PageCache.COLD)
    return tuple(
        shlex.join(command)
        for measurement in plan.profile.measurements
        for command in _measurement_commands(plan, measurement, cell.path, subject)
    )


def _guest_subject(plan: CampaignPlan, path: DiskPath) -> Subject:
    """The disk in the form that the guest sees."""
    user = plan.guest.user
    bus = SystemBus.VIRTIO if user is None else user.bus
    system = _system(plan)
    disk = expected_device(system.family, path.attachment.bus, bus)
    return Subject(
        f"vdl{RUN}" if path.shares_directory else disk, plan.size_bytes, is_device=True,
        scratch=system.scratch, memory=plan.guest.memory_bytes, stderr_log=system.stderr_log,
        mark=f"-{RUN}",
    )  # fmt: skip


def _system(plan: CampaignPlan) -> type[MicroGuest | LinuxGuest | WindowsGuest]:
    """The guest's operating system, as far as it is known before it boots."""
    if plan.guest.user is None:
        return MicroGuest
    return WindowsGuest if plan.guest.is_windows else LinuxGuest


def _measurement_commands(
    plan: CampaignPlan, measurement: MeasurementPlan, path: DiskPath, subject: Subject
) -> Iterator[tuple[str, ...]]:
    """All programs of one measurement, in order; of several guests the first one's and, if it has
    another load, the second one's."""
    if measurement.filesystem is not None:
        directory = MOUNT_POINT
        if subject.is_device:
            bus = path.attachment
            kind = bus.guest_fs or measurement.filesystem
            yield from make_commands(subject.path, kind, bus.guest_mount)
        else:
            directory = str(Path(subject.path).parent / f"files-{RUN}")
        subject = replace(subject, path=directory, is_device=False, is_directory=True)
    grouped = not path.on_host and path.attachment.guests is not None
    in_windows = plan.guest.is_windows and not path.on_host
    loads = (measurement, measurement.neighbour) if grouped else (measurement,)
    for load in filter(None, loads):
        script = schedule.script_for(plan, load, subject, grouped=grouped, in_windows=in_windows)
        yield from (step.command for step in (*script.prepare, *script.warm))
        yield tuple(map(_as_planned, script.command)) if grouped else script.command
        yield from (step.command for step in (*script.count, *script.conclude))


def _as_planned(word: str) -> str:
    """The word with a placeholder for a value that is chosen at the start."""
    option = next((option for option in _CHOSEN_AT_START if word.startswith(option)), None)
    return word if option is None else f"{option}{RUN}"

"""The exact commands of a cell, before anything runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.campaign.attachment import disk_for
from vdisklab.campaign.guests import planned_boot
from vdisklab.campaign.host_stacks import HostStacks
from vdisklab.guest.factory import binary_of
from vdisklab.guest.guest_filesystem import MOUNT_POINT, make_commands
from vdisklab.guest.hotplug import port_for
from vdisklab.guest.qemu.block_nodes import attach_commands, spell_arguments, spell_commands
from vdisklab.guest.qemu.command_line import BootFiles, Channels, GuestConfig, UserBoot, build_argv
from vdisklab.guest.system.user_image import overlay_command
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
"""Stands for the identifiers that a run makes for itself."""

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

    The builders themselves run, on a host that records their commands and a site that looks at
    nothing.
    """
    host_commands, image = _host_side(plan, cell, real)
    directory = site_directory(plan.directory, RUN)
    own = plan.guest.user
    system = SystemBus.VIRTIO if own is None else own.bus
    device = str(image.path) if cell.path.on_host and image else _guest_device(cell.path, system)
    memory = plan.guest.memory_bytes
    subject = Subject(device, plan.size_bytes, not cell.path.on_host, memory=memory)
    timing = Timing(plan.runtime, plan.ramp, plan.scale)
    boots = plan.profile.boots
    measurements = tuple(
        line
        for m in plan.profile.measurements
        for line in _measuring(m, subject, timing)
        if not boots
    )
    if cell.path.on_host:
        return CellCommands(host_commands, None, (), measurements)
    guest = (boot or _NOTHING) if own is None else planned_boot(own, directory, "system-RUN")
    if isinstance(guest, UserBoot) and own is not None:
        host_commands = (*host_commands, shlex.join(overlay_command(own, guest.overlay)))
    disk = disk_for(cell.path, image, plan.size_bytes, "vdlRUN")
    bus = cell.path.attachment.bus
    config = GuestConfig(
        binary_of(plan.qemu(cell.path.attachment.qemu)),
        "vdisklab-RUN",
        bus.machine,
        accelerator,
        plan.guest,
        guest,
        usb=any(c.path.attachment.bus is Bus.USB for c in plan.cells),
        cold_disks=() if bus.hot_pluggable and not boots else (disk,),
    )
    argv = build_argv(config, Channels(3, 4, directory / "vdisklab-RUN.console"))
    plugged = bus.hot_pluggable and not boots
    plugging = attach_commands(disk, port_for(disk)) if plugged else ()
    return CellCommands(
        host_commands, spell_arguments(argv), spell_commands(plugging), measurements
    )


def _measuring(plan: MeasurementPlan, subject: Subject, timing: Timing) -> tuple[str, ...]:
    """All that one measurement runs, in its order."""
    made: tuple[tuple[str, ...], ...] = ()
    if plan.filesystem is not None:
        path = MOUNT_POINT
        if subject.is_device:
            made = make_commands(subject.path, plan.filesystem)
        else:
            path = str(Path(subject.path).parent / "files-RUN")
        subject = replace(subject, path=path, is_device=False, is_directory=True)
    script = workload_for(plan).script(plan, subject, timing)
    steps = (
        *made,
        *(step.command for step in script.prepare),
        script.command,
        *(step.command for step in script.conclude),
    )
    return tuple(shlex.join(command) for command in steps)


def _guest_device(path: DiskPath, system: SystemBus) -> str:
    """The name that Linux gives to the first measured disk, beside the one it boots from."""
    match path.attachment.bus:
        case Bus.VIRTIO:
            return "/dev/vdb" if system is SystemBus.VIRTIO else "/dev/vda"
        case Bus.NVME:
            return "/dev/nvme1n1" if system is SystemBus.NVME else "/dev/nvme0n1"
        case _:
            return "/dev/sdb" if system is SystemBus.SATA else "/dev/sda"


def _host_side(
    plan: CampaignPlan, cell: Cell, real: Host
) -> tuple[tuple[str, ...], ImageFile | None]:
    """The commands that build a cell's stack and image, and the image."""
    recording = RecordingHost(real)
    directory = site_directory(plan.directory, RUN)
    site = PlannedSite(recording, Ledger(Path("/dev/null"), RUN, -1), directory)
    with random_source(site, plan.size_bytes) as source:
        writing = tuple(recording.commands)
        stacks = HostStacks(site, plan, source, silent)
        with stacks.image_for(cell.path) as image:
            building = tuple(recording.commands[len(writing) :])
        stacks.close()
    filling = any(str(source) in command for command in building)
    commands = (*writing, *building) if filling else building
    return tuple(shlex.join(command) for command in commands), image

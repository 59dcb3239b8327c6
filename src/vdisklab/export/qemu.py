"""QEMU's own arguments, the same as in vdisklab's measurements."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from vdisklab.export.configuration import (
    Configuration,
    ExportRequest,
    commented,
    preparation,
    require_configurable,
)
from vdisklab.guest.qemu.block_nodes import Disk, ImageParts, format_options
from vdisklab.guest.qemu.plugging import cold_arguments, daemon_arguments, spell_arguments
from vdisklab.path.segments import SHARED_MEMORY, Bus
from vdisklab.storage.image_commands import data_path, key_path

SERIAL = "disk0"
DIRECTORY = "/var/lib/libvirt/images"


def disk_of(request: ExportRequest, place: str) -> Disk:
    """The disk in the form that `guest.qemu` uses. QEMU finds the images of a chain by itself."""
    image, file = request.path.image, Path(place)
    parts = ImageParts(
        data_file=str(data_path(file)) if image and image.has_data_file else None,
        key_file=str(key_path(file)) if image and image.encrypted else None,
        format_options=format_options(image),
    )
    return Disk(
        SERIAL,
        request.size,
        {"driver": "host_device" if request.on_device else "file", "filename": place},
        request.driver,
        request.path.cache,
        request.path.attachment,
        parts,
    )


def arguments(request: ExportRequest, place: str) -> tuple[str, ...]:
    """The disk's arguments, with the controller that a USB disk needs."""
    controller = ("-device", "qemu-xhci,id=xhci") if request.path.attachment.bus is Bus.USB else ()
    return (*controller, *cold_arguments(disk_of(request, place)))


def export(request: ExportRequest) -> Configuration:
    """A command line to paste; further arguments can be appended."""
    require_configurable(request.path)
    place = request.place(DIRECTORY)
    rest = arguments(request, place)
    pairs = [shlex.join(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    command = " \\\n  ".join([shlex.join(machine_arguments(request)), *pairs])
    return Configuration(f"{commented(_preparation(request, place))}{command}\n")


def machine_arguments(request: ExportRequest) -> tuple[str, ...]:
    """The program and the machine, with memory that the bus's daemon can map if there is one."""
    accelerator = "kvm" if request.domain_type == "kvm" else "tcg"
    machine = request.path.attachment.bus.machine
    shared = ("-object", "memory-backend-memfd,id=shared,share=on,size=1024M")
    return ("qemu-system-x86_64", "-machine", machine, "-accel", accelerator, "-m", "1024",
            "-smp", "2", *(shared if SHARED_MEMORY in machine else ()))  # fmt: skip


def _preparation(request: ExportRequest, place: str) -> Iterator[str]:
    yield from preparation(request, place)
    if request.path.attachment.bus.is_served:
        yield daemon_sentence(request, place)


def daemon_sentence(request: ExportRequest, place: str) -> str:
    """How the daemon that serves the disk is started."""
    return f"run this first: {spell_arguments(daemon_arguments(disk_of(request, place)))}"

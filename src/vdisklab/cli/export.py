"""`vdisklab export`: a disk path as configuration."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from vdisklab.answers.export import ExportAnswer, answer_export, on_target, stored_targets
from vdisklab.answers.export_command import libvirt_version
from vdisklab.cli.shell import options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.path.durability import DurabilityKind, HostDisk
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.needs import Need, needs_help
from vdisklab.plan.option_rows import host_disk_setting, option
from vdisklab.plan.settings import LARGEST_DISK, like
from vdisklab.plan.value_kinds import SIZE, TEXT, Limits
from vdisklab.platforms.dialect import Gap
from vdisklab.platforms.registry import form_named, forms
from vdisklab.platforms.request import DOMAIN_TYPES, ExportRequest
from vdisklab.units import GIB
from vdisklab.views.durability import durability_sentence
from vdisklab.views.layout import Table

PANEL = VerbPanel.GUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(options.DbOptions):
    """The path, the platform, and the guest's disk."""

    path: str = options.argument(TEXT, "A disk path, such as ext4/qcow2/none.", "PATH")
    to: str = option(
        TEXT, "The platform that runs the guest.", "libvirt", metavar=f"[{'|'.join(forms())}]"
    )
    source: str | None = option(
        TEXT, "The image file, block device, volume or claim of the disk.", metavar="FILE"
    )
    name: str = option(TEXT, "The guest's name.", "guest")
    size: int = option(
        SIZE,
        "The size of an image to be created.",
        10 * GIB,
        metavar="SIZE",
        limits=Limits(1, LARGEST_DISK),
    )
    domain_type: str = option(
        TEXT, "kvm, or qemu to emulate (libvirt and QEMU).", DOMAIN_TYPES[0], flag="--type"
    )
    libvirt: str | None = option(
        TEXT,
        "The libvirt that reads the XML; 11.5 and later have NVMe disks.",
        metavar="VERSION",
        shown="the installed one, else 9.0",
    )
    need: tuple[Need, ...] = option(
        options.NEEDS, needs_help("Refuse a path that does not meet this need"), metavar="NEED"
    )
    target: tuple[NamedTarget, ...] = like("target")
    secret: tuple[tuple[str, Path], ...] = like("secret")
    disk: HostDisk | None = host_disk_setting()
    guest_arch: str | None = like("guest_arch")


@options.takes_options()
def export(request: ExportOptions, output: options.OutputOptions) -> None:
    """Print the configuration that gives a guest a disk with this path.

    Comments and standard error list the options that the platform cannot express, and the settings
    that have to be made elsewhere.

    Examples:

      vdisklab export ext4/qcow2/none --to libvirt --source /srv/images/web.qcow2

      vdisklab export qcow2/none --to libvirt-disk --source /srv/images/data.qcow2

      vdisklab export raw/writeback/scsi:iothread=on --to proxmox --need durable

      vdisklab export san/raw/none --target san=iscsi://10.0.0.5/iqn.x:disk/1
    """
    targets = request.target or stored_targets(request.db, request.path)
    path, place = on_target(LocalHost(), request.path, targets, request.secret)
    disk = ExportRequest(
        path,
        request.source,
        request.name,
        request.size,
        request.domain_type,
        libvirt_version(request.libvirt),
        place.storage,
        place.secret,
    )
    volatile = request.disk or HostDisk.VOLATILE
    answer = answer_export(disk, request.to, request.need, volatile, request.db)
    shown = table(answer)
    if output.form is not options.Format.TABLE:
        print_answer(answer, (shown,), output)
        return
    sys.stdout.write(answer.text)
    for note in shown.notes:
        print(f"note: {note}", file=sys.stderr)


def table(answer: ExportAnswer) -> Table[Gap]:
    """The gaps of the platform, with the settings to make elsewhere and a loss of flushed data in
    notes. CSV has the gaps.
    """
    notes = (*map(str, answer.gaps), *answer.requirements)
    kind = answer.durability.kind
    if not kind.acceptable or kind is DurabilityKind.BY_SERVER:
        notes = (*notes, durability_sentence(str(answer.path), answer.durability))
    if answer.emulated_in is not None:
        notes = (
            *notes,
            f"this guest runs under KVM, as guests in production do; campaign {answer.emulated_in} "
            "measured the path under emulation (TCG), so its speeds are not this guest's",
        )
    disk = form_named(answer.form).disk
    if disk:
        notes = (*notes, f"this is a whole guest; --to {disk} is one disk for a guest that exists")
    return Table(f"{answer.path} as {answer.form} writes it", (), answer.gaps, notes, kind=Gap)

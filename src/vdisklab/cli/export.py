"""`vdisklab export`: a disk path as configuration."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vdisklab.answers.export import answer_export, libvirt_version
from vdisklab.cli.shell.options import DbOption, DiskOption
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.platforms.dialect import DOMAIN_TYPES, ExportRequest
from vdisklab.platforms.registry import forms
from vdisklab.units import parse_size
from vdisklab.views.export import notes

PANEL = VerbPanel.GUESTS


def export(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help=("A disk path, such as ext4/qcow2/none."))
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=f"[{'|'.join(forms())}]",
            help="The platform that runs the guest.",
        ),
    ] = "libvirt",
    source: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The image file, block device, volume or claim of the disk."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The guest's name.")] = "guest",
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="The size of an image to be created.")
    ] = ("10G"),
    domain_type: Annotated[
        str, typer.Option("--type", help="kvm, or qemu to emulate (libvirt and QEMU).")
    ] = DOMAIN_TYPES[0],
    libvirt: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The libvirt that reads the XML; 11.5 and later have NVMe disks. "
            "[default: the installed one, else 9.0]",
        ),
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(metavar="NEED", help=needs_help("Refuse a path that does not meet this need")),
    ] = None,
    disk: DiskOption = None,
    db: DbOption = None,
) -> None:
    """Print the configuration that gives a guest a disk with this path.

    Comments and standard error list the options that the platform cannot express, and the settings
    that have to be made elsewhere.

    Examples:

      vdisklab export ext4/qcow2/none --to libvirt --source /srv/images/web.qcow2

      vdisklab export qcow2/none --to libvirt-disk --source /srv/images/data.qcow2

      vdisklab export raw/writeback/scsi:iothread=on --to proxmox --need durable
    """
    request = ExportRequest(
        parse_path(path), source, name, parse_size(size), domain_type, libvirt_version(libvirt)
    )
    answer = answer_export(request, to, parse_needs(need), disk or HostDisk.VOLATILE, db)
    sys.stdout.write(answer.configuration.text)
    for note in notes(answer):
        print(f"note: {note}", file=sys.stderr)

"""`vdisklab audit`: the speed and risks of existing guests' disks, as measured here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vdisklab.answers.audit import audit_disks
from vdisklab.answers.existing_guests import read_disks
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import (
    CampaignOption,
    DbOption,
    DiskOption,
    GuestsArgument,
    LibvirtOption,
    OutputOptions,
    takes_output,
)
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.views import audit as view

PANEL = VerbPanel.GUESTS


@takes_output()
def audit(
    guests: GuestsArgument = None,
    libvirt: LibvirtOption = None,
    need: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEED", help=needs_help("For each disk, say whether it meets this need")
        ),
    ] = None,
    campaign: CampaignOption = None,
    disk: DiskOption = None,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Show the path, local rank and risks of each disk of existing guests.

    Nothing is changed, neither guests nor images.

    Examples:

      vdisklab audit web.xml db.xml --need durable

      vdisklab audit --libvirt qemu:///system --format json

      vdisklab audit /etc/pve/qemu-server
    """
    host, needs = LocalHost(), parse_needs(need)
    found = read_disks(host, guests or (), libvirt)
    answer = audit_disks(
        host, found.disks, needs, campaign, db, host_disk=disk or HostDisk.VOLATILE
    )
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    print_answer(answer, view.tables(answer), output, Named.of(db, campaign))

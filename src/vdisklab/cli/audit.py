"""`vdisklab audit`: the speed and risks of existing guests' disks, as measured here."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from vdisklab.answers.audit import audit_disks
from vdisklab.cli.shell.caller import retyped
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import (
    NEEDS,
    CampaignOptions,
    GuestsOptions,
    OutputOptions,
    takes_options,
)
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import Need, needs_help
from vdisklab.plan.option_rows import host_disk_setting, option
from vdisklab.value import replace
from vdisklab.views import audit as view

PANEL = VerbPanel.GUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(CampaignOptions):
    """What the disks must meet, and the measurements to judge them by."""

    need: tuple[Need, ...] = option(
        NEEDS, needs_help("For each disk, say whether it meets this need"), metavar="NEED"
    )
    disk: HostDisk | None = host_disk_setting()


@takes_options()
def audit(guests: GuestsOptions, request: AuditOptions, output: OutputOptions) -> None:
    """Show the path, local rank and risks of each disk of existing guests.

    Nothing is changed, neither guests nor images.

    Examples:

      vdisklab audit web.xml db.xml --need durable

      vdisklab audit --libvirt qemu:///system --format json

      vdisklab audit /etc/pve/qemu-server
    """
    host = LocalHost()
    found = read_disks(host, guests.guests, guests.libvirt)
    answer = audit_disks(
        host,
        found.disks,
        request.need,
        request.campaign,
        request.db,
        guests=guests.as_typed,
        is_typed=Named.of(request.db).db is not None,
        host_disk=request.disk or HostDisk.VOLATILE,
    )
    answer = replace(answer, notes=found.notes)
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    again = retyped("audit", guests.as_typed, valued=["--campaign"])

    def in_campaign(name: str) -> str:
        return guests.asked_again(f"`{again} --campaign {name}`")

    print_answer(answer, view.tables(answer, in_campaign), output, request)

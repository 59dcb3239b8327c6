"""`vdisklab audit`: the speed and risks of existing guests' disks, as measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vdisklab.cli.options import CampaignOption, DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.host.command import LocalHost
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.render.tables.audited_disks import audit_document, audit_table
from vdisklab.services.disk_audit import answer_audit, read_disks


def audit(
    domains: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DOMAIN.xml...", help="Files from `virsh dumpxml`; - is a pipe."),
    ] = None,
    libvirt: Annotated[
        str | None,
        typer.Option(
            "--libvirt", metavar="URI", help="Read all guests of a libvirt: qemu:///system."
        ),
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEED", help=needs_help("For each disk, say whether it meets this need")
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the path, local rank and risks of each disk of existing guests.

    Nothing is changed, neither guests nor images.

    Examples:

      vdisklab audit web.xml db.xml --need durable

      vdisklab audit --libvirt qemu:///system --format json
    """
    host, needs = LocalHost(), parse_needs(need)
    answer = answer_audit(host, read_disks(host, domains or (), libvirt), needs, campaign, db)
    emit(form, [audit_table(answer)], lambda: audit_document(answer))

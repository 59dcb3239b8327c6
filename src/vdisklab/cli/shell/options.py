"""Options that several verbs take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from vdisklab.cli.shell.campaign_options import setting_option
from vdisklab.path.durability import HostDisk


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


DbOption = Annotated[str | None, setting_option("db")]
DiskOption = Annotated[HostDisk | None, setting_option("disk")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the answer.")]
WhyOption = Annotated[
    bool, typer.Option("--why", help="Show all notes below the table, not only the first ones.")
]
CampaignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--campaign",
        metavar="ID",
        help="A campaign's id or its first letters; repeat it to join campaigns of one machine.",
        show_default="the newest",
    ),
]
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hosts",
        metavar="HOST",
        help="One answer from many hosts: `all`, a host's name, or FACT=VALUE (cpu, medium, "
        "kernel, qemu, …); repeat it for several names, or for facts that a host must all have.",
        show_default="the host of the campaign",
    ),
]

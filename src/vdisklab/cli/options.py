"""Options that several verbs take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


DbOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        envvar="VDISKLAB_DB",
        help="The database of results: a file, sqlite:///FILE or postgresql://…",
        show_default="the file that `vdisklab run` uses",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the answer.")]
CampaignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--campaign",
        metavar="ID",
        help="A campaign's id or its first letters; may be given again to join campaigns of "
        "one machine.",
        show_default="the newest",
    ),
]

"""`vdisklab import`: results that others measured, in the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vdisklab.cli.options import DbOption
from vdisklab.services import import_results
from vdisklab.services.answers import database_url
from vdisklab.units import counted

_NAMES_SHOWN = 8


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="fio JSON or JSON+, bonnie++ CSV or text, sysbench fileio text, CrystalDiskMark "
            "text, DISKSPD XML, or dd's line.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="What was measured, such as `scaleway block storage` or a disk path. Several "
            "files then are repetitions of it.",
            show_default="each file's own name",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="CAMPAIGN",
            help="The campaign to add them to, beside what was measured here.",
            show_default="a new campaign",
        ),
    ] = None,
    measurement: Annotated[
        str | None,
        typer.Option(
            "--measurement",
            metavar="NAME",
            help="The measurement's name, such as randread-4k-q1, for files that hold one.",
            show_default="the file's own",
        ),
    ] = None,
    db: DbOption = None,
) -> None:
    """Import results that were measured elsewhere, or by hand, into the same tables.

    All files are read before anything is stored, so a damaged one changes nothing. What a file
    does not say stays unknown.

    Examples:

        vdisklab import result.json --as 'my VM at home'

        vdisklab import run1.csv run2.csv run3.csv --as qcow2/writeback --into 3f2a
    """
    imported = import_results.import_files(database_url(db), files, name, into, measurement)
    more = len(imported.cells) - _NAMES_SHOWN
    shown = ", ".join(imported.cells[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    print(f"imported into campaign {imported.campaign}: {shown} ({counted(imported.runs, 'run')})")

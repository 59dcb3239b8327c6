"""`vdisklab import`: results from other programs and other machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from vdisklab.actions.export_data import exported_files, import_campaigns
from vdisklab.actions.import_ import import_files
from vdisklab.actions.input_file import input_files
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.options import DbOption
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.results.exchange import StoredExport
from vdisklab.units import counted

PANEL = VerbPanel.STORED

_NAMES_SHOWN = 8


def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="fio JSON or JSON+, bonnie++ CSV or text, sysbench fileio text, CrystalDiskMark "
            "text, DISKSPD XML, dd's line, or a file from `vdisklab export-data`; `-` is standard "
            "input.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="A name for the measured disk, such as `scaleway block storage` or a disk path. "
            "Several files then count as repetitions.",
            show_default="each file's own name",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="CAMPAIGN",
            help="The campaign to add the runs to, next to runs measured here.",
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
    """Import results that were measured elsewhere or without vdisklab.

    All files are read before anything is stored, so a damaged one changes nothing. Values that a
    file does not state stay unknown.

    Examples:

        vdisklab import result.json --as 'my VM at home'

        vdisklab import run1.csv run2.csv --as qcow2/writeback --into 3f2a

        vdisklab import results.json.gz
    """
    with input_files(files) as inputs:
        if exported_files(inputs):
            if name or into or measurement:
                raise PlanError(
                    "a file of whole campaigns keeps its own names",
                    hint="leave out --as, --into and --measurement; unpack a program's compressed "
                    "report first: gunzip FILE",
                )
            for stored in import_campaigns(database_url(db, create=True), inputs):
                print("\n".join(_stored_lines(stored)))
            return
        url = database_url(db, create=True)
        imported = import_files(url, inputs, name, into, measurement)
    more = len(imported.cells) - _NAMES_SHOWN
    shown = ", ".join(imported.cells[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    print(f"imported into campaign {imported.campaign}: {shown} ({counted(imported.runs, 'run')})")


def _stored_lines(stored: StoredExport) -> Iterator[str]:
    for campaign in stored.campaigns:
        label = f" ({campaign.label})" if campaign.label else ""
        stored_runs = counted(campaign.known_runs, "run")
        if campaign.known_runs and not campaign.runs:
            yield f"campaign {campaign.id}{label} is in the database already, with {stored_runs}"
        else:
            runs = counted(campaign.runs, "run")
            already = f"; {stored_runs} were there already" if campaign.known_runs else ""
            yield f"imported campaign {campaign.id}{label}: {runs}{already}"
    if stored.power_cuts:
        yield f"imported {counted(stored.power_cuts, 'power-cut verdict')}"
    if not stored.campaigns and not stored.power_cuts:
        yield "nothing new: the database holds all of it already"

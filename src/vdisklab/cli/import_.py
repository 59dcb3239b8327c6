"""`vdisklab import`: results from other programs and other machines."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.actions.export_data import exported_files, import_campaigns
from vdisklab.actions.import_ import import_files
from vdisklab.actions.input_file import input_files
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.options import DbOption, OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.views import import_ as view

PANEL = VerbPanel.STORED


@takes_output()
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
    *,
    output: OutputOptions,
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
            answer = import_campaigns(database_url(db, create=True), inputs)
        else:
            url = database_url(db, create=True)
            answer = import_files(url, inputs, name, into, measurement)
    print_answer(answer, view.tables(answer), output)

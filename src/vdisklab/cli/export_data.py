"""`vdisklab export-data`: whole campaigns as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vdisklab.actions import export_data as files
from vdisklab.actions.output_file import STDOUT
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.options import DbOption, Format, OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.views import export_data as view

PANEL = VerbPanel.STORED


@takes_output()
def export_data(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The file to write: JSON, or only the numbers as CSV if its name ends in .csv; "
            "compressed if it ends in .gz. `-` writes JSON to standard output.",
        ),
    ],
    campaign: Annotated[
        list[str] | None,
        typer.Option(
            "--campaign",
            metavar="ID",
            help="A campaign's id or its first letters; can be repeated.",
            show_default="all campaigns",
        ),
    ] = None,
    without_raw: Annotated[
        bool,
        typer.Option("--without-raw", help="Leave out the programs' own output: a smaller file."),
    ] = False,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Write campaigns to a file that `vdisklab import` reads on another machine.

    The file holds plans, hosts, runs with their evidence, and the power-cut verdicts of the same
    machines. All ids stay the same, so importing it twice adds nothing.

    Examples:

      vdisklab export-data results.json.gz

      vdisklab export-data numbers.csv --campaign 3f2a
    """
    if file == STDOUT and output.form is not Format.TABLE:
        raise PlanError(
            "`-` prints the campaigns, and --format what was written to a file",
            hint="leave out --format, or name a file",
        )
    answer = files.export_data(database_url(db), file, campaign, raw=not without_raw)
    if file != STDOUT:
        print_answer(answer, view.tables(answer), output)

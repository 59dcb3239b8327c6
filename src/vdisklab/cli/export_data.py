"""`vdisklab export-data`: whole campaigns as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vdisklab.actions import export_data as files
from vdisklab.actions.output_file import STDOUT
from vdisklab.answers.export_data import ExportDataAnswer
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell import options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import FILE, SWITCH
from vdisklab.units import counted
from vdisklab.views.layout import Table

PANEL = VerbPanel.STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDataOptions(options.DbOptions):
    """What to write, and where."""

    file: Path = options.argument(
        FILE,
        "The file to write: JSON, or only the numbers as CSV if its name ends in .csv; compressed "
        "if it ends in .gz. `-` writes JSON to standard output.",
        "FILE",
    )
    campaign: tuple[str, ...] = option(
        options.TEXTS,
        "A campaign's id or its first letters; can be repeated.",
        metavar="ID",
        shown="all campaigns",
    )
    without_raw: bool = option(SWITCH, "Leave out the programs' own output: a smaller file.")


@options.takes_options()
def export_data(request: ExportDataOptions, output: options.OutputOptions) -> None:
    """Write campaigns to a file that `vdisklab import` reads on another machine.

    The file holds plans, hosts, runs with their evidence, and the power-cut verdicts of the same
    machines. All ids stay the same, so importing it twice adds nothing.

    Examples:

      vdisklab export-data results.json.gz

      vdisklab export-data numbers.csv --campaign 3f2a
    """
    file = request.file
    if file == STDOUT and output.form is not options.Format.TABLE:
        raise PlanError(
            "`-` prints the campaigns, and --format what was written to a file",
            hint="leave out --format, or name a file",
        )
    answer = files.export_data(
        database_url(request.db), file, request.campaign, raw=not request.without_raw
    )
    if file != STDOUT:
        print_answer(answer, (table(answer),), output)


def table(answer: ExportDataAnswer) -> Table[ExportDataAnswer]:
    """The file and the number of its campaigns."""
    said = f"{answer.file}: {counted(len(answer.campaigns), 'campaign')}"
    return Table(said, (), (answer,), kind=ExportDataAnswer)

"""`vdisklab table`: the measured numbers in the layouts of the articles and their programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vdisklab.answers.loading import open_results
from vdisklab.answers.table import answer_table
from vdisklab.cli.shell.options import CampaignOptions, Format, OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import one_of
from vdisklab.sanitise import sanitise
from vdisklab.views import table as view

PANEL = VerbPanel.LEARN


class Layout(StrEnum):
    """The layouts of the numbers."""

    MEASUREMENTS = "measurements"
    GRID = "grid"
    CRYSTALDISKMARK = "crystaldiskmark"
    BONNIE = "bonnie"
    PGBENCH = "pgbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(CampaignOptions):
    """How to lay the numbers out."""

    layout: Layout = option(
        one_of(Layout),
        "The layout: a row for each number, a grid of paths and bandwidths, or another program's "
        "own text. JSON and CSV have a row for each number.",
        Layout.MEASUREMENTS,
        flag="--as",
    )


@takes_options()
def table(request: TableOptions, output: OutputOptions) -> None:
    """Print the medians of a campaign as the articles and their programs lay them out.

    Campaigns in several directories, such as a cloud server's local and block storage, or of
    several hosts are shown side by side; `rank` and `compare` refuse them.

    Examples:

        vdisklab table

        vdisklab table --as grid

        vdisklab table --as crystaldiskmark

        vdisklab table --campaign 3f2a --campaign 81c0
    """
    with open_results(request.db) as results:
        answer = answer_table(results, request.campaign)
    layout = request.layout
    if output.form is not Format.TABLE or layout in {Layout.MEASUREMENTS, Layout.GRID}:
        is_grid = output.form is Format.TABLE and layout is Layout.GRID
        tables = (view.grid if is_grid else view.tables)(answer)
        print_answer(answer, tables, output, request)
        return
    texts = {
        Layout.BONNIE: view.bonnie,
        Layout.CRYSTALDISKMARK: view.crystaldiskmark,
        Layout.PGBENCH: view.pgbench,
    }
    for text in texts[layout](answer):
        print(sanitise(text))

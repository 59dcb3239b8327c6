"""`vdisklab table`: the measured numbers in the layouts of the articles and their programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from vdisklab.answers.loading import open_results
from vdisklab.answers.table import answer_table
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import CampaignOption, DbOption, Format, OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.sanitise import sanitise
from vdisklab.views import table as view

PANEL = VerbPanel.LEARN


class Layout(StrEnum):
    """The layouts of the numbers."""

    MEASUREMENTS = "measurements"
    GRID = "grid"
    CRYSTALDISKMARK = "crystaldiskmark"
    BONNIE = "bonnie"


@takes_output()
def table(
    layout: Annotated[
        Layout,
        typer.Option(
            "--as",
            help="The layout: a row for each number, a grid of paths and bandwidths, or another "
            "program's own text. JSON and CSV have a row for each number.",
        ),
    ] = Layout.MEASUREMENTS,
    campaign: CampaignOption = None,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Print the medians of a campaign as the articles and their programs lay them out.

    Campaigns in several directories, such as a cloud server's local and block storage, are shown
    side by side; `rank` and `compare` refuse them.

    Examples:

        vdisklab table

        vdisklab table --as grid

        vdisklab table --as crystaldiskmark

        vdisklab table --campaign 3f2a --campaign 81c0
    """
    with open_results(db) as results:
        answer = answer_table(results, campaign)
    if output.form is not Format.TABLE or layout in {Layout.MEASUREMENTS, Layout.GRID}:
        is_grid = output.form is Format.TABLE and layout is Layout.GRID
        tables = (view.grid if is_grid else view.tables)(answer)
        print_answer(answer, tables, output, Named.of(db, campaign))
        return
    texts = view.bonnie if layout is Layout.BONNIE else view.crystaldiskmark
    for text in texts(answer):
        print(sanitise(text))

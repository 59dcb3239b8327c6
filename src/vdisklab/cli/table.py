"""`vdisklab table`: the measured numbers in the layouts of the articles and their programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from vdisklab.answers.loading import open_results
from vdisklab.answers.places import load_places
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import CampaignOption, DbOption, Format, FormatOption
from vdisklab.cli.shell.output import emit, print_tables
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.sanitise import sanitise
from vdisklab.views.campaign_tables import bonnie_texts, crystaldiskmark_texts, places_grid

PANEL = VerbPanel.LEARN


class Layout(StrEnum):
    """The layouts of the numbers."""

    MEASUREMENTS = "measurements"
    GRID = "grid"
    CRYSTALDISKMARK = "crystaldiskmark"
    BONNIE = "bonnie"


def table(
    layout: Annotated[
        Layout,
        typer.Option(
            "--as",
            help="The layout: a row for each number, a grid of paths and bandwidths, or another "
            "program's own text. JSON and CSV always have a row for each number.",
        ),
    ] = Layout.MEASUREMENTS,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
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
        places = load_places(results, campaign)
    if layout is Layout.MEASUREMENTS or form is not Format.TABLE:
        print_tables(places, form, Named.of(db, campaign))
    elif layout is Layout.GRID:
        emit(form, [places_grid(places)], dict)
    else:
        texts = bonnie_texts if layout is Layout.BONNIE else crystaldiskmark_texts
        for text in texts(places):
            print(sanitise(text))

"""`vdisklab runs`: the campaigns and runs in the database."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.cli.options import DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.render.tables.stored_runs import (
    campaigns_document,
    campaigns_table,
    runs_document,
    runs_table,
)
from vdisklab.services.answers import open_results


def runs(
    campaign: Annotated[
        str | None,
        typer.Argument(
            metavar="CAMPAIGN",
            help="A campaign's id or its first letters: list its runs.",
            show_default="list the campaigns",
        ),
    ] = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the campaigns, or the runs of one.

    Examples:

      vdisklab runs

      vdisklab runs 3f2a --format csv
    """
    with open_results(db) as results:
        if campaign is None:
            stored = results.campaigns()
            campaigns = campaigns_table(stored, results.outlines([item.id for item in stored]))
            emit(form, [campaigns], lambda: campaigns_document(campaigns))
        else:
            chosen = results.campaign(campaign)
            table = runs_table(chosen, results.outlines([chosen.id]))
            emit(form, [table], lambda: runs_document(table))

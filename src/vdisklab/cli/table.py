"""`vdisklab table`: what was measured, laid out as the articles and their programs do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from vdisklab import __version__
from vdisklab.analysis.findings import emulated
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Format,
    FormatOption,
    Loaded,
    emit,
    open_results,
)
from vdisklab.cli.tables import load as load_campaigns
from vdisklab.errors import PlanError
from vdisklab.report.articles import (
    bonnie_measurements,
    bonnie_text,
    crystaldiskmark_text,
    measurements_table,
    medians,
)
from vdisklab.report.document import document
from vdisklab.report.tables import Table, as_records, sanitise
from vdisklab.report.wording import EMULATION


class Layout(StrEnum):
    """How the numbers are laid out."""

    MEASUREMENTS = "measurements"
    CRYSTALDISKMARK = "crystaldiskmark"
    BONNIE = "bonnie"


def table(
    layout: Annotated[
        Layout, typer.Option("--as", help="The layout: a table, or a program's own text.")
    ] = Layout.MEASUREMENTS,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the medians of a campaign as the articles and their programs lay them out.

    Examples:

        vdisklab table

        vdisklab table --as crystaldiskmark
    """
    with open_results(db) as results:
        loaded = load_campaigns(results, campaign)
    if layout is Layout.MEASUREMENTS or form is not Format.TABLE:
        made = all_measurements(loaded)
        emit(form, [made], lambda: document("table", 1, measurements=as_records(made)))
        return
    for part in _texts(layout, loaded):
        print(sanitise(part))
    if emulated(loaded.outlines):
        print(f"* measured {EMULATION}")


def all_measurements(loaded: Loaded) -> Table:
    """Every measurement of some campaigns, in the profile's order."""
    planned = loaded.campaigns[0].plan.get("measurements", ())
    order = [str(each.get("name", "")) for each in planned]
    made = measurements_table(medians(loaded.observations), order)
    if not emulated(loaded.outlines):
        return made
    return Table(made.title, made.columns, made.rows, (*made.notes, f"Measured {EMULATION}."))


def _texts(layout: Layout, loaded: Loaded) -> Sequence[str]:
    found = medians(loaded.observations)
    if layout is Layout.CRYSTALDISKMARK:
        if not any(key[1] == "seq1m-q1t1-read" for key in found.values):
            raise PlanError(
                "this campaign has no measurements of CrystalDiskMark",
                hint="measure them: `vdisklab run PATHS --profile crystaldiskmark`",
            )
        return [crystaldiskmark_text(found, cell, __version__) for cell in found.cells]
    names = bonnie_measurements(loaded.observations)
    if not names:
        raise PlanError(
            "this campaign has no measurements of bonnie++",
            hint="measure them: `vdisklab run PATHS --profile bonnie`",
        )
    return [bonnie_text(found, name) for name in names]

"""`vdisklab table`: what was measured, laid out as the articles and their programs do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from vdisklab import __version__
from vdisklab.analysis.diagnostics.findings import caveats_of
from vdisklab.analysis.observations import cell_label
from vdisklab.cli.fsyncs import Planned, fsync_notes, of_sysbench
from vdisklab.cli.options import CampaignOption, DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.errors import PlanError
from vdisklab.render.document import document
from vdisklab.render.tables.layout import Table, as_records, sanitise
from vdisklab.render.tables.medians import (
    Medians,
    beside,
    boot_table,
    grid_table,
    growth_table,
    measurements_table,
    medians,
    side_by_side,
)
from vdisklab.render.tables.program_texts import (
    bonnie_measurements,
    bonnie_text,
    crystaldiskmark_text,
)
from vdisklab.render.wording import caution
from vdisklab.results.model import Campaign, Origin
from vdisklab.services.answers import Loaded, Results, RunOutline, disagreement, open_results
from vdisklab.services.answers import load as load_campaigns
from vdisklab.workload.install import PROGRAM as INSTALL


class Layout(StrEnum):
    """How the numbers are laid out."""

    MEASUREMENTS = "measurements"
    GRID = "grid"
    CRYSTALDISKMARK = "crystaldiskmark"
    BONNIE = "bonnie"


def table(
    layout: Annotated[
        Layout,
        typer.Option(
            "--as",
            help="The layout: a table with a row for each number, a grid of paths and bandwidths, "
            "or a program's own text. JSON and CSV are always the first.",
        ),
    ] = Layout.MEASUREMENTS,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the medians of a campaign as the articles and their programs lay them out.

    Campaigns of several directories, such as a cloud server's local and block storage, stand side
    by side; `rank` and `compare` refuse them.

    Examples:

        vdisklab table

        vdisklab table --as grid

        vdisklab table --as crystaldiskmark

        vdisklab table --campaign 3f2a --campaign 81c0
    """
    with open_results(db) as results:
        loaded = load_places(results, campaign)
    if layout is Layout.MEASUREMENTS or form is not Format.TABLE:
        made, caveats = all_tables(loaded), caveats_of(_outlines(loaded))
        records = {name: as_records(one) for name, one in made.items()}
        emit(
            form,
            list(made.values()),
            lambda: document("table", 1, emulation=caveats.emulated, lab=caveats.lab, **records),
        )
        return
    if layout is Layout.GRID:
        emit(form, [_grid(loaded)], dict)
        return
    for part in _texts(layout, loaded):
        print(sanitise(part))
    beware = caution(caveats_of(_outlines(loaded)))
    if beware is not None:
        print(f"* measured {beware}")


Places = Mapping[str, Loaded]
"""What was measured in each place; a single one has no name."""


def load_places(results: Results, names: Sequence[str] | None) -> Places:
    """The named campaigns, or the newest: those of one directory together, those of several side
    by side. Raises PlanError for campaigns that differ in anything else.
    """
    if not names:
        return {"": load_campaigns(results, names)}
    grouped: dict[str, list[str]] = {}
    chosen = tuple({each.id: each for each in map(results.campaign, names)}.values())
    for each in chosen:
        grouped.setdefault(place_of(each), []).append(each.id)
    if len(grouped) == 1:
        return {"": load_campaigns(results, names)}
    for other in chosen[1:]:
        error = disagreement(chosen[0], other, places=True)
        if error is not None:
            raise error
    return {place: load_campaigns(results, ids) for place, ids in grouped.items()}


def place_of(campaign: Campaign) -> str:
    """Where a campaign measured: its directory, or the devices that were given to it."""
    devices = campaign.plan.get("devices") or ()
    return " + ".join(map(str, devices)) or str(campaign.plan.get("directory", "unknown"))


def all_tables(loaded: Places) -> dict[str, Table]:
    """Every measurement of some campaigns, in the profile's order: of programs, installations and
    boots, by their names in JSON. The first is always there unless another one is."""
    planned = _planned(loaded)
    order = [str(each.get("name", "")) for each in planned]
    installations = [
        name for name, each in zip(order, planned, strict=True) if each.get("program") == INSTALL
    ]
    found = _medians(loaded)
    special = {"growth": growth_table(found, installations), "boots": boot_table(found)}
    made = {name: table for name, table in special.items() if table is not None}
    programs = measurements_table(found, order)
    if programs.rows or not made:
        made = {"measurements": programs, **made}
    said = tuple(_remarks(loaded))
    return {name: replace(table, notes=(*table.notes, *said)) for name, table in made.items()}


def _grid(loaded: Places) -> Table:
    found, planned = _medians(loaded), _planned(loaded)
    order = [str(each.get("name", "")) for each in planned]
    table = grid_table(found, order, of_sysbench(found.names, planned))
    if table is None:
        raise PlanError(
            "this campaign has no bandwidths", hint="`vdisklab table` shows what it has"
        )
    return replace(table, notes=(*table.notes, *_remarks(loaded)))


def _planned(loaded: Places) -> Planned:
    planned: Planned = next(iter(loaded.values())).campaigns[0].plan.get("measurements", ())
    return planned


def _remarks(loaded: Places) -> Iterator[str]:
    imported = any(run.origin is Origin.IMPORTED for run in _outlines(loaded))
    yield from fsync_notes(_medians(loaded).names, _planned(loaded), imported=imported)
    if len(loaded) > 1:
        yield "each place was measured by itself: differences are not taken within blocks"
    beware = caution(caveats_of(_outlines(loaded)))
    if beware is not None:
        yield f"Measured {beware}."


def _medians(loaded: Places) -> Medians:
    found = {place: medians(each.observations) for place, each in loaded.items()}
    return side_by_side(found) if len(found) > 1 else next(iter(found.values()))


def _outlines(loaded: Places) -> tuple[RunOutline, ...]:
    return tuple(run for each in loaded.values() for run in each.outlines)


def _how(loaded: Places, cell: str) -> str:
    """Where a cell's numbers are from: an imported file is not ours, and may be the original's."""
    runs = [
        run
        for place, each in loaded.items()
        for run in each.outlines
        if run.failure is None
        and cell in (label := cell_label(run.path, run.page_cache), beside(label, place))
    ]
    campaigns = [each for place in loaded.values() for each in place.campaigns]
    ours = "measured with fio"
    if _own_guest(campaigns) and any(run.origin is Origin.GUEST for run in runs):
        ours += ", or with DISKSPD where the guest is Windows"
    if not any(run.origin is Origin.IMPORTED for run in runs):
        return ours
    others = any(run.origin is not Origin.IMPORTED for run in runs)
    return f"imported, or {ours}" if others else "imported"


def _own_guest(campaigns: Sequence[Campaign]) -> bool:
    """True where a guest was the user's own, whose system decides the program that measures."""
    return any("image" in each.plan.get("guest", {}) for each in campaigns)


def _texts(layout: Layout, loaded: Places) -> Sequence[str]:
    found = _medians(loaded)
    if layout is Layout.CRYSTALDISKMARK:
        if not any(key[1] == "seq1m-q1t1-read" for key in found.values):
            raise PlanError(
                "this campaign has no measurements of CrystalDiskMark",
                hint="measure them: `vdisklab run PATHS --profile crystaldiskmark`",
            )
        return [
            crystaldiskmark_text(found, cell, __version__, _how(loaded, cell))
            for cell in found.cells
        ]
    names = dict.fromkeys(
        name for each in loaded.values() for name in bonnie_measurements(each.observations)
    )
    if not names:
        raise PlanError(
            "this campaign has no measurements of bonnie++",
            hint="measure them: `vdisklab run PATHS --profile bonnie`",
        )
    return [bonnie_text(found, name) for name in names]

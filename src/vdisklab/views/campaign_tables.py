"""All measurements of campaigns, as tables and in the layouts of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vdisklab import __version__
from vdisklab.analysis.diagnostics.ranked import slow_diagnostics
from vdisklab.answers.places import Places, of_sysbench, sysbench_notes
from vdisklab.errors import PlanError
from vdisklab.results.model import Origin
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.reports import GridRow, TableDocument
from vdisklab.views.durability import loss_sentences
from vdisklab.views.layout import Table
from vdisklab.views.medians import (
    Medians,
    PlacedCell,
    boot_table,
    compute_medians,
    grid_table,
    growth_table,
    measurements_table,
    side_by_side,
)
from vdisklab.views.program_texts import (
    bonnie_measurements,
    bonnie_text,
    crystaldiskmark_text,
)


def places_tables(places: Places) -> dict[str, Table[Any]]:
    """Every measurement in the profile's order: programs, installations and boots, by JSON key.

    The table of programs is left out if it is empty and another one is not.
    """
    numbers = _medians(places)
    special = {
        "growth": growth_table(numbers, places.installations),
        "boots": boot_table(numbers),
    }
    tables: dict[str, Table[Any]] = {
        name: table for name, table in special.items() if table is not None
    }
    programs = measurements_table(numbers, places.order)
    if programs.rows or not tables:
        tables = {"measurements": programs, **tables}
    notes = _notes(places, numbers)
    return {name: replace(table, notes=(*table.notes, *notes)) for name, table in tables.items()}


def places_document(places: Places) -> TableDocument:
    """The JSON form: the rows of each table of `places_tables`."""
    rows = {name: tuple(table.rows) for name, table in places_tables(places).items()}
    return copy_fields(
        TableDocument,
        places,
        measurements=rows.get("measurements"),
        growth=rows.get("growth"),
        boots=rows.get("boots"),
    )


def places_grid(places: Places) -> Table[GridRow]:
    """A row for each cell and a column for each bandwidth. Raises PlanError without any."""
    numbers = _medians(places)
    table = grid_table(numbers, places.order, of_sysbench(numbers.names, places.planned))
    if table is None:
        raise PlanError(
            "this campaign has no bandwidths", hint="`vdisklab table` shows what it has"
        )
    return replace(table, notes=(*table.notes, *_notes(places, numbers)))


def crystaldiskmark_texts(places: Places) -> Sequence[str]:
    """CrystalDiskMark's text for each cell. Raises PlanError without its measurements."""
    numbers = _medians(places)
    if "seq1m-q1t1-read" not in numbers.names:
        raise PlanError(
            "this campaign has no measurements of CrystalDiskMark",
            hint="measure them: `vdisklab run PATHS --profile crystaldiskmark`",
        )
    texts = (
        crystaldiskmark_text(numbers, cell, __version__, _source(places, cell))
        for cell in numbers.cells
    )
    return (*texts, *_warning(places))


def bonnie_texts(places: Places) -> Sequence[str]:
    """bonnie++'s table of each measurement. Raises PlanError without its measurements."""
    numbers = _medians(places)
    names = dict.fromkeys(
        name
        for loaded in places.loaded.values()
        for name in bonnie_measurements(loaded.observations)
    )
    if not names:
        raise PlanError(
            "this campaign has no measurements of bonnie++",
            hint="measure them: `vdisklab run PATHS --profile bonnie`",
        )
    return (*(bonnie_text(numbers, name) for name in names), *_warning(places))


def _medians(places: Places) -> Medians:
    parts = {place: compute_medians(loaded.observations) for place, loaded in places.loaded.items()}
    return side_by_side(parts) if len(parts) > 1 else next(iter(parts.values()))


def _notes(places: Places, numbers: Medians) -> tuple[str, ...]:
    notes = list(sysbench_notes(numbers.names, places.planned, imported=places.imported))
    if len(places.loaded) > 1:
        notes.append(
            "each place was measured separately: their differences are not taken within rounds"
        )
    notes += _losses(places)
    for loaded in places.loaded.values():
        notes += map(str, slow_diagnostics(loaded.observations))
    return (*notes, *places.caveats.notes)


def _losses(places: Places) -> tuple[str, ...]:
    cells = (cell for loaded in places.loaded.values() for cell in loaded.observations.cells)
    return loss_sentences(cells, places.verdicts)


def _warning(places: Places) -> tuple[str, ...]:
    warning = places.caveats.warning
    measured = () if warning is None else (f"* measured {warning}",)
    return (*(f"* {loss}" for loss in _losses(places)), *measured)


def _source(places: Places, cell: PlacedCell) -> str:
    """Where a cell's numbers come from: an imported file may be the original program's."""
    runs = [
        run
        for place, loaded in places.loaded.items()
        for run in loaded.outlines
        if run.failure is None and cell == PlacedCell(run.measured_cell, place)
    ]
    measured = "measured with fio"
    if places.in_user_guest and any(run.origin is Origin.GUEST for run in runs):
        measured += ", or with DISKSPD where the guest is Windows"
    origins = {run.origin is Origin.IMPORTED for run in runs}
    if True not in origins:
        return measured
    return f"imported, or {measured}" if False in origins else "imported"

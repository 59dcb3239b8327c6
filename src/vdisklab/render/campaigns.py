"""Lists of what a database holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vdisklab.analysis.diagnostics.findings import Outline
from vdisklab.analysis.observations import cell_label
from vdisklab.render.document import Json, document
from vdisklab.render.tables import Column, Table, Value, as_records, text
from vdisklab.results.model import Campaign, Origin


def campaigns_table(campaigns: Sequence[Campaign], outlines: Iterable[Outline]) -> Table:
    """One row per campaign, in the order given."""
    runs = tuple(outlines)
    measured = Counter(run.campaign for run in runs if run.failure is None)
    failed = Counter(run.campaign for run in runs if run.failure is not None)
    cells = Counter(campaign for campaign, _ in {(r.campaign, _label(r)) for r in runs})
    blocks = Counter(campaign for campaign, _ in {(r.campaign, r.block) for r in runs})
    rows = tuple(
        (
            text(each.id),
            Value(each.started.isoformat(), f"{each.started:%Y-%m-%d %H:%M}"),
            text(each.host.hostname),
            text(each.label),
            *(_count(counter[each.id]) for counter in (cells, blocks, measured, failed)),
        )
        for each in campaigns
    )
    columns = (
        Column("campaign", "campaign"),
        Column("started", "started"),
        Column("hostname", "host", folds=True),
        Column("label", "label", folds=True),
        Column("cells", "cells", right=True),
        Column("blocks", "blocks", right=True),
        Column("measured", "measured", right=True),
        Column("failed", "failed", right=True),
    )
    title = "Campaigns" if rows else "No campaign has been measured yet: `vdisklab run PATHS…`"
    return Table(title, columns, rows)


def runs_table(campaign: Campaign, outlines: Iterable[Outline]) -> Table:
    """One row per run, in the order in which they were measured."""
    rows = tuple(
        (
            text(run.id),
            text(_label(run)),
            _count(run.block),
            Value(run.started.isoformat(), f"{run.started:%Y-%m-%d %H:%M:%S}"),
            Value(run.accelerator or "", _by(run)),
            text(run.origin.value),
            Value(run.failure is not None, ""),
            Value(
                run.failure.message if run.failure else None,
                f"failed: {run.failure.sentence}" if run.failure else "measured",
            ),
        )
        for run in sorted(outlines, key=lambda run: (run.started, run.id))
    )
    columns = (
        Column("run", "run"),
        Column("cell", "cell", folds=True),
        Column("block", "block", right=True),
        Column("started", "started", only_wide=True),
        Column("accelerator", "by"),
        Column("origin", "", only_data=True),
        Column("failed", "", only_data=True),
        Column("reason", "outcome", folds=True),
    )
    return Table(f"Runs of campaign {campaign.id} {campaign.label}".strip(), columns, rows)


def list_document(table: Table, of: str) -> Json:
    """The JSON form of either list: its rows under `campaigns` or `runs`."""
    return document(of, 1, **{of: as_records(table)})


def _by(run: Outline) -> str:
    """The accelerator, and that the guest's host was a lab: then no number of it is a speed."""
    words = (run.accelerator or "", "in the lab" if run.origin is Origin.LAB else "")
    return ", ".join(word for word in words if word)


def _label(run: Outline) -> str:
    return cell_label(run.path, run.page_cache)


def _count(number: int) -> Value:
    return Value(number, str(number))

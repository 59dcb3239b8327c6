"""Deletes and renames stored results, to undo an import or a run that went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Campaign, Origin
from vdisklab.results.outlines import RunOutline
from vdisklab.results.store import Store
from vdisklab.services.import_results import last_blocks, require_name
from vdisklab.units import counted

_SHOWN = 4


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A campaign with its runs, or one `run` of it."""

    campaign: Campaign
    runs: tuple[RunOutline, ...]
    run: RunOutline | None = None

    def __str__(self) -> str:
        if self.run is not None:
            cell = self.run.measured_cell
            return (
                f"run {self.run.id} of campaign {self.campaign.id}: {cell}, block {self.run.block}"
            )
        label = f" ({self.campaign.label})" if self.campaign.label else ""
        cells = len({run.cell for run in self.runs})
        size = f"{counted(len(self.runs), 'run')} of {counted(cells, 'cell')}"
        return f"campaign {self.campaign.id}{label}: {size}"


def find_stored(results: Store, name: str) -> StoredResult:
    """The campaign or run whose id begins with a name. Raises DatabaseError unless it is one."""
    campaigns, runs = results.matching(name)
    matches = [*(f"campaign {match}" for match in campaigns), *(f"run {match}" for match in runs)]
    if not matches:
        raise DatabaseError(
            f"there is no campaign and no run {name!r}",
            hint="`vdisklab runs` lists the campaigns, `vdisklab runs CAMPAIGN` its runs",
        )
    if len(matches) > 1:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise DatabaseError(
            f"{name!r} may be {', '.join(matches[:_SHOWN])}{more}",
            hint="give more letters of the id",
        )
    campaign = results.campaign(campaigns[0] if campaigns else results.run(runs[0]).campaign)
    outlines = results.outlines([campaign.id])
    run = next((run for run in outlines if run.id in runs), None)
    return StoredResult(campaign, outlines, run)


def delete_stored(results: Store, stored: StoredResult) -> None:
    """Deletes a campaign with all its runs, or one run."""
    if stored.run is None:
        results.delete_campaign(stored.campaign.id)
    else:
        results.delete_run(stored.run.id)


def rename_stored(results: Store, stored: StoredResult, name: str) -> str:
    """Gives a campaign another label, or an imported run and its repetitions another name.

    Returns what was done. Repetitions get blocks after those that the name has already. Raises
    PlanError for a bad name, and for a run that vdisklab measured: its path says what was measured.
    """
    require_name("--rename", name)
    if stored.run is None:
        results.rename_campaign(stored.campaign.id, name)
        return f"campaign {stored.campaign.id} is labelled {name}"
    if stored.run.origin is not Origin.IMPORTED:
        raise PlanError(
            f"run {stored.run.id} was measured as {stored.run.measured_cell}, and keeps that name",
            hint="imported runs and campaigns can be renamed",
        )
    cell = MeasuredCell.parse(name)
    if cell == stored.run.measured_cell:
        return f"{cell} has that name already"
    first = last_blocks(stored.runs).get(cell.fingerprint, 0) + 1
    imported = [
        run for run in stored.runs if run.cell == stored.run.cell and run.origin is Origin.IMPORTED
    ]
    ordered = sorted(imported, key=lambda run: run.block)
    results.rename_runs({run.id: block for block, run in enumerate(ordered, first)}, cell)
    return f"{counted(len(ordered), 'run')} of {stored.run.measured_cell} renamed: {cell}"

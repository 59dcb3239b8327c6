"""Deletes and renames stored results, to undo an import or a run that went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.actions.import_ import last_rounds, require_name
from vdisklab.answers.runs import Correction, CorrectionAnswer
from vdisklab.errors import DamagedError, DatabaseError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Campaign, Origin, RunOutline
from vdisklab.results.store import Store
from vdisklab.units import counted
from vdisklab.value import Value, replace

_SHOWN = 4


class StoredResult(Value):
    """A campaign with its runs, or the `chosen` ones of its runs.

    `campaign` is None, and there are no runs, if damage prevents reading more than the ids.
    """

    campaign: Campaign | None
    runs: tuple[RunOutline, ...]
    chosen: tuple[RunOutline, ...] = ()
    campaign_id: str | None = None
    run_id: str | None = None

    @property
    def its_campaign(self) -> str | None:
        """The campaign's id, None for a damaged run."""
        return self.campaign_id if self.campaign is None else self.campaign.id

    def __str__(self) -> str:
        if self.campaign is None:
            name = f"run {self.run_id}" if self.run_id else f"campaign {self.campaign_id}"
            return f"the damaged {name}"
        if self.chosen:
            first = self.chosen[0]
            cell = first.measured_cell
            if len(self.chosen) == 1:
                return f"run {first.id} of campaign {self.campaign.id}: {cell}, round {first.round}"
            return f"{counted(len(self.chosen), 'run')} of campaign {self.campaign.id}: {cell}"
        label = f" ({self.campaign.label})" if self.campaign.label else ""
        cells = len({run.cell for run in self.runs})
        size = f"{counted(len(self.runs), 'run')} of {counted(cells, 'cell')}"
        return f"campaign {self.campaign.id}{label}: {size}"


def find_stored(results: Store, name: str) -> StoredResult:
    """The stored results that a name means. A name is the id of a campaign or a run, its first
    letters, a campaign's label, or an import's free name (then all runs that have it are meant).

    Raises DatabaseError unless it means one thing.
    """
    campaigns, runs = results.matching(name)
    if not campaigns and not runs:
        return _by_label(results, name)
    matches = [*(f"campaign {match}" for match in campaigns), *(f"run {match}" for match in runs)]
    _require_one(name, matches)
    campaign_id, run_id = next(iter(campaigns), None), next(iter(runs), None)
    try:
        campaign = results.campaign(campaign_id or results.run(runs[0]).campaign)
        outlines = results.outlines([campaign.id])
    except DamagedError:
        return StoredResult(None, (), (), campaign_id, run_id)
    chosen = tuple(run for run in outlines if run.id == run_id)
    return StoredResult(campaign, outlines, chosen, campaign_id, run_id)


def _by_label(results: Store, name: str) -> StoredResult:
    labelled, named = [], []
    for campaign in results.campaigns() if name else ():
        outlines = results.outlines([campaign.id])
        imported = tuple(
            run
            for run in outlines
            if run.origin is Origin.IMPORTED and run.measured_cell.label == name
        )
        labelled += [StoredResult(campaign, outlines)] if campaign.label == name else []
        named += [StoredResult(campaign, outlines, imported)] if imported else []
    stored = labelled or named
    if not stored:
        raise DatabaseError(
            f"there is no campaign and no run {name!r}",
            hint="`vdisklab runs` lists the campaigns, `vdisklab runs CAMPAIGN` its runs",
        )
    _require_one(name, [str(result).partition(":")[0] for result in stored])
    return stored[0]


def _require_one(name: str, matches: Sequence[str]) -> None:
    if len(matches) > 1:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise DatabaseError(
            f"{name!r} may be {', '.join(matches[:_SHOWN])}{more}",
            hint="name one by its id, or by more of its letters",
        )


def keep_stored(stored: StoredResult) -> CorrectionAnswer:
    """The answer when the user does not agree."""
    return CorrectionAnswer(Correction.KEPT, str(stored), stored.its_campaign, ())


def delete_stored(results: Store, stored: StoredResult) -> CorrectionAnswer:
    """Deletes a campaign with all its runs, or some runs."""
    runs = tuple(run.id for run in stored.chosen) if stored.run_id is None else (stored.run_id,)
    for run_id in runs:
        results.delete_run(run_id)
    if stored.its_campaign is not None and not runs:
        results.delete_campaign(stored.its_campaign)
        runs = tuple(run.id for run in stored.runs)
    return CorrectionAnswer(Correction.DELETED, str(stored), stored.its_campaign, runs)


def rename_stored(results: Store, stored: StoredResult, name: str) -> CorrectionAnswer:
    """Gives a campaign another label, or an imported run and its repetitions another name.

    A campaign of one imported name gets both. Repetitions get the rounds that follow the new name's
    existing ones. Raises PlanError for a bad name, and for a run that vdisklab measured: its path
    says what was measured.
    """
    require_name("--rename", name)
    campaign = stored.campaign
    if campaign is None:
        raise PlanError(
            f"{stored} cannot be renamed", hint="delete it: `vdisklab runs --delete ID`"
        )
    if stored.chosen:
        return _rename_cell(results, stored, stored.chosen[0], name)
    results.rename_campaign(campaign.id, name)
    cells = {run.cell for run in stored.runs}
    if len(cells) == 1 and all(run.origin is Origin.IMPORTED for run in stored.runs):
        runs_too = _rename_cell(results, stored, stored.runs[0], name)
        return replace(runs_too, done=Correction.RENAMED, label=name)
    return CorrectionAnswer(Correction.RENAMED, str(stored), campaign.id, (), name)


def _rename_cell(
    results: Store, stored: StoredResult, like: RunOutline, name: str
) -> CorrectionAnswer:
    """Renames the runs of the same imported cell."""
    if like.origin is not Origin.IMPORTED:
        raise PlanError(
            f"run {like.id} was measured as {like.measured_cell}, and keeps that name",
            hint="imported runs and campaigns can be renamed",
        )
    cell, former = MeasuredCell.parse(name), like.measured_cell
    answer = CorrectionAnswer(
        Correction.KEPT, str(stored), like.campaign, (), former=former, cell=cell
    )
    if cell == former:
        return answer
    first = last_rounds(stored.runs).get(cell.fingerprint, 0) + 1
    imported = [run for run in stored.runs if run.cell == like.cell and run.origin is like.origin]
    ordered = sorted(imported, key=lambda run: run.round)
    results.rename_runs({run.id: round for round, run in enumerate(ordered, first)}, cell)
    return replace(answer, done=Correction.RENAMED, runs=tuple(run.id for run in ordered))

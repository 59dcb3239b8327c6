"""The answers of `runs` as tables."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers import runs
from vdisklab.results.model import Origin
from vdisklab.units import counted
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def campaign_tables(answer: runs.CampaignsAnswer) -> Iterator[Table[runs.ListedCampaign]]:
    """One row per campaign."""
    columns: tuple[Column[runs.ListedCampaign], ...] = (
        Column("campaign", lambda row: row.campaign),
        Column("started", lambda row: f"{row.started:%Y-%m-%d %H:%M}"),
        Column("host", lambda row: row.host, folds=WORDS, spare=1),
        Column("label", lambda row: row.label, folds=WORDS),
        Column("cells", lambda row: str(row.cells), right=True, spare=1),
        Column("rounds", lambda row: str(row.rounds), right=True, spare=1),
        Column("measured", lambda row: str(row.measured), right=True, phone=False),
        Column("failed", lambda row: str(row.failed), right=True),
    )
    none = "No campaign has been measured yet: `vdisklab run PATHS…`"
    title = "Campaigns" if answer.campaigns else none
    yield Table(title, columns, answer.campaigns, kind=runs.ListedCampaign)


def tables(answer: runs.RunsAnswer) -> Iterator[Table[runs.ListedRun]]:
    """One row per run."""
    columns: tuple[Column[runs.ListedRun], ...] = (
        Column("run", lambda row: row.run),
        Column("cell", lambda row: row.cell.label, folds=NAMES),
        Column("round", lambda row: str(row.round), right=True),
        Column("started", lambda row: f"{row.started:%Y-%m-%d %H:%M:%S}", spare=2),
        Column("by", _measured_by, spare=1),
        Column("outcome", _outcome, folds=WORDS),
    )
    title = f"Runs of campaign {answer.campaign.id} {answer.campaign.label}".strip()
    yield Table(title, columns, answer.runs, kind=runs.ListedRun)


def correction_tables(answer: runs.CorrectionAnswer) -> Iterator[Table[runs.CorrectionAnswer]]:
    """A sentence on what was deleted or renamed."""
    yield Table("; ".join(_corrected(answer)), (), (answer,), kind=runs.CorrectionAnswer)


def _corrected(answer: runs.CorrectionAnswer) -> Iterator[str]:
    if answer.done is runs.Correction.DELETED:
        yield f"deleted {answer.what}"
    elif answer.label is None and answer.cell is None:
        yield "nothing was deleted"
    if answer.label is not None:
        yield f"campaign {answer.campaign} is labelled {answer.label}"
    if answer.cell is not None and answer.runs:
        yield f"{counted(len(answer.runs), 'run')} of {answer.former} renamed: {answer.cell}"
    elif answer.cell is not None:
        yield f"{answer.cell} has that name already"


def _measured_by(row: runs.ListedRun) -> str:
    """The accelerator; `in the lab` for a run there, whose numbers are not speeds."""
    marks = (str(row.ran_under or ""), "in the lab" if row.origin is Origin.LAB else "")
    return ", ".join(word for word in marks if word)


def _outcome(row: runs.ListedRun) -> str:
    return f"failed: {row.failure.sentence}" if row.failure else "measured"

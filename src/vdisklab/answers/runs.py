"""`runs`: the stored campaigns, and the runs of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from vdisklab.documents import Answer
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.host_choice import by_host
from vdisklab.results.model import Campaign, Failure, Origin, RanUnder, RunOutline
from vdisklab.value import HIDDEN, Value


class ListedCampaign(Value):
    """One stored campaign."""

    campaign: Annotated[str, "its id"]
    started: datetime
    hostname: str
    label: str
    cells: int
    rounds: int
    measured: Annotated[int, "runs"]
    failed: Annotated[int, "runs"]
    host: Annotated[str, HIDDEN]
    """What `--hosts` calls the host: with its id where two hosts have one name."""


class CampaignsAnswer(Answer):
    """`vdisklab runs`: the stored campaigns."""

    FORMAT = "vdisklab.campaigns/2"

    campaigns: tuple[ListedCampaign, ...]


class ListedRun(Value):
    """One run of a campaign."""

    run: Annotated[str, "its id"]
    cell: MeasuredCell
    round: int
    started: datetime
    accelerator: Annotated[str | None, "`kvm` or `tcg`; null on the host itself"]
    emulated: Annotated[bool, "true under TCG, and in a host that is emulated itself"]
    ran_under: Annotated[RanUnder | None, HIDDEN]
    origin: Origin
    failure: Annotated[Failure | None, "null for a run with numbers"]


class RunsAnswer(Answer):
    """`vdisklab runs CAMPAIGN`: its runs in the order in which they were measured."""

    FORMAT = "vdisklab.runs/2"

    campaign: Campaign
    runs: tuple[ListedRun, ...]


class Correction(StrEnum):
    """A change to stored results."""

    DELETED = "deleted"
    RENAMED = "renamed"
    KEPT = "kept"


class CorrectionAnswer(Answer):
    """`vdisklab runs --delete` and `--rename`: what was changed."""

    FORMAT = "vdisklab.correction/1"

    done: Annotated[Correction, "`kept`: the user did not agree, or the name was the same"]
    what: Annotated[str, "the campaign or the runs before the change, in words"]
    campaign: Annotated[str | None, "its id; null for a run too damaged to tell"]
    runs: Annotated[tuple[str, ...], "ids of the runs that were deleted, or have another name now"]
    label: Annotated[str | None, "the campaign's new label"] = None
    former: Annotated[MeasuredCell | None, "the name that renamed runs had"] = None
    cell: Annotated[MeasuredCell | None, "the name that they have now"] = None


def answer_campaigns(
    campaigns: Sequence[Campaign], outlines: Iterable[RunOutline]
) -> CampaignsAnswer:
    """The campaigns in the order given."""
    runs_of: dict[str, list[RunOutline]] = {campaign.id: [] for campaign in campaigns}
    for run in outlines:
        runs_of[run.campaign].append(run)
    host_of = {each.id: name for name, group in by_host(campaigns).items() for each in group}
    return CampaignsAnswer(
        tuple(
            ListedCampaign(
                campaign=campaign.id,
                started=campaign.started,
                hostname=campaign.host.hostname,
                label=campaign.label,
                cells=len({run.measured_cell for run in runs}),
                rounds=len({run.round for run in runs}),
                measured=sum(run.failure is None for run in runs),
                failed=sum(run.failure is not None for run in runs),
                host=host_of[campaign.id],
            )
            for campaign, runs in zip(campaigns, runs_of.values(), strict=True)
        )
    )


def answer_runs(campaign: Campaign, outlines: Iterable[RunOutline]) -> RunsAnswer:
    """The runs of a campaign."""
    ordered = sorted(outlines, key=lambda run: (run.started, run.id))
    return RunsAnswer(
        campaign,
        tuple(
            ListedRun(
                run=run.id,
                cell=run.measured_cell,
                round=run.round,
                started=run.started,
                accelerator=run.accelerator,
                emulated=run.is_emulated,
                ran_under=run.ran_under,
                origin=run.origin,
                failure=run.failure,
            )
            for run in ordered
        ),
    )

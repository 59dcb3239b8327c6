"""Runs a campaign: turns slots into runs. A failed cell gives a run too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable
from datetime import UTC, datetime

from vdisklab import errors
from vdisklab.campaign.chosen_slots import Choose, TimeLimit, chosen_slots
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.measure_cell import measure_cell
from vdisklab.campaign.measured_evidence import StateError
from vdisklab.campaign.schedule import Slot, schedule
from vdisklab.host.machine import is_emulated
from vdisklab.path.cell import Cell
from vdisklab.progress import (
    Event,
    MeasurementStarted,
    Progress,
    RunFinished,
    RunStarted,
)
from vdisklab.results.model import Failure, FailureKind, Origin, Run
from vdisklab.value import Value, replace

SHARING_ROUNDS = 3
"""At most this many rounds share guests: once these had as many runs as the largest round, new ones
are booted. What a guest does to all paths alike cancels within a round. What it does to a single
path would make the rounds that share it alike."""


class RunTag(Value):
    """The data that every run of a campaign has."""

    campaign: str
    medium: str | None


def campaign_runs(
    context: CampaignContext, tag: RunTag, finished: Collection[tuple[int, str]] = ()
) -> Generator[Run, None, None]:
    """Measures the unfinished slots, and yields each run as soon as it is complete.

    Each round boots new guests; in a race, whose rounds get smaller, two or three small rounds
    share them. A cell that fails becomes a run with its reason, and the campaign
    goes on. Only a host that cannot be cleaned (DirtyHostError) ends it; what is left on a target
    that takes no writes any more is said at the end.
    """
    yield from _measured(context, tag, schedule(context.plan, finished), context.plan.rounds)


def chosen_runs(
    context: CampaignContext,
    tag: RunTag,
    finished: Collection[tuple[int, str]],
    choose: Choose,
    limit: TimeLimit,
    *,
    renew: bool = True,
) -> Generator[Run, None, None]:
    """Like `campaign_runs`, but `choose` selects the cells of each round.

    It is called after the runs of the round before have been consumed. An empty selection ends the
    campaign, and so does a round in which runs are left out because they do not fit into the
    `limit`. Unless `renew`, all rounds use the same guests.
    """
    slots = chosen_slots(context.plan, finished, choose, limit, context.progress)
    yield from _measured(context, tag, slots, None, renew=renew)


def _measured(
    context: CampaignContext,
    tag: RunTag,
    slots: Iterable[Slot],
    rounds: int | None,
    *,
    renew: bool = True,
) -> Generator[Run, None, None]:
    round, served, most = 0, [0], 0
    total = len(context.plan.cells)
    for slot in slots:
        if slot.round != round:
            most = max(most, served[-1])
            if renew and (sum(served) >= most or len(served) >= SHARING_ROUNDS):
                context.guests.renew()
                served = []
            served.append(0)
            round = slot.round
        served[-1] += not slot.cell.path.on_host
        context.progress(
            RunStarted(slot.cell.label, slot.round, rounds, slot.position, total, slot.later)
        )
        run = _run(context, tag, slot)
        yield run
        # The caller has stored the run, so a reported run survives even a SIGKILL.
        message = None if run.failure is None else run.failure.message
        context.progress(RunFinished(slot.cell.label, message, run.wall_seconds or 0.0))


def _run(context: CampaignContext, tag: RunTag, slot: Slot) -> Run:
    started, begin = datetime.now(UTC), time.monotonic()
    result, failure = _measure(context, slot)
    wall = time.monotonic() - begin
    on_host = slot.cell.path.on_host or context.plan.profile.without_guests
    named = context.stacks.named
    return Run(
        id=secrets.token_hex(8),
        campaign=tag.campaign,
        cell=slot.cell.fingerprint,
        path=slot.cell.path.canonical,
        page_cache=slot.cell.page_cache,
        round=slot.round,
        position=slot.position,
        origin=Origin.HOST if on_host else Origin.GUEST,
        started=started,
        wall_seconds=wall,
        accelerator=None if on_host else context.accelerator,
        medium=tag.medium,
        checks=tuple(
            replace(
                check,
                requested=check.requested and named(check.requested),
                observed=named(check.observed),
            )
            for check in result.checks
        ),
        commands=tuple(map(named, result.commands)),
        measurements=tuple(
            replace(measured, command=named(measured.command)) for measured in result.measurements
        ),
        failure=failure and replace(failure, message=named(failure.message)),
        emulated=is_emulated(),
    )


def _way_to_measure(
    context: CampaignContext, cell: Cell
) -> Callable[[CampaignContext, Cell], CellResult]:
    """How a cell is measured. Only a campaign that measures so loads what few campaigns need."""
    if context.plan.profile.boots:
        from vdisklab.campaign.measure_boots import measure_boots  # noqa: PLC0415

        return measure_boots
    if context.plan.profile.makes_disks:
        from vdisklab.campaign.measure_life import measure_life  # noqa: PLC0415

        return measure_life
    if cell.path.attachment.during is not None:
        from vdisklab.campaign.measure_during import measure_during  # noqa: PLC0415

        return measure_during
    if not cell.path.on_host and cell.path.attachment.guests is not None:
        from vdisklab.campaign.measure_group import measure_group  # noqa: PLC0415

        return measure_group
    return measure_cell


class _BegunProgress:
    """Passes progress on, and notes that a first measurement has begun."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.measures = False

    def __call__(self, event: Event, /) -> None:
        self.measures = self.measures or isinstance(event, MeasurementStarted)
        self._progress(event)


def _measure(context: CampaignContext, slot: Slot) -> tuple[CellResult, Failure | None]:
    nothing, cell, noted = CellResult(), slot.cell, _BegunProgress(context.progress)
    context = replace(context, progress=noted)
    try:
        result = _way_to_measure(context, cell)(context, cell)
        context.stacks.require_in_place()
        return result, None
    except StateError as error:
        return CellResult(error.checks), Failure(FailureKind.STATE, str(error))
    except errors.ServerGoneError as error:
        return nothing, Failure(FailureKind.STORAGE, _sentence(error))
    except errors.VdisklabError as error:
        return nothing, _failure(context, slot, error, begun=noted.measures)
    except Exception as error:  # noqa: BLE001 - one cell's bug must not cost the others
        return nothing, Failure(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")


def _failure(
    context: CampaignContext, slot: Slot, error: errors.VdisklabError, *, begun: bool
) -> Failure:
    """Why a cell failed, before or after its first measurement had `begun`.

    Raises a DirtyHostError, unless what stays is on a target that takes no writes, or in a work
    directory that was moved: it is said at the end.
    """
    moved = context.stacks.moved()
    gone = None if moved else context.stacks.refusal(slot.cell.path)
    if isinstance(error, errors.DirtyHostError):
        if not moved and gone is None:
            raise error
        left = error if moved else errors.LeftOnTargetError(error.message, hint=error.hint)
        context.stacks.left.append(left)
    if moved:
        return Failure(FailureKind.STORAGE, moved)
    if gone is None:
        return Failure(_kind(error), _sentence(error))
    lost = f"the target was gone before this path was measured in round {slot.round}: "
    if begun:
        lost = "the target was lost in the middle of the run: "
    elif isinstance(error, errors.HostError) and not isinstance(error, errors.DirtyHostError):
        lost = ""  # while its stack was built: it was not there at all
    return Failure(FailureKind.STORAGE, f"{lost}{_sentence(gone)}\n{_sentence(error)}")


def _kind(error: errors.VdisklabError) -> FailureKind:
    match error:
        case errors.TooSlowError():
            return FailureKind.TOO_SLOW
        case errors.GuestError():
            return FailureKind.GUEST
        case errors.WorkloadError() | errors.PlanError():
            return FailureKind.WORKLOAD
        case errors.HostError():
            return FailureKind.STORAGE
        case _:
            return FailureKind.INTERNAL


def _sentence(error: errors.VdisklabError) -> str:
    """What went wrong, the way out, and what is known besides."""
    way = [f"hint: {error.hint}"] if error.hint else []
    return "\n".join([str(error), *way, *getattr(error, "__notes__", ())])

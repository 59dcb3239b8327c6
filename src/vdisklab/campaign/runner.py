"""The campaign: slots in, runs out; a failed cell is a run too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from vdisklab.campaign.booting import measure_boots
from vdisklab.campaign.cell import CampaignContext, Observed, measure_cell
from vdisklab.campaign.schedule import Slot, block_order, schedule
from vdisklab.campaign.state import StateError
from vdisklab.errors import (
    DirtyHostError,
    GuestError,
    HostError,
    PlanError,
    VdisklabError,
    WorkloadError,
)
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import RunFinished, RunStarted
from vdisklab.results.model import Failure, FailureKind, Origin, Run


@dataclass(frozen=True, slots=True)
class RunTag:
    """What every run of a campaign is marked with."""

    campaign: str
    medium: str | None


def campaign_runs(
    bench: CampaignContext, identity: RunTag, finished: Collection[tuple[int, str]] = ()
) -> Generator[Run, None, None]:
    """Measures what is not finished yet, and yields each run as soon as it is known.

    Guests are booted anew for each block. A cell that fails becomes a run with its reason, and
    the campaign goes on; only a host that cannot be cleaned (DirtyHostError) ends it.
    """
    yield from _measured(bench, identity, schedule(bench.plan, finished))


def chosen_runs(
    bench: CampaignContext, identity: RunTag, finished: Collection[tuple[int, str]], choose: Choose
) -> Generator[Run, None, None]:
    """Like `campaign_runs`, but `choose` says before each block which cells are measured in it.

    It is asked when the runs of the block before have been taken, and ends the campaign by
    choosing nothing.
    """
    yield from _measured(bench, identity, _chosen(bench.plan, finished, choose))


Choose = Callable[[int], Collection[str]]
"""(block, from 1) -> the fingerprints of the cells to measure in it."""


def _chosen(
    plan: CampaignPlan, finished: Collection[tuple[int, str]], choose: Choose
) -> Iterator[Slot]:
    for block in range(1, plan.blocks + 1):
        wanted = choose(block)
        if not wanted:
            return
        for position, cell in enumerate(block_order(plan, block), 1):
            if cell.fingerprint in wanted and (block, cell.fingerprint) not in finished:
                yield Slot(block, position, cell)


def _measured(
    bench: CampaignContext, identity: RunTag, slots: Iterable[Slot]
) -> Generator[Run, None, None]:
    block = 0
    total = len(bench.plan.cells)
    for slot in slots:
        if slot.block != block:
            bench.guests.renew()
            block = slot.block
        bench.progress(
            RunStarted(slot.cell.label, slot.block, bench.plan.blocks, slot.position, total)
        )
        yield _run(bench, identity, slot)


def _run(bench: CampaignContext, identity: RunTag, slot: Slot) -> Run:
    started, begin = datetime.now(UTC), time.monotonic()
    observed, failure = _observe(bench, slot.cell)
    wall = time.monotonic() - begin
    message = None if failure is None else failure.message
    bench.progress(RunFinished(slot.cell.label, message, wall))
    on_host = slot.cell.path.on_host
    return Run(
        id=secrets.token_hex(8),
        campaign=identity.campaign,
        cell=slot.cell.fingerprint,
        path=slot.cell.path.canonical,
        page_cache=slot.cell.page_cache,
        block=slot.block,
        position=slot.position,
        origin=Origin.HOST if on_host else Origin.GUEST,
        started=started,
        wall_seconds=wall,
        accelerator=None if on_host else bench.accelerator,
        medium=identity.medium,
        checks=observed.checks,
        commands=observed.commands,
        measurements=observed.measurements,
        failure=failure,
    )


def _observe(bench: CampaignContext, cell: Cell) -> tuple[Observed, Failure | None]:
    nothing = Observed((), (), ())
    measure = measure_boots if bench.plan.profile.boots else measure_cell
    try:
        return measure(bench, cell), None
    except DirtyHostError:
        raise
    except StateError as error:
        return Observed(error.checks, (), ()), Failure(FailureKind.STATE, str(error))
    except VdisklabError as error:
        return nothing, Failure(_kind(error), _sentence(error))
    except Exception as error:  # noqa: BLE001 - one cell's bug must not cost the others
        return nothing, Failure(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")


def _kind(error: VdisklabError) -> FailureKind:
    match error:
        case GuestError():
            return FailureKind.GUEST
        case WorkloadError() | PlanError():
            return FailureKind.WORKLOAD
        case HostError():
            return FailureKind.STORAGE
        case _:
            return FailureKind.INTERNAL


def _sentence(error: VdisklabError) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])

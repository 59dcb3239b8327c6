"""Measures campaigns: makes the plan on this host, and measures and stores the remaining runs."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime

from vdisklab.actions.cell_search import CellSearch, Narrow, Narrowed
from vdisklab.actions.planning import plan_request
from vdisklab.answers.begun import (
    MeasuringHost,
    begun_campaign,
    host_changes,
    this_host,
)
from vdisklab.answers.effort import effort, so_far_of
from vdisklab.answers.loading import stored_verdicts
from vdisklab.campaign.schedule import plan_warnings, schedule
from vdisklab.errors import DatabaseBusyError, DirtyHostError, HostError
from vdisklab.guest.guest_context import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import memory_bytes
from vdisklab.host.ledger import leftovers_sentence, open_ledger
from vdisklab.host.plan_locks import (
    lock_directory,
    processes_measuring,
    release_lock,
    take_lock,
)
from vdisklab.host.state_directory import cache_directory
from vdisklab.host.waiting import Clock
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.progress import CampaignStarted, Note, PathDropped, PlanWarning, Progress
from vdisklab.results.model import Campaign, HostFacts, RanUnder, Run
from vdisklab.results.store import Store
from vdisklab.storage.targets import Device, Directory
from vdisklab.units import format_duration
from vdisklab.value import Value, replace

_RETRY_SECONDS = 900.0
_PAUSE_SECONDS = 2.0

Publish = Callable[[Campaign, Run], None]
"""Is called with each run and its campaign, as soon as the run is stored."""


class Measured(Value):
    """The outcome of measuring a campaign.

    `campaign` is its id, None if no run is stored. `runs` counts the runs with numbers, including
    those of earlier commands, `failed` the cells that failed now. `complete_before` is True if this
    command had nothing to do. `race` has the terms if the paths raced. `left_out` are the paths
    that were asked for and that this host cannot measure.
    """

    campaign: str | None = None
    runs: int = 0
    failed: int = 0
    interrupted: bool = False
    complete_before: bool = False
    race: RaceTerms | None = None
    left_out: tuple[PathDropped, ...] = ()

    @property
    def stored(self) -> int:
        """The runs that an answer can be made of, and those that it names as failed."""
        return self.runs + self.failed


def measure(
    store: Store,
    request: Request,
    progress: Progress,
    *,
    new: bool = False,
    search: CellSearch | None = None,
    narrow: Narrow = Narrowed,
    publish: Publish | None = None,
    left: list[DirtyHostError] | None = None,
) -> Measured:
    """Measures a request, continuing the campaign of an equal plan unless `new`.

    With `search` it decides what is measured, if the plan has something to search. After an
    interrupt everything on the host is removed, and the finished runs stay stored. An error about
    what could not be removed goes to `left`, if there is one and a run is stored or it was
    interrupted, and is raised otherwise.
    """
    measured = Measured()
    try:
        with open_ledger() as ledger:
            host = LocalHost()
            planned = plan_request(
                store, host, ledger, request, progress, new=new, search=search, narrow=narrow
            )
            plan = planned.plan
            for event in planned.events:
                progress(event)
            report_plan(plan, progress)
            context = GuestContext(host, ledger, cache_directory(), progress)
            steps_of_plan = _measure_plan(
                store, context, plan, planned.facts, planned.search, new=new, publish=publish
            )
            with _alone(store, plan), closing(steps_of_plan) as steps:
                for step in steps:
                    measured = replace(step, left_out=asked_for(plan))
    except KeyboardInterrupt:
        return replace(measured, interrupted=True)
    except DirtyHostError as error:
        measured = replace(measured, interrupted=_by_interrupt(error))
        if left is None or not (measured.stored or measured.interrupted):
            raise
        left.append(error)
    return measured


def measure_in_turns(
    store: Store,
    requests: Sequence[Request],
    progress: Progress,
    *,
    new: bool = False,
    publish: Publish | None = None,
    left: list[DirtyHostError] | None = None,
) -> tuple[Measured, ...]:
    """Measures several requests in turns, round by round, each as a separate campaign; see
    `measure`.

    Turns are needed because a disk's speed changes from hour to hour; separate campaigns because
    all cells of a campaign share one work directory.
    """
    measured = [Measured()] * len(requests)
    place = 0
    try:
        with open_ledger() as ledger, ExitStack() as stack:
            host = LocalHost()
            context = GuestContext(host, ledger, cache_directory(), progress)
            all_planned = [
                plan_request(store, host, ledger, request, progress, new=new)
                for request in requests
            ]
            for planned in all_planned:
                report_plan(planned.plan, progress)
            for planned in all_planned:
                stack.enter_context(_alone(store, planned.plan))
            for round in range(1, all_planned[0].plan.rounds + 1):
                for place, planned in enumerate(all_planned):
                    plan = planned.plan
                    before = measured[place].failed
                    part = replace(plan, rounds=round)
                    is_first = new and round == 1
                    turn = _measure_plan(
                        store, context, part, planned.facts, new=is_first, publish=publish
                    )
                    with closing(turn) as steps:
                        for step in steps:
                            measured[place] = replace(
                                step, failed=before + step.failed, left_out=asked_for(plan)
                            )
    except KeyboardInterrupt:
        measured[place] = replace(measured[place], interrupted=True)
    except DirtyHostError as error:
        measured[place] = replace(measured[place], interrupted=_by_interrupt(error))
        if left is None or not any(each.stored or each.interrupted for each in measured):
            raise
        left.append(error)
    return tuple(measured)


def _by_interrupt(error: BaseException) -> bool:
    """True for an error of the removal that followed an interrupt."""
    if isinstance(error, KeyboardInterrupt):
        return True
    before = (error.__cause__, error.__context__)
    return any(each is not None and _by_interrupt(each) for each in before)


@contextmanager
def _kept_in(interrupts: list[KeyboardInterrupt]) -> Iterator[None]:
    """Keeps an interrupt before the removal that follows: the ExitStacks of the removal take it out
    of the chain of their own errors."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupts.append(interrupt)
        raise


@contextmanager
def _alone(store: Store, plan: CampaignPlan) -> Iterator[None]:
    """Keeps other processes from measuring this plan, which would store each run twice.

    Raises HostError if one does already, or if the lock's file cannot be opened.
    """
    file = lock_directory() / plan.fingerprint
    try:
        lock, is_ours = take_lock(file)
    except OSError as error:
        raise HostError(
            f"{file} cannot be written: {error.strerror}", hint="mend that, or set VDISKLAB_STATE"
        ) from error
    if not is_ours:
        with lock:
            lock.seek(0)
            process, first = lock.read() or "unknown", unchanged_campaign(store, plan)
        raise HostError(
            "this plan is being measured already, by process "
            f"{process}{f' (campaign {first.id})' if first else ''}",
            hint=f"wait for it, or end it (kill {process}); this command continues either",
        )
    try:
        with suppress(OSError):  # the number is for a message; the lock holds without it
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), str(os.getpid()).encode())
        yield
    finally:
        release_lock(lock, file)


def asked_for(plan: CampaignPlan) -> tuple[PathDropped, ...]:
    """The dropped paths that were asked for."""
    return tuple(
        PathDropped(dropped.path, dropped.reason, dropped.instead)
        for dropped in plan.dropped
        if dropped.asked
    )


def report_plan(plan: CampaignPlan, progress: Progress) -> None:
    """Reports the dropped paths and the plan's warnings."""
    for dropped in plan.dropped:
        progress(PathDropped(dropped.path, dropped.reason, dropped.instead))
    for sentence in plan_warnings(plan, memory_bytes()):
        progress(PlanWarning(sentence))
    left = leftovers_sentence()
    if left is not None:
        progress(PlanWarning(left))
    for process in processes_measuring(beside=plan.fingerprint):
        progress(
            PlanWarning(
                f"process {process} measures another campaign on this host: each measures the "
                "other's load, too"
            )
        )


def _measure_plan(
    store: Store,
    context: GuestContext,
    plan: CampaignPlan,
    facts: HostFacts,
    search: CellSearch | None = None,
    *,
    new: bool,
    publish: Publish | None = None,
) -> Generator[Measured, None, None]:
    """Measures and stores the remaining runs of a plan; yields the counts after each run."""
    campaign = _campaign(store, plan, facts, context.progress, new=new)
    finished = store.finished(campaign.id)
    # nobody knows beforehand what a search will measure
    slots = () if search is not None else tuple(schedule(plan, finished))
    total = len(plan.cells) * plan.rounds
    done, failed = (len(finished) if search is not None else total - len(slots)), 0
    if not slots and search is None:
        yield Measured(campaign.id, done, complete_before=True)
        return
    least, usually, most = _seconds_to_come(store, plan, facts, campaign, search)
    context.progress(
        CampaignStarted(
            campaign.id,
            total,
            done,
            most,
            plan.label,
            at_most=search is not None,
            at_least_seconds=least,
            usual_seconds=usually,
        )
    )
    if done:
        yield Measured(campaign.id, done, race=plan.race)
    # The guests of one campaign run under one accelerator, whatever a trial of KVM says today.
    before = store.ran_under(campaign.id)
    if before:
        accelerator = Accelerator.TCG if before == {RanUnder(Accelerator.TCG)} else Accelerator.KVM
        plan = replace(plan, guest=replace(plan.guest, accelerator=accelerator))
    interrupts: list[KeyboardInterrupt] = []
    try:
        # Imported late: what measures a cell is loaded when it was said what will be measured, and
        # not at all for a complete campaign.
        from vdisklab.campaign import runner  # noqa: PLC0415
        from vdisklab.campaign.context import open_campaign  # noqa: PLC0415

        tag = runner.RunTag(campaign.id, _medium(plan))
        with (
            open_campaign(context, plan) as opened,
            _kept_in(interrupts),
            closing(
                runner.campaign_runs(opened, tag, finished)
                if search is None
                else runner.chosen_runs(
                    opened,
                    tag,
                    finished,
                    search.choosing(store, plan, campaign.id),
                    search.time_limit(store, plan, campaign.id),
                    renew=search.renews_guests,
                )
            ) as runs,
        ):
            for run in runs:
                store_with_retry(store, run, context.progress)
                if publish is not None:
                    publish(campaign, run)
                done += run.failure is None
                failed += run.failure is not None
                yield Measured(campaign.id, done, failed, race=plan.race)
    except DirtyHostError as error:
        if interrupts:
            raise error from interrupts[0]
        raise
    finally:
        if not done:
            # An empty campaign would become the newest one, from which answers are taken.
            store.drop_if_empty(campaign.id)


def _seconds_to_come(
    store: Store,
    plan: CampaignPlan,
    facts: HostFacts,
    campaign: Campaign,
    search: CellSearch | None,
) -> tuple[float, float, float]:
    """How long the remaining runs take at least, usually and at most, as `plan` says it; zeros for
    a search that does not race, as its length is not known."""
    if search is not None and plan.race is None:
        return 0.0, 0.0, 0.0
    verdicts = stored_verdicts(store, facts, plan.settings.disk)
    takes = effort(plan, so_far_of(store, MeasuringHost.of(facts), plan, verdicts))
    left = math.inf if search is None else search.time_limit(store, plan, campaign.id).left()
    least, usually, most = (
        max(0.0, min(seconds, left)) for seconds in (takes.at_least, takes.usually, takes.at_most)
    )
    return least, usually, most


def unchanged_campaign(store: Store, plan: CampaignPlan) -> Campaign | None:
    """The stored campaign that a possible plan continues, if this host has not changed since."""
    found = begun_campaign(store.campaigns(), this_host(LocalHost(), plan), plan)
    return None if found is None else found[0]


def _campaign(
    store: Store, plan: CampaignPlan, facts: HostFacts, progress: Progress, *, new: bool
) -> Campaign:
    """The campaign that this plan continues, or a new one.

    A host with another kernel, QEMU or fio than before gets a new campaign: its numbers must not
    be mixed with the old ones.
    """
    stored_campaign = None if new else store.find_campaign(plan.fingerprint, facts.machine_id)
    changes = [] if stored_campaign is None else host_changes(stored_campaign.host, facts)
    if stored_campaign is not None and not changes:
        return stored_campaign
    if changes:
        progress(
            Note(f"a new campaign begins, because this host has changed: {', '.join(changes)}")
        )
    campaign = Campaign(
        id=secrets.token_hex(4),
        fingerprint=plan.fingerprint,
        plan=plan.stored_json(),
        host=facts,
        started=datetime.now(UTC),
        label=plan.label,
    )
    store.add_campaign(campaign)
    return campaign


def _medium(plan: CampaignPlan) -> str | None:
    """The device below the work directory, or the devices used instead of it."""
    below = tuple(map(Device, plan.backing.devices)) or (Directory(plan.directory),)
    return " + ".join(filter(None, (target.identity() for target in below))) or None


def store_with_retry(store: Store, run: Run, progress: Progress, clock: Clock = time) -> None:
    """Stores a run; retries for 15 minutes while the database is locked, full or unreachable.

    Waiting is cheaper than measuring again. Raises the last DatabaseBusyError after that.
    """
    end = clock.monotonic() + _RETRY_SECONDS
    noted = False
    while True:
        try:
            return store.add_run(run)
        except DatabaseBusyError as error:
            if clock.monotonic() >= end:
                raise
            if not noted:
                wait = format_duration(_RETRY_SECONDS)
                progress(Note(f"{error}; retrying for {wait}: {error.hint}"))
            noted = True
        clock.sleep(_PAUSE_SECONDS)

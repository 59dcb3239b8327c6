"""The answer of `plan` as a table, and the notes below it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vdisklab.analysis.diagnostics.caveats import emulation_of
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.race import LOOKS
from vdisklab.answers.effort import WithinBudget
from vdisklab.answers.plan import PlanAnswer, PlannedCell
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.units import counted, format_bytes, format_duration, in_percent, time_of_race
from vdisklab.value import replace
from vdisklab.views.layout import NAMES, Column, Table
from vdisklab.views.wording import margin_text


def tables(answer: PlanAnswer) -> Iterator[Table[PlannedCell]]:
    """One row for each cell."""
    plan = answer.campaign
    columns: tuple[Column[PlannedCell], ...] = (
        Column("#", lambda row: str(row.number), right=True),
        Column("disk path", lambda row: row.path.canonical, folds=NAMES),
        Column("page cache", lambda row: row.page_cache.value),
        Column("place in round 1", lambda row: str(row.position), right=True, spare=1),
        Column("per run", lambda row: format_duration(row.seconds_estimated), right=True),
    )
    title = (
        f"{counted(len(plan.cells), 'cell')} {_how_often(answer)}, "
        f"{format_bytes(answer.bytes_needed)} in {plan.directory}"
    )
    yield Table(title, columns, answer.cells, tuple(_notes(answer)), kind=PlannedCell)


def _how_often(answer: PlanAnswer) -> str:
    """Rounds and time; of a race, which ends when it is decided, what is usual and the most."""
    (fewest, most), rounds, within = answer.runs, answer.campaign.rounds, answer.within_budget
    if answer.finished and not most:
        return "measured already (--new measures them again)"
    more = " more" if answer.finished else ""
    if not answer.races:
        rounds = rounds if answer.campaign.race is None else min(rounds, LOOKS[0])
        left = f", {counted(most, 'more run')}" if more else ""
        budget = math.inf if within is None else within.seconds
        time = format_duration(min(answer.seconds_estimated, budget))
        return f"× {counted(rounds, 'round')}{left}, about {time}"
    times = (answer.seconds_at_least, answer.seconds_usually, answer.seconds_estimated)
    if within is not None and within.runs < most:
        fewest, most = min(fewest, within.runs), within.runs
        times = within.limits(times)
    runs = (
        f"{fewest} to {most}{more} runs" if fewest != most else counted(most, f"{more} run".strip())
    )
    return f"race: {runs}, {time_of_race(*times)}"


def _within(answer: PlanAnswer, within: WithinBudget) -> str:
    """What fits into the budget."""
    rounds, budget = answer.campaign.rounds, f"a budget of {format_duration(within.seconds)}"
    if within.runs >= answer.runs[1]:
        return f"{budget} has time for all of it"
    fits = f"{counted(within.runs, 'run')}, {counted(within.rounds, 'whole round')} of {rounds}"
    if within.rounds < MIN_ROUNDS and not answer.finished:
        needed = format_duration(answer.seconds_at_least)
        return (
            f"{budget} has time for about {fits}: too few for a rank, which needs {MIN_ROUNDS} "
            f"(about {needed}); `run` goes on if it is started again"
        )
    return (
        f"{budget} has time for about {fits} if no path is dropped, and ends with the answer known "
        "by then; `run` goes on if it is started again"
    )


def _notes(answer: PlanAnswer) -> Iterator[str]:
    plan = answer.campaign
    yield from (f"`run` will refuse: {reason}" for reason in answer.refusals)
    names = ", ".join(measurement.name for measurement in plan.profile.measurements)
    yield f"profile {plan.profile.name}" + (f": {names}" if names != plan.profile.name else "")
    if is_foreign() and any(not cell.path.on_host for cell in plan.cells):
        yield f"`run` measures {emulation_of(GUEST.name)}"
    if answer.of_unknown_length:
        yield (
            "the estimate has no time for what takes as long as it takes: "
            f"{', '.join(answer.of_unknown_length)}"
        )
    if plan.race is not None and not answer.races:
        yield "one path cannot race: to compare it, name another one beside it"
    if answer.races and plan.race is not None:
        yield (
            "the race ends when no path is better than the leader by more than "
            f"{margin_text(plan.race.margin)} ({in_percent(plan.race.confidence)} sure); "
            "--rounds N measures every path N times instead"
        )
    if answer.within_budget is not None and plan.race is not None:
        yield _within(answer, answer.within_budget)
    if answer.finished:
        yield f"`run` goes on with a campaign that has {counted(answer.finished, 'run')}"
    if round(answer.seconds_between) > 0:
        total, between = map(format_duration, (answer.seconds_estimated, answer.seconds_between))
        guests = " and booting guests" if plan.guest_buses else ""
        yield f"of {total}, {between} are beside the runs: for making images{guests}"
    if answer.guests > 1:
        yield (
            f"{answer.guests} guests at a time, which need "
            f"{format_bytes(answer.guest_bytes)} of memory with their QEMUs"
        )
    if plan.backing.devices:
        yield _builds(answer)
    yield (
        f"{plan.runtime:g} s per measurement after {plan.ramp:g} s of ramp, "
        f"disks of {format_bytes(plan.size_bytes)}, seed {plan.seed}"
    )
    guests_own = {replace(cell.path, layers=()) for cell in plan.cells}
    for platform, disk in NEW_GUEST_DISKS.items():
        if parse_path(disk.path) in guests_own:
            yield (
                f"{disk.path} is the disk of a new guest in {platform.full_name} {disk.version} "
                f"({disk.source}): {disk.note}"
            )


def _builds(answer: PlanAnswer) -> str:
    """How often stacks are rebuilt, because the user's devices hold only one at a time."""
    names = ", ".join(map(str, answer.campaign.backing.devices))
    if not answer.builds:
        return f"no path uses {names}: nothing is built there"
    if not answer.takes_turns:
        return f"one stack on {names}: built once"
    seconds = format_duration(answer.build_seconds or 0)
    return (
        f"the stacks take turns on {names}: {answer.builds} builds, about {seconds} of "
        "the time; cells of one stack follow each other within a round"
    )

"""The answer of `plan` as a table, and the notes below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vdisklab.analysis.diagnostics.caveats import emulation_of
from vdisklab.answers.plan import PlanAnswer, PlannedCell
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.units import counted, format_bytes, format_duration
from vdisklab.views.layout import NAMES, Column, Table


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
    (fewest, most), rounds = answer.runs, answer.campaign.rounds
    time = format_duration(answer.seconds_estimated)
    if answer.campaign.race is None:
        return f"× {counted(rounds, 'round')}, about {time}"
    return (
        f"race: {fewest} to {most} runs, at least {format_duration(answer.seconds_at_least)}, "
        f"usually less than {format_duration(answer.seconds_usually)}, at most {time}"
    )


def _notes(answer: PlanAnswer) -> Iterator[str]:
    plan = answer.campaign
    names = ", ".join(measurement.name for measurement in plan.profile.measurements)
    yield f"profile {plan.profile.name}" + (f": {names}" if names != plan.profile.name else "")
    if is_foreign() and any(not cell.path.on_host for cell in plan.cells):
        yield f"`run` measures {emulation_of(GUEST.name)}"
    if answer.of_unknown_length:
        yield (
            "the estimate has no time for what takes as long as it takes: "
            f"{', '.join(answer.of_unknown_length)}"
        )
    if plan.race is not None:
        yield (
            f"the race ends when no path is better than the leader by more than "
            f"{plan.race.margin:.0%} ({plan.race.confidence:.0%} sure); --rounds N measures every "
            "path N times instead"
        )
    if answer.guests > 1:
        yield (
            f"{answer.guests} guests at a time, which need "
            f"{format_bytes(answer.guest_bytes)} of memory with their QEMUs"
        )
    if plan.backing.devices:
        yield _builds(answer)
    yield from (f"`run` will refuse: {reason}" for reason in answer.refusals)
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

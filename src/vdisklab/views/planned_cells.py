"""The answers of `vdisklab plan` and `vdisklab profiles`: tables, and a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vdisklab.answers.planning import EXAMPLE_PATH, PlanDescription
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.plan.profile import Profile
from vdisklab.units import counted, format_bytes, format_duration
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.records import (
    PlanDocument,
    PlannedCell,
    PlannedCellRow,
    ProfileMeasurement,
    ProfileRow,
)
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def plan_document(description: PlanDescription) -> PlanDocument:
    """The plan as JSON; see docs/json.md."""
    plan = description.plan
    on_devices = bool(plan.backing.devices)
    return copy_fields(
        PlanDocument,
        description,
        plan=plan.as_json() | {"rounds": plan.rounds, "label": plan.label},
        builds=description.builds if on_devices else None,
        build_seconds=description.build_seconds if on_devices else None,
        cells=tuple(
            copy_fields(
                PlannedCell,
                cell,
                seconds_estimated=description.run_seconds[cell],
                commands=description.commands.get(cell),
            )
            for cell in plan.cells
        ),
    )


def plan_table(description: PlanDescription) -> Table[PlannedCellRow]:
    """One row for each cell."""
    plan = description.plan
    rows = [
        copy_fields(
            PlannedCellRow,
            cell,
            number=number,
            position=description.positions[cell],
            seconds=description.run_seconds[cell],
        )
        for number, cell in enumerate(plan.cells, 1)
    ]
    return Table(
        title=f"{counted(len(plan.cells), 'cell')} × {counted(plan.rounds, 'round')}, "
        f"about {format_duration(description.seconds)}, "
        f"{format_bytes(description.room_bytes)} in {plan.directory}",
        columns=(
            Column[PlannedCellRow]("#", lambda row: str(row.number), right=True),
            Column[PlannedCellRow]("disk path", lambda row: row.path.canonical, folds=NAMES),
            Column[PlannedCellRow]("page cache", lambda row: row.page_cache.value),
            Column[PlannedCellRow](
                "place in round 1", lambda row: str(row.position), right=True, spare=1
            ),
            Column[PlannedCellRow]("per run", lambda row: format_duration(row.seconds), right=True),
        ),
        rows=rows,
        kind=PlannedCellRow,
        notes=tuple(_notes(description)),
    )


def _notes(description: PlanDescription) -> Iterator[str]:
    plan = description.plan
    names = ", ".join(measurement.name for measurement in plan.profile.measurements)
    yield f"profile {plan.profile.name}: {names}"
    if description.guests > 1:
        yield (
            f"{description.guests} guests at a time, which need "
            f"{format_bytes(description.guest_bytes)} of memory with their QEMUs"
        )
    if plan.backing.devices:
        yield _builds(description)
    yield from (f"`run` will refuse: {reason}" for reason in description.refusals)
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


def _builds(description: PlanDescription) -> str:
    """How often stacks are rebuilt, because the user's devices hold only one at a time."""
    names = ", ".join(map(str, description.plan.backing.devices))
    if not description.builds:
        return f"no path uses {names}: nothing is built there"
    if not description.takes_turns:
        return f"one stack on {names}: built once"
    seconds = format_duration(description.build_seconds)
    return (
        f"the stacks take turns on {names}: {description.builds} builds, about {seconds} of "
        "the time; cells of one stack follow each other within a round"
    )


def profiles_table(plans: Sequence[PlanDescription]) -> Table[ProfileRow]:
    """One row for each profile."""
    profiles = [description.plan.profile for description in plans]
    untimed = {profile.name for profile in profiles if _has_untimed(profile)}

    def duration(row: ProfileRow) -> str:
        return f"{'> ' if row.profile in untimed else ''}{format_duration(row.seconds)}"

    columns: tuple[Column[ProfileRow], ...] = (
        Column("profile", lambda row: row.profile),
        Column("what it measures", lambda row: row.title, folds=WORDS),
        Column("programs", lambda row: row.programs, folds=WORDS, spare=1),
        Column("measurements", lambda row: str(row.measurements), right=True, spare=2),
        Column("rounds", lambda row: str(row.rounds), right=True, spare=1),
        Column("time", duration, right=True),
        Column("disk", lambda row: format_bytes(row.disk_bytes), right=True, spare=1),
        Column("room", lambda row: format_bytes(row.room_bytes), right=True),
    )
    notes = (
        f"time and space for {EXAMPLE_PATH} and the host as its baseline, at the profile's own "
        "size and rounds",
        "> : programs without a time limit take as long as the disk needs; --scale shortens them",
    )
    return Table("Profiles", columns, tuple(map(_profile_row, plans)), notes, kind=ProfileRow)


def _profile_row(description: PlanDescription) -> ProfileRow:
    measurements = description.plan.profile.measurements
    return copy_fields(
        ProfileRow,
        description,
        programs=", ".join(dict.fromkeys(measurement.program for measurement in measurements)),
        measurements=len(measurements),
    )


def measurements_table(profile: Profile) -> Table[ProfileMeasurement]:
    """One row for each measurement of a profile, with its settings."""
    columns: tuple[Column[ProfileMeasurement], ...] = (
        Column("measurement", lambda row: row.name),
        Column("program", lambda row: row.program),
        Column("on", lambda row: row.filesystem or "the disk itself"),
        Column("settings", lambda row: row.settings, folds=WORDS),
    )
    rows = [
        copy_fields(
            ProfileMeasurement,
            measurement,
            settings=", ".join(f"{key}={value}" for key, value in measurement.settings.items()),
        )
        for measurement in profile.measurements
    ]
    notes = (" ".join(profile.description.split()),) if profile.description else ()
    return Table(f"{profile.name}: {profile.title}", columns, rows, notes, kind=ProfileMeasurement)


def _has_untimed(profile: Profile) -> bool:
    """True when a program of the profile runs until its work is done, not for a fixed time."""
    return any(
        measurement.program in ("dd", "bonnie++", "sqlite", "dpkg")
        or measurement.settings.get("time_based") is False
        for measurement in profile.measurements
    )

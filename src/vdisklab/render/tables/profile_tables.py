"""The tables of `vdisklab profiles`."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.plan.profile import Profile
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.records import ProfileMeasurement, ProfileRow
from vdisklab.render.tables.layout import WORDS, Column, Table
from vdisklab.services.planning import EXAMPLE_PATH, PlanDescription
from vdisklab.units import format_bytes, format_duration


def profiles_table(plans: Sequence[PlanDescription]) -> Table[ProfileRow]:
    """One row for each profile."""
    profiles = [description.plan.profile for description in plans]
    untimed = {profile.name for profile in profiles if _has_untimed(profile)}

    def duration(row: ProfileRow) -> str:
        return f"{'> ' if row.profile in untimed else ''}{format_duration(row.seconds)}"

    columns = (
        Column[ProfileRow]("profile", lambda row: row.profile),
        Column[ProfileRow]("what it measures", lambda row: row.title, folds=WORDS),
        Column[ProfileRow]("programs", lambda row: row.programs, folds=WORDS, spare=1),
        Column[ProfileRow]("measurements", lambda row: str(row.measurements), right=True, spare=2),
        Column[ProfileRow]("blocks", lambda row: str(row.blocks), right=True, spare=1),
        Column[ProfileRow]("time", duration, right=True),
        Column[ProfileRow]("disk", lambda row: format_bytes(row.disk_bytes), right=True, spare=1),
        Column[ProfileRow]("room", lambda row: format_bytes(row.room_bytes), right=True),
    )
    notes = (
        f"time and space for {EXAMPLE_PATH} and the host as its baseline, at the profile's own "
        "size and blocks",
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
    columns = (
        Column[ProfileMeasurement]("measurement", lambda row: row.name),
        Column[ProfileMeasurement]("program", lambda row: row.program),
        Column[ProfileMeasurement]("on", lambda row: row.filesystem or "the disk itself"),
        Column[ProfileMeasurement]("settings", lambda row: row.settings, folds=WORDS),
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

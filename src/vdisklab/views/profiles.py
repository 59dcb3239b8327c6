"""The answers of `profiles` as tables."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.answers.profiles import (
    EXAMPLE_PATH,
    ListedProfile,
    ProfileAnswer,
    ProfileMeasurement,
    ProfilesAnswer,
)
from vdisklab.units import format_bytes, format_duration
from vdisklab.views.layout import WORDS, Column, Table


def tables(answer: ProfilesAnswer) -> Iterator[Table[ListedProfile]]:
    """One row for each profile."""

    def duration(row: ListedProfile) -> str:
        return f"{'> ' if row.at_least else ''}{format_duration(row.seconds)}"

    columns: tuple[Column[ListedProfile], ...] = (
        Column("profile", lambda row: row.profile),
        Column("what it measures", lambda row: row.title, folds=WORDS),
        Column("programs", lambda row: ", ".join(row.programs), folds=WORDS, spare=1),
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
    yield Table("Profiles", columns, answer.profiles, notes, kind=ListedProfile)


def measurement_tables(answer: ProfileAnswer) -> Iterator[Table[ProfileMeasurement]]:
    """One row for each measurement of a profile, with its settings."""
    columns: tuple[Column[ProfileMeasurement], ...] = (
        Column("measurement", lambda row: row.name),
        Column("program", lambda row: row.program),
        Column("on", lambda row: row.filesystem or "the disk itself"),
        Column("settings", lambda row: row.settings, folds=WORDS),
    )
    title, notes = f"{answer.profile}: {answer.title}", (answer.description,)
    yield Table(
        title, columns, answer.measurements, notes if answer.description else (),
        kind=ProfileMeasurement,
    )  # fmt: skip

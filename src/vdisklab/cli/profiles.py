"""`vdisklab profiles`: what can be run, how long it takes, how much room it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vdisklab.campaign.estimate import campaign_seconds, room_needed
from vdisklab.campaign.schedule import schedule
from vdisklab.cli.options import Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.render.documents.records import (
    ProfileDocument,
    ProfileMeasurement,
    ProfileRow,
    ProfilesDocument,
)
from vdisklab.render.tables.layout import Column, Table
from vdisklab.services.planning import load_profile
from vdisklab.units import format_bytes, format_duration
from vdisklab.workload.registry import builtin_profiles

# Time and room are told for the smallest campaign that compares anything: one path and its
# baseline, nothing cached.
_EXAMPLE = "raw/none"


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE",
            help="One profile, or a file: show its measurements.",
            show_default="list them all",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the profiles with the time and room that one disk path and its baseline need.

    Each repeats the measurements of an article: `docs/articles.md` has the command for each.

    Examples:

        vdisklab profiles

        vdisklab profiles hdtune
    """
    if name is None:
        table = profiles_table([load_profile(each) for each in builtin_profiles()])
        emit(form, [table], lambda: ProfilesDocument(profiles=tuple(table.rows)))
    else:
        measurements = measurements_table(load_profile(name))
        emit(form, [measurements], lambda: ProfileDocument(measurements=tuple(measurements.rows)))


def profiles_table(chosen: Sequence[Profile]) -> Table[ProfileRow]:
    """One row for each profile."""
    untimed = {profile.name for profile in chosen if _has_untimed(profile)}

    def duration(row: ProfileRow) -> str:
        return f"{'> ' if row.profile in untimed else ''}{format_duration(row.seconds)}"

    columns = (
        Column[ProfileRow]("profile", lambda row: row.profile),
        Column[ProfileRow]("what it measures", lambda row: row.title, folds=True),
        Column[ProfileRow]("programs", lambda row: row.programs),
        Column[ProfileRow](
            "measurements", lambda row: str(row.measurements), right=True, only_wide=True
        ),
        Column[ProfileRow]("blocks", lambda row: str(row.blocks), right=True),
        Column[ProfileRow]("time", duration, right=True),
        Column[ProfileRow]("disk", lambda row: format_bytes(row.disk_bytes), right=True),
        Column[ProfileRow]("room", lambda row: format_bytes(row.room_bytes), right=True),
    )
    notes = (
        f"time and room for {_EXAMPLE} and the host as its baseline, at the profile's own size "
        "and blocks",
        "> : programs that are not timed take as long as the disk needs; --scale makes them less",
    )
    return Table("Profiles", columns, tuple(map(_profile_row, chosen)), notes, kind=ProfileRow)


def _profile_row(profile: Profile) -> ProfileRow:
    plan = _example(profile)
    return ProfileRow(
        profile=profile.name,
        title=profile.title,
        programs=", ".join(dict.fromkeys(each.program for each in profile.measurements)),
        measurements=len(profile.measurements),
        blocks=plan.blocks,
        seconds=campaign_seconds(plan, tuple(schedule(plan))),
        disk_bytes=plan.size_bytes,
        room_bytes=room_needed(plan),
    )


def measurements_table(profile: Profile) -> Table[ProfileMeasurement]:
    """One row for each measurement of a profile, with its settings."""
    columns = (
        Column[ProfileMeasurement]("measurement", lambda row: row.name),
        Column[ProfileMeasurement]("program", lambda row: row.program),
        Column[ProfileMeasurement]("on", lambda row: row.filesystem or "the disk itself"),
        Column[ProfileMeasurement]("settings", lambda row: row.settings, folds=True),
    )
    rows = [
        ProfileMeasurement(
            name=each.name,
            program=each.program,
            filesystem=each.filesystem,
            settings=", ".join(f"{key}={value}" for key, value in each.settings.items()),
        )
        for each in profile.measurements
    ]
    notes = (" ".join(profile.description.split()),) if profile.description else ()
    return Table(f"{profile.name}: {profile.title}", columns, rows, notes, kind=ProfileMeasurement)


def _example(profile: Profile) -> CampaignPlan:
    request = Request(paths=(_EXAMPLE,), directory=Path("/"))
    return build_plan(request, Capabilities(), profile)


def _has_untimed(profile: Profile) -> bool:
    """True when a program of the profile ends with its work, not with the clock."""
    return any(
        each.program in ("dd", "bonnie++", "sqlite", "dpkg")
        or each.settings.get("time_based") is False
        for each in profile.measurements
    )

"""`vdisklab profiles`: what can be run, how long it takes, how much room it needs."""

from __future__ import annotations

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
from vdisklab.render.document import document
from vdisklab.render.tables.layout import Column, Table, Value, as_records, text
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
        emit(form, [table], lambda: document("profiles", 1, profiles=as_records(table)))
    else:
        table = measurements_table(load_profile(name))
        emit(form, [table], lambda: document("profile", 1, measurements=as_records(table)))


def profiles_table(found: list[Profile]) -> Table:
    """One row for each profile."""
    rows = []
    for profile in found:
        plan = _example(profile)
        seconds = campaign_seconds(plan, tuple(schedule(plan)))
        programs = ", ".join(dict.fromkeys(each.program for each in profile.measurements))
        rows.append(
            (
                text(profile.name),
                text(profile.title),
                text(programs),
                Value(len(profile.measurements), str(len(profile.measurements))),
                Value(plan.blocks, str(plan.blocks)),
                Value(
                    seconds, f"{'> ' if _has_untimed(profile) else ''}{format_duration(seconds)}"
                ),
                Value(plan.size_bytes, format_bytes(plan.size_bytes)),
                Value(room_needed(plan), format_bytes(room_needed(plan))),
            )
        )
    columns = (
        Column("profile", "profile"),
        Column("title", "what it measures", folds=True),
        Column("programs", "programs"),
        Column("measurements", "measurements", right=True, only_wide=True),
        Column("blocks", "blocks", right=True),
        Column("seconds", "time", right=True),
        Column("disk_bytes", "disk", right=True),
        Column("room_bytes", "room", right=True),
    )
    notes = (
        f"time and room for {_EXAMPLE} and the host as its baseline, at the profile's own size "
        "and blocks",
        "> : programs that are not timed take as long as the disk needs; --scale makes them less",
    )
    return Table("Profiles", columns, tuple(rows), notes)


def measurements_table(profile: Profile) -> Table:
    """One row for each measurement of a profile, with its settings."""
    rows = tuple(
        (
            text(each.name),
            text(each.program),
            Value(each.filesystem, each.filesystem or "the disk itself"),
            text(", ".join(f"{key}={value}" for key, value in each.settings.items())),
        )
        for each in profile.measurements
    )
    columns = (
        Column("name", "measurement"),
        Column("program", "program"),
        Column("filesystem", "on"),
        Column("settings", "settings", folds=True),
    )
    notes = (" ".join(profile.description.split()),) if profile.description else ()
    return Table(f"{profile.name}: {profile.title}", columns, rows, notes)


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

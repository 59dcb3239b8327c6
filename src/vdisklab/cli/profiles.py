"""`vdisklab profiles`: what can be measured, how long it takes, and how much space it needs."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.answers.planning import describe_profile, load_profile
from vdisklab.cli.shell.options import Format, FormatOption
from vdisklab.cli.shell.output import emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.views.documents.records import ProfileDocument, ProfilesDocument
from vdisklab.views.planned_cells import measurements_table, profiles_table
from vdisklab.workload.registry import builtin_profiles

PANEL = VerbPanel.PREPARE


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
    """List the profiles with the time and space for one disk path and its baseline.

    Each repeats the measurements of an article: `docs/articles.md` has the command for each.

    Examples:

        vdisklab profiles

        vdisklab profiles hdtune
    """
    if name is None:
        table = profiles_table(
            [describe_profile(load_profile(profile)) for profile in builtin_profiles()]
        )
        emit(form, [table], lambda: ProfilesDocument(profiles=tuple(table.rows)))
    else:
        measurements = measurements_table(load_profile(name))
        emit(form, [measurements], lambda: ProfileDocument(measurements=tuple(measurements.rows)))

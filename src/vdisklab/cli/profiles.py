"""`vdisklab profiles`: what can be measured, how long it takes, and how much space it needs."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.actions.planning import load_profile
from vdisklab.answers.profiles import answer_profile, answer_profiles
from vdisklab.cli.shell.options import OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.views import profiles as view
from vdisklab.workload.registry import builtin_profiles

PANEL = VerbPanel.PREPARE


@takes_output()
def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE",
            help="One profile, or a file: show its measurements.",
            show_default="list them all",
        ),
    ] = None,
    *,
    output: OutputOptions,
) -> None:
    """List the profiles with the time and space for one disk path and its baseline.

    Each repeats the measurements of an article: `docs/articles.md` has the command for each.

    Examples:

        vdisklab profiles

        vdisklab profiles hdtune
    """
    if name is None:
        listed = answer_profiles(map(load_profile, builtin_profiles()))
        print_answer(listed, view.tables(listed), output)
    else:
        profile = answer_profile(load_profile(name))
        print_answer(profile, view.measurement_tables(profile), output)

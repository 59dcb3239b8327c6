"""`vdisklab profiles`: what can be measured, how long it takes, and how much space it needs."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.answers.profiles import answer_profile, answer_profiles
from vdisklab.cli.shell.options import OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import OptionRows
from vdisklab.plan.value_kinds import NAME_OR_FILE
from vdisklab.views import profiles as view
from vdisklab.workload.builtin_profiles import builtin_profiles
from vdisklab.workload.profile_files import load_profile

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class ProfilesOptions(OptionRows):
    """Which profile to show."""

    name: str | None = argument(
        NAME_OR_FILE,
        "One profile, or a file: show its measurements.",
        "PROFILE",
        "list them all",
        default=None,
    )


@takes_options()
def profiles(request: ProfilesOptions, output: OutputOptions) -> None:
    """List the profiles with the time and space for one disk path and its baseline.

    Each repeats the measurements of an article: `docs/articles.md` has the command for each.

    Examples:

        vdisklab profiles

        vdisklab profiles hdtune
    """
    if request.name is None:
        listed = answer_profiles(map(load_profile, builtin_profiles()))
        print_answer(listed, view.tables(listed), output)
    else:
        profile = answer_profile(load_profile(request.name))
        print_answer(profile, view.measurement_tables(profile), output)

"""`vdisklab runs`: the campaigns and runs in the database."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import typer

from vdisklab.actions.corrections import (
    StoredResult,
    delete_stored,
    find_stored,
    keep_stored,
    rename_stored,
)
from vdisklab.answers.loading import open_results
from vdisklab.answers.runs import answer_campaigns, answer_runs
from vdisklab.cli.shell.options import DbOptions, OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import SWITCH, TEXT
from vdisklab.sanitise import sanitise
from vdisklab.value import replace
from vdisklab.views import runs as view

PANEL = VerbPanel.STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions(DbOptions):
    """What to list, delete or rename."""

    listed: str | None = argument(
        TEXT,
        "A campaign's id or its first letters: list its runs.",
        "CAMPAIGN",
        "list the campaigns",
        default=None,
    )
    delete: str | None = option(
        TEXT,
        "Delete a campaign with all its runs, a run, or an import by its name.",
        metavar="RUN|CAMPAIGN|NAME",
    )
    rename: tuple[str, str] | None = option(
        replace(TEXT, flag=tuple[str, str]),
        "Give a campaign another label, or an import, with its repetitions, another name.",
        metavar="RUN|CAMPAIGN|NAME NEW",
    )
    yes: bool = option(SWITCH, "With --delete: do not ask.", needs="delete")


@takes_options()
def runs(request: RunsOptions, output: OutputOptions) -> None:
    """List the campaigns, or the runs of one; delete or rename results.

    Examples:

      vdisklab runs

      vdisklab runs 3f2a --format csv

      vdisklab runs --delete 3f2a

      vdisklab runs --rename 81c0 'VM on the old disk'
    """
    listed, delete, rename = request.listed, request.delete, request.rename
    if rename is not None and rename[1].startswith("--"):
        raise PlanError(
            "--rename lacks the new name", hint="write both: --rename RUN|CAMPAIGN|NAME NEW"
        )
    if sum(value is not None for value in (listed, delete, rename)) > 1:
        raise PlanError(
            "CAMPAIGN, --delete and --rename cannot be combined", hint="give one at a time"
        )
    with open_results(request.db) as results:
        if delete is not None:
            stored = find_stored(results, delete)
            agreed = request.yes or _agrees(stored)
            deleted = delete_stored(results, stored) if agreed else keep_stored(stored)
            print_answer(deleted, view.correction_tables(deleted), output)
        elif rename is not None:
            name, new = rename
            renamed = rename_stored(results, find_stored(results, name), new)
            print_answer(renamed, view.correction_tables(renamed), output)
        elif listed is None:
            every = results.campaigns()
            campaigns = answer_campaigns(
                every, results.outlines([campaign.id for campaign in every])
            )
            print_answer(campaigns, view.campaign_tables(campaigns), output, request)
        else:
            chosen = results.campaign(listed)
            answer = answer_runs(chosen, results.outlines([chosen.id]))
            print_answer(answer, view.tables(answer), output, request)


def _agrees(stored: StoredResult) -> bool:
    """The user's answer. Ctrl-C and Ctrl-D leave the program, and say that nothing happened."""
    if not sys.stdin.isatty():
        raise PlanError(
            f"cannot ask whether to delete {stored}: standard input is not a terminal",
            hint="add --yes",
        )
    try:
        return typer.confirm(f"Delete {sanitise(str(stored))}?", err=True)
    except typer.Abort:
        print("\nnothing was deleted", file=sys.stderr)
        raise

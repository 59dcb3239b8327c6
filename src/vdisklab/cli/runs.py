"""`vdisklab runs`: the campaigns and runs in the database."""

from __future__ import annotations

import sys
from typing import Annotated

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
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import DbOption, OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.sanitise import sanitise
from vdisklab.views import runs as view

PANEL = VerbPanel.STORED


@takes_output()
def runs(
    campaign: Annotated[
        str | None,
        typer.Argument(
            metavar="CAMPAIGN",
            help="A campaign's id or its first letters: list its runs.",
            show_default="list the campaigns",
        ),
    ] = None,
    delete: Annotated[
        str | None,
        typer.Option(
            "--delete",
            metavar="RUN|CAMPAIGN|NAME",
            help="Delete a campaign with all its runs, a run, or an import by its name.",
        ),
    ] = None,
    rename: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--rename",
            metavar="RUN|CAMPAIGN|NAME NEW",
            help="Give a campaign another label, or an import, with its repetitions, another name.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete: do not ask.")] = False,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """List the campaigns, or the runs of one; delete or rename results.

    Examples:

      vdisklab runs

      vdisklab runs 3f2a --format csv

      vdisklab runs --delete 3f2a

      vdisklab runs --rename 81c0 'VM on the old disk'
    """
    if rename is not None and rename[1].startswith("--"):
        raise PlanError(
            "--rename lacks the new name", hint="write both: --rename RUN|CAMPAIGN|NAME NEW"
        )
    if sum(value is not None for value in (campaign, delete, rename)) > 1:
        raise PlanError(
            "CAMPAIGN, --delete and --rename cannot be combined", hint="give one at a time"
        )
    if yes and delete is None:
        raise PlanError("--yes has no effect without --delete", hint="leave it out")
    with open_results(db) as results:
        if delete is not None:
            stored = find_stored(results, delete)
            agreed = yes or _agrees(stored)
            deleted = delete_stored(results, stored) if agreed else keep_stored(stored)
            print_answer(deleted, view.correction_tables(deleted), output)
        elif rename is not None:
            name, new = rename
            renamed = rename_stored(results, find_stored(results, name), new)
            print_answer(renamed, view.correction_tables(renamed), output)
        elif campaign is None:
            known = results.campaigns()
            campaigns = answer_campaigns(known, results.outlines([one.id for one in known]))
            print_answer(campaigns, view.campaign_tables(campaigns), output, Named.of(db))
        else:
            chosen = results.campaign(campaign)
            answer = answer_runs(chosen, results.outlines([chosen.id]))
            print_answer(answer, view.tables(answer), output, Named.of(db))


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

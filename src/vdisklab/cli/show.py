"""`vdisklab show`: everything that is stored about one run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from vdisklab.answers.loading import open_results
from vdisklab.answers.repeat import repeat_script
from vdisklab.answers.show import answer_run
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import DbOption, Format, OutputOptions, takes_output
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.sanitise import sanitise
from vdisklab.views.show import tables

PANEL = VerbPanel.STORED


@takes_output()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or its first letters.")],
    raw: Annotated[bool, typer.Option("--raw", help="Add the programs' unchanged output.")] = False,
    script: Annotated[
        bool,
        typer.Option("--script", help="Print a shell script that repeats the run by hand."),
    ] = False,
    db: DbOption = None,
    *,
    output: OutputOptions,
) -> None:
    """Show one run: requested and observed states, numbers, evidence, and the exact commands.

    With --format csv: one sample per line. `vdisklab runs CAMPAIGN` lists the ids.

    Examples:

      vdisklab show 3f2a

      vdisklab show 3f2a --raw --format json

      vdisklab show 3f2a --script > repeat.sh
    """
    with open_results(db) as results:
        stored = results.run(run)
        if script:
            sys.stdout.write(repeat_script(stored, results.campaign(stored.campaign)))
            return
        answer = answer_run(stored, raw=raw)
    print_answer(answer, tables(answer), replace(output, why=True, wide=True), Named.of(db))
    if output.form is Format.TABLE:
        for one in answer.measurements if raw else ():
            sys.stdout.write(f"\n# {sanitise(one.name)}\n{sanitise(one.raw or '')}\n")

"""`vdisklab show`: everything that is stored about one run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vdisklab.answers.loading import open_results
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import DbOption, Format, FormatOption
from vdisklab.cli.shell.output import emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.sanitise import sanitise
from vdisklab.views.stored_runs import run_document, run_tables, samples_table

PANEL = VerbPanel.STORED


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or its first letters.")],
    raw: Annotated[bool, typer.Option("--raw", help="Add the programs' unchanged output.")] = False,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show one run: requested and observed states, numbers, evidence, and the exact commands.

    With --format csv: one sample per line. `vdisklab runs CAMPAIGN` lists the ids.

    Examples:

      vdisklab show 3f2a

      vdisklab show 3f2a --raw --format json
    """
    with open_results(db) as results:
        stored = results.run(run)
    tables = [samples_table(stored)] if form is Format.CSV else list(run_tables(stored))
    emit(form, tables, lambda: run_document(stored, raw=raw), Named.of(db))
    if raw and form is Format.TABLE:
        for measurement in stored.measurements:
            sys.stdout.write(f"\n# {sanitise(measurement.name)}\n{sanitise(measurement.raw)}\n")

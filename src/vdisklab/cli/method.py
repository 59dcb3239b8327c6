"""`vdisklab method`: how each shown number is computed, and the schemas of JSON documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from vdisklab.answers import documents
from vdisklab.answers.method import EXPLANATIONS, explanations_about
from vdisklab.cli.shell.options import OutputOptions, takes_output
from vdisklab.cli.shell.output import as_json, print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.documents import schemas
from vdisklab.errors import PlanError
from vdisklab.views.method import tables

PANEL = VerbPanel.LEARN


@takes_output()
def method(
    about: Annotated[
        str | None,
        typer.Argument(metavar="NUMBER", help="A number, column or verb, such as rank or ratio."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="Print the JSON schema of the document `vdisklab.NAME/VERSION` instead.",
        ),
    ] = None,
    *,
    output: OutputOptions,
) -> None:
    """Explain how each shown number is computed: what it is, what it assumes, and its source.

    Examples:

      vdisklab method

      vdisklab method interval

      vdisklab method --schema rank
    """
    if schema is not None:
        print(as_json(_schema(schema)))
        return
    answer = explanations_about(about)
    if not answer.numbers:
        titles = "; ".join(explanation.title for explanation in EXPLANATIONS)
        raise PlanError(f"there is no number called {about!r}", hint=f"known: {titles}")
    print_answer(answer, tables(answer), replace(output, wide=output.wide or about is not None))


def _schema(name: str) -> object:
    """The schema of the document `vdisklab.NAME/VERSION`. Raises PlanError for an unknown one."""
    known = {
        form.removeprefix("vdisklab.").partition("/")[0]: found
        for form, found in schemas(documents()).items()
    }
    if name not in known:
        raise PlanError(f"unknown document {name!r}", hint=f"known: {', '.join(known)}")
    return known[name]

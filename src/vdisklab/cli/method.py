"""`vdisklab method`: how each shown number is computed, and the schemas of JSON documents."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.cli.shell.options import Format, FormatOption
from vdisklab.cli.shell.output import dumps, emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.views.documents.schemas import DOCUMENTS, Schema, document_schema
from vdisklab.views.explanations import (
    EXPLANATIONS,
    explanations_about,
    method_document,
    method_table,
)

PANEL = VerbPanel.LEARN


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
            help="Print the JSON schema of the document `vdisklab.NAME/1` instead.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Explain how each shown number is computed: what it is, what it assumes, and its source.

    Examples:

      vdisklab method

      vdisklab method interval

      vdisklab method --schema rank
    """
    if schema is not None:
        print(dumps(_schema(schema)))
        return
    explanations = explanations_about(about)
    if not explanations:
        titles = "; ".join(explanation.title for explanation in EXPLANATIONS)
        raise PlanError(f"there is no number called {about!r}", hint=f"known: {titles}")
    emit(form, [method_table(explanations)], lambda: method_document(explanations))


def _schema(name: str) -> Schema:
    if name not in DOCUMENTS:
        raise PlanError(f"unknown document {name!r}", hint=f"known: {', '.join(DOCUMENTS)}")
    return document_schema(name)

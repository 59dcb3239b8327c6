"""`vdisklab method`: how each shown number came about."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.cli.options import Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.errors import PlanError
from vdisklab.render.tables.explanations import (
    EXPLANATIONS,
    explanations_about,
    method_document,
    method_table,
)


def method(
    about: Annotated[
        str | None,
        typer.Argument(metavar="NUMBER", help="A number, column or verb, such as rank or ratio."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say how each shown number came about: what it is, what it assumes, and where that is from.

    Examples:

      vdisklab method

      vdisklab method interval
    """
    found = explanations_about(about)
    if not found:
        titles = "; ".join(each.title for each in EXPLANATIONS)
        raise PlanError(f"no shown number is called {about!r}", hint=f"there are {titles}")
    emit(form, [method_table(found)], lambda: method_document(found))

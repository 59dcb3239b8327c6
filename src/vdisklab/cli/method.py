"""`vdisklab method`: how each shown number is computed, and the schemas of JSON documents."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.answers import documents
from vdisklab.answers.method import EXPLANATIONS, explanations_about
from vdisklab.cli.shell.options import OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import as_json, print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.documents import schemas
from vdisklab.errors import PlanError
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.value_kinds import TEXT
from vdisklab.value import replace
from vdisklab.views.method import tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True)
class MethodOptions(OptionRows):
    """What to explain."""

    about: str | None = argument(
        TEXT, "A number, column or verb, such as rank or ratio.", "NUMBER", default=None
    )
    schema: str | None = option(
        TEXT,
        "Print the JSON schema of the document `vdisklab.NAME/VERSION` instead.",
        metavar="NAME",
    )


@takes_options()
def method(request: MethodOptions, output: OutputOptions) -> None:
    """Explain how each shown number is computed: what it is, what it assumes, and its source.

    Examples:

      vdisklab method

      vdisklab method interval

      vdisklab method --schema rank
    """
    if request.schema is not None:
        print(as_json(_schema(request.schema)))
        return
    answer = explanations_about(request.about)
    if not answer.numbers:
        titles = "; ".join(explanation.title for explanation in EXPLANATIONS)
        raise PlanError(f"there is no number called {request.about!r}", hint=f"known: {titles}")
    wide = output.wide or request.about is not None
    print_answer(answer, tables(answer), replace(output, wide=wide))


def _schema(name: str) -> object:
    """The schema of the document `vdisklab.NAME/VERSION`. Raises PlanError for an unknown one."""
    methods = {
        form.removeprefix("vdisklab.").partition("/")[0]: found
        for form, found in schemas(documents()).items()
    }
    if name not in methods:
        raise PlanError(f"unknown document {name!r}", hint=f"known: {', '.join(methods)}")
    return methods[name]

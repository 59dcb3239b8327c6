"""The campaign options of verbs, generated from the rows of `plan.settings`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from vdisklab.plan.plan_file import PLAN_FLAG, names_of_keys, read_plan_file
from vdisklab.plan.settings import (
    AnyRequest,
    Panel,
    Request,
    SettingRow,
    check,
    given,
    merge,
    settings_of,
)

_Rest = ParamSpec("_Rest")
_Status = TypeVar("_Status")

PLAN_FILE = "plan_file"


def setting_option(name: str) -> Any:  # noqa: ANN401 - what typer reads
    """The option or argument of one setting, for a verb with few settings."""
    (row,) = (row for row in settings_of() if row.name == name)
    return _option(row, None)


def _option(row: SettingRow, panel: Panel | None) -> object:
    texts: dict[str, Any] = {
        "help": row.help,
        "metavar": row.metavar or None,
    }
    if row.shown:
        texts["show_default"] = row.shown
    if not row.flag:
        return typer.Argument(**texts)
    return typer.Option(row.flag, envvar=row.envvar or None, rich_help_panel=panel, **texts)


def takes_settings(
    request: type[AnyRequest],
    *names: str,
) -> Callable[[Callable[Concatenate[AnyRequest, _Rest], _Status]], Callable[..., _Status]]:
    """Turns a function of a request into a verb with an option for each setting.

    Without names the verb takes all settings that have a flag; a campaign's also from a plan file,
    and the help lists them by panel. If two settings have one flag, the later one takes it.
    """
    by_flag = {
        row.flag or row.name: row for row in settings_of(request) if row.name in names or not names
    }
    whole = not names and issubclass(request, Request)
    options = list(_parameters(by_flag.values(), whole=whole))

    def decorate(
        function: Callable[Concatenate[AnyRequest, _Rest], _Status],
    ) -> Callable[..., _Status]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        own_parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        call: Callable[..., _Status] = function

        def verb(**values: object) -> _Status:
            own_values = {parameter.name: values.pop(parameter.name) for parameter in own}
            return call(build_request(values, request), **own_values)

        verb.__name__, verb.__doc__ = function.__name__, function.__doc__
        signature = inspect.Signature(sorted((*options, *own_parameters), key=_panel_position))
        verb.__signature__ = signature  # type: ignore[attr-defined] # typer reads options off it
        verb.__annotations__ = {}
        return verb

    return decorate


def parse_words(words: Sequence[str], request: type[AnyRequest], program: str) -> AnyRequest:
    """The request that the words of a command line stand for.

    Raises PlanError, or typer's exceptions with `program` as the command's name.
    """
    app = typer.Typer(add_completion=False)
    app.command()(takes_settings(request)(lambda _: None))
    context = typer.main.get_command(app).make_context(program, list(words))
    return build_request(context.params, request)


def _panel_position(parameter: inspect.Parameter) -> int:
    """Sorts options without a panel first: typer lists panels in order of appearance."""
    (option, *_) = getattr(parameter.annotation, "__metadata__", (None,))
    panel = getattr(option, "rich_help_panel", None)
    return list(Panel).index(panel) if isinstance(panel, Panel) else -1


def _parameters(rows: Iterable[SettingRow], *, whole: bool) -> Iterator[inspect.Parameter]:
    """The parameters from which typer builds the options.

    A verb of a `whole` campaign also takes a plan file, and has its options in panels.
    """
    for row in rows:
        if row.flag or row.name == "paths":
            yield _parameter(row.name, row.kind.flag, _option(row, row.panel if whole else None))
        if row.formerly:
            earlier = typer.Option(f"--{row.formerly}", hidden=True)
            yield _parameter(row.formerly, row.kind.flag, earlier)
        if row.name == "paths" and whole:
            file = typer.Option(
                PLAN_FLAG, metavar="FILE", help="A plan file in TOML.", rich_help_panel=Panel.WHAT
            )
            yield _parameter(PLAN_FILE, Path, file)


def _parameter(
    name: str,
    kind: Any,  # noqa: ANN401 - a type
    option: object,
) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def build_request(values: Mapping[str, Any], request: type[AnyRequest]) -> AnyRequest:
    """The request of a command line, whose options override its plan file.

    `values` are typer's values by setting. A note on standard error says the present name of an
    option that was given by its earlier one. Raises PlanError.
    """
    chosen = {}
    for row in settings_of(request):
        value = values.get(row.name)
        earlier = values.get(row.formerly) if row.formerly else None
        if earlier is not None:
            _note(f"--{row.formerly} is now called {row.flag}")
            value = earlier
        if value is not None:
            chosen[row.name] = row.kind.parse(value)
    from_flags = request(**chosen)
    file = values.get(PLAN_FILE)
    if file is None:
        check(from_flags)
        return from_flags
    planned = read_plan_file(file, request, _note)
    merged = merge(planned, from_flags)
    flags = {row.name: row.flag for row, _ in given(from_flags)}
    check(merged, names_of_keys(planned, str(file)) | flags)
    return merged


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)

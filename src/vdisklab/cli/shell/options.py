"""The options of verbs, made of rows: the fields of the requests that a verb's function takes."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import parse_needs
from vdisklab.path.platforms import PRINTED
from vdisklab.plan.option_rows import (
    PLAN_FLAG,
    AnyRequest,
    OptionRows,
    Panel,
    SettingRow,
    check,
    database_setting,
    given,
    host_disk_setting,
    merge,
    option,
    settings_of,
)
from vdisklab.plan.value_kinds import FILES, SWITCH, TEXT, ValueKind, one_of, several
from vdisklab.value import replace

_Status = TypeVar("_Status")

TEXTS = several(str, str)
NEEDS = replace(TEXTS, parse=parse_needs)

_PLAN_FILE = "plan_file"
_SHARED = ("campaign", "hosts", "disk", "db")


def argument(kind: ValueKind, help: str, metavar: str, shown: str = "", **more: Any) -> Any:  # noqa: ANN401
    """A field that is an argument and not an option; `default` makes it optional."""
    row = SettingRow(kind, help, None, key="", flag="", metavar=metavar, shown=shown)
    return field(metadata={"setting": row}, **more)


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class OutputOptions(OptionRows):
    """How to print an answer."""

    why: bool = option(SWITCH, "Show all notes below the table, not only the first ones.")
    wide: bool = option(
        SWITCH, "Show all columns and whole texts; a row that does not fit takes several lines."
    )
    form: Format = option(one_of(Format), "How to print the answer.", Format.TABLE, flag="--format")


@dataclass(frozen=True, slots=True, kw_only=True)
class DbOptions(OptionRows):
    """The database from which a verb answers."""

    db: str | None = database_setting()


def campaigns_option() -> Any:  # noqa: ANN401
    """The stored campaigns of one answer."""
    return option(
        TEXTS,
        "A campaign's id or its first letters; repeat it to join campaigns of one machine.",
        metavar="ID",
        shown="the newest",
    )


def hosts_option() -> Any:  # noqa: ANN401
    """The hosts of one answer."""
    return option(
        TEXTS,
        "One answer from many hosts: `all`, a host's name, or FACT=VALUE (cpu, medium, kernel, "
        "qemu, …); repeat it for several names, or for facts that a host must all have.",
        metavar="HOST",
        shown="the host of the campaign",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions(DbOptions):
    """The database, and its campaigns from which a verb answers."""

    campaign: tuple[str, ...] = campaigns_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsOptions(CampaignOptions):
    """The campaigns of one host, or of many."""

    hosts: tuple[str, ...] = hosts_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions(HostsOptions):
    """The campaigns to analyse, and what the host's disk keeps in a power cut."""

    disk: HostDisk | None = host_disk_setting()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions(AnalysisOptions):
    """The campaigns to analyse, or the profile of the campaign."""

    profile: str | None = option(
        TEXT,
        "Answer from the newest campaign that was measured with this profile.",
        metavar="NAME",
        shown="any",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestsOptions(OptionRows):
    """The existing guests whose disks a verb reads."""

    guests: tuple[Path, ...] = argument(
        FILES,
        "Names of this host's guests; guests' configurations, or directories of them: "
        f"{PRINTED}; - is a pipe.",
        "GUEST...",
        default=(),
    )
    libvirt: str | None = option(
        TEXT, "Read all guests of a libvirt: qemu:///system.", metavar="URI"
    )

    @property
    def as_typed(self) -> str:
        """The guests as a user names them to another verb, quoted for a shell."""
        uri = () if self.libvirt is None else ("--libvirt", self.libvirt)
        return shlex.join((*map(str, self.guests), *uri))

    def asked_again(self, command: str) -> str:
        """How `command` reads the same guests again: a pipe is empty by now."""
        return f"pipe the same into {command}" if Path("-") in self.guests else command


def takes_options(
    **chosen: Sequence[str],
) -> Callable[[Callable[..., _Status]], Callable[..., _Status]]:
    """Turns a function of requests into a verb with an option for each of their rows.

    `chosen` names the rows that are taken of a request, by its parameter. Of others the verb takes
    all; a campaign's also from a plan file, and the help lists them by panel. If two rows of a
    request have one flag, the later one takes it.
    """

    def decorate(function: Callable[..., _Status]) -> Callable[..., _Status]:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
        requests: dict[str, type[OptionRows]] = {
            parameter.name: parameter.annotation
            for parameter in parameters
            if isinstance(parameter.annotation, type)
            and issubclass(parameter.annotation, OptionRows)
        }
        others = [parameter for parameter in parameters if parameter.name not in requests]
        whole = any(requests[name].OF_CAMPAIGN for name in requests.keys() - chosen.keys())
        options = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in others]
        for name, request in requests.items():
            options += _parameters(request, chosen.get(name), whole=whole)

        def verb(**values: Any) -> _Status:  # noqa: ANN401 - typer's values
            built = {
                name: build_request({row: values[row] for row in chosen.get(name, values)}, request)
                for name, request in requests.items()
            }
            return function(
                **built, **{parameter.name: values[parameter.name] for parameter in others}
            )

        verb.__name__, verb.__doc__ = function.__name__, function.__doc__
        signature = inspect.Signature(sorted(options, key=_panel_position))
        verb.__signature__ = signature  # type: ignore[attr-defined] # typer reads options off it
        verb.__annotations__ = {}
        return verb

    return decorate


def parse_words(argv: Sequence[str], request: type[AnyRequest], program: str) -> AnyRequest:
    """The request that the words of a command line stand for.

    Raises PlanError, or typer's exceptions with `program` as the command's name.
    """

    def parsed(request: AnyRequest) -> AnyRequest:
        return request

    parsed.__annotations__["request"] = request
    app = typer.Typer(add_completion=False)
    app.command()(takes_options()(parsed))
    command = typer.main.get_command(app)
    # Some versions of typer make paths of texts only when the command is invoked.
    with command.make_context(program, list(argv)) as context:
        built: AnyRequest = command.invoke(context)
    return built


def _panel_position(parameter: inspect.Parameter) -> int:
    """Sorts options without a panel first: typer lists panels in order of appearance."""
    (option, *_) = getattr(parameter.annotation, "__metadata__", (None,))
    panel = getattr(option, "rich_help_panel", None)
    return list(Panel).index(panel) if isinstance(panel, Panel) else -1


def _parameters(
    request: type[OptionRows], chosen: Sequence[str] | None, *, whole: bool
) -> Iterator[inspect.Parameter]:
    """The parameters from which typer builds the options.

    A verb of a `whole` campaign also takes a plan file, and has its options in panels.
    """
    of_campaign = whole and request.OF_CAMPAIGN
    by_flag = {
        row.flag or row.name: row for row in _rows(request) if chosen is None or row.name in chosen
    }
    needed = {row.name for row in fields(request) if row.default is MISSING}
    for row in by_flag.values():
        if row.flag or row.metavar:
            panel = (row.panel if of_campaign else Panel.OUTPUT) if whole else None
            yield _parameter(row.name, row.kind.flag, _option(row, panel), row.name in needed)
        if row.formerly:
            earlier = typer.Option(f"--{row.formerly}", hidden=True)
            yield _parameter(row.formerly, row.kind.flag, earlier)
        if row.name == "paths" and of_campaign:
            file = typer.Option(
                PLAN_FLAG, metavar="FILE", help="A plan file in TOML.", rich_help_panel=Panel.WHAT
            )
            yield _parameter(_PLAN_FILE, Path, file)


def _rows(request: type[OptionRows]) -> list[SettingRow]:
    """The rows of a request; those that many verbs have come last."""
    shared = _SHARED if issubclass(request, DbOptions) else ()
    rows = settings_of(request)
    return sorted(rows, key=lambda row: shared.index(row.name) if row.name in shared else -1)


def _option(row: SettingRow, panel: Panel | None) -> object:
    texts: dict[str, Any] = {"help": row.explained, "metavar": row.metavar or None}
    if row.shown:
        texts["show_default"] = row.shown
    if not row.flag:
        return typer.Argument(**texts)
    envvar = row.envvar or None
    return typer.Option(*row.flag.split(), envvar=envvar, rich_help_panel=panel, **texts)


def _parameter(
    name: str,
    kind: Any,  # noqa: ANN401 - a type
    option: object,
    needed: bool = False,
) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else None,
        annotation=Annotated[kind if needed else kind | None, option],
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
            _note(f"--{row.formerly} is called {row.flag}")
            value = earlier
        if value is not None:
            chosen[row.name] = row.kind.parse(value)
    from_flags = request(**chosen)
    file = values.get(_PLAN_FILE) if request.OF_CAMPAIGN else None
    if file is None:
        check(from_flags)
        return from_flags
    # Imported late: without a plan file, nothing has to be checked by pydantic.
    from vdisklab.plan.plan_file import names_of_keys, read_plan_file  # noqa: PLC0415

    planned = read_plan_file(file, request, _note)
    merged = merge(planned, from_flags)
    flags = {row.name: row.flag for row, _ in given(from_flags)}
    check(merged, names_of_keys(planned, str(file)) | flags)
    return merged


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)

"""Options that several verbs take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from vdisklab.cli.shell.campaign_options import setting_option
from vdisklab.path.durability import HostDisk
from vdisklab.path.platforms import PRINTED
from vdisklab.plan.settings import Panel

_Status = TypeVar("_Status")


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How to print an answer."""

    form: Format = Format.TABLE
    why: bool = False
    """All notes, not only the first."""
    wide: bool = False
    """All columns and whole texts, on several lines where they do not fit."""


_OUTPUT_OPTIONS = {
    "why": (bool, "--why", "Show all notes below the table, not only the first ones."),
    "wide": (
        bool,
        "--wide",
        "Show all columns and whole texts; a row that does not fit takes several lines.",
    ),
    "form": (Format, "--format", "How to print the answer."),
}


def takes_output(
    panel: Panel | None = None,
) -> Callable[[Callable[..., _Status]], Callable[..., _Status]]:
    """Gives a verb with a parameter `output` these options, in this panel of its help."""

    def decorate(function: Callable[..., _Status]) -> Callable[..., _Status]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(OutputOptions(), name),
                annotation=Annotated[kind, typer.Option(flag, help=text, rich_help_panel=panel)],
            )
            for name, (kind, flag, text) in _OUTPUT_OPTIONS.items()
        ]

        def verb(*request: object, **values: Any) -> _Status:  # noqa: ANN401 - typer's values
            output = OutputOptions(**{name: values.pop(name) for name in _OUTPUT_OPTIONS})
            return function(*request, **values, output=output)

        verb.__name__, verb.__doc__ = function.__name__, function.__doc__
        kept = [parameter for parameter in own if parameter.name != "output"]
        signature = inspect.Signature([*kept, *options])
        verb.__signature__ = signature  # type: ignore[attr-defined] # typer reads options off it
        verb.__annotations__ = {}
        return verb

    return decorate


GuestsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="GUEST...",
        help=f"Guests' configurations, or directories of them: {PRINTED}; - is a pipe.",
    ),
]
LibvirtOption = Annotated[
    str | None,
    typer.Option("--libvirt", metavar="URI", help="Read all guests of a libvirt: qemu:///system."),
]
DbOption = Annotated[str | None, setting_option("db")]
DiskOption = Annotated[HostDisk | None, setting_option("disk")]
CampaignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--campaign",
        metavar="ID",
        help="A campaign's id or its first letters; repeat it to join campaigns of one machine.",
        show_default="the newest",
    ),
]
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hosts",
        metavar="HOST",
        help="One answer from many hosts: `all`, a host's name, or FACT=VALUE (cpu, medium, "
        "kernel, qemu, …); repeat it for several names, or for facts that a host must all have.",
        show_default="the host of the campaign",
    ),
]

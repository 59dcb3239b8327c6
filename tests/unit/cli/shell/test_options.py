"""A verb's options are the rows of the requests that its function takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from vdisklab.cli.shell.options import (
    CampaignOptions,
    Format,
    OutputOptions,
    argument,
    takes_options,
)
from vdisklab.errors import PlanError
from vdisklab.plan.option_rows import option
from vdisklab.plan.settings import Request
from vdisklab.plan.value_kinds import FILE, SIZE, SWITCH, WHOLE, Limits

RECEIVED: list[tuple[object, ...]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy(CampaignOptions):
    file: Path = argument(FILE, "A file.", "FILE")  # noqa: RUF009
    size: int = option(SIZE, "Its size.", 1 << 30, metavar="SIZE")
    level: int | None = option(WHOLE, "How high.", limits=Limits(1, 9))
    strict: bool = option(SWITCH, "Only with a level.", needs="level")


@takes_options(measured=("rounds",))
def toy(request: Toy, measured: Request, output: OutputOptions) -> None:
    RECEIVED.append((request, measured, output))


def call(*arguments: str) -> tuple[object, ...]:
    app = typer.Typer(add_completion=False)
    app.command()(toy)
    RECEIVED.clear()
    typer.main.get_command(app).main(list(arguments), standalone_mode=False)
    return RECEIVED[0]


def test_each_request_gets_its_values_and_the_defaults_of_the_others() -> None:
    assert call("disk.raw") == (Toy(file=Path("disk.raw")), Request(), OutputOptions())
    arguments = (
        "disk.raw",
        "--size",
        "2G",
        "--level",
        "3",
        "--strict",
        "--campaign",
        "3f",
        "--db",
        "x",
    )
    assert call(*arguments, "--rounds", "4", "--format", "csv") == (
        Toy(file=Path("disk.raw"), size=2 << 30, level=3, strict=True, campaign=("3f",), db="x"),
        Request(rounds=4),
        OutputOptions(form=Format.CSV),
    )


def test_its_own_rows_come_first_and_rows_that_were_not_chosen_are_no_options() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(toy)
    names = [param.name for param in typer.main.get_command(app).params]
    assert names[:6] == ["file", "size", "level", "strict", "campaign", "db"]
    assert names[6:] == ["rounds", "blocks", "why", "wide", "form"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'FILE'"),
        (("a", "--level", "10"), "--level is 10"),
        (("a", "--strict"), "--strict has no effect without --level"),
        (("a", "--size", "many"), "many"),
    ],
)
def test_what_a_row_does_not_allow_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises((PlanError, typer.TyperException)) as refused:
        call(*arguments)
    assert said in str(getattr(refused.value, "format_message", refused.value.__str__)())

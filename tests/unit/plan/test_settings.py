"""One row is all that an option takes: a toy row shows up wherever options do."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from vdisklab.cli.shell.options import takes_options
from vdisklab.errors import PlanError
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.option_rows import Panel, setting, settings_of
from vdisklab.plan.plan_file import parse_plan_file, plan_file_schema, request_alike
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request, command_words
from vdisklab.plan.value_kinds import SECONDS, SIZE, WHOLE, Limits, ValueKind
from vdisklab.value import replace

PROFILE = Profile("tiny", "Tiny", (MeasurementPlan("one", "fio", {"rw": "read"}),))


@dataclass(frozen=True, slots=True)
class Toy(Request):
    rest: float | None = setting(
        SECONDS,
        "Pause before each measurement.",
        Panel.LENGTH,
        metavar="SECONDS",
        default=0.0,
        limits=Limits(0, 60),
        stored="rest",
        identifies=True,
    )


def run(*arguments: str) -> tuple[Toy, str]:
    """The request that a verb receives, and what the program prints."""
    received: list[Toy] = []

    @takes_options()
    def verb(request: Toy, loud: bool = False) -> None:
        """Do something."""
        assert not loud
        received.append(request)

    app = typer.Typer()
    app.command()(verb)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    if isinstance(result.exception, PlanError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return (received or [Toy()])[0], result.output


def plan(request: Request) -> CampaignPlan:
    return build_plan(request, Capabilities(), PROFILE)


def test_it_is_a_flag_with_help_and_default() -> None:
    assert run("--rest", "500ms")[0] == Toy(rest=0.5)
    assert run("raw/none", "--rounds", "3")[0] == Toy(paths=("raw/none",), rounds=3)
    (line,) = [line for line in run("--help")[1].splitlines() if "--rest" in line]
    assert " ".join(line.strip("│").split()) == (
        "--rest SECONDS Pause before each measurement. [default: (0)]"
    )


def test_an_option_has_its_earlier_name_too(tmp_path: Path) -> None:
    request, printed = run("raw/none", "--rounds", "5", "--blocks", "3")
    assert request == Toy(paths=("raw/none",), rounds=3)
    assert printed == "--blocks is called --rounds\n"
    assert "--blocks" not in run("--help")[1]
    file = tmp_path / "plan.toml"
    file.write_text("blocks = 4\n")
    request, printed = run("--plan", str(file))
    assert request == Toy(rounds=4)
    assert printed == f"key 'blocks' of {file} is now called 'rounds'\n"
    with pytest.raises(PlanError, match=r"key 'blocks' of plan.toml should be at least 1"):
        parse_plan_file("blocks = 0", "plan.toml", Toy)
    with pytest.raises(PlanError, match=r"key 'blocks' of plan.toml is unknown"):
        parse_plan_file("blocks = 2\nrounds = 3", "plan.toml", Toy)


def test_it_is_a_key_of_plan_files_and_their_schema(tmp_path: Path) -> None:
    text = 'rest = "2s"\nrounds = 4\n'
    assert parse_plan_file(text, "plan.toml", Toy) == Toy(rest=2.0, rounds=4)
    jsonschema.Draft202012Validator(plan_file_schema(Toy)).validate(tomllib.loads(text))
    with pytest.raises(PlanError, match="key 'rests' of plan"):
        parse_plan_file("rests = 1", "plan.toml", Toy)
    file = tmp_path / "plan.toml"
    file.write_text(text)
    assert run("--plan", str(file), "--rest", "3")[0] == Toy(rest=3.0, rounds=4)


def test_its_default_and_its_limits_hold() -> None:
    assert plan(Toy(paths=("raw/none",))).settings == replace(
        plan(Toy(paths=("raw/none",), rest=0.0)).settings
    )
    with pytest.raises(PlanError, match="--rest is 61 s") as caught:
        plan(Toy(paths=("raw/none",), rest=61))
    assert caught.value.hint == "write a time from 0 s to 60 s"


def test_it_is_part_of_a_plan_unless_it_is_the_default() -> None:
    usual, rested = (plan(Toy(paths=("raw/none",), rest=rest)) for rest in (0.0, 2.0))
    assert usual.fingerprint == plan(Request(paths=("raw/none",))).fingerprint
    assert rested.fingerprint != usual.fingerprint
    assert rested.as_json()["rest"] == 2.0
    alike = request_alike(usual.as_json(), Toy)
    assert request_alike(rested.as_json(), Toy) == replace(alike, rest=2.0)


def test_it_is_in_a_command_to_paste() -> None:
    arguments = command_words(Toy(paths=("raw/none",), rest=2.0, size_bytes=64 << 20))
    assert arguments == ["vdisklab", "run", "raw/none", "--size", "64M", "--rest", "2"]


@pytest.mark.parametrize(
    ("limits", "kind", "sentence"),
    [
        (Limits(1, 10), WHOLE, "write a whole number from 1 to 10"),
        (Limits(0, 9, above=True), SECONDS, "write a time above 0 s, at most 9 s"),
        (Limits(1 << 20), SIZE, "write a size from 1M"),
        (Limits(0, 4096, multiple_of=1024), SIZE, "write a size from 0 to 4k, a multiple of 1k"),
    ],
)
def test_the_way_out_of_a_limit(limits: Limits, kind: ValueKind, sentence: str) -> None:
    assert limits.sentence(kind) == sentence


def test_names_keys_and_flags_are_distinct() -> None:
    rows = settings_of(Request)
    for names in ([row.flag for row in rows], [(row.table, row.key) for row in rows]):
        said = [name for name in names if name and name[-1]]
        assert len(set(said)) == len(said)

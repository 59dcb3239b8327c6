"""What `run` is told besides its campaign: where, and whether to search."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.cli.shell.options import parse_words
from vdisklab.errors import PlanError
from vdisklab.path.needs import parse_need
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import NO_BASELINE, Request


def parsed(*arguments: str) -> RunRequest:
    return parse_words(arguments, RunRequest, "vdisklab run")


def test_every_option_of_a_search_is_a_row() -> None:
    arguments = (
        "--find best --within 5% --budget 30m --need durable --need cache=none --metric read"
    )
    assert parsed("raw/none", "--new", "--dir", "/a", *arguments.split()) == RunRequest(
        paths=("raw/none",),
        directories=(Path("/a"),),
        new=True,
        find=SearchFor.BEST,
        within=0.05,
        budget=1800.0,
        need=(parse_need("durable"), parse_need("cache=none")),
        metric="read",
    )
    assert parsed() == RunRequest()


@pytest.mark.parametrize(
    "arguments",
    ["--within 3%", "--confidence 99%", "--budget 3m", "--budget 0",
     "--need durable", "--metric read", "--unsafe"],
)  # fmt: skip
def test_a_number_of_rounds_is_no_race(arguments: str) -> None:
    assert parsed(*arguments.split()).asks_for_a_race
    parsed(*arguments.split()).campaigns()
    with pytest.raises(PlanError, match="of a race") as caught:
        parsed("--rounds", "3", *arguments.split()).campaigns()
    assert "--find best" in (caught.value.hint or "")
    parsed("--rounds", "3", "--find", "best", *arguments.split()).campaigns()


def test_every_path_is_of_a_search() -> None:
    with pytest.raises(PlanError, match="--every-path has no effect without --find"):
        parsed("--every-path")


def test_here_measures_each_directory_once() -> None:
    campaigns = parsed("--here", "--dir", "/a", "--dir", "/b", "--dir", "/a").campaigns()
    assert campaigns == tuple(
        Request(paths=("host",), baseline=NO_BASELINE, directory=Path(place))
        for place in ("/a", "/b")
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("raw/none --dir /a --dir /b", "side by side only with --here"),
        ("--here --dir /a --dir /b --find best", "side by side only with --here"),
        ("raw/none --guests 1,2 --find best", "several numbers of guests"),
        ("raw/none --guests 1,2 --within 5%", "several numbers of guests"),
        ("--here raw/none", "takes no PATHS"),
        ("--here --baseline host", "takes no PATHS and no --baseline"),
        ("--here --dir /a --on /dev/sdx", "both --dir and --on"),
    ],
)
def test_contradictions_are_refused(arguments: str, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        parsed(*arguments.split()).campaigns()


@pytest.mark.parametrize(
    ("text", "arguments", "message", "hint"),
    [
        ("rounds = 20000", "", "key 'rounds' of {} is 20000", "from 1 to 10000"),
        ("[guest]\ncpus = 900", "", "key 'cpus' in table [guest] of {} is 900", "from 1 to 255"),
        ("size = '1M'", "", "key 'size' of {} is 1M", "from 16M"),
        ("[guest]\nfirmware = 'uefi'", "",
         "key 'firmware' in table [guest] of {} has no effect without --guest", "add --guest"),
        ("paths = ['raw/none', 'raw/nonsense']", "",
         "item 2 of key 'paths' of {}: unknown segment 'nonsense'", "did you mean none?"),
        ("baseline = 'raw/x'", "", "key 'baseline' of {}: unknown segment 'x'", "Possible here"),
        ("rounds = 3", "--rounds 20000", "--rounds is 20000", "from 1 to 10000"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_as_it_was_given(
    tmp_path: Path, text: str, arguments: str, message: str, hint: str
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(PlanError) as caught:
        parsed("--plan", str(file), *arguments.split())
    assert str(caught.value).startswith(message.format(file))
    assert hint in (caught.value.hint or "")


def test_the_command_line_mends_a_plan_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("rounds = 20000\n[guest]\nfirmware = 'uefi'\n")
    request = parsed("--plan", str(file), "--rounds", "3", "--guest", "a.qcow2")
    assert (request.rounds, request.guest_image) == (3, Path("a.qcow2"))

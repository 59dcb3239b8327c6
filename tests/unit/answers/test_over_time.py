"""`rank` says that the host has become slower or faster, as `trend` of its campaign shows."""

from __future__ import annotations

import json

import pytest

from tests.unit.answers.test_trend import fill, levels, month
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main

_STEP = [value * (0.6 if number >= 7 else 1) for number, value in enumerate(levels(13, 0.01))]


def sentences(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["rank", *arguments, "--format", "json"]) == 0
    return " ".join(json.loads(capsys.readouterr().out)["sentences"])


def test_a_host_that_has_become_slower_is_named_with_the_command(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(database, _STEP)
    said = sentences(capsys)
    assert "The host has become slower: " in said
    assert f"; see `vdisklab trend --campaign {month(12).id}`." in said
    assert "This ranking joins" not in said
    assert main(["trend", "--campaign", month(12).id]) == 9
    capsys.readouterr()
    both = sentences(capsys, "--campaign", month(12).id, "--campaign", month(1).id)
    assert both.count("This ranking joins campaigns from before and after it.") == 1
    before = sentences(capsys, "--campaign", month(5).id)
    assert "has become" not in before


def test_where_trend_shows_nothing_rank_says_nothing(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(database, levels(8))
    assert "has become" not in sentences(capsys)

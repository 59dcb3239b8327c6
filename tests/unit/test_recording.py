"""The recorded terminal (script/record-terminal): it plays, and says what vdisklab says today."""

from __future__ import annotations

import itertools
import json
import runpy
import shlex
from pathlib import Path

import pyte
import pytest

from vdisklab.cli.shell.main import main

ROOT = Path(__file__).parents[2]
CAST = ROOT / "docs" / "images" / "terminal.cast"
HEADER, *EVENTS = [json.loads(line) for line in CAST.read_text().splitlines()]
STORY = runpy.run_path(str(ROOT / "script" / "record-terminal"), run_name="read")["STORY"]


def lines_of(text: str) -> list[str]:
    """The lines as a terminal shows them."""
    screen = pyte.Screen(HEADER["width"], 500)
    pyte.Stream(screen).feed(text)
    return "\n".join(line.rstrip() for line in screen.display).strip("\n").split("\n")


def answers() -> dict[str, list[str]]:
    """The lines below each command of the recording."""
    found: dict[str, list[str]] = {}
    below: list[str] = []
    for line in lines_of("".join(text for _, _, text in EVENTS)):
        if line.startswith("$ "):
            below = found.setdefault(line[2:], [])
        elif line or below:
            below.append(line)
    return {command: "\n".join(below).rstrip().split("\n") for command, below in found.items()}


def test_it_is_a_recording_of_two_minutes_that_asciinema_plays() -> None:
    assert HEADER["version"] == 2
    assert {type(HEADER[name]) for name in ("width", "height")} == {int}
    times = [moment for moment, _, _ in EVENTS]
    assert times == sorted(times)
    assert all(kind == "o" and isinstance(text, str) for _, kind, text in EVENTS)
    waits = [min(b - a, HEADER["idle_time_limit"]) for a, b in itertools.pairwise(times)]
    assert 60 < sum(waits) <= 150
    assert CAST.stat().st_size <= 100_000


def test_its_commands_are_those_of_the_script() -> None:
    said = [text for said, command in STORY for text in (f"# {said}", command)]
    assert list(answers()) == said


def test_it_names_nothing_of_the_machine_that_made_it() -> None:
    assert "/work" not in CAST.read_text()
    assert "/root" not in CAST.read_text()


def test_its_commands_say_the_same_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except for the plan, whose directory and durations are those of the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    monkeypatch.setenv("COLUMNS", str(HEADER["width"]))
    (tmp_path / "campaign.json.gz").symlink_to(CAST.with_name("campaign.json.gz"))
    recorded = answers()
    for _, command in STORY:
        monkeypatch.setattr("sys.argv", shlex.split(command))
        assert main(shlex.split(command)[1:]) == 0
        told = capsys.readouterr()
        if " plan " not in command:
            shown = lines_of((told.out + told.err).replace("\n", "\r\n"))
            assert recorded[command] == shown, "script/record-terminal records it anew"

"""The figures of docs/questions.md are those of its records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from vdisklab import numbers

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
PAGE = (ROOT / "docs" / "questions.md").read_text()
FIGURE = re.compile(r"×[\d.]+ \([\d.]+–[\d.]+\)")


def rows() -> dict[str, str]:
    """The table's rows by their numbers."""
    return {line.split("|")[1].strip(): line for line in re.findall(r"^\| \d+ .*$", PAGE, re.M)}


def recorded() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((RESULTS / "questions.json").read_text())[
        "questions"
    ]
    return found


def test_each_recorded_figure_is_in_its_row() -> None:
    page = rows()
    for number, pairs in recorded().items():
        for pair in pairs:
            for fragment in pair["shown"]:
                assert fragment in page[number], (number, pair["a"], fragment)


def test_the_recorded_advice_is_in_its_row() -> None:
    advice = json.loads((RESULTS / "questions.json").read_text())["advice"]
    gain = numbers.gain(advice["gain"], advice["gain_low"], advice["gain_high"])
    assert f"{advice['advice']} {advice['path']}" in rows()["23"]
    assert f"{advice['other']}, {gain}" in rows()["23"]


def test_each_figure_of_the_page_is_recorded() -> None:
    known = {
        figure
        for pairs in recorded().values()
        for pair in pairs
        for fragment in pair["shown"]
        for figure in FIGURE.findall(fragment)
    }
    assert set(FIGURE.findall(PAGE)) <= known


def test_the_rounds_that_would_decide_are_those_of_the_record() -> None:
    claimed = {
        (number, int(rounds))
        for number, row in rows().items()
        for rounds in re.findall(r"need about (\d+) rounds|, (?:reads|writes) about (\d+)", row)
        for rounds in rounds
        if rounds
    }
    known = {
        (number, pair[direction]["blocks_needed"])
        for number, pairs in recorded().items()
        for pair in pairs
        for direction in ("read", "write")
        if direction in pair
    }
    assert len(claimed) == 6
    assert claimed <= known


def test_each_question_has_a_source_a_command_and_an_answer() -> None:
    page = rows()
    assert list(page) == [str(number) for number in range(1, len(page) + 1)]
    assert len(page) >= 25
    for number, row in page.items():
        _, _, question, command, answer, _ = re.split(r"(?<!\\)\|", row)
        assert "](" in question, number
        assert "`vdisklab " in command, number
        assert len(answer.split()) > 5, number

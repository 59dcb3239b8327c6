"""Each question of docs/questions.md has a source, a command and an answer."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text()


def test_each_question_has_a_source_a_command_and_an_answer() -> None:
    questions, _, figures = PAGE.partition("\n## Figures")
    lines = re.findall(r"^\| \d+ .*$", questions, re.MULTILINE)
    page = {line.split("|")[1].strip(): line for line in lines}
    assert list(page) == [str(number) for number in range(1, len(page) + 1)]
    assert len(page) >= 25
    for number, row in page.items():
        _, _, question, command, answer, _ = re.split(r"(?<!\\)\|", row)
        assert "](" in question, number
        assert "`vdisklab " in command, number
        assert len(answer.split()) > 5 or f"\n| {number} | " in figures, number

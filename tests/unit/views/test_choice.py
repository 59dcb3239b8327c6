from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.made import cell
from vdisklab.answers.choice import PathChoice, Surer
from vdisklab.path.durability import CrashVerdicts, known_durability
from vdisklab.views.choice import headline, verdict_lines

CHOICE = PathChoice(
    cell=cell("raw/none"),
    ties=(cell("qcow2/none"), cell("raw/writeback"), cell("raw/native"), cell("raw/default")),
    behind=0.174,
    leads=True,
    compared=6,
    considered=6,
    confidence=0.95,
    durability=known_durability(cell("raw/none"), CrashVerdicts()),
    surer=Surer(4, 240, 4020.0),
)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (
            CHOICE,
            "Use raw/none: it leads, but 4 others are not shown to be worse and may be up to 18 % "
            "better (95 %)",
        ),
        (replace(CHOICE, behind=0.0721), "Use raw/none: within 8 % of the best (95 %)"),
        (replace(CHOICE, behind=0.0, ties=()), "Use raw/none: it is the best of 6 paths (95 %)"),
        (
            replace(CHOICE, behind=0.0, ties=(), compared=4),
            "Use raw/none: it is the best of 4 paths that qualify (95 %)",
        ),
        (
            replace(CHOICE, behind=0.2, ties=(), confidence=0.9),
            "Use raw/none: within 20 % of the best (90 %)",
        ),
        (
            replace(CHOICE, behind=1.0, ties=(), step=0.1),
            "Use raw/none: within a step of 0.1 of the best (95 %)",
        ),
        (
            replace(CHOICE, behind=2.4, ties=CHOICE.ties[:1], leads=False),
            "Use raw/none: it is close to the leader, and simpler, but 1 other is not shown to be "
            "worse and may be up to 3.4 times as good (95 %)",
        ),
        (
            replace(CHOICE, behind=None),
            "Use raw/none: it leads, but 4 others are not shown to be worse",
        ),
        (
            replace(CHOICE, compared=1, ties=(), behind=None),
            "Use raw/none: it is the only one of 6 paths that qualifies",
        ),
        (
            replace(CHOICE, compared=1, considered=1, ties=(), behind=None),
            "Use raw/none: it is the only path measured",
        ),
        (
            replace(
                CHOICE,
                cell=cell("raw/unsafe"),
                behind=0.0,
                ties=(),
                durability=known_durability(cell("raw/unsafe"), CrashVerdicts()),
            ),
            "Use raw/unsafe only for data that may be lost: it is the best of 6 paths (95 %)",
        ),
    ],
)
def test_the_headline_says_what_to_use_and_how_sure_that_is(choice: PathChoice, says: str) -> None:
    assert headline(choice) == says


def test_below_it_are_ties_safety_and_what_it_costs_to_be_surer() -> None:
    unsafe = cell("raw/unsafe")
    choice = replace(CHOICE, ties=(unsafe,))
    known = {unsafe: known_durability(unsafe, CrashVerdicts())}
    lines = dict(verdict_lines(choice, known))
    assert list(lines) == ["Tied", "Safety", "Cost"]
    assert lines["Tied"].startswith("Not shown to be worse: raw/unsafe. raw/unsafe loses flushed")
    assert lines["Safety"].startswith("raw/none passes flushes on")
    assert lines["Cost"] == (
        "To be surer, race these 4 (the same command with their paths and no `--rounds`): at most "
        "240 more runs, about 1 h 07 min, usually less than half of that."
    )
    other = Surer(4, 240, 4020.0, usual=False, metric="x/read/iops")
    assert dict(verdict_lines(replace(choice, surer=other), known))["Cost"] == (
        "To be surer, race these 4 (the same command with their paths and `--find best --metric "
        "x/read/iops`): at most 240 more runs, about 1 h 07 min."
    )
    race = dict(verdict_lines(replace(choice, surer=Surer(0, 12, 60.0)), known))
    assert race["Cost"] == (
        "To be surer, let the same command go on: at most 12 more runs, about 1 min 00 s."
    )

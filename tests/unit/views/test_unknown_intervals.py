"""An interval that tells nothing is a dash or words in a column, and never part of a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vdisklab
from vdisklab import numbers
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.disks import Advice, DiskAction, ExistingDisk
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import Durability, DurabilityKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import replace
from vdisklab.views import advise

NOW, THEN = parse_path("raw/unsafe"), parse_path("raw/none")
DISK = ExistingDisk(ConfiguredDisk("web", "vda", "/srv/web.raw", NOW), NOW, ())
KEPT = Durability(DurabilityKind.NOT_TESTED, flush_free=False)

FOR_COLUMNS = {"gain", "ratio_interval", "interval", "gain_text"}
"""What says `not known` of an interval that tells nothing."""

SOURCES = sorted(Path(vdisklab.__file__).parent.rglob("*.py"))


def in_sentences(tree: ast.AST) -> list[int]:
    """The lines on which a text for a column is put into a longer text."""
    return [
        call.lineno
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr)
        for call in ast.walk(text)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in FOR_COLUMNS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in ("numbers", "disks")
    ]


def test_no_sentence_takes_the_words_of_a_column() -> None:
    assert in_sentences(ast.parse('f"it is {numbers.gain(1, 0, 9)}"')) == [1]
    found = {path.name: in_sentences(ast.parse(path.read_text())) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def sentences(row: ExistingDisk) -> list[str]:
    return [advise.advice_sentence(row), *advise._sentences(row), advise._why(row, {})]


@st.composite
def all_advice(draw: st.DrawFn) -> Advice:
    """Every form of advice that has a ratio."""
    low = draw(st.floats(0.01, 3.0))
    high = draw(st.sampled_from([low, 1.1 * low, 50 * low]))
    gain = Ratio(3, (low * high) ** 0.5, low, high)
    always = Advice(NOW, gain=gain, other=THEN, over_default=gain, over_rebuilt=gain)
    keep = replace(always, action=DiskAction.KEEP)
    change = replace(always, action=DiskAction.CHANGE, to=THEN, then=KEPT)
    return draw(
        st.sampled_from(
            [
                keep,
                replace(keep, rebuilt=parse_path("qcow2/none")),
                change,
                replace(change, for_safety=True),
            ]
        )
    )


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(all_advice())
def test_advice_has_its_number_or_says_that_there_is_none(advice: Advice) -> None:
    assert advice.gain is not None
    ratio, low, high = advice.gain.ratio, advice.gain.low, advice.gain.high
    size = numbers.known_gain(ratio, low, high)
    for said in sentences(replace(DISK, advice=advice)):
        assert "not known" not in said.replace("is not known yet", "")
        assert numbers.MISSING not in said.replace(",", " ").split()
        if size is None:
            assert "%" not in said


@pytest.mark.parametrize(
    ("ends", "gain", "interval"),
    [
        ((0.01, 30.0), None, None),
        ((1.5, 30.0), "+50 % (above 50)", "above 1.50"),
        ((1.2, 1.9), "+50 % (20–90)", "1.20–1.90"),
    ],
)
def test_what_a_sentence_has(
    ends: tuple[float, float], gain: str | None, interval: str | None
) -> None:
    assert numbers.known_gain(1.5, *ends) == gain
    assert numbers.known_interval(*ends) == interval
    assert numbers.known_gain(None, None, None) is None

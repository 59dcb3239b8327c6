"""Sentences about many hosts."""

from __future__ import annotations

import pytest

from tests.unit.analysis.made import P99, cell
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.score import Score
from vdisklab.value import replace
from vdisklab.views.hosts import spread_sentences

PAIR = Agreement(
    Score.OVERALL.key, cell("raw/none"), cell("qcow2/none"), Ratio(9, 0.8, 0.7, 0.9), 0.5, 0.8,
    0.05, False, 0, (),
)  # fmt: skip


@pytest.mark.parametrize(
    ("a_leads", "said"),
    [
        (False, "qcow2/none would be between 25 % faster and 2.0 times as fast, compared with raw"),
        (True, "raw/none would be between 20 and 50 % slower, compared with qcow2/none"),
    ],
)
def test_another_host_is_told_of_as_in_the_sentence_before(a_leads: bool, said: str) -> None:
    (sentence,) = spread_sentences(replace(PAIR, a_leads=a_leads))
    assert said in sentence
    slower = replace(PAIR, measure=P99, a_leads=not a_leads)
    (sentence,) = spread_sentences(slower)
    first, other = ("raw/none", "qcow2/none") if slower.a_leads else ("qcow2/none", "raw/none")
    assert f"{first} would be " in sentence
    assert f"compared with {other}" in sentence
    assert ("faster" in sentence) is slower.a_leads

"""Sentences about many hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.made import cell
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.score import Score
from vdisklab.views.hosts import spread_sentences

PAIR = Agreement(
    Score.OVERALL.key, cell("raw/none"), cell("qcow2/none"), Ratio(9, 0.8, 0.7, 0.9), 0.5, 0.8,
    0.05, False, 0, (),
)  # fmt: skip


@pytest.mark.parametrize(
    ("a_leads", "leader_first", "said"),
    [
        (False, False, "ratio of raw/none to qcow2/none is within 0.500–0.800"),
        (False, True, "ratio of qcow2/none to raw/none is within 1.25–2.00"),
        (True, True, "ratio of raw/none to qcow2/none is within 0.500–0.800"),
    ],
)
def test_the_ratio_on_another_host_is_that_of_the_sentence_before(
    a_leads: bool, leader_first: bool, said: str
) -> None:
    (sentence,) = spread_sentences(replace(PAIR, a_leads=a_leads), leader_first=leader_first)
    assert said in sentence

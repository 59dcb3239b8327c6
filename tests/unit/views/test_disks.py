"""What `advise` says of a gain."""

from __future__ import annotations

import pytest

from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.views.disks import gain_words


@pytest.mark.parametrize(
    ("gain", "sentence"),
    [
        (Ratio(9, 1.14, 0.985, 1.31), "between 1.5 % slower and 31 % faster (95 %)"),
        (Ratio(9, 1.12, 1.0, 1.25), "at most 25 % faster (95 %), if at all"),
        (Ratio(9, 0.9, 0.8, 1.0), "at most 20 % slower (95 %), if at all"),
        (Ratio(2, 1.5), "50 % faster"),
        (Ratio(9, 1.5, 0.001, 900.0), None),
        (None, None),
    ],
)
def test_a_gain_is_said_in_words(gain: Ratio | None, sentence: str | None) -> None:
    assert gain_words(gain) == sentence

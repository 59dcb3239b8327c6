"""What a run's own values say of themselves."""

from __future__ import annotations

import pytest

from vdisklab.results.model import Failure, FailureKind


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("the guest died", "the guest died"),
        ("the guest died\nlast lines of the guest's console:\n  Kernel panic", "the guest died"),
        ("", ""),
    ],
)
def test_a_failure_is_one_sentence_in_a_table(message: str, sentence: str) -> None:
    assert Failure(FailureKind.GUEST, message).sentence == sentence

"""The minutes that stand for a recording."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads.loads import SECOND, load, loads
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.parts import Cut, Part, cut

READ, WRITE, FLUSH = IoKind.READ, IoKind.WRITE, IoKind.FLUSH


def steady(seconds: int, *bursts: int) -> list[tuple[int, int, int, int]]:
    """Ten reads in each second, a hundred writes more in the seconds of a burst."""
    requests = [
        (s * SECOND + i * 100_000, READ, 0, 4096) for s in range(seconds) for i in range(10)
    ]
    requests += [(s * SECOND + i * 9_000, WRITE, 0, 4096) for s in bursts for i in range(100)]
    return sorted(requests)


def test_a_short_recording_is_replayed_whole() -> None:
    assert cut(load(*steady(10)), Part.BUSIEST, 60) == Cut(Part.WHOLE, 0, 10 * SECOND, 10 * SECOND)


def test_the_busiest_and_a_typical_part() -> None:
    recording = load(*steady(100, 70, 71), span_us=100 * SECOND)
    busiest = cut(recording, Part.BUSIEST, 10)
    assert busiest.begin_us <= 70 * SECOND
    assert busiest.end_us >= 72 * SECOND
    typical = cut(recording, Part.TYPICAL, 10)
    assert typical.end_us <= 70 * SECOND or typical.begin_us >= 72 * SECOND
    assert str(typical) == "the typical part, 0 to 10 s of 100 s"


def test_a_whole_load_that_is_too_long_is_its_typical_part() -> None:
    assert cut(load(*steady(100), span_us=100 * SECOND), Part.WHOLE, 10).part is Part.TYPICAL


def test_idle_time_is_not_typical() -> None:
    requests = steady(10)
    recording = load(*requests, span_us=1000 * SECOND)
    assert cut(recording, Part.TYPICAL, 5).begin_us < 10 * SECOND


@given(loads(), st.sampled_from(Part), st.floats(0.001, 100))
def test_a_part_lies_within_the_recording_and_has_requests(
    recording: RecordedLoad, part: Part, seconds: float
) -> None:
    chosen = cut(recording, part, seconds)
    assert 0 <= chosen.begin_us < chosen.end_us <= chosen.span_us
    if len(recording) and chosen.part is not Part.WHOLE:
        due = np.asarray(recording.due_us)
        inside = (due >= chosen.begin_us) & (due < chosen.end_us)
        # A request at the very end of the span lies in no window.
        assert inside.any() or due.min() == chosen.span_us

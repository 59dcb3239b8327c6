"""What each request of a replay waits for."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.unit.loads.loads import load, loads
from vdisklab.loads.folding import folded
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.replay_plan import (
    dependencies,
    encode_plan,
    least_seconds,
    recorded_depth,
)
from vdisklab.units import MIB

READ, WRITE, FLUSH = IoKind.READ, IoKind.WRITE, IoKind.FLUSH


def test_a_flush_waits_for_the_writes_before_it_and_the_next_write_for_the_flush() -> None:
    recording = load(
        (0, WRITE, 0, 4096, 100), (10, WRITE, 4096, 4096, 50), (120, FLUSH, 0, 0, 1000),
        (1500, WRITE, 8192, 4096, 90),
    )  # fmt: skip
    waits = dependencies(recording)
    assert waits.after.tolist() == [0, 0, 2, 3]
    assert waits.think_us.tolist() == [0, 10, 20, 380]
    assert waits.rank.tolist() == [1, 0, 2, 3]


def test_what_begins_when_it_is_due_waits_for_a_flush_that_it_followed_closely() -> None:
    """Within the 50 ms that the first flush took, or 20 ms of the second, which took 1 ms; not only
    the first request after it."""
    recording = load(
        (0, WRITE, 0, 4096, 100), (200, FLUSH, 0, 0, 50_000),
        (60_000, WRITE, 4096, 4096, 100), (99_000, WRITE, 8192, 4096, 100),
        (150_000, WRITE, 0, 4096, 100),
        (200_000, FLUSH, 0, 0, 1000), (220_000, READ, 0, 4096, 100), (242_000, READ, 0, 4096, 100),
    )  # fmt: skip
    waits = dependencies(recording)
    assert waits.after.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert waits.barrier.tolist() == [0, 1, 2, 2, 0, 5, 6, 0]
    assert dependencies(load()).barrier.tolist() == []


def test_what_begins_when_it_is_due_waits_for_what_had_ended_shortly_before() -> None:
    """As the client had: so a late replay has no two requests in flight where the client had one.

    The second and third write were both begun at the end of the first one.
    """
    recording = load(
        (0, WRITE, 0, 4096, 10_000), (11_000, WRITE, 4096, 4096, 9000),
        (11_100, WRITE, 8192, 4096, 40_000), (24_000, READ, 0, 4096, 100),
        (90_000, READ, 0, 4096, 100), (150_000, READ, 0, 4096, 100),
    )  # fmt: skip
    # The third write took 40 ms and ended at 51.1 ms: the read after it began 38.9 ms later.
    assert dependencies(recording).barrier.tolist() == [0, 1, 1, 2, 4, 0]


def test_nothing_waits_for_a_request_whose_end_was_not_seen() -> None:
    recording = load((0, READ, 0, 512), (5, READ, 512, 512, 1), (900_000, READ, 0, 512, 7))
    assert dependencies(recording).after.tolist() == [0, 0, 1]


def test_the_depth() -> None:
    assert recorded_depth(load((0, READ, 0, 512, 100), (50, READ, 0, 512, 100))) == 2
    assert recorded_depth(load()) == 1


def test_think_times_alone_take_this_long() -> None:
    recording = load(
        (100, WRITE, 0, 4096, 400), (110, WRITE, 4096, 4096, 50), (520, FLUSH, 0, 0, 1000),
        (1600, WRITE, 8192, 4096, 90),
    )  # fmt: skip
    # 110 until the second write, which ends last here; 20 until the flush; 80 until the last write.
    assert least_seconds(recording) == (110 + 20 + 80) / 1e6
    assert least_seconds(load()) == 0


def test_the_plans_form() -> None:
    recording = load((7, WRITE, 4096, 512, 3, True), (20, FLUSH, 0, 0, 5))
    plan = encode_plan(recording, folded(recording, 64 * MIB))
    assert plan[:8] == b"VDLPLAN2"
    numbers = np.frombuffer(plan[8:40], "<u8")
    assert numbers.tolist() == [2, 512, 1, 10_000_000]
    first = np.frombuffer(plan[40:76], "<u4")
    assert first.tolist() == [4096, 0, 7, 7, 512, 0, 0, 0, 5]
    assert len(plan) == 40 + 2 * 36


@given(loads())
def test_what_a_request_waits_for_began_and_ended_before_it(recording: RecordedLoad) -> None:
    waits = dependencies(recording)
    assert (waits.think_us >= 0).all()
    assert sorted(waits.rank.tolist()) == list(range(len(recording)))
    assert (np.diff(waits.after) >= 0).all(), "so requests become possible in their order"
    by_rank = np.argsort(waits.rank)
    for number, after in enumerate(waits.after):
        # Else the replay would wait for ever.
        assert (by_rank[:after] < number).all()

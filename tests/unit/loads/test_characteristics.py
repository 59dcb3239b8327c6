"""What a load is like, against counting one by one and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.unit.loads.loads import SECOND, load, loads
from vdisklab.loads.characteristics import RECENT, characteristics_of
from vdisklab.loads.likeness import LIKE, likeness_of, profile_shapes
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.workload.builtin_profiles import builtin_profiles

READ, WRITE, FLUSH = IoKind.READ, IoKind.WRITE, IoKind.FLUSH


def touched_slowly(made: RecordedLoad, kinds: set[IoKind]) -> int:
    """Counts by merging intervals one by one."""
    spans = sorted(
        (int(offset), int(offset + length))
        for kind, offset, length in zip(made.kind, made.offset, made.length, strict=True)
        if IoKind(kind) in kinds
    )
    total, reached = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


@given(loads())
def test_bytes_are_counted_once_in_the_working_set(made: RecordedLoad) -> None:
    found = characteristics_of(made)
    assert found.touched_bytes == touched_slowly(made, {READ, WRITE})
    assert found.touched_read == touched_slowly(made, {READ})
    assert found.touched_written == touched_slowly(made, {WRITE})
    assert found.reuse is None or found.reuse >= 1


@given(loads())
def test_parts_sum_up_to_the_whole(made: RecordedLoad) -> None:
    found = characteristics_of(made)
    assert sum(kind.count for kind in found.kinds) == found.requests == len(made)
    for kind, count in ((READ, "reads"), (WRITE, "writes"), (FLUSH, "flushes")):
        assert sum(getattr(each, count) for each in found.intervals) == found.of(kind).count
    assert sum(each.bytes for each in found.intervals) == found.moved_bytes
    assert sum(each.seconds for each in found.intervals) == pytest.approx(found.seconds)
    assert len(found.intervals) <= 60
    assert max((each.busiest for each in found.intervals), default=0) == found.burst
    for kind, count in ((READ, "reads"), (WRITE, "writes")):
        assert sum(getattr(each, count) for each in found.sizes) == found.of(kind).count
    timed = made.is_timed & (made.kind <= FLUSH)
    assert sum(each.reads + each.writes + each.flushes for each in found.services) == timed.sum()
    assert likeness_of(found).sentence


@given(loads())
def test_sequential_is_what_looking_back_one_by_one_finds(made: RecordedLoad) -> None:
    for kind in (READ, WRITE):
        chosen = made.only(made.kind == kind)
        ends = (chosen.offset + chosen.length).tolist()
        counted = sum(
            start in ends[max(0, index - RECENT) : index]
            for index, start in enumerate(chosen.offset)
        )
        share = characteristics_of(made).of(kind).sequential_share
        assert share is None or share == pytest.approx(counted / len(chosen))


def test_writes_between_flushes_are_said_in_one_sentence() -> None:
    """93 % writes of 4 to 16 KiB, half of them sequential, a flush after every two or so."""
    chance = np.random.default_rng(1)
    requests, due, end = [], 0, 0
    for number in range(3000):
        burst = number < 2000
        due += 450 if burst else 50_000
        if number % 14 == 13:
            requests.append((due, READ, int(chance.integers(0, 9999)) * 8192, 8192, 300, False))
            continue
        length = int(chance.choice([4096, 8192, 16384]))
        place = end if number % 2 else int(chance.integers(0, 9999)) * 8192
        end = place + length if not number % 2 else end + length
        requests.append((due, WRITE, place, length, 200, False))
        if number % 2:
            requests.append((due + 100, FLUSH, 0, 0, 900, False))
    found = characteristics_of(load(*requests, span_us=due + SECOND))
    said = likeness_of(found)
    assert said.sentence == (
        "93 % writes of 4–16 KiB, a flush after every 2.2 writes, 83/s with bursts of 2,859: "
        "like a mail server; nearest profile: mail"
    )
    assert found.of(FLUSH).service_p50 == pytest.approx(900e-6)


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (
            [(index * 1000, READ, index << 20, 1 << 20, 900) for index in range(4000)],
            "100 % sequential reads of 1 MiB, 400/s with bursts of 1,000: "
            "like a backup or its restore; nearest profile: backup-stream",
        ),
        (
            [
                (index * 2500, WRITE, (index * 7919 % 4001) << 12, 4096, 9, True)
                for index in range(4000)
            ],
            "100 % random writes of 4 KiB, 100 % of the writes forced, 400/s: like small "
            "transactions, each synced; nearest profile: sync-heavy",
        ),
        (
            [(index * 2500, WRITE, (index * 7919 % 4001) << 12, 4096, 9) for index in range(4000)],
            "100 % random writes of 4 KiB, no flush, 400/s: like no profile that comes with "
            "vdisklab",
        ),
        ([(0, FLUSH, 0, 0, 5)], "nothing was read or written"),
        ([], "nothing was read or written"),
    ],
)
def test_other_loads_are_told_apart(requests: list[tuple[int, ...]], said: str) -> None:
    assert likeness_of(characteristics_of(load(*requests))).sentence == said


def test_every_shape_is_that_of_a_profile_that_is_shipped() -> None:
    assert {row.profile for row in profile_shapes()} == set(LIKE)
    assert set(LIKE) <= set(builtin_profiles())


def test_sizes_and_service_times_are_counted_up_to_powers_of_two() -> None:
    found = characteristics_of(
        load((0, READ, 0, 4096, 100), (1, WRITE, 0, 4608, 128), (2, FLUSH, 0, 0, 129))
    )
    assert [(each.at_most, each.reads, each.writes) for each in found.sizes] == [
        (4096, 1, 0), (8192, 0, 1),
    ]  # fmt: skip
    assert [(each.at_most, each.reads, each.writes, each.flushes) for each in found.services] == [
        (128e-6, 1, 1, 0), (256e-6, 0, 0, 1),
    ]  # fmt: skip


def test_depth_counts_the_request_itself() -> None:
    found = characteristics_of(
        load((0, READ, 0, 512, 50), (10, READ, 512, 512, 50), (100, READ, 0, 512, 1))
    )
    assert found.depth_mean == pytest.approx(4 / 3)
    assert found.depth_max == 2
    unseen = characteristics_of(load((0, READ, 0, 512)))
    assert (unseen.depth_mean, unseen.of(READ).service_p50) == (None, None)

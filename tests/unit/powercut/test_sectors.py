"""Each sector says what it is; nothing that was not written passes for a version."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.powercut.sectors import NoVersion, extents_of, make_sectors, read_versions
from vdisklab.units import SECTOR


def judge(content: bytes, first: int = 0) -> list[int]:
    numbers = np.arange(first, first + len(content) // SECTOR, dtype=np.int64)
    return [int(each) for each in read_versions(np.frombuffer(content, np.uint8), numbers)]


@given(st.integers(0, 2**40), st.integers(1, 8), st.integers(1, 2**40))
def test_what_is_made_is_recognised(first: int, count: int, version: int) -> None:
    assert judge(make_sectors(first, count, version), first) == [version] * count


@given(st.integers(0, SECTOR - 1), st.integers(1, 255))
def test_a_changed_byte_is_garbage(place: int, change: int) -> None:
    content = bytearray(make_sectors(7, 1, 3))
    content[place] ^= change
    assert judge(bytes(content), 7) == [NoVersion.GARBAGE]


@given(st.integers(1, 15))
def test_a_sector_torn_between_records_is_torn(records: int) -> None:
    old, new = make_sectors(7, 1, 3), make_sectors(7, 1, 4)
    torn = new[: records * 32] + old[records * 32 :]
    half_empty = new[: records * 32].ljust(SECTOR, b"\0")
    assert judge(torn, 7) == [NoVersion.TORN]
    assert judge(half_empty, 7) == [NoVersion.TORN]


def test_other_content_is_told_apart() -> None:
    assert judge(bytes(SECTOR)) == [NoVersion.EMPTY]
    assert judge(b"x" * SECTOR) == [NoVersion.GARBAGE]
    assert judge(make_sectors(8, 1, 3), 7) == [NoVersion.GARBAGE], "a sector in another's place"


@given(st.sets(st.integers(0, 300), max_size=60), st.integers(0, 5))
def test_extents_cover_all_sectors_and_bridge_small_gaps(found: set[int], bridge: int) -> None:
    numbers = np.array(sorted(found), dtype=np.int64)
    extents = extents_of(numbers, bridge)
    covered = {n for each in extents for n in range(each.first, each.first + each.count)}
    assert found <= covered
    for before, after in itertools.pairwise(extents):
        assert after.first - (before.first + before.count) > bridge

"""The places of a load on a smaller disk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads.loads import load, loads
from vdisklab.errors import LoadError
from vdisklab.loads.folding import folded, touched_bytes
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.units import GIB, KIB, MIB

READ, WRITE, FLUSH, DISCARD = IoKind.READ, IoKind.WRITE, IoKind.FLUSH, IoKind.DISCARD


def test_places_within_the_disk_stay() -> None:
    recording = load((0, READ, 5 * MIB, 4096), (1, FLUSH, 0, 0), (2, WRITE, 63 * MIB, MIB))
    places = folded(recording, 64 * MIB)
    assert places.offset.tolist() == recording.offset.tolist()
    assert str(places) == "where they were recorded"


def test_neighbours_stay_neighbours_and_reuse_stays_reuse() -> None:
    far = 700 * GIB
    recording = load(
        (0, READ, far, MIB), (1, READ, far + MIB, MIB), (2, WRITE, 3 * MIB + 512, 4096),
        (3, READ, far + MIB, 4096), (4, WRITE, far + 2 * MIB - 4096, 8192), (5, FLUSH, 0, 0),
        disk_bytes=GIB * 1024,
    )  # fmt: skip
    places = folded(recording, 64 * MIB)
    first, second, early, again, across, flush = places.offset.tolist()
    assert second == first + MIB
    assert again == second
    assert across == second + MIB - 4096
    assert early == 512
    assert flush == 0
    assert (places.chunk, places.reused) == (MIB, 0)


def test_smaller_pieces_are_moved_if_large_ones_do_not_fit() -> None:
    recording = load(*((i, WRITE, i * 10 * MIB + 12288, 4096) for i in range(100)))
    places = folded(recording, 32 * MIB)
    assert places.chunk == 256 * KIB
    assert len(set(places.offset.tolist())) == 100
    assert set((places.offset % (256 * KIB)).tolist()) <= {12288, 12288 + 128 * KIB}


def test_what_does_not_fit_is_laid_over_the_first_places() -> None:
    recording = load(*((i, WRITE, i * 10 * MIB, 4096) for i in range(1000)))
    places = folded(recording, 16 * MIB)
    assert places.chunk == 64 * KIB
    assert places.reused == (1000 - 255) * 64 * KIB
    assert "lie where others lie" in str(places)


def test_a_discard_of_a_whole_disk_is_made_shorter() -> None:
    recording = load((0, DISCARD, 0, 100 * GIB), (1, WRITE, 0, 4096))
    places = folded(recording, 64 * MIB)
    assert places.clipped == 1
    assert places.length[0] == 32 * MIB


def test_a_write_that_is_longer_than_the_disk() -> None:
    with pytest.raises(LoadError, match=r"a request of 48\.0 MiB, and the disk 64\.0 MiB"):
        folded(load((0, WRITE, 0, 48 * MIB)), 64 * MIB)


def test_touched_bytes_count_each_chunk_once() -> None:
    assert touched_bytes(load((0, READ, MIB - 512, 1024), (1, WRITE, 0, 512))) == 2 * MIB


@given(loads(), st.integers(64, 256))
def test_every_request_lies_on_the_disk_and_keeps_its_alignment(
    recording: RecordedLoad, mebibytes: int
) -> None:
    size = mebibytes * MIB
    longest = int(recording.length[recording.moves_data].max(initial=0))
    if longest > size // 2:
        with pytest.raises(LoadError):
            folded(recording, size)
        return
    places = folded(recording, size)
    assert (places.offset >= 0).all()
    assert (places.offset + places.length <= size).all()
    assert ((places.offset - recording.offset) % (64 * KIB) == 0).all()
    data = recording.moves_data
    assert (places.length[data] == recording.length[data]).all()
    if places.chunk is not None and not places.reused:
        # The same distance within a chunk, and the same place for the same place.
        same = np.unique(recording.offset[data])
        assert len(np.unique(places.offset[data])) == len(same)

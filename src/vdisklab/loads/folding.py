"""The places of a load on a smaller disk, so that runs, reuse and alignment stay."""

from __future__ import annotations

import numpy as np

from vdisklab.errors import LoadError
from vdisklab.loads.load import Integers, IoKind, RecordedLoad
from vdisklab.units import KIB, MIB, format_bytes
from vdisklab.value import Value

_LARGEST_CHUNK, _SMALLEST_CHUNK = MIB, 64 * KIB
"""A chunk holds several clusters of an image, or at least one of qcow2's usual size."""


class Folded(Value, eq=False):
    """The requests' places on a disk of `size` bytes.

    `chunk` is the size of the pieces that were moved together, None if all are where they were.
    `touched` is how many bytes of chunks the load touches, `reused` how many of them share a place
    with others, which the recording has apart. `clipped` counts discards that are longer than the
    disk.
    """

    size: int
    offset: Integers
    length: Integers
    chunk: int | None
    touched: int
    reused: int
    clipped: int

    def __str__(self) -> str:
        if self.chunk is None:
            return "where they were recorded"
        text = f"moved together in pieces of {format_bytes(self.chunk)}"
        if self.reused:
            return f"{text}; {format_bytes(self.reused)} of them lie where others lie"
        return text


def folded(load: RecordedLoad, size: int) -> Folded:
    """The load's places on a disk of `size` bytes.

    Where the recorded places end within the disk, they stay. Otherwise the chunks that the load
    touches are moved together in their order: neighbours stay neighbours, what was used again is
    used again, and alignment up to the chunk's size stays. The largest chunk is chosen with which
    all fit; if none does, the chunks that are left over are laid over the first ones, from the
    start. Raises LoadError if a request that moves data is longer than the disk.
    """
    limit = size // _SMALLEST_CHUNK * _SMALLEST_CHUNK // 2
    length = np.where(load.moves_data, load.length, np.minimum(load.length, limit))
    clipped = int((length < load.length).sum())
    longest = int(length.max(initial=0))
    if longest > limit and load.moves_data.any():
        raise LoadError(
            f"the load has a request of {format_bytes(longest)}, and the disk {format_bytes(size)}",
            hint="choose a larger --size",
        )
    if int((load.offset + load.length).max(initial=0)) <= size:
        return Folded(size, load.offset, load.length, None, 0, 0, 0)
    places = load.kind != IoKind.FLUSH
    chunk = _LARGEST_CHUNK
    while True:
        numbers = _touched(load.offset[places], length[places], chunk)
        # The last chunks take what a request at the end of the last place has too much.
        room = size // chunk - -(-longest // chunk)
        if len(numbers) <= room or chunk == _SMALLEST_CHUNK:
            break
        chunk //= 2
    offset = load.offset.copy()
    rank = np.searchsorted(numbers, load.offset[places] // chunk)
    offset[places] = rank % max(room, 1) * chunk + load.offset[places] % chunk
    reused = max(0, len(numbers) - room) * chunk
    return Folded(size, offset, length, chunk, len(numbers) * chunk, reused, clipped)


def touched_bytes(load: RecordedLoad) -> int:
    """How many bytes the chunks take that reads and writes of a load touch."""
    moves = load.moves_data
    touched = _touched(load.offset[moves], load.length[moves], _LARGEST_CHUNK)
    return len(touched) * _LARGEST_CHUNK


def _touched(offset: Integers, length: Integers, chunk: int) -> Integers:
    """The numbers of all chunks that these places touch, sorted."""
    first, last = offset // chunk, (offset + length - 1) // chunk
    ranges = np.unique(np.stack((first, last), axis=1), axis=0)
    # Most places lie in one chunk; each of the others names a few.
    inner = [np.arange(a + 1, b) for a, b in ranges[ranges[:, 1] - ranges[:, 0] > 1]]
    return np.unique(np.concatenate((ranges.ravel(), *inner)))

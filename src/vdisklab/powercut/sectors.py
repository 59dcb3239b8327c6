"""Sectors that describe themselves: each says "empty", "version v of sector n", or is garbage.

A sector of 512 bytes is a record of 32 bytes, sixteen times: magic, number of the sector, version,
and a checksum of these (all 64-bit, little-endian). So a sector that was torn anywhere shows it.
Whole buffers are made and judged at once with numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

SECTOR = 512

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_WORDS = SECTOR // 8
_RECORD_WORDS = 4
_RECORDS = _WORDS // _RECORD_WORDS
_MAGIC = np.uint64(0x3154554357504456)  # "VDPWCUT1"
_MAX_VERSION = np.uint64(1 << 48)


class Odd(IntEnum):
    """What a sector may hold instead of a version, which is 1 or more."""

    EMPTY = 0
    GARBAGE = -1
    TORN = -2


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection that spreads each bit over the word: the finaliser of splitmix64 (Steele et al.,
    "Fast splittable pseudorandom number generators", 2014)."""
    values = values ^ (values >> np.uint64(30))
    values = values * np.uint64(0xBF58476D1CE4E5B9)
    values = values ^ (values >> np.uint64(27))
    values = values * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _checksum(
    numbers: npt.NDArray[np.uint64], versions: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    return _mixed(_mixed(numbers + _MAGIC) + versions)


def make_records(numbers: Numbers, version: int) -> npt.NDArray[np.uint64]:
    """One record for each sector: the rows of 32 bytes that fill it."""
    which = numbers.astype(np.uint64)
    records = np.empty((len(which), _RECORD_WORDS), dtype=np.uint64)
    versions = np.full(len(which), version, dtype=np.uint64)
    records[:, 0], records[:, 1], records[:, 2] = _MAGIC, which, versions
    records[:, 3] = _checksum(which, versions)
    return records


def make_sectors(first: int, count: int, version: int) -> bytes:
    """The content of `count` sectors from number `first` on."""
    records = make_records(np.arange(first, first + count, dtype=np.int64), version)
    return np.repeat(records[:, None, :], _RECORDS, axis=1).tobytes()


def judge_sectors(content: Bytes, numbers: Numbers) -> Numbers:
    """The version of each sector, or what it is instead (`Odd`).

    `content` holds the sectors whose numbers are given, one after another.
    """
    words = content.view(np.uint64).reshape(len(numbers), _RECORDS, _RECORD_WORDS)
    first = words[:, 0, :]
    same = (words == first[:, None, :]).all(axis=(1, 2))
    found = np.where(same, _versions(first, numbers), np.int64(Odd.GARBAGE))
    for row in np.flatnonzero(~same):
        parts = _versions(words[row], np.full(_RECORDS, numbers[row]))
        if (parts >= 0).all():
            found[row] = Odd.TORN
    return found


def _versions(records: npt.NDArray[np.uint64], numbers: Numbers) -> Numbers:
    which = numbers.astype(np.uint64)
    versions = records[:, 2]
    valid = (
        (records[:, 0] == _MAGIC)
        & (records[:, 1] == which)
        & (versions > 0)
        & (versions < _MAX_VERSION)
        & (records[:, 3] == _checksum(which, versions))
    )
    empty = ~records.any(axis=1)
    odd = np.where(empty, np.int64(Odd.EMPTY), np.int64(Odd.GARBAGE))
    return np.where(valid, versions.astype(np.int64), odd)


@dataclass(frozen=True, slots=True)
class Extent:
    """Neighbouring sectors, to be read at once."""

    first: int
    count: int


def extents_of(numbers: Numbers, bridge: int) -> tuple[Extent, ...]:
    """The sorted sectors as few extents; gaps of up to `bridge` sectors are read along."""
    if not len(numbers):
        return ()
    breaks = np.flatnonzero(np.diff(numbers) > bridge + 1)
    starts = numbers[np.concatenate(([0], breaks + 1))]
    ends = numbers[np.concatenate((breaks, [len(numbers) - 1]))]
    return tuple(
        Extent(int(first), int(last - first + 1)) for first, last in zip(starts, ends, strict=True)
    )

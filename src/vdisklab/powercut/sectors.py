"""Self-describing sectors: each one is empty, holds version v of sector n, or is damaged.

A sector of 512 bytes holds the same 32-byte record sixteen times: magic, sector number, version and
a checksum of these (all 64-bit, little-endian). So a torn sector is detected wherever the tear is.
Buffers are made and checked as a whole with numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from vdisklab.units import SECTOR
from vdisklab.value import Value

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_WORDS = SECTOR // 8
_RECORD_WORDS = 4
_RECORDS = _WORDS // _RECORD_WORDS
_MAGIC = np.uint64(0x3154554357504456)  # "VDPWCUT1"
_MAX_VERSION = np.uint64(1 << 48)
_BRIDGE = 128
"""Gaps of up to this many sectors are read too, which is cheaper than another call."""


class NoVersion(IntEnum):
    """Special values for a sector without a version; versions start at 1."""

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
    """The record of each sector, as rows of 32 bytes."""
    unsigned = numbers.astype(np.uint64)
    records = np.empty((len(unsigned), _RECORD_WORDS), dtype=np.uint64)
    versions = np.full(len(unsigned), version, dtype=np.uint64)
    records[:, 0], records[:, 1], records[:, 2] = _MAGIC, unsigned, versions
    records[:, 3] = _checksum(unsigned, versions)
    return records


def make_sectors(first: int, count: int, version: int) -> bytes:
    """The content of `count` sectors, starting at number `first`."""
    records = make_records(np.arange(first, first + count, dtype=np.int64), version)
    return np.repeat(records[:, None, :], _RECORDS, axis=1).tobytes()


def read_versions(content: Bytes, numbers: Numbers) -> Numbers:
    """The version of each sector, or a `NoVersion`.

    `content` holds the sectors with these numbers, one after another.
    """
    records = content.view(np.uint64).reshape(len(numbers), _RECORDS, _RECORD_WORDS)
    first = records[:, 0, :]
    uniform = (records == first[:, None, :]).all(axis=(1, 2))
    versions = np.where(uniform, _record_versions(first, numbers), np.int64(NoVersion.GARBAGE))
    for row in np.flatnonzero(~uniform):
        parts = _record_versions(records[row], np.full(_RECORDS, numbers[row]))
        if (parts >= 0).all():
            versions[row] = NoVersion.TORN
    return versions


def _record_versions(records: npt.NDArray[np.uint64], numbers: Numbers) -> Numbers:
    unsigned = numbers.astype(np.uint64)
    versions = records[:, 2]
    valid = (
        (records[:, 0] == _MAGIC)
        & (records[:, 1] == unsigned)
        & (versions > 0)
        & (versions < _MAX_VERSION)
        & (records[:, 3] == _checksum(unsigned, versions))
    )
    empty = ~records.any(axis=1)
    invalid = np.where(empty, np.int64(NoVersion.EMPTY), np.int64(NoVersion.GARBAGE))
    return np.where(valid, versions.astype(np.int64), invalid)


class Extent(Value):
    """Consecutive sectors."""

    first: int
    count: int

    def overlaps(self, other: Extent) -> bool:
        """True when a sector is in both."""
        return self.first < other.first + other.count and other.first < self.first + self.count


def read_sorted(
    numbers: Numbers, read: Callable[[Extent], bytes]
) -> Iterator[tuple[slice, npt.NDArray[np.uint8]]]:
    """Reads sorted sectors in few calls of `read`; yields slices of `numbers` with their rows.

    A short read is padded with zeros.
    """
    for extent in extents_of(numbers):
        raw = read(extent).ljust(extent.count * SECTOR, b"\0")
        rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, SECTOR)
        begin, end = np.searchsorted(numbers, (extent.first, extent.first + extent.count))
        yield slice(begin, end), rows[numbers[begin:end] - extent.first]


def extents_of(numbers: Numbers, bridge: int = _BRIDGE) -> tuple[Extent, ...]:
    """Extents that cover the sorted sectors; gaps of up to `bridge` sectors are included."""
    if not len(numbers):
        return ()
    breaks = np.flatnonzero(np.diff(numbers) > bridge + 1)
    starts = numbers[np.concatenate(([0], breaks + 1))]
    ends = numbers[np.concatenate((breaks, [len(numbers) - 1]))]
    return tuple(
        Extent(int(first), int(last - first + 1)) for first, last in zip(starts, ends, strict=True)
    )

"""Reads a qcow2 image and checks its reference counts, without a process and without QEMU.

The format is that of QEMU's docs/interop/qcow2.txt. Thousands of states are checked, and
`qemu-img check` would be a process for each; tests compare the two on real crash states. Only what
`qemu-img create` makes without snapshots, encryption, compression and external data is read.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_HEADER_V3 = struct.Struct(">QQQII")
_MAGIC = b"QFI\xfb"
_DIRTY, _CORRUPT = 1, 2
_OFFSET_MASK = np.uint64(0x00FFFFFFFFFFFE00)
_COPIED = np.uint64(1 << 63)
_COMPRESSED = np.uint64(1 << 62)
_ZERO = np.uint64(1)
_TABLE_LIMIT = 32 << 20
_V3_LENGTH = 104
_UNMAPPED = -1

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]


class BadImageError(Exception):
    """The file cannot be opened as a qcow2 image; says why."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the first cluster says."""

    version: int
    cluster_bits: int
    size: int
    l1_entries: int
    l1_offset: int
    refcount_table_offset: int
    refcount_table_clusters: int
    refcount_order: int
    dirty: bool
    marked_corrupt: bool

    @property
    def cluster(self) -> int:
        """Bytes of a cluster."""
        return 1 << self.cluster_bits


@dataclass(frozen=True, slots=True)
class Metadata:
    """A parsed image: `mapping` has for each guest cluster its offset in the file, or -1."""

    header: Header
    mapping: Offsets
    problems: tuple[str, ...]
    leaked: int


def read_metadata(descriptor: int) -> Metadata:
    """Header, mapping, and what is wrong with the reference counts.

    An image that is marked dirty (lazy_refcounts) is not checked: its counts are wrong by design,
    and QEMU rebuilds them when it opens the image for writing. Whether that goes well only the
    afterlife shows. Raises BadImageError when not even the tables can be read.
    """
    header = parse_header(os.pread(descriptor, 4096, 0))
    file_size = os.fstat(descriptor).st_size
    l1 = _table(descriptor, header.l1_offset, header.l1_entries * 8, "L1 table")
    l2_offsets = (l1 & _OFFSET_MASK).astype(np.int64)
    present = np.flatnonzero(l2_offsets)
    tables = {
        int(at): _table(descriptor, int(l2_offsets[at]), header.cluster, "L2 table")
        for at in present
    }
    mapping, data = _mapping(header, tables)
    used = _References(header, file_size)
    used.add(np.array([0]))
    used.add_range(header.l1_offset, header.l1_entries * 8)
    used.add(l2_offsets[present])
    used.add(data.offsets)
    counts = _refcounts(descriptor, header, used)
    problems: list[str] = []
    if header.marked_corrupt:
        problems.append("QEMU itself marked the image as corrupt")
    leaked = 0
    if not header.dirty:
        found, leaked = _compare(header, counts, used, l1[present], data)
        problems += [*data.problems, *used.problems, *found]
    return Metadata(header, mapping, tuple(problems), leaked)


def parse_header(head: bytes) -> Header:
    """The header; BadImageError for what is no image of the kind that we make."""
    if len(head) < _HEADER.size or head[:4] != _MAGIC:
        raise BadImageError("its header is not that of a qcow2 image")
    (
        _, version, _backing, _backing_length, cluster_bits, size, encrypted,
        l1_entries, l1_offset, table_offset, table_clusters, snapshots, _snapshots_at,
    ) = _HEADER.unpack_from(head)  # fmt: skip
    features, order = 0, 4
    if version == 3 and len(head) >= _V3_LENGTH:
        features, _, _, order, _ = _HEADER_V3.unpack_from(head, _HEADER.size)
    if version not in (2, 3) or not 9 <= cluster_bits <= 21 or not 3 <= order <= 6:
        raise BadImageError("its header holds numbers that cannot be")
    if encrypted or snapshots or features & ~(_DIRTY | _CORRUPT):
        raise BadImageError("it uses features that the images made here do not have")
    needed = -(-size // (1 << (2 * cluster_bits - 3)))
    if l1_entries < needed or l1_entries * 8 > _TABLE_LIMIT:
        raise BadImageError(f"its L1 table has {l1_entries} entries, {needed} are needed")
    return Header(
        version, cluster_bits, size, l1_entries, l1_offset, table_offset, table_clusters, order,
        bool(features & _DIRTY), bool(features & _CORRUPT),
    )  # fmt: skip


def _table(descriptor: int, offset: int, length: int, what: str) -> Words:
    if offset % 512:
        raise BadImageError(f"its {what} is at {offset}, which is no multiple of a sector")
    raw = os.pread(descriptor, length, offset)
    # QEMU reads zeros behind the end of a file.
    return np.frombuffer(raw.ljust(length, b"\0"), dtype=">u8").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Data:
    """What the L2 tables point at."""

    offsets: Offsets
    entries: Words
    problems: tuple[str, ...]


def _mapping(header: Header, tables: dict[int, Words]) -> tuple[Offsets, _Data]:
    per_table = header.cluster // 8
    clusters = -(-header.size // header.cluster)
    entries = np.zeros(header.l1_entries * per_table, dtype=np.uint64)
    for at, table in tables.items():
        entries[at * per_table : (at + 1) * per_table] = table
    entries = entries[:clusters]
    problems: list[str] = []
    if (entries & _COMPRESSED).any():
        problems.append("a cluster is marked as compressed, and none ever was")
    zero = (entries & _ZERO).astype(bool) if header.version == 3 else np.zeros(clusters, dtype=bool)
    offsets = (entries & _OFFSET_MASK).astype(np.int64)
    if (offsets % header.cluster).any():
        problems.append("a cluster is not aligned")
    mapping = np.where(zero | (offsets == 0), _UNMAPPED, offsets)
    there = offsets != 0
    return mapping, _Data(offsets[there], entries[there], tuple(problems))


class _References:
    """How often each cluster of the file is referred to."""

    def __init__(self, header: Header, file_size: int) -> None:
        self._header = header
        self.clusters = -(-file_size // header.cluster)
        self.counts = np.zeros(self.clusters, dtype=np.int64)
        self.problems: list[str] = []

    def add(self, offsets: Offsets) -> None:
        """Counts one reference to the cluster at each offset."""
        indices = offsets >> self._header.cluster_bits
        outside = indices >= self.clusters
        if outside.any():
            self.problems.append(f"{int(outside.sum())} clusters lie behind the end of the file")
        self.counts += np.bincount(indices[~outside], minlength=self.clusters)

    def add_range(self, offset: int, length: int) -> None:
        """Counts one reference to each cluster of a range."""
        first = offset >> self._header.cluster_bits
        last = (offset + max(length, 1) - 1) >> self._header.cluster_bits
        self.add(np.arange(first, last + 1) << self._header.cluster_bits)


def _refcounts(descriptor: int, header: Header, used: _References) -> Offsets:
    """The stored count of each cluster of the file, and the references of the tables themselves."""
    length = header.refcount_table_clusters * header.cluster
    if length > _TABLE_LIMIT:
        raise BadImageError("its refcount table is larger than any that is made")
    table = _table(descriptor, header.refcount_table_offset, length, "refcount table")
    blocks = (table & ~np.uint64(511)).astype(np.int64)
    used.add_range(header.refcount_table_offset, length)
    used.add(blocks[blocks != 0])
    width = (1 << header.refcount_order) // 8
    per_block = header.cluster // width
    present = np.flatnonzero(blocks)
    counted = (int(present[-1]) + 1) * per_block if len(present) else 0
    counts = np.zeros(max(counted, used.clusters), dtype=np.int64)
    for at in present:
        raw = os.pread(descriptor, header.cluster, int(blocks[at])).ljust(header.cluster, b"\0")
        found = np.frombuffer(raw, dtype=f">u{width}").astype(np.int64)
        counts[at * per_block : (at + 1) * per_block] = found
    return counts


def _compare(
    header: Header, counts: Offsets, used: _References, l1: Words, data: _Data
) -> tuple[list[str], int]:
    """Problems in words, and how many clusters are counted though nobody uses them."""
    stored = counts[: used.clusters]
    problems: list[str] = []
    short = int((used.counts > stored).sum())
    if short:
        problems.append(f"{short} clusters are used more often than their count says")
    for what, entries in (("L2 table", l1), ("cluster", data.entries)):
        offsets = (entries & _OFFSET_MASK).astype(np.int64) >> header.cluster_bits
        inside = offsets < used.clusters
        copied = (entries[inside] & _COPIED).astype(bool)
        wrong = int((copied != (stored[offsets[inside]] == 1)).sum())
        if wrong:
            problems.append(f"{wrong} {what}s have a wrong OFLAG_COPIED")
    leaked = int((stored > used.counts).sum())  # behind the end of the file QEMU counts none
    return problems, leaked

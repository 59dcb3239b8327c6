"""Reads sectors of raw and qcow2 images, and checks a qcow2's reference counts, without QEMU.

The format is that of QEMU's docs/interop/qcow2.txt. `qemu-img check` would start a process for each
of thousands of states; tests compare both on real crash states. Only images made by `qemu-img
create` are supported: no snapshots, encryption, compression or external data.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vdisklab.powercut.sectors import SECTOR, Bytes, Extent, Numbers, read_sorted

PARSED_FORMATS = ("raw", "qcow2")
"""Formats that are read without QEMU."""

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


class BadImageError(Exception):
    """The image cannot be opened; the message says why."""


@dataclass(frozen=True, slots=True)
class ImageSectors:
    """The requested sectors; for qcow2 also the result of its check."""

    content: Bytes
    problems: tuple[str, ...] = ()
    leaked: int = 0
    dirty: bool = False


def read_image(path: Path, image_format: str, numbers: Numbers) -> ImageSectors:
    """The sectors with these sorted numbers. Raises OSError and BadImageError.

    Sectors beyond the end of the file read as zeros, as in QEMU.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if image_format == "raw":
            return ImageSectors(_read_sectors(descriptor, numbers * SECTOR))
        metadata = read_metadata(descriptor)
        return ImageSectors(
            _read_sectors(descriptor, metadata.offsets_of(numbers)),
            metadata.problems,
            metadata.leaked,
            metadata.header.dirty,
        )
    finally:
        os.close(descriptor)


def _read_sectors(descriptor: int, offsets: Numbers) -> Bytes:
    """The sectors at these offsets; zeros where an offset is `_UNMAPPED`."""
    sectors = np.zeros((len(offsets), SECTOR), dtype=np.uint8)
    order = np.argsort(offsets, kind="stable")
    order = order[offsets[order] >= 0]

    def read(extent: Extent) -> bytes:
        return os.pread(descriptor, extent.count * SECTOR, extent.first * SECTOR)

    for part, rows in read_sorted(offsets[order] // SECTOR, read):
        sectors[order[part]] = rows
    return sectors.reshape(-1)


@dataclass(frozen=True, slots=True)
class Qcow2Header:
    """The fields of the first cluster."""

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
class Qcow2Metadata:
    """A parsed image: `mapping` holds the file offset of each guest cluster, or -1."""

    header: Qcow2Header
    mapping: Numbers
    problems: tuple[str, ...]
    leaked: int

    def offsets_of(self, sectors: Numbers) -> Numbers:
        """The file offset of each sector, or -1 where it reads as zeros."""
        bits = self.header.cluster_bits
        guest = sectors * SECTOR
        clusters = self.mapping[guest >> bits]
        return np.where(clusters < 0, _UNMAPPED, clusters + (guest & ((1 << bits) - 1)))


def read_metadata(descriptor: int) -> Qcow2Metadata:
    """Header, mapping, and the problems of the reference counts.

    An image that is marked dirty (lazy_refcounts) is not checked: its counts are wrong by design,
    and QEMU rebuilds them when it opens the image for writing. Only post-recovery writes show
    whether that succeeds. Raises BadImageError when the tables cannot be read.
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
    references = _References(header, file_size)
    references.add(np.array([0]))
    references.add_range(header.l1_offset, header.l1_entries * 8)
    references.add(l2_offsets[present])
    references.add(data.offsets)
    counts = _refcounts(descriptor, header, references)
    problems: list[str] = []
    if header.marked_corrupt:
        problems.append("QEMU itself marked the image as corrupt")
    leaked = 0
    if not header.dirty:
        wrong_counts, leaked = _compare(header, counts, references, l1[present], data)
        problems += [*data.problems, *references.problems, *wrong_counts]
    return Qcow2Metadata(header, mapping, tuple(problems), leaked)


def parse_header(head: bytes) -> Qcow2Header:
    """The header in the first cluster. Raises BadImageError for an unsupported image."""
    if len(head) < _HEADER.size or head[:4] != _MAGIC:
        raise BadImageError("its header is not a qcow2 header")
    (
        _, version, _backing, _backing_length, cluster_bits, size, encrypted,
        l1_entries, l1_offset, table_offset, table_clusters, snapshots, _snapshots_at,
    ) = _HEADER.unpack_from(head)  # fmt: skip
    features, order = 0, 4
    if version == 3 and len(head) >= _V3_LENGTH:
        features, _, _, order, _ = _HEADER_V3.unpack_from(head, _HEADER.size)
    if version not in (2, 3) or not 9 <= cluster_bits <= 21 or not 3 <= order <= 6:
        raise BadImageError("its header has impossible values")
    if encrypted or snapshots or features & ~(_DIRTY | _CORRUPT):
        raise BadImageError("it uses features that images made by vdisklab do not have")
    needed = -(-size // (1 << (2 * cluster_bits - 3)))
    if l1_entries < needed or l1_entries * 8 > _TABLE_LIMIT:
        raise BadImageError(f"its L1 table has {l1_entries} entries, but {needed} are needed")
    return Qcow2Header(
        version, cluster_bits, size, l1_entries, l1_offset, table_offset, table_clusters, order,
        bool(features & _DIRTY), bool(features & _CORRUPT),
    )  # fmt: skip


def _table(descriptor: int, offset: int, length: int, name: str) -> Words:
    if offset % 512:
        raise BadImageError(f"its {name} is at {offset}, which is not a multiple of a sector")
    raw = _read(descriptor, length, offset)
    # QEMU reads zeros beyond the end of a file.
    return np.frombuffer(raw.ljust(length, b"\0"), dtype=">u8").astype(np.uint64)


def _read(descriptor: int, length: int, offset: int) -> bytes:
    try:
        return os.pread(descriptor, length, offset)
    except (OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise BadImageError(f"it refers to offset {offset}, which no file has") from error


@dataclass(frozen=True, slots=True)
class _DataClusters:
    """The L2 entries that point at a cluster, and the file offsets they point to."""

    offsets: Numbers
    entries: Words
    problems: tuple[str, ...]


def _mapping(header: Qcow2Header, tables: dict[int, Words]) -> tuple[Numbers, _DataClusters]:
    per_table = header.cluster // 8
    clusters = -(-header.size // header.cluster)
    entries = np.zeros(header.l1_entries * per_table, dtype=np.uint64)
    for at, table in tables.items():
        entries[at * per_table : (at + 1) * per_table] = table
    entries = entries[:clusters]
    problems: list[str] = []
    if (entries & _COMPRESSED).any():
        problems.append("a cluster is marked as compressed, but vdisklab never compresses")
    zero = (entries & _ZERO).astype(bool) if header.version == 3 else np.zeros(clusters, dtype=bool)
    offsets = (entries & _OFFSET_MASK).astype(np.int64)
    if (offsets % header.cluster).any():
        problems.append("a cluster is not aligned")
    mapping = np.where(zero | (offsets == 0), _UNMAPPED, offsets)
    allocated = offsets != 0
    return mapping, _DataClusters(offsets[allocated], entries[allocated], tuple(problems))


class _References:
    """The number of references to each cluster of the file."""

    def __init__(self, header: Qcow2Header, file_size: int) -> None:
        self._header = header
        self.clusters = -(-file_size // header.cluster)
        self.counts = np.zeros(self.clusters, dtype=np.int64)
        self.problems: list[str] = []

    def add(self, offsets: Numbers) -> None:
        """Counts one reference to the cluster at each offset."""
        indices = offsets >> self._header.cluster_bits
        outside = (indices < 0) | (indices >= self.clusters)  # a header may hold 2**63
        if outside.any():
            self.problems.append(f"{int(outside.sum())} clusters are beyond the end of the file")
        self.counts += np.bincount(indices[~outside], minlength=self.clusters)

    def add_range(self, offset: int, length: int) -> None:
        """Counts one reference to each cluster of a range."""
        first = offset >> self._header.cluster_bits
        last = (offset + max(length, 1) - 1) >> self._header.cluster_bits
        self.add(np.arange(first, last + 1) << self._header.cluster_bits)


def _refcounts(descriptor: int, header: Qcow2Header, references: _References) -> Numbers:
    """The stored count of each cluster. Adds the references to the refcount tables themselves."""
    length = header.refcount_table_clusters * header.cluster
    if length > _TABLE_LIMIT:
        raise BadImageError("its refcount table is impossibly large")
    table = _table(descriptor, header.refcount_table_offset, length, "refcount table")
    blocks = (table & ~np.uint64(511)).astype(np.int64)
    references.add_range(header.refcount_table_offset, length)
    references.add(blocks[blocks != 0])
    width = (1 << header.refcount_order) // 8
    per_block = header.cluster // width
    present = np.flatnonzero(blocks)
    counted = (int(present[-1]) + 1) * per_block if len(present) else 0
    counts = np.zeros(max(counted, references.clusters), dtype=np.int64)
    for at in present:
        raw = _read(descriptor, header.cluster, int(blocks[at])).ljust(header.cluster, b"\0")
        block = np.frombuffer(raw, dtype=f">u{width}").astype(np.int64)
        counts[at * per_block : (at + 1) * per_block] = block
    return counts


def _compare(
    header: Qcow2Header, counts: Numbers, references: _References, l1: Words, data: _DataClusters
) -> tuple[list[str], int]:
    """The problems as sentences, and the number of leaked clusters (counted but unused)."""
    stored = counts[: references.clusters]
    problems: list[str] = []
    short = int((references.counts > stored).sum())
    if short:
        problems.append(f"{short} clusters have more references than their reference count")
    for name, entries in (("L2 table", l1), ("cluster", data.entries)):
        offsets = (entries & _OFFSET_MASK).astype(np.int64) >> header.cluster_bits
        inside = offsets < references.clusters
        copied = (entries[inside] & _COPIED).astype(bool)
        wrong = int((copied != (stored[offsets[inside]] == 1)).sum())
        if wrong:
            problems.append(f"{wrong} {name}s have a wrong OFLAG_COPIED")
    leaked = int((stored > references.counts).sum())  # QEMU counts none beyond the end of the file
    return problems, leaked

"""Reads sectors of raw and qcow2 images, and checks a qcow2's reference counts, without QEMU.

The format is that of QEMU's docs/interop/qcow2.txt. `qemu-img check` would start a process for each
of thousands of states; tests compare both on real crash states. Images as `qemu-img create` makes
them are supported, with subclusters, backing files, internal snapshots, persistent bitmaps and an
external data file; compressed ones are refused. The content of encrypted images is left to QEMU.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vdisklab.host.syscalls import opened
from vdisklab.powercut.sectors import Bytes, Numbers
from vdisklab.storage.qcow2_header import (
    CORRUPT,
    DIRTY,
    EXTENDED_L2,
    EXTERNAL_DATA,
    HEAD,
    LUKS,
    BadImageError,
    Qcow2Header,
    bitmap_tables,
    parse_header,
)
from vdisklab.units import SECTOR
from vdisklab.value import Value

PARSED_FORMATS = ("raw", "qcow2")
"""Formats that are read without QEMU."""


_OFFSET_MASK = np.uint64(0x00FFFFFFFFFFFE00)
_COPIED = np.uint64(1 << 63)
_COMPRESSED = np.uint64(1 << 62)
_ZERO = np.uint64(1)
_TABLE_LIMIT = 32 << 20
_SUBCLUSTERS = 32
_SNAPSHOT = struct.Struct(">QIHHIIQII")
_MOST_SNAPSHOTS = 256  # of an image made by vdisklab; QEMU allows 65536

_UNMAPPED, _ZEROES = -1, -2
"""In place of a file offset: the data is in the image below, if there is one; it reads as zeros."""

Words = npt.NDArray[np.uint64]


class ImageSectors(Value):
    """The requested sectors; for qcow2 also the result of its check.

    `size` is the disk's in bytes; None if QEMU read it.
    """

    content: Bytes
    problems: tuple[str, ...] = ()
    leaked: int = 0
    dirty: bool = False
    size: int | None = None


def read_image(
    path: Path,
    image_format: str,
    numbers: Numbers,
    *,
    backing: Sequence[Path] = (),
    backing_format: str | None = None,
    data_file: Path | None = None,
) -> ImageSectors:
    """The sectors with these sorted numbers. Raises OSError and BadImageError.

    `backing` are the images below, nearest first: qcow2, or raw if `backing_format` says so, and
    then there is one. Sectors beyond the end of a file, or of an
    image below, read as zeros, as in QEMU.
    """
    if image_format == "raw":
        with opened(path, os.O_RDONLY) as descriptor:
            content = _read_sectors(descriptor, numbers * SECTOR).reshape(-1)
            return ImageSectors(content, size=os.fstat(descriptor).st_size)
    sectors = np.zeros((len(numbers), SECTOR), dtype=np.uint8)
    missing = np.arange(len(numbers))
    checked: list[Qcow2Metadata] = []
    chain = (path,) if backing_format == "raw" else (path, *backing)
    for image in chain:
        with (
            opened(image, os.O_RDONLY) as descriptor,
            opened(data_file or image, os.O_RDONLY) as data,
        ):
            metadata = read_metadata(descriptor)
            held = np.searchsorted(numbers[missing], metadata.header.size // SECTOR)
            if image == path and held < len(numbers):
                raise BadImageError(f"its disk has only {metadata.header.size} bytes")
            missing = missing[:held]
            offsets = metadata.offsets_of(numbers[missing])
            sectors[missing] = _read_sectors(data, offsets)
        missing = missing[offsets == _UNMAPPED]
        checked.append(metadata)
    if backing_format == "raw":
        (base,) = backing
        with opened(base, os.O_RDONLY) as descriptor:
            sectors[missing] = _read_sectors(descriptor, numbers[missing] * SECTOR)
    return ImageSectors(
        sectors.reshape(-1),
        tuple(problem for metadata in checked for problem in metadata.problems),
        sum(metadata.leaked for metadata in checked),
        checked[0].header.dirty,
        checked[0].header.size,
    )


def _read_sectors(descriptor: int, offsets: Numbers) -> Bytes:
    """A row for the sector at each offset; zeros where an offset is `_UNMAPPED` or `_ZEROES`."""
    sectors = np.zeros((len(offsets), SECTOR), dtype=np.uint8)
    stored = np.flatnonzero(offsets >= 0)
    follows = (np.diff(stored) == 1) & (np.diff(offsets[stored]) == SECTOR)
    bounds = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(stored)]
    runs = [
        (int(stored[first]), end - first)
        for first, end in itertools.pairwise(bounds)
        if end > first
    ]
    for first, count in runs:  # all at once, instead of one wait after another
        where = (int(offsets[first]), count * SECTOR)
        os.posix_fadvise(descriptor, *where, os.POSIX_FADV_WILLNEED)
    for first, count in runs:
        _fill(sectors[first : first + count].reshape(-1), descriptor, int(offsets[first]))
    return sectors


def _fill(part: Bytes, descriptor: int, offset: int) -> None:
    """Reads a part of a file; beyond the end of the file there are zeros."""
    part[os.preadv(descriptor, [part.data], offset) :] = 0


class Qcow2Metadata(Value):
    """A parsed image: `mapping` holds the file offset of each guest cluster or subcluster."""

    header: Qcow2Header
    mapping: Numbers
    problems: tuple[str, ...]
    leaked: int

    def offsets_of(self, sectors: Numbers) -> Numbers:
        """The file offset of each sector, or `_UNMAPPED` or `_ZEROES`."""
        bits = self.header.unit_bits
        guest = sectors * SECTOR
        units = self.mapping[guest >> bits]
        offsets: Numbers = np.where(units < 0, units, units + (guest & ((1 << bits) - 1)))
        return offsets


def read_metadata(descriptor: int) -> Qcow2Metadata:
    """Header, mapping, and the problems of the reference counts.

    An image that is marked dirty (lazy_refcounts) is not checked: its counts are wrong by design,
    and QEMU rebuilds them when it opens the image for writing. Only post-recovery writes show
    whether that succeeds. Raises BadImageError when the tables cannot be read.
    """
    header = parse_header(os.pread(descriptor, HEAD, 0))
    _require_supported(header)
    file_size = os.fstat(descriptor).st_size
    active = _read_tables(descriptor, header, header.l1_offset, header.l1_entries)
    mapping, mapping_problems = _mapping(header, active)
    references = _References(header, file_size)
    references.add(np.array([0]))
    _refer(references, header, active)
    for tables in _snapshot_tables(descriptor, header, references):
        _refer(references, header, tables)
    _refer_to_extensions(descriptor, header, references)
    counts = _refcounts(descriptor, header, references)
    problems: list[str] = []
    if header.features & CORRUPT:
        problems.append("QEMU itself marked the image as corrupt")
    leaked = 0
    if not header.dirty:
        wrong_counts, leaked = _compare(header, counts, references, active)
        problems += [*mapping_problems, *references.problems, *wrong_counts]
    return Qcow2Metadata(header, mapping, tuple(problems), leaked)


def _require_supported(header: Qcow2Header) -> None:
    """Raises BadImageError for an image unlike those that vdisklab makes."""
    unknown = header.features & ~(DIRTY | CORRUPT | EXTERNAL_DATA | EXTENDED_L2)
    if unknown or header.crypt_method not in (0, LUKS) or header.refcount_order < 3:
        raise BadImageError("it uses features that images made by vdisklab do not have")
    if header.snapshots > _MOST_SNAPSHOTS:
        raise BadImageError(f"its header has {header.snapshots} snapshots")
    entry_bits = 4 if header.extended_l2 else 3
    needed = -(-header.size // (1 << (2 * header.cluster_bits - entry_bits)))
    if header.l1_entries < needed or header.l1_entries * 8 > _TABLE_LIMIT:
        raise BadImageError(
            f"its L1 table has {header.l1_entries} entries, but {needed} are needed"
        )


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


class _ClusterTables(Value):
    """An L1 table and its L2 tables: the active ones, or those of a snapshot.

    `l1` are the entries that point at a table. `entries` has a row for each guest cluster; the
    second word, where there is one, holds the bits of its subclusters.
    """

    l1_offset: int
    l1_entries: int
    l1: Words
    entries: Words

    @property
    def offsets(self) -> Numbers:
        """The file offset of each guest cluster; 0 without one."""
        return (self.entries[:, 0] & _OFFSET_MASK).astype(np.int64)


def _read_tables(descriptor: int, header: Qcow2Header, offset: int, count: int) -> _ClusterTables:
    l1 = _table(descriptor, offset, count * 8, "L1 table")
    tables = (l1 & _OFFSET_MASK).astype(np.int64)
    present = np.flatnonzero(tables)
    if count * header.cluster > _TABLE_LIMIT:
        raise BadImageError(f"its L1 table of {count} entries is impossibly large")
    entry_words = header.words_per_entry
    entries = np.zeros((count * header.entries_per_table, entry_words), dtype=np.uint64)
    for index in present:
        table = _table(descriptor, int(tables[index]), header.cluster, "L2 table")
        first = index * header.entries_per_table
        entries[first : first + header.entries_per_table] = table.reshape(-1, entry_words)
    return _ClusterTables(offset, count, l1[present], entries)


def _snapshot_tables(
    descriptor: int, header: Qcow2Header, references: _References
) -> Iterator[_ClusterTables]:
    """The tables of each internal snapshot; adds the references to the list of snapshots."""
    offset = header.snapshots_offset
    for _ in range(header.snapshots):
        head = _read(descriptor, _SNAPSHOT.size, offset)
        if len(head) < _SNAPSHOT.size:
            raise BadImageError("its list of snapshots is cut off")
        l1_offset, l1_entries, id_length, name_length, *_, extra = _SNAPSHOT.unpack(head)
        if l1_entries * 8 > _TABLE_LIMIT:
            raise BadImageError(f"a snapshot's L1 table has {l1_entries} entries")
        yield _read_tables(descriptor, header, l1_offset, l1_entries)
        offset += -(-(_SNAPSHOT.size + extra + id_length + name_length) // 8) * 8
    if header.snapshots:
        references.add_range(header.snapshots_offset, offset - header.snapshots_offset)


def _refer_to_extensions(descriptor: int, header: Qcow2Header, references: _References) -> None:
    """Counts the references to the LUKS header and to the bitmaps: their list, tables and bits."""
    crypt, directory = header.extensions.crypt, header.extensions.bitmaps
    if crypt is not None:
        references.add_range(*crypt)
    if directory is None:
        return
    if directory.length > _TABLE_LIMIT:
        raise BadImageError(f"its list of bitmaps has {directory.length} bytes")
    references.add_range(directory.offset, directory.length)
    try:
        tables = tuple(
            bitmap_tables(directory, _read(descriptor, directory.length, directory.offset))
        )
    except struct.error as error:
        raise BadImageError("its list of bitmaps is cut off") from error
    for table in tables:
        length = table.entries * 8
        if length > _TABLE_LIMIT:
            raise BadImageError(f"the table of a bitmap has {table.entries} entries")
        references.add_range(table.offset, length)
        entries = _table(descriptor, table.offset, length, "table of a bitmap")
        clusters = (entries & _OFFSET_MASK).astype(np.int64)
        references.add(clusters[clusters != 0])


def _refer(references: _References, header: Qcow2Header, tables: _ClusterTables) -> None:
    """Counts the references of an L1 table, its L2 tables, and their clusters in this file."""
    references.add_range(tables.l1_offset, tables.l1_entries * 8)
    references.add((tables.l1 & _OFFSET_MASK).astype(np.int64))
    if not header.external_data:
        offsets = tables.offsets
        references.add(offsets[offsets != 0])


def _mapping(header: Qcow2Header, active: _ClusterTables) -> tuple[Numbers, list[str]]:
    """Where each guest cluster or subcluster is, and what is wrong with the entries."""
    clusters = -(-header.size // header.cluster)
    descriptors, offsets = active.entries[:clusters, 0], active.offsets[:clusters]
    problems: list[str] = []
    if (descriptors & _COMPRESSED).any():
        problems.append("a cluster is marked as compressed, but vdisklab never compresses")
    if (offsets % header.cluster).any():
        problems.append("a cluster is not aligned")
    allocated = offsets != 0
    if header.external_data:  # there offset 0 is a cluster like any other
        allocated |= (descriptors & _COPIED).astype(bool)
    if header.words_per_entry == 1:
        zero = (descriptors & _ZERO).astype(bool) & (header.version == 3)
        return np.where(zero, _ZEROES, np.where(allocated, offsets, _UNMAPPED)), problems
    bits = active.entries[:clusters, 1:] >> np.arange(2 * _SUBCLUSTERS, dtype=np.uint64)
    flags = (bits & np.uint64(1)).astype(bool)
    written, zeroes = flags[:, :_SUBCLUSTERS], flags[:, _SUBCLUSTERS:]
    if (written & zeroes).any():
        problems.append("a subcluster is marked as written and as zeroes")
    if (written & ~allocated[:, None]).any():
        problems.append("a subcluster is marked as written in a cluster that is not allocated")
    places = offsets[:, None] + (np.arange(_SUBCLUSTERS) << header.unit_bits)
    mapping = np.where(zeroes, _ZEROES, np.where(written & allocated[:, None], places, _UNMAPPED))
    return mapping.reshape(-1), problems


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
    for index in present:
        raw = _read(descriptor, header.cluster, int(blocks[index])).ljust(header.cluster, b"\0")
        block = np.frombuffer(raw, dtype=f">u{width}").astype(np.int64)
        counts[index * per_block : (index + 1) * per_block] = block
    return counts


def _compare(
    header: Qcow2Header, counts: Numbers, references: _References, active: _ClusterTables
) -> tuple[list[str], int]:
    """The problems as sentences, and the number of leaked clusters (counted but unused)."""
    stored = counts[: references.clusters]
    problems: list[str] = []
    short = int((references.counts > stored).sum())
    if short:
        problems.append(f"{short} clusters have more references than their reference count")
    clusters = active.entries[active.offsets != 0, 0]
    if header.external_data:
        clusters = clusters[:0]
    for name, entries in (("L2 table", active.l1), ("cluster", clusters)):
        offsets = (entries & _OFFSET_MASK).astype(np.int64) >> header.cluster_bits
        inside = offsets < references.clusters
        copied = (entries[inside] & _COPIED).astype(bool)
        wrong = int((copied != (stored[offsets[inside]] == 1)).sum())
        if wrong:
            problems.append(f"{wrong} {name}s have a wrong OFLAG_COPIED")
    leaked = int((stored > references.counts).sum())  # QEMU counts none beyond the end of the file
    return problems, leaked

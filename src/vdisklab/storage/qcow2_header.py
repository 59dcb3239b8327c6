"""The header of a qcow2 image, and the parts that its extensions name: LUKS header, bitmaps.

The format is that of QEMU's docs/interop/qcow2.txt.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from vdisklab.value import Value

_EXTENSION = struct.Struct(">II")

_END, _CRYPT, _BITMAPS, _DATA_FILE = 0, 0x0537BE77, 0x23852875, 0x44415441

_CRYPT_FIELDS, _BITMAPS_FIELDS = struct.Struct(">QQ"), struct.Struct(">IIQQ")

_ENTRY = struct.Struct(">QIIBBHI")

_BITMAPS_ARE_CURRENT = 1  # bit of the autoclear features

_MOST_BITMAPS = 65535


_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_HEADER_V3 = struct.Struct(">QQQII")
_MAGIC = b"QFI\xfb"
HEAD = 4096

"""Bytes at the start of an image that hold its header and extensions."""

_COMPRESSION = 104  # byte of the header; 0 is zlib, 1 zstd
LUKS = 2  # crypt_method
_V3_LENGTH = 104


class BitmapDirectory(Value):
    """The list of the persistent bitmaps, and its place in bytes."""

    count: int
    offset: int
    length: int


class Extensions(Value):
    """What the extensions name; `crypt` is offset and length of the LUKS header in bytes.

    `data_file` is the name of the file that has the data.
    """

    crypt: tuple[int, int] | None = None
    bitmaps: BitmapDirectory | None = None
    data_file: str | None = None


class BitmapTable(Value):
    """The table of one bitmap: its entries are the clusters that hold the bits."""

    offset: int
    entries: int


def parse_extensions(head: bytes, start: int, autoclear: int) -> Extensions:
    """The extensions from byte `start` of an image's first cluster on; unknown ones are left out.

    Bitmaps count only while their autoclear bit is set; a program that does not know it clears it.
    Raises struct.error for an extension that is cut off.
    """
    crypt: tuple[int, int] | None = None
    bitmaps: BitmapDirectory | None = None
    data_file: str | None = None
    while start + _EXTENSION.size <= len(head):
        kind, length = _EXTENSION.unpack_from(head, start)
        start += _EXTENSION.size
        if kind == _END:
            break
        if kind == _CRYPT:
            crypt = _CRYPT_FIELDS.unpack_from(head, start)
        if kind == _BITMAPS and autoclear & _BITMAPS_ARE_CURRENT:
            count, _, size, offset = _BITMAPS_FIELDS.unpack_from(head, start)
            bitmaps = BitmapDirectory(count, offset, size)
        if kind == _DATA_FILE:
            data_file = os.fsdecode(head[start : start + length])
        start += -(-length // 8) * 8
    return Extensions(crypt, bitmaps, data_file)


def bitmap_tables(directory: BitmapDirectory, content: bytes) -> Iterator[BitmapTable]:
    """The table of each bitmap in the directory's content. Raises struct.error if it is cut off."""
    place = 0
    for _ in range(min(directory.count, _MOST_BITMAPS)):
        offset, entries, _, _, _, name, extra = _ENTRY.unpack_from(content, place)
        yield BitmapTable(offset, entries)
        place += -(-(_ENTRY.size + name + extra) // 8) * 8


DIRTY, CORRUPT, EXTERNAL_DATA, _COMPRESSION_TYPE, EXTENDED_L2 = 1, 2, 4, 8, 16

"""Incompatible features."""


_LAZY_REFCOUNTS, _RAW_DATA = 1, 2  # a compatible and an autoclear feature


class BadImageError(Exception):
    """The image cannot be opened; the message says why."""


class Qcow2Header(Value):
    """The fields of the first cluster."""

    version: int
    cluster_bits: int
    size: int
    l1_entries: int
    l1_offset: int
    refcount_table_offset: int
    refcount_table_clusters: int
    refcount_order: int
    features: int
    compatible_features: int
    autoclear_features: int
    snapshots: int
    snapshots_offset: int
    crypt_method: int
    backing: str | None
    compression: int
    extensions: Extensions

    @property
    def cluster(self) -> int:
        """Bytes of a cluster."""
        return 1 << self.cluster_bits

    @property
    def dirty(self) -> bool:
        """True if the reference counts are known to be out of date (lazy_refcounts)."""
        return bool(self.features & DIRTY)

    @property
    def external_data(self) -> bool:
        """True if another file holds the data."""
        return bool(self.features & EXTERNAL_DATA)

    @property
    def raw_data(self) -> bool:
        """True if the data file is a raw image by itself."""
        return bool(self.autoclear_features & _RAW_DATA)

    @property
    def lazy_refcounts(self) -> bool:
        """True if the reference counts may be written late."""
        return bool(self.compatible_features & _LAZY_REFCOUNTS)

    @property
    def extended_l2(self) -> bool:
        """True if clusters have subclusters."""
        return bool(self.features & EXTENDED_L2)

    @property
    def is_luks(self) -> bool:
        """True if its clusters are encrypted with LUKS."""
        return self.crypt_method == LUKS

    @property
    def words_per_entry(self) -> int:
        """The 64-bit words of an L2 entry; the second holds the bits of its subclusters."""
        return 2 if self.extended_l2 else 1

    @property
    def entries_per_table(self) -> int:
        """L2 entries in a table, which fills a cluster."""
        return self.cluster // 8 // self.words_per_entry

    @property
    def unit_bits(self) -> int:
        """The unit of the mapping: a subcluster, or a cluster."""
        return self.cluster_bits - (5 if self.extended_l2 else 0)


def parse_header(head: bytes) -> Qcow2Header:
    """The header in the first cluster. Raises BadImageError for what QEMU does not open."""
    if len(head) < _HEADER.size or head[:4] != _MAGIC:
        raise BadImageError("its header is not a qcow2 header")
    (
        _, version, backing, backing_length, cluster_bits, size, crypt_method,
        l1_entries, l1_offset, table_offset, table_clusters, snapshots, snapshots_at,
    ) = _HEADER.unpack_from(head)  # fmt: skip
    features, compatible, autoclear, order, length = 0, 0, 0, 4, _HEADER.size
    if version == 3 and len(head) >= _V3_LENGTH:
        features, compatible, autoclear, order, length = _HEADER_V3.unpack_from(head, _HEADER.size)
    if version not in (2, 3) or not 9 <= cluster_bits <= 21 or order > 6:
        raise BadImageError("its header has impossible values")
    try:
        extensions = parse_extensions(head, length, autoclear)
    except struct.error as error:
        raise BadImageError("an extension of its header is cut off") from error
    return Qcow2Header(
        version, cluster_bits, size, l1_entries, l1_offset, table_offset, table_clusters, order,
        features, compatible, autoclear, snapshots, snapshots_at, crypt_method,
        os.fsdecode(head[backing : backing + backing_length]) if backing else None,
        head[_COMPRESSION] if features & _COMPRESSION_TYPE else 0, extensions,
    )  # fmt: skip

"""The parts of a qcow2 image that its header extensions name: LUKS header, persistent bitmaps.

The format is that of QEMU's docs/interop/qcow2.txt.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_EXTENSION = struct.Struct(">II")
_END, _CRYPT, _BITMAPS, _DATA_FILE = 0, 0x0537BE77, 0x23852875, 0x44415441
_CRYPT_FIELDS, _BITMAPS_FIELDS = struct.Struct(">QQ"), struct.Struct(">IIQQ")
_ENTRY = struct.Struct(">QIIBBHI")
_BITMAPS_ARE_CURRENT = 1  # bit of the autoclear features
_MOST_BITMAPS = 65535


@dataclass(frozen=True, slots=True)
class BitmapDirectory:
    """The list of the persistent bitmaps, and its place in bytes."""

    count: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Extensions:
    """What the extensions name; `crypt` is offset and length of the LUKS header in bytes.

    `data_file` is the name of the file that has the data.
    """

    crypt: tuple[int, int] | None = None
    bitmaps: BitmapDirectory | None = None
    data_file: str | None = None


@dataclass(frozen=True, slots=True)
class BitmapTable:
    """The table of one bitmap: its entries are the clusters that hold the bits."""

    offset: int
    entries: int


def parse_extensions(head: bytes, at: int, autoclear: int) -> Extensions:
    """The extensions from byte `at` of an image's first cluster on; unknown ones are left out.

    Bitmaps count only while their autoclear bit is set; a program that does not know it clears it.
    Raises struct.error for an extension that is cut off.
    """
    crypt: tuple[int, int] | None = None
    bitmaps: BitmapDirectory | None = None
    data_file: str | None = None
    while at + _EXTENSION.size <= len(head):
        kind, length = _EXTENSION.unpack_from(head, at)
        at += _EXTENSION.size
        if kind == _END:
            break
        if kind == _CRYPT:
            crypt = _CRYPT_FIELDS.unpack_from(head, at)
        if kind == _BITMAPS and autoclear & _BITMAPS_ARE_CURRENT:
            count, _, size, offset = _BITMAPS_FIELDS.unpack_from(head, at)
            bitmaps = BitmapDirectory(count, offset, size)
        if kind == _DATA_FILE:
            data_file = os.fsdecode(head[at : at + length])
        at += -(-length // 8) * 8
    return Extensions(crypt, bitmaps, data_file)


def bitmap_tables(directory: BitmapDirectory, content: bytes) -> Iterator[BitmapTable]:
    """The table of each bitmap in the directory's content. Raises struct.error if it is cut off."""
    at = 0
    for _ in range(min(directory.count, _MOST_BITMAPS)):
        offset, entries, _, _, _, name, extra = _ENTRY.unpack_from(content, at)
        yield BitmapTable(offset, entries)
        at += -(-(_ENTRY.size + name + extra) // 8) * 8

"""What a program of any architecture loads, read from the file itself: ldd runs its own only.

The format is that of elf(5): 64 bits, little endian, as all architectures have it here.
"""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # p_type
_NEEDED, _STRINGS = 1, 5  # d_tag


def needed_libraries(file: Path) -> list[str]:
    """The names of the libraries that a program or library needs, and the path of its loader.

    Empty for a file that is no program, or one that is linked statically.
    """
    image = file.read_bytes()
    if not image.startswith(_MAGIC):
        return []
    (headers,) = struct.unpack_from("<Q", image, 0x20)
    size, count = struct.unpack_from("<HH", image, 0x36)
    segments = [_segment(image, headers + number * size) for number in range(count)]
    names = [
        image[offset : offset + length].rstrip(b"\0").decode()
        for kind, offset, _, length in segments
        if kind == _INTERPRETER
    ]
    for kind, offset, _, length in segments:
        if kind == _DYNAMIC:
            entries = list(struct.iter_unpack("<qQ", image[offset : offset + length]))
            strings = next((value for tag, value in entries if tag == _STRINGS), 0)
            start = _place(segments, strings)
            names += [_text(image, start + value) for tag, value in entries if tag == _NEEDED]
    return names


def _segment(image: bytes, place: int) -> tuple[int, int, int, int]:
    """Kind, offset in the file, address in memory, and length in the file of a program header."""
    kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", image, place)
    return kind, offset, address, length


def _place(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """The offset in the file of what is loaded at an address."""
    for kind, offset, start, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    return 0


def _text(image: bytes, start: int) -> str:
    return image[start : image.index(b"\0", start)].decode()

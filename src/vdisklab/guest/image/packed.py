"""Unpacks what distributions pack kernels and modules with, which the first bytes tell."""

from __future__ import annotations

import ctypes
import lzma
import mmap
import struct
import zlib

LARGEST = 256 << 20
"""Limit in bytes for what is unpacked: no distribution's kernel is half as large."""

# Blocks of `lz4 -l`, which the kernel's makefile uses, hold 8 MB each (lib/decompress_unlz4.c).
_LZ4_BLOCK = 8 << 20


def unpack(packed: bytes) -> bytes:
    """The content of `packed`: gzip, xz, LZ4 in the kernel's form, or zstd.

    Bytes behind the packed content are ignored. Raises ValueError for damage, another format or
    more than LARGEST bytes, and OSError if this system has no library for LZ4 or zstd.
    """
    if packed.startswith(b"\x1f\x8b"):
        return _gzip(packed)
    if packed.startswith(b"\xfd7zXZ\0"):
        return _xz(packed)
    if packed.startswith(b"\x02\x21\x4c\x18"):
        return _lz4(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(packed)
    raise ValueError("it is packed in no known way")


def _gzip(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        content = unpacker.decompress(packed, LARGEST)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return _whole(content, is_whole=unpacker.eof)


def _xz(packed: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        content = unpacker.decompress(packed, LARGEST)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error
    return _whole(content, is_whole=unpacker.eof)


def _whole(content: bytes, *, is_whole: bool) -> bytes:
    if not is_whole:
        raise ValueError(f"its end is missing, or it holds more than {LARGEST >> 20} MB")
    return content


def _lz4(packed: bytes) -> bytes:
    """The content of blocks, each of which follows its packed length.

    A kernel's unpacked length follows the last block, in four bytes (`size_append` in
    scripts/Makefile.lib).
    """
    library = ctypes.CDLL("liblz4.so.1")
    room = ctypes.create_string_buffer(_LZ4_BLOCK)
    content, place = bytearray(), 4
    while place + 4 < len(packed):
        (length,) = struct.unpack_from("<I", packed, place)
        block = packed[place + 4 : place + 4 + length]
        size = library.LZ4_decompress_safe(block, room, len(block), _LZ4_BLOCK)
        if size < 0 or len(content) + size > LARGEST:
            raise ValueError("LZ4 cannot unpack it")
        content += ctypes.string_at(room, size)
        place += 4 + length
    return _whole(bytes(content), is_whole=place <= len(packed))


def _zstd(packed: bytes) -> bytes:
    """The content of the first frame."""
    library = ctypes.CDLL("libzstd.so.1")
    size = ctypes.c_size_t
    library.ZSTD_findFrameCompressedSize.restype = size
    library.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, size]
    library.ZSTD_decompress.restype = size
    library.ZSTD_decompress.argtypes = [ctypes.c_void_p, size, ctypes.c_char_p, size]
    frame = library.ZSTD_findFrameCompressedSize(packed, len(packed))
    # Frames need not tell their content's size. The memory is used as far as it is written.
    room = mmap.mmap(-1, LARGEST)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    length = library.ZSTD_decompress(place, LARGEST, packed, min(frame, len(packed)))
    if library.ZSTD_isError(size(length)):
        raise ValueError("zstd cannot unpack it")
    return room[:length]

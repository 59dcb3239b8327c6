"""The kernel inside a bzImage, unpacked, so that the guest's processor need not do it.

Under emulation the guest's own decompressor costs a third of a second. The header's fields are
those of Documentation/arch/x86/boot.rst; compressors are told by their magic bytes.
"""

from __future__ import annotations

import bz2
import ctypes
import lzma
import struct
import zlib
from collections.abc import Callable

from vdisklab.errors import HostError

_HEADER_MAGIC = b"HdrS"
# Protocol 2.08 is the first with payload_offset and payload_length.
_PROTOCOL_WITH_PAYLOAD = 0x0208
# Larger than any kernel; a corrupt length must not eat the memory.
_LARGEST = 1 << 30
_LZ4_BLOCK = 8 << 20


def kernel_release(image: bytes) -> str:
    """The release of a bzImage, as `uname -r` says it in the guest.

    Raises HostError when it is no bzImage: a damaged file, or another architecture's kernel.
    """
    if image[0x202:0x206] != _HEADER_MAGIC:
        raise HostError(
            "not an x86 kernel image (bzImage)",
            hint="it must be a bzImage for x86 as distributions ship it: install the "
            "distribution's own kernel package again; another is named with "
            "`guest.kernel` in a plan file",
        )
    (pointer,) = struct.unpack_from("<H", image, 0x20E)
    start = pointer + 0x200
    words = image[start : image.find(b"\0", start)].split()
    if not pointer or not words:
        raise HostError("the kernel image does not say its release")
    return words[0].decode(errors="replace")


def payload(image: bytes) -> bytes:
    """What the bzImage unpacks at boot: an ELF file.

    Raises HostError when there is none, or it is packed in a way we cannot undo here.
    """
    if image[0x202:0x206] != _HEADER_MAGIC:
        raise HostError(
            "not an x86 kernel image (bzImage)",
            hint="it must be a bzImage for x86 as distributions ship it: install the "
            "distribution's own kernel package again; another is named with "
            "`guest.kernel` in a plan file",
        )
    (protocol,) = struct.unpack_from("<H", image, 0x206)
    if protocol < _PROTOCOL_WITH_PAYLOAD:
        raise HostError(
            "the kernel's boot protocol is too old to find its payload",
            hint="take a kernel from Linux 2.6.26 on",
        )
    offset, length = struct.unpack_from("<II", image, 0x248)
    # Zero setup sectors mean four; the boot sector itself comes on top.
    start = ((image[0x1F1] or 4) + 1) * 512 + offset
    packed = image[start : start + length]
    if len(packed) != length:
        raise HostError(
            "the kernel image is cut short",
            hint="install the distribution's own kernel package again; another is named with "
            "`guest.kernel` in a plan file",
        )
    return unpack(packed)


def unpack(packed: bytes) -> bytes:
    """The payload, whatever compressor `scripts/Makefile.lib` used on it.

    All but gzip append the unpacked size (four bytes); gzip has it in its own trailer.
    """
    if packed.startswith(b"\x7fELF"):
        return packed
    for magic, unpacker in _UNPACKERS.items():
        if packed.startswith(magic):
            try:
                return unpacker(packed)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, struct.error) as error:
                raise HostError(f"the kernel's payload cannot be unpacked: {error}") from error
    raise HostError(f"the kernel's payload is packed in an unknown way ({packed[:4].hex()})")


def _size(packed: bytes) -> int:
    (size,) = struct.unpack_from("<I", packed, len(packed) - 4)
    if size > _LARGEST:
        raise HostError(
            f"the kernel's payload claims to be {size} bytes",
            hint="install the distribution's own kernel package again; another is named with "
            "`guest.kernel` in a plan file",
        )
    return int(size)


def _gzip(packed: bytes) -> bytes:
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, _LARGEST)


def _xz(packed: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(packed, _LARGEST)


def _bzip2(packed: bytes) -> bytes:
    return bz2.BZ2Decompressor().decompress(packed, _LARGEST)


def _lz4(packed: bytes) -> bytes:
    """The legacy frame: after the magic, blocks of up to 8 MiB, each behind its packed size."""
    library = _library("liblz4.so.1")
    room = ctypes.create_string_buffer(_LZ4_BLOCK)
    result = bytearray()
    position, end = 4, len(packed) - 4
    while position < end:
        (length,) = struct.unpack_from("<I", packed, position)
        block = packed[position + 4 : position + 4 + length]
        written = library.LZ4_decompress_safe(block, room, len(block), _LZ4_BLOCK)
        if written < 0 or len(block) != length:
            raise HostError("the kernel's payload is damaged (lz4)")
        result += memoryview(room)[:written]
        position += 4 + length
    return bytes(result)


def zstd(packed: bytes, size: int) -> bytes:
    """One zstd frame that unpacks to at most `size` bytes."""
    library = _library("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    room = ctypes.create_string_buffer(size)
    written = library.ZSTD_decompress(room, size, packed, len(packed))
    if library.ZSTD_isError(ctypes.c_size_t(written)):
        raise HostError("the data are damaged (zstd)")
    return room.raw[:written]


def _zstd_payload(packed: bytes) -> bytes:
    return zstd(packed[:-4], _size(packed))


def _library(name: str) -> ctypes.CDLL:
    # Debian's apt and dpkg depend on both libraries, so they are there without any package more.
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise HostError(f"{name} is not installed") from error


_UNPACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": _gzip,
    b"\xfd7zXZ\x00": _xz,
    b"BZh": _bzip2,
    b"\x02\x21\x4c\x18": _lz4,
    b"\x28\xb5\x2f\xfd": _zstd_payload,
}

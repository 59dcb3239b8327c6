"""The part of the kernel's FUSE protocol that serves one file. Pure: bytes in, bytes out.

Structures and numbers are those of linux/fuse.h, protocol 7.38 and older; the kernel takes the
lower of both sides' minor versions (FUSE_INIT).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

REQUEST_BUFFER = (1 << 20) + (1 << 13)
"""Bytes that one read of /dev/fuse must offer: the longest write and its head."""

MAX_WRITE = 1 << 20

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_READ_IN = struct.Struct("<QQI")
_WRITE_IN = struct.Struct("<QQI20x")
_FALLOCATE_IN = struct.Struct("<QQQI4x")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ATTR_OUT = struct.Struct("<QII")
_OPEN_OUT = struct.Struct("<QII")
_STATFS_OUT = struct.Struct("<QQQQQIIII24x")

_MAJOR, _MINOR = 7, 38
_ASYNC_READ, _BIG_WRITES, _ASYNC_DIO, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
_WANTED = _ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES
_OPEN_DIRECT_IO, _OPEN_PARALLEL_DIRECT_WRITES = 1 << 0, 1 << 6
_MAX_BACKGROUND, _CONGESTION = 64, 48
_VALID_SECONDS = 3600
_REGULAR_FILE = 0o100600
_BLOCK = 4096


class Operation(IntEnum):
    """The requests that reach a single file that is mounted on itself."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `unique` is its number, `body` what follows the head, valid until the next."""

    operation: int
    unique: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the file that a request is about."""

    offset: int
    length: int


def parse_request(message: memoryview) -> Request:
    """The request in what was read from /dev/fuse."""
    length, operation, unique, *_ = _IN.unpack_from(message)
    return Request(operation, unique, message[_IN.size : length])


def parse_read(body: memoryview) -> Span:
    """What is to be read."""
    _, offset, length = _READ_IN.unpack_from(body)
    return Span(offset, length)


def parse_write(body: memoryview) -> tuple[int, bytes]:
    """Where to write, and a copy of what: the buffer is used again for the next request."""
    _, offset, length = _WRITE_IN.unpack_from(body)
    return offset, bytes(body[_WRITE_IN.size : _WRITE_IN.size + length])


def parse_fallocate(body: memoryview) -> tuple[Span, int]:
    """The range, and the mode of fallocate(2)."""
    _, offset, length, mode = _FALLOCATE_IN.unpack_from(body)
    return Span(offset, length), mode


def reply_head(unique: int, error: int, length: int) -> bytes:
    """The head of an answer; `error` is an errno or 0, `length` counts what follows."""
    return _OUT.pack(_OUT.size + length, -error, unique)


def init_reply(body: memoryview) -> bytes:
    """Asynchronous direct I/O and long requests, as far as the kernel offers them."""
    _, minor, readahead, flags = _INIT_IN.unpack_from(body)
    return _INIT_OUT.pack(
        _MAJOR, min(minor, _MINOR), readahead, flags & _WANTED,
        _MAX_BACKGROUND, _CONGESTION, MAX_WRITE, 1, MAX_WRITE // _BLOCK, 0, 0,
    )  # fmt: skip


def attributes_reply(size: int) -> bytes:
    """A regular file of `size` bytes, for getattr and setattr."""
    attributes = _ATTRIBUTES.pack(
        1, size, size // 512, 0, 0, 0, 0, 0, 0, _REGULAR_FILE, 1, 0, 0, 0, _BLOCK, 0
    )
    return _ATTR_OUT.pack(_VALID_SECONDS, 0, 0) + attributes


def open_reply() -> bytes:
    """No page cache between the file's users and us, and no lock between parallel writes."""
    return _OPEN_OUT.pack(1, _OPEN_DIRECT_IO | _OPEN_PARALLEL_DIRECT_WRITES, 0)


def write_reply(length: int) -> bytes:
    """All of it was written."""
    return struct.pack("<II", length, 0)


def statfs_reply(size: int) -> bytes:
    """A file system as large as its file."""
    return _STATFS_OUT.pack(size // _BLOCK, 0, 0, 1, 0, _BLOCK, 255, _BLOCK, 0)

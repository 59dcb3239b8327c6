"""The load file: a header in JSON, the columns of a load compressed by xz, and a checksum.

    vdisklab-load/1\\n
    {"source": {...}, "requests": N, "columns": [{"name": ..., "coding": ..., ...}, ...]}\\n
    the columns' planes, one xz stream each, in the header's order
    SHA-256 of all bytes before it, 32 bytes

A column is a list of numbers ≥ 0. Coding `plain` has them as they are, `delta` the difference from
the number before, with its sign in the lowest bit. They are divided by `unit`; plane 0 has the
lowest byte of each, plane 1 the next: xz finds more in bytes of one kind. Ten million requests of
4 to 64 KiB at random places of a 10 GB disk take 58 MB, one of a sequential load a tenth of it.
"""

from __future__ import annotations

import hashlib
import lzma
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vdisklab.errors import LoadError
from vdisklab.loads.load import (
    MOST_REQUESTS,
    NOT_TIMED,
    Integers,
    LoadSource,
    RecordedLoad,
)
from vdisklab.validation import first_problem

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SUFFIX = ".load"
"""What load files are called, by custom."""

LARGEST_FILE = 256 << 20
"""Bytes of a load file that are read."""

MAGIC = b"vdisklab-load/"
_VERSION = b"1"
_LONGEST_HEADER = 64 << 10
_CHECKSUM = 32

_FILTERS: list[Mapping[str, Any]] = [
    # Bytes of one plane are alike at every position, so no bits of the position are wanted.
    {"id": lzma.FILTER_LZMA2, "preset": 4, "lc": 0, "lp": 0, "pb": 0, "dict_size": 1 << 20}
]
_DECODER_MEMORY = 32 << 20
_SAMPLE = 1 << 16
_WORKERS = 2
_MOST_PLANES = 8


class _Coding(StrEnum):
    PLAIN = "plain"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class _PackedColumn:
    name: str
    coding: _Coding
    unit: int
    planes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _FileHeader:
    source: LoadSource
    requests: int
    columns: tuple[_PackedColumn, ...]


def encode(load: RecordedLoad) -> bytes:
    """The load file's content."""
    columns, pieces = [], []
    with ThreadPoolExecutor(_WORKERS) as pool:  # lzma works without Python's lock
        for name, numbers in _numbers(load).items():
            unit = int(np.gcd.reduce(numbers)) or 1 if len(numbers) else 1
            scaled = numbers // unit
            coding = _shorter(scaled)
            planes = list(pool.map(_packed, _planes(_coded(scaled, coding))))
            columns.append(_PackedColumn(name, coding, unit, tuple(map(len, planes))))
            pieces.extend(planes)
    header = _adapter().dump_json(_FileHeader(load.source, len(load), tuple(columns)))
    content = b"".join((MAGIC, _VERSION, b"\n", header, b"\n", *pieces))
    return content + hashlib.sha256(content).digest()


def decode(content: bytes, name: str) -> RecordedLoad:
    """The load in the content of a load file. `name` stands in errors.

    Raises LoadError for anything but a whole, undamaged load file of a version that is known.
    """
    if not content.startswith(MAGIC):
        raise LoadError(
            f"{name} is not a load file", hint="`vdisklab record` makes one, `vdisklab import` too"
        )
    version = content[len(MAGIC) :].partition(b"\n")[0][:8]
    if version != _VERSION:
        raise LoadError(
            f"{name} has the format vdisklab-load/{version.decode('ascii', 'replace')}, and this "
            f"vdisklab reads vdisklab-load/{_VERSION.decode()}",
            hint="install a newer vdisklab",
        )
    if hashlib.sha256(content[:-_CHECKSUM]).digest() != content[-_CHECKSUM:]:
        raise _damaged(name, "its checksum is wrong")
    start = len(MAGIC) + len(_VERSION) + 1
    end = content.find(b"\n", start, start + _LONGEST_HEADER)
    if end < 0:
        raise _damaged(name, "its header does not end")
    header = _header(content[start:end], name)
    return _load(header, memoryview(content)[end + 1 : -_CHECKSUM], name)


def read_load(file: Path) -> RecordedLoad:
    """The load in a file. Raises LoadError."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{file} is not a file", hint="name a load file")
        if status.st_size > LARGEST_FILE:
            raise LoadError(
                f"{file} has {status.st_size:,} bytes, and a load file at most {LARGEST_FILE:,}"
            )
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise LoadError(
            f"{file} cannot be read: {error.strerror or error}", hint="name a load file"
        ) from error
    return decode(content, str(file))


@cache
def _adapter() -> TypeAdapter[_FileHeader]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - takes a tenth of a second

    return TypeAdapter(_FileHeader)


def _header(text: bytes, name: str) -> _FileHeader:
    from pydantic import ValidationError  # noqa: PLC0415 - see _adapter

    try:
        header = _adapter().validate_json(text)
    except ValidationError as error:
        raise _damaged(name, f"in its header {first_problem(error)}") from error
    if not 0 <= header.requests <= MOST_REQUESTS:
        raise LoadError(
            f"{name} has {header.requests:,} requests, and vdisklab reads at most {MOST_REQUESTS:,}"
        )
    return header


def _load(header: _FileHeader, body: memoryview, name: str) -> RecordedLoad:
    if sum(sum(column.planes) for column in header.columns) != len(body):
        raise _damaged(name, "its columns are not as long as its header says")
    if sorted(column.name for column in header.columns) != sorted(_NAMES):
        raise _damaged(name, "it has not the columns of a load")
    numbers, start = {}, 0
    for column in header.columns:
        ends = np.cumsum(column.planes) + start
        parts = [
            body[end - size : end] for end, size in zip(ends, column.planes, strict=True)
        ]  # fmt: skip
        start += sum(column.planes)
        numbers[column.name] = _column(column, parts, header.requests, name)
    try:
        return RecordedLoad(
            header.source,
            due_us=numbers["due_us"],
            kind=(numbers["kind"] & 127).astype(np.uint8),
            forced=numbers["kind"] >> 7 == 1,
            offset=numbers["offset"],
            length=numbers["length"],
            service_us=numbers["service_us"] + NOT_TIMED,
        )
    except LoadError as error:
        raise LoadError(f"{name}: {error.message}", hint=error.hint) from error


def _column(column: _PackedColumn, parts: list[memoryview], count: int, name: str) -> Integers:
    if not 0 < len(parts) <= _MOST_PLANES or not 0 < column.unit < 1 << 62:
        raise _damaged(name, f"its column {column.name[:20]} is odd")
    coded = np.zeros(count, np.uint64)
    for number, part in enumerate(parts):
        plane = np.frombuffer(_unpacked(part, count, name), np.uint8).astype(np.uint64)
        coded |= plane << np.uint64(8 * number)
    values = coded.view(np.int64)
    if column.coding is _Coding.DELTA:
        values = np.cumsum((coded >> np.uint64(1)).view(np.int64) ^ -(values & 1))
    if count and (values.min() < 0 or int(values.max()) * column.unit >= 1 << 62):
        raise _damaged(name, f"its column {column.name} has impossible numbers")
    return values * column.unit


def _numbers(load: RecordedLoad) -> dict[str, Integers]:
    return {
        "due_us": load.due_us,
        "kind": load.kind.astype(np.int64) | load.forced.astype(np.int64) << 7,
        "offset": load.offset,
        "length": load.length,
        "service_us": load.service_us - NOT_TIMED,
    }


_NAMES = ("due_us", "kind", "offset", "length", "service_us")


def _coded(numbers: Integers, coding: _Coding) -> Integers:
    if coding is _Coding.PLAIN:
        return numbers
    change = np.diff(numbers, prepend=0)
    return np.asarray(change << 1 ^ change >> 63, np.int64)


def _shorter(numbers: Integers) -> _Coding:
    sample = numbers[:_SAMPLE]
    return min(
        _Coding, key=lambda coding: sum(map(len, map(_packed, _planes(_coded(sample, coding)))))
    )


def _planes(numbers: Integers) -> list[bytes]:
    largest = int(numbers.max()) if len(numbers) else 0
    count = max(1, (largest.bit_length() + 7) // 8)
    return [((numbers >> 8 * plane) & 255).astype(np.uint8).tobytes() for plane in range(count)]


def _packed(plane: bytes) -> bytes:
    return lzma.compress(plane, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=_FILTERS)


def _unpacked(part: memoryview, count: int, name: str) -> bytes:
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, _DECODER_MEMORY)
        plane = decoder.decompress(part, max_length=count + 1)
        if len(plane) == count and not decoder.eof and not decoder.needs_input:
            plane += decoder.decompress(b"", max_length=1)
    except lzma.LZMAError as error:
        raise _damaged(name, "a column cannot be unpacked") from error
    if len(plane) != count or not decoder.eof or decoder.unused_data:
        raise _damaged(name, "a column is not as long as the header says")
    return plane


def _damaged(name: str, why: str) -> LoadError:
    return LoadError(f"{name} is damaged: {why}", hint="copy or record the load again")

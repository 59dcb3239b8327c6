"""The load file: a header in JSON, the columns of a load compressed by xz, and a checksum.

    vdisklab-load/2\\n
    {"source": {...}, "requests": N, "columns": [{"name": ..., "coding": ..., ...}, ...]}\\n
    the columns' planes in the header's order, each an xz stream, or as it is if that is no longer
    SHA-256 of all bytes before it, 32 bytes

A column is a list of numbers ≥ 0. Coding `plain` has them as they are, `delta` the difference from
the number before, with its sign in the lowest bit; `after`, of beginnings, the difference from the
end of the request before. They are divided by `unit`; plane 0 has the lowest byte of each, plane 1
the next: xz finds more in bytes of one kind. Service times are one more than they are, and 0 if
none was seen.

Ten million requests take at most about 60 MB. Random places on a large disk are numbers that
nothing makes shorter: then the times of a million requests or more are kept to 2, 4 or 8 µs.
"""

from __future__ import annotations

import hashlib
import lzma
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from vdisklab.value import Value, replace

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SUFFIX = ".load"
"""What load files are called, by custom."""

LARGEST_FILE = 256 << 20
"""Bytes of a load file that are read."""

MAGIC = b"vdisklab-load/"
_VERSION = b"2"
_LONGEST_HEADER = 64 << 10
_CHECKSUM = 32

_FILTERS: list[Mapping[str, Any]] = [
    # Bytes of one plane are alike at every position, so no bits of the position are wanted.
    {"id": lzma.FILTER_LZMA2, "preset": 4, "lc": 0, "lp": 0, "pb": 0, "dict_size": 1 << 20}
]
_DECODER_MEMORY = 32 << 20
_SAMPLE = 1 << 16
_SAMPLED_PARTS = 16
_WORKERS = 2
_MOST_PLANES = 8
_HARDLY_SHORTER = 0.995
"""A plane whose sample shrinks by less is not worth the seconds."""

_MANY, _MOST_BYTES_EACH = 1_000_000, 5.95
_COARSEST_US = 8


class _Coding(StrEnum):
    PLAIN = "plain"
    DELTA = "delta"
    AFTER = "after"


class _PackedColumn(Value):
    name: str
    coding: _Coding
    unit: int
    planes: tuple[int, ...]


class _FileHeader(Value):
    source: LoadSource
    requests: int
    columns: tuple[_PackedColumn, ...]


def encode(load: RecordedLoad) -> bytes:
    """The load file's content."""
    load = _as_fine_as_fits(load)
    columns, pieces = [], []
    with ThreadPoolExecutor(_WORKERS) as pool:  # lzma works without Python's lock
        for column, planes in _columns(load):
            packed = list(pool.map(_packed, planes))
            columns.append(replace(column, planes=tuple(map(len, packed))))
            pieces.extend(packed)
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
    if [column.name for column in header.columns] != list(_NAMES):
        raise _damaged(name, "it has not the columns of a load")
    numbers: dict[str, Integers] = {}
    start = 0
    for column in header.columns:
        ends = np.cumsum(column.planes) + start
        parts = [
            body[end - size : end] for end, size in zip(ends, column.planes, strict=True)
        ]  # fmt: skip
        start += sum(column.planes)
        busy = numbers.get("service_us")
        numbers[column.name] = _column(column, parts, header.requests, busy, name)
    try:
        return RecordedLoad(
            header.source,
            due_us=numbers["due_us"],
            kind=(numbers["kind"] & 127).astype(np.uint8),
            forced=numbers["kind"] >> 7 == 1,
            offset=numbers["offset"],
            length=numbers["length"],
            service_us=numbers["service_us"],
        )
    except LoadError as error:
        raise LoadError(f"{name}: {error.message}", hint=error.hint) from error


def _column(
    column: _PackedColumn, parts: list[memoryview], count: int, busy: Integers | None, name: str
) -> Integers:
    """The numbers of a column; `busy` are the service times, once they are read."""
    if not 0 < len(parts) <= _MOST_PLANES or not 0 < column.unit < 1 << 62:
        raise _damaged(name, f"its column {column.name[:20]} is odd")
    coded = np.zeros(count, np.uint64)
    for number, part in enumerate(parts):
        plane = np.frombuffer(_unpacked(part, count, name), np.uint8).astype(np.uint64)
        coded |= plane << np.uint64(8 * number)
    values = coded.view(np.int64)
    if column.coding is not _Coding.PLAIN:
        change = (coded >> np.uint64(1)).view(np.int64) ^ -(values & 1)
        if column.coding is _Coding.AFTER:
            if busy is None:
                raise _damaged(name, f"its column {column.name} has no service times before it")
            change = change + _busy_before(busy, column.unit)
        values = np.cumsum(change)
    if count and (values.min() < 0 or int(values.max()) * column.unit >= 1 << 62):
        raise _damaged(name, f"its column {column.name} has impossible numbers")
    if column.name == "service_us":
        return np.where(values > 0, (values - 1) * column.unit, NOT_TIMED)
    return values * column.unit


_NAMES = ("service_us", "due_us", "kind", "offset", "length")
"""The columns in their order: beginnings need the service times."""


def _columns(load: RecordedLoad) -> Iterator[tuple[_PackedColumn, list[bytes]]]:
    """The columns, and their planes before they are packed."""
    for name in _NAMES:
        if name == "kind":
            numbers = load.kind.astype(np.int64) | load.forced.astype(np.int64) << 7
        else:
            numbers = getattr(load, name)
        unit = int(np.gcd.reduce(np.maximum(numbers, 0), initial=0)) or 1
        scaled = numbers // unit
        if name == "service_us":
            scaled = np.where(load.is_timed, scaled + 1, 0)
        busy = _busy_before(load.service_us, unit)
        codings = (_Coding.PLAIN, _Coding.DELTA, *((_Coding.AFTER,) if name == "due_us" else ()))
        tried = [
            sum(map(len, map(_packed, _planes(_coded(scaled[:_SAMPLE], coding, busy)))))
            for coding in codings
        ]
        coding = codings[tried.index(min(tried))]
        yield _PackedColumn(name, coding, unit, ()), _planes(_coded(scaled, coding, busy))


def _busy_before(service: Integers, unit: int) -> Integers:
    """How long the request before each one took, in units; 0 if it is not known."""
    return np.concatenate(([0], np.maximum(service, 0)[:-1] // unit))[: len(service)]


def _coded(numbers: Integers, coding: _Coding, busy: Integers) -> Integers:
    if coding is _Coding.PLAIN:
        return numbers
    change = np.diff(numbers, prepend=0)
    if coding is _Coding.AFTER:
        change = change - busy[: len(change)]
    return np.asarray(change << 1 ^ change >> 63, np.int64)


def _as_fine_as_fits(load: RecordedLoad) -> RecordedLoad:
    """The load, with times as coarse as it takes to be small enough to send."""
    if len(load) < _MANY:
        return load
    parts = np.linspace(0, len(load), _SAMPLED_PARTS, endpoint=False, dtype=np.int64)
    chosen = (parts[:, None] + np.arange(_SAMPLE // _SAMPLED_PARTS)).ravel()
    sampled = np.zeros(len(load), np.bool_)
    sampled[chosen] = True
    unit = 1
    while unit < _COARSEST_US:
        columns = _columns(load.only(sampled))
        size = sum(len(_packed(plane)) for _, planes in columns for plane in planes)
        if size <= _MOST_BYTES_EACH * len(chosen):
            break
        unit *= 2
        load = load.coarser(unit)
    return load


def _planes(numbers: Integers) -> list[bytes]:
    largest = int(numbers.max()) if len(numbers) else 0
    count = max(1, (largest.bit_length() + 7) // 8)
    return [((numbers >> 8 * plane) & 255).astype(np.uint8).tobytes() for plane in range(count)]


def _packed(plane: bytes) -> bytes:
    sample = plane[:_SAMPLE]
    if len(plane) > 2 * _SAMPLE and len(_compressed(sample)) > _HARDLY_SHORTER * len(sample):
        return plane
    packed = _compressed(plane)
    return packed if len(packed) < len(plane) else plane


def _compressed(plane: bytes) -> bytes:
    return lzma.compress(plane, lzma.FORMAT_XZ, lzma.CHECK_NONE, filters=_FILTERS)


def _unpacked(part: memoryview, count: int, name: str) -> bytes:
    if len(part) == count:
        return bytes(part)
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

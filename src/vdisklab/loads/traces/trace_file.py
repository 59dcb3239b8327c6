"""Reads a trace of another program line by line, with bounds on time and memory.

A new form is one file with a FORM, and one row of FORMS.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import numpy as np

from vdisklab.errors import LoadError
from vdisklab.loads.load import LONGEST_US, LoadSource, RecordedLoad
from vdisklab.loads.requests import PlaceRequests, Requests
from vdisklab.loads.traces import alibaba, blkparse, fio_iolog, msr_cambridge, tencent
from vdisklab.loads.traces.trace_form import LineReader, TraceForm
from vdisklab.units import format_duration, named
from vdisklab.value import Value

FORMS = (blkparse.FORM, fio_iolog.FORM, msr_cambridge.FORM, alibaba.FORM, tencent.FORM)
"""The forms of traces that are read."""

MOST_LINES = 200_000_000
"""A file with more lines is refused; so many take a few minutes."""

LONGEST_LINE = 4096
_HEAD = 64 << 10
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_STRANGE_SHARE = 0.01
_OUT_OF_ORDER_US = 60 * 1_000_000
"""Requests of several CPUs are seen a little out of order; more is another trace."""


class TraceWish(Value):
    """What to take of a trace: one disk, None for its only one; from its first request on so many
    microseconds, None for all."""

    disk: str | None = None
    most_us: int | None = None


def trace_form(file: Path) -> TraceForm | None:
    """The form of a trace file; None if no reader knows its form. Raises OSError."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            return None
    lines = tuple(line.rstrip(b"\r") for line in head.split(b"\n")[:20])
    return next((form for form in FORMS if form.recognises(lines)), None)


def read_trace_file(file: Path, form: TraceForm, wish: TraceWish, name: str) -> RecordedLoad:
    """The load in a trace. Raises LoadError, also for a trace of several disks of which none is
    named, and one with more requests than a load may have."""
    requests = Requests(wish.disk, wish.most_us)
    reader = form.reader(requests)
    read, strange, first = 0, 0, b""
    try:
        with file.open("rb") as stream:
            for line in _lines(stream, str(file)):
                read += 1
                if read > MOST_LINES:
                    raise LoadError(
                        f"{file} has more than {MOST_LINES:,} lines",
                        hint="split it, or take one disk's lines out of it with grep",
                    )
                if not _took(reader, line):
                    strange, first = strange + 1, first or line
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}", hint="name a file") from error
    if not form.wordy and strange > max(1, _STRANGE_SHARE * read):
        raise LoadError(
            f"{strange:,} of {read:,} lines of {file} are none of {form.title}, such as "
            f"{first[:60].decode('ascii', 'backslashreplace')!r}",
            hint="import the trace as its program wrote it",
        )
    disk, place = _only_place(requests, wish, str(file))
    lost = strange if not form.wordy else None
    return _load(place, form, f"{name} {disk}".strip(), lost)


def _took(reader: LineReader, line: bytes) -> bool:
    return not line or reader.line(line)


def _lines(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The lines without their ends; of a file that gzip packed, too. Raises LoadError for a line
    that is longer than any of a trace."""
    rest = b""
    for piece in _pieces(stream, name):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in lines):
            raise LoadError(
                f"{name} has a line of more than {LONGEST_LINE} bytes", hint="name a trace"
            )
        for line in lines:
            yield line.rstrip(b"\r")
    yield rest.rstrip(b"\r")


def _pieces(stream: IO[bytes], name: str) -> Iterator[bytes]:
    first = stream.read(_PIECE)
    packed = first.startswith(_GZIP)
    unpacker = zlib.decompressobj(wbits=31)
    piece = first
    while piece:
        if not packed:
            yield piece
        else:
            try:
                waiting = piece
                while waiting and not unpacker.eof:
                    yield unpacker.decompress(waiting, _PIECE)
                    waiting = unpacker.unconsumed_tail
            except zlib.error as error:
                raise LoadError(f"{name} cannot be unpacked", hint="gunzip it first") from error
            if unpacker.eof:
                return
        piece = stream.read(_PIECE)
    if packed and not unpacker.eof:
        raise LoadError(f"{name} cannot be unpacked: it ends too early", hint="copy it again")


def _only_place(requests: Requests, wish: TraceWish, file: str) -> tuple[str, PlaceRequests]:
    places = requests.places
    if wish.disk is not None and wish.disk not in places:
        names = sorted(requests.others, key=lambda name: -requests.others[name])
        raise LoadError(
            f"{file} has no disk {wish.disk}",
            hint=f"its disks are {named(names, 8)}" if names else "it has no requests at all",
        )
    if not places:
        raise LoadError(f"{file} has no requests", hint="import a whole trace")
    if len(places) > 1:
        names = sorted(places, key=lambda name: -len(places[name]))
        raise LoadError(
            f"{file} has {len(places)} disks, the busiest are {named(names, 8)}",
            hint=f"name one: --disk '{names[0]}'",
        )
    return next(iter(places.items()))


def _load(place: PlaceRequests, form: TraceForm, name: str, lost: int | None) -> RecordedLoad:
    due = np.frombuffer(place.due_us, np.int64)
    back = np.maximum.accumulate(due) - due
    if int(back.max()) > _OUT_OF_ORDER_US:
        first = int(np.argmax(back > _OUT_OF_ORDER_US))
        gap = format_duration(float(back[first]) / 1e6)
        raise LoadError(
            f"times run back by {gap} at request {first + 1:,} of {name}",
            hint="import each of the traces that were joined by itself",
        )
    start, end = int(due.min()), int(due.max())
    if end - start >= LONGEST_US:
        days = round((end - start) / 86_400e6)
        raise LoadError(f"{name} spans {days:,} days, and a load at most 31", hint="give --for 1d")
    notes = [form.note] if form.note else []
    mixed = int((np.diff(due) < 0).sum())
    if mixed:
        notes.append(f"{mixed:,} requests were out of order, and were sorted by time")
    source = LoadSource(
        name=name,
        recorded_by=form.recorded_by,
        span_us=end - start + 1,
        recorded_at=_recorded_at(form, start),
        lost=lost,
        resolution_us=form.resolution_us,
        notes=tuple(notes),
    )
    return place.load(source, start, timed=True)


def _recorded_at(form: TraceForm, start_us: int) -> datetime | None:
    """When the first request was, of forms whose times are dates."""
    if form.epoch_us is None:
        return None
    try:
        return datetime.fromtimestamp((form.epoch_us + start_us) / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""A load: every request that a guest made to one disk: when, what, where, how long; never data."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vdisklab.errors import LoadError
from vdisklab.units import SECTOR
from vdisklab.value import Value, force_setattr, replace

MOST_REQUESTS = 20_000_000
"""A load has at most so many requests: 700 MB in memory, an hour at 5,500 requests a second."""

LONGEST_US = 31 * 86_400 * 1_000_000
"""A load spans at most a month, in microseconds."""

LARGEST_DISK = 1 << 60
"""Bytes; places and lengths above it are damage."""

NOT_TIMED = -1
"""Service time of a request whose end was not seen."""

Integers: TypeAlias = npt.NDArray[np.int64]
Kinds: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]


class IoKind(IntEnum):
    """What a request asks for; the numbers stand in load files."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    WRITE_ZEROES = 4


class RecordedBy(StrEnum):
    """How a load was seen."""

    QEMU_TRACE = "qemu-trace"
    BLKTRACE = "blktrace"
    FIO_IOLOG = "fio-iolog"
    MSR_CAMBRIDGE = "msr-cambridge"
    ALIBABA = "alibaba"
    TENCENT = "tencent"


class LoadSource(Value):
    """Where a load comes from. None is unknown.

    `span_us` is how long was recorded, in microseconds: also the time without requests before the
    first and after the last one. `lost` counts the events that the recorder is known to have
    missed. `resolution_us` is how far apart two times must be to differ. `name` is for people: the
    guest and its disk, or the file that was imported; `notes` say what the recorder could not see.
    """

    name: str
    recorded_by: RecordedBy
    span_us: int
    recorded_at: datetime | None = None
    disk_bytes: int | None = None
    bus: str | None = None
    logical_block: int = SECTOR
    qemu: str | None = None
    lost: int | None = None
    resolution_us: int = 1
    notes: tuple[str, ...] = ()


class RecordedLoad(Value, eq=False):
    """The requests in the order of their beginning, one array a column, all of the same length.

    `due_us`: microseconds from the start of the recording; never decreases. `kind`: a IoKind.
    `forced`: a write that must be on the medium when it ends (FUA). `offset`, `length`: bytes; both
    0 for a flush. `service_us`: from the request's beginning to its end in microseconds, or
    NOT_TIMED. The arrays cannot be written to. Raises LoadError for what no disk can have done.
    """

    source: LoadSource
    due_us: Integers
    kind: Kinds
    forced: Flags
    offset: Integers
    length: Integers
    service_us: Integers
    _checked: bool = False

    def __post_init__(self) -> None:
        for name, kind in _COLUMN_TYPES.items():
            column = np.ascontiguousarray(getattr(self, name), dtype=kind)
            if column.flags.writeable:
                column = column.view()
                column.flags.writeable = False
            force_setattr(self, name, column)
        if not self._checked:
            _require_possible(self)

    def __len__(self) -> int:
        return len(self.due_us)

    @property
    def is_timed(self) -> Flags:
        """True for each request whose end was seen."""
        return np.asarray(self.service_us != NOT_TIMED)

    @property
    def moves_data(self) -> Flags:
        """True for each read and write."""
        return np.asarray(self.kind <= IoKind.WRITE)

    def outstanding(self) -> Integers:
        """How many earlier requests were in flight when each one began.

        Each request lasts at least a microsecond, and those whose end was not seen count for none.
        """
        timed = self.is_timed
        ends = np.sort((self.due_us + np.maximum(self.service_us, 1))[timed])
        begun: Integers = np.cumsum(timed, dtype=np.int64) - timed
        return begun - np.searchsorted(ends, self.due_us, side="right")

    def only(self, chosen: Flags) -> RecordedLoad:
        """The requests for which `chosen` is true, in the same span of time."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _COLUMN_TYPES}
        return replace(self, **columns, _checked=True)

    def coarser(self, unit_us: int) -> RecordedLoad:
        """The same requests with beginnings and ends at multiples of a number of microseconds: what
        had ended before a request began has still ended then."""
        due = self.due_us // unit_us * unit_us
        ends = (self.due_us + self.service_us) // unit_us * unit_us
        source = replace(self.source, resolution_us=max(self.source.resolution_us, unit_us))
        service = np.where(self.is_timed, ends - due, NOT_TIMED)
        return replace(self, source=source, due_us=due, service_us=service)

    def part(self, start_us: int, end_us: int) -> RecordedLoad:
        """The requests that begin from `start_us` on and before `end_us`; times count from there.

        Raises ValueError unless 0 ≤ start < end.
        """
        if not 0 <= start_us < end_us:
            raise ValueError((start_us, end_us))
        first, last = np.searchsorted(self.due_us, (start_us, end_us))
        columns: dict[str, Any] = {
            name: getattr(self, name)[first:last] for name in _COLUMN_TYPES if name != "due_us"
        }
        return replace(
            self,
            source=replace(self.source, span_us=min(end_us, self.source.span_us) - start_us),
            due_us=self.due_us[first:last] - start_us,
            **columns,
            _checked=True,
        )


_COLUMN_TYPES: dict[str, type[np.generic]] = {
    "due_us": np.int64,
    "kind": np.uint8,
    "forced": np.bool_,
    "offset": np.int64,
    "length": np.int64,
    "service_us": np.int64,
}


def _require_possible(load: RecordedLoad) -> None:
    source, count = load.source, len(load.due_us)
    if any(getattr(load, name).shape != (count,) for name in _COLUMN_TYPES):
        raise LoadError("the columns of the load are of different lengths")
    if count > MOST_REQUESTS:
        raise LoadError(
            f"the load has {count:,} requests, and vdisklab reads at most {MOST_REQUESTS:,}",
            hint="record or import a shorter time",
        )
    if not 0 < source.span_us <= LONGEST_US:
        raise LoadError("the load spans no time, or more than 31 days")
    if source.logical_block < SECTOR or source.logical_block & (source.logical_block - 1):
        raise LoadError(f"{source.logical_block} bytes is not a logical block size")
    if not count:
        return
    limit = LARGEST_DISK if source.disk_bytes is None else source.disk_bytes
    end = load.offset + load.length
    problems = {
        "a request begins before the recording": load.due_us < 0,
        "a request begins after the recording": load.due_us > source.span_us,
        "times run backwards": np.diff(load.due_us, prepend=load.due_us[0]) < 0,
        "a request is of an unknown kind": load.kind > max(IoKind),
        "a request has a negative place or length": (load.offset < 0) | (load.length < 0),
        "a request ends beyond the disk": (load.offset > limit)
        | (load.length > limit)
        | (end > limit),
        "a flush has a place or a length": (load.kind == IoKind.FLUSH) & (end != 0),
        "a request moves no bytes": (load.kind != IoKind.FLUSH) & (load.length == 0),
        "a request that is no write is forced": load.forced & (load.kind != IoKind.WRITE),
        "a request takes a negative time": (load.service_us < 0) & load.is_timed,
        "a request takes longer than a month": load.service_us > LONGEST_US,
    }
    for problem, where in problems.items():
        if where.any():
            first = int(np.argmax(where))
            raise LoadError(f"{problem} (request {first + 1:,} of {count:,})")

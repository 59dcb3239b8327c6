"""Collects the requests that a trace tells of, each disk's by itself, as they begin and end."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from vdisklab.errors import LoadError
from vdisklab.loads.load import (
    MOST_REQUESTS,
    NOT_TIMED,
    IoKind,
    LoadSource,
    RecordedLoad,
)

_MOST_OTHERS = 1000
_MOST = 1 << 60
"""Bytes or microseconds."""


@dataclass(slots=True)
class PlaceRequests:
    """The requests of one place, which is a disk under a name of the trace's.

    `untold`: requests whose place or kind the trace does not tell.
    """

    due_us: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("B"))
    forced: array[int] = field(default_factory=lambda: array("B"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))
    service_us: array[int] = field(default_factory=lambda: array("q"))
    untold: int = 0

    def __len__(self) -> int:
        return len(self.due_us)

    def bytes_of(self, kind: IoKind) -> int:
        """The sum of the lengths of one kind."""
        chosen = np.frombuffer(self.kind, np.uint8) == kind
        return int(np.frombuffer(self.length, np.int64)[chosen].sum()) if len(self) else 0

    def count_of(self, kind: IoKind) -> int:
        """The number of requests of one kind."""
        return self.kind.count(kind)

    def load(self, source: LoadSource, start_us: int, *, timed: bool) -> RecordedLoad:
        """The requests that begin within the source's span from `start_us` on, in that order.

        Unless `timed`, no service time is believed. A clock that was set back leaves no time of
        service. Raises LoadError, also for a request that ends beyond the disk.
        """
        due = np.array(self.due_us, np.int64) - start_us
        order = np.argsort(due, kind="stable")
        order = order[(due[order] >= 0) & (due[order] <= source.span_us)]
        service = np.array(self.service_us, np.int64)
        service[service < 0] = NOT_TIMED
        if not timed:
            service[:] = NOT_TIMED
        return RecordedLoad(
            source,
            due_us=due[order],
            kind=np.array(self.kind, np.uint8)[order],
            forced=np.array(self.forced, np.bool_)[order],
            offset=np.array(self.offset, np.int64)[order],
            length=np.array(self.length, np.int64)[order],
            service_us=service[order],
        )


class Requests:
    """All requests of a trace, by place. Raises LoadError beyond the most that a load may have."""

    def __init__(
        self,
        wanted: str | None = None,
        most_us: int | None = None,
        until_us: int | None = None,
    ) -> None:
        """With `wanted` only the requests of that place are kept, and the others counted; with
        `most_us` only those that begin so long after the first. After `until_us` ends are logged
        no more, and so not missed."""
        self._until_us = until_us
        self._wanted = wanted
        self._most_us = most_us
        self._first_us: int | None = None
        self.others: dict[str, int] = {}
        """How many requests of places that are not wanted began; of the first 1,000 places."""
        self.places: dict[str, PlaceRequests] = {}
        self.lost = 0
        """Beginnings without an end that were followed by another beginning of the same number.

        Those before the first end of all do not count: ends may be logged a little later.
        """
        self._open: dict[tuple[str, Hashable], list[int]] = {}
        self._before_ends: set[tuple[str, Hashable]] | None = None
        self._count = 0

    def begin(
        self,
        place: str,
        number: Hashable,
        at_us: int,
        kind: IoKind,
        *,
        offset: int = 0,
        length: int = 0,
        forced: bool = False,
        joins: bool = False,
        service_us: int = NOT_TIMED,
    ) -> None:
        """A request begins; `number` is the trace's for it, None for one whose end is not told.

        `joins`: it is one more part of the request that has the number. `service_us` is known at
        once in a trace that has one line for each request.
        """
        if self._wanted is not None and place != self._wanted:
            if place in self.others or len(self.others) < _MOST_OTHERS:
                self.others[place] = self.others.get(place, 0) + 1
            return
        if self._first_us is None:
            self._first_us = at_us
        if self._most_us is not None and at_us - self._first_us > self._most_us:
            return
        self._count += 1
        if self._count > MOST_REQUESTS:
            raise LoadError(
                f"there are more than {MOST_REQUESTS:,} requests",
                hint="take a shorter time with --for, or one disk with --disk",
            )
        if max(offset, length, at_us, service_us) > _MOST:
            raise LoadError(
                f"a request of {place} lies beyond any disk, or at a time beyond any clock",
                hint="the file is damaged, or is no trace of a disk",
            )
        requests = self._place(place)
        requests.due_us.append(at_us)
        requests.kind.append(kind)
        requests.forced.append(forced)
        requests.offset.append(offset)
        requests.length.append(length)
        requests.service_us.append(service_us)
        if number is not None:
            opened = self._open.get((place, number))
            if opened is not None and joins:
                opened.append(len(requests) - 1)
            else:
                self.lost += opened is not None and self._was_sure((place, number), at_us)
                self._open[place, number] = [len(requests) - 1]

    def _was_sure(self, key: tuple[str, Hashable], at_us: int) -> bool:
        """True if the end of a request would have been logged before this time."""
        seen = self._before_ends
        if seen is None or (self._until_us is not None and at_us > self._until_us):
            return False
        sure = key not in seen
        seen.discard(key)
        return sure

    def end(self, place: str, number: Hashable, at_us: int) -> bool:
        """The request with that number ends; False if none had begun."""
        if self._before_ends is None:
            self._before_ends = set(self._open)
        self._before_ends.discard((place, number))
        opened = self._open.pop((place, number), None)
        if opened is None or at_us > _MOST:
            return False
        requests = self.places[place]
        for index in opened:
            requests.service_us[index] = at_us - requests.due_us[index]
        return True

    def tell_not(self, place: str) -> None:
        """A request of which the trace tells neither kind nor place."""
        self._place(place).untold += 1

    def rename(self, names: Mapping[str, str]) -> None:
        """Gives places other names; the requests of two places with one name are joined."""
        for place in [place for place in self.places if place in names]:
            moved = self.places.pop(place)
            kept = self._place(names[place])
            for column in ("due_us", "kind", "forced", "offset", "length", "service_us"):
                getattr(kept, column).extend(getattr(moved, column))
            kept.untold += moved.untold

    def _place(self, place: str) -> PlaceRequests:
        found = self.places.get(place)
        if found is None:
            found = self.places[place] = PlaceRequests()
        return found

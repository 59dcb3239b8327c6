"""A run that was measured is not lost because the database is busy for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.results.values import a_campaign, a_run
from vdisklab.actions.measure import _changes, store_with_retry
from vdisklab.errors import DatabaseBusyError, DatabaseError
from vdisklab.progress import Event, Note
from vdisklab.results.model import Run
from vdisklab.results.store import Store

RUN = a_run(a_campaign())


def test_a_version_that_a_busy_machine_did_not_say_is_no_change() -> None:
    host = a_campaign().host
    assert _changes(host, replace(host, fio=None)) == []
    assert _changes(replace(host, fio=None), host) == []
    assert _changes(host, replace(host, fio="fio-9")) == ["fio was fio-3.33 and is now fio-9"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


class BusyStore(Store):
    """Refuses so many times, then takes the run."""

    def __init__(self, refusals: int, error: DatabaseError) -> None:
        self.left, self.error = refusals, error
        self.stored: list[Run] = []

    def add_run(self, run: Run, /) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.stored.append(run)


BUSY = DatabaseBusyError("the database x is locked by another program", hint="wait")


def test_a_lock_that_passes_costs_nothing_and_is_told_once() -> None:
    store, said = BusyStore(3, BUSY), list[Event]()
    store_with_retry(store, RUN, said.append, Clock())
    assert store.stored == [RUN]
    (note,) = said
    assert isinstance(note, Note)
    assert "x is locked by another program; retrying for 15 min 00 s: wait" in note.text


def test_a_lock_that_stays_ends_it_within_its_time() -> None:
    clock = Clock()
    with pytest.raises(DatabaseBusyError):
        store_with_retry(BusyStore(10**6, BUSY), RUN, lambda _event: None, clock)
    assert 900 <= clock.now < 1000


def test_what_will_not_pass_is_told_at_once() -> None:
    clock = Clock()
    with pytest.raises(DatabaseError, match="damaged"):
        store_with_retry(BusyStore(1, DatabaseError("damaged")), RUN, lambda _event: None, clock)
    assert clock.now == 0

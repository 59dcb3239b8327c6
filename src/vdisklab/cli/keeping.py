"""Storing what was measured, also when the database cannot take it at once."""

from __future__ import annotations

from typing import Protocol

from vdisklab.errors import DatabaseBusyError
from vdisklab.host.deadline import Clock, SystemClock
from vdisklab.progress import Note, Progress
from vdisklab.results.model import Run
from vdisklab.units import format_duration

_PATIENCE_SECONDS = 900.0
_PAUSE_SECONDS = 2.0


class Keeper(Protocol):
    """What is needed of `result.store.Store`."""

    def add_run(self, run: Run, /) -> None:
        """Stores a run or raises DatabaseError."""


def keep_run(store: Keeper, run: Run, progress: Progress, clock: Clock | None = None) -> None:
    """Stores a run. A database that is locked, full or out of reach is tried again for a quarter
    of an hour: what was measured is worth the wait. Then raises the last DatabaseBusyError.
    """
    clock = clock or SystemClock()
    end = clock.monotonic() + _PATIENCE_SECONDS
    told = False
    while True:
        try:
            return store.add_run(run)
        except DatabaseBusyError as error:
            if clock.monotonic() >= end:
                raise
            if not told:
                wait = format_duration(_PATIENCE_SECONDS)
                progress(Note(f"{error}; trying again for {wait}: {error.hint}"))
            told = True
        clock.sleep(_PAUSE_SECONDS)

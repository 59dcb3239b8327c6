"""How long each measurement of campaigns took, with how much memory for its pages, and beside which
operation: what half a second shows with all of the host's memory, a minute with a quarter of the
disk's size may not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.results.model import Campaign

Measured = tuple[str, Mapping[str, Any]]
"""A program that measured, with its settings."""


def operation_of(cell: MeasuredCell) -> str | None:
    """What was done to the disk while the cell was measured, as a user writes it; None if nothing
    was."""
    return None if cell.path is None else cell.path.attachment.during


def measured_operations(campaign: Campaign) -> bool:
    """True for a campaign with cells that name an operation."""
    return any(operation_of(cell) is not None for cell in campaign.cells)


def cache_memory_of(campaigns: Sequence[Campaign]) -> str | None:
    """`25% of the disk's size` or `64M`: the memory that pages of each campaign's disks had, as
    `--cache-memory` was given; None if the campaigns differ, or had all of the host's."""
    given = {campaign.plan.get("cache_memory") for campaign in campaigns}
    (memory,) = given if len(given) == 1 else (None,)
    if not isinstance(memory, str):
        return None
    return f"{memory} of the disk's size" if memory.endswith("%") else memory


def seconds_of_measurements(campaigns: Sequence[Campaign]) -> float | None:
    """The seconds for which each measurement of these campaigns ran.

    None if the campaigns differ, or for other programs than fio, job files and operations, which
    end when they are done.
    """
    return _seconds(campaigns, None)


def runtime_of(campaigns: Sequence[Campaign], name: str) -> float | None:
    """The seconds for which the measurement of this name ran; of a score, all measurements."""
    return _seconds(campaigns, None if name == "score" else name)


def _seconds(campaigns: Sequence[Campaign], name: str | None) -> float | None:
    plans = [campaign.plan for campaign in campaigns]
    measured = [
        each
        for plan in plans
        for each in plan.get("measurements") or ()
        if name is None or each.get("name") == name
    ]
    by_runtime = all(
        each.get("program") == "fio" and "job" not in (each.get("settings") or {})
        for each in measured
    )
    if not (measured and by_runtime) or any(map(measured_operations, campaigns)):
        return None
    seconds = {plan.get("runtime") for plan in plans}
    (runtime,) = seconds if len(seconds) == 1 else (None,)
    return runtime if isinstance(runtime, int | float) else None


_DATABASES = ("postgresql", "mariadb", "rocksdb", "sqlite")
"""Programs whose commits wait until they are durable."""

_SYNCS_IN_JOB = re.compile(r"^\s*(?:fdatasync|fsync|sync)\s*=\s*(?!0\s*$|none\b)", re.MULTILINE)
"""fio's options by which a write waits until it is durable (fio(1): fsync, fdatasync, sync)."""


def waits_for_flushes(measurements: Iterable[Measured]) -> bool:
    """True if one of these programs is a database, or if at least half of them wait until their
    writes are durable, as a database's commit does."""
    measured = list(measurements)
    waiting = sum(
        any(settings.get(name) for name in ("fsync", "fdatasync"))
        or settings.get("sync") not in (None, "none", False, 0)
        or bool(_SYNCS_IN_JOB.search(str(settings.get("job", ""))))
        for _, settings in measured
    )
    is_database = any(program in _DATABASES for program, _ in measured)
    return is_database or 0 < len(measured) <= 2 * waiting


def committing_client(measurements: Iterable[Measured]) -> ClientKind | None:
    """The client of `powercut` whose transactions are those of the first measured database; None
    for measurements without one, and for databases that no client is of."""
    for program, settings in measurements:
        if program == "postgresql":
            return ClientKind.POSTGRESQL
        if program == "sqlite":
            is_wal = settings.get("journal") == "wal"
            return ClientKind.SQLITE_WAL if is_wal else ClientKind.SQLITE_DELETE
    return None


def stored_measurements(campaign: Campaign) -> list[Measured]:
    """The programs of a campaign with their settings; empty if its plan does not say them."""
    rows = campaign.plan.get("measurements") or ()
    return [(str(row.get("program")), row.get("settings") or {}) for row in rows]

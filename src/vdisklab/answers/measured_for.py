"""How long each measurement of campaigns took, with how much memory for its pages, and beside which
operation: what half a second shows with all of the host's memory, a minute with a quarter of the
disk's size may not."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Campaign


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

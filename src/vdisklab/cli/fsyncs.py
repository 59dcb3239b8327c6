"""What sysbench was told of fsync, beside its numbers: it decides what a write costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vdisklab.workload.registry import SYSBENCH
from vdisklab.workload.sysbench import SysbenchSettings, fsync_options

Planned = Sequence[Mapping[str, Any]]
"""The measurements of a campaign's plan, as it is stored."""


def of_sysbench(names: Sequence[str], planned: Planned) -> tuple[str, ...]:
    """Those of some measurements that sysbench made, by the plan or by an import's name."""
    programs = {each.get("name"): each.get("program") for each in planned}
    return tuple(
        name for name in names if (programs.get(name) or name.partition("-")[0]) == SYSBENCH
    )


def fsync_notes(names: Sequence[str], planned: Planned, *, imported: bool) -> tuple[str, ...]:
    """A sentence for each way in which sysbench synced; `imported` when some runs are another's,
    of which it is not known."""
    mine = of_sysbench(names, planned)
    told: dict[str, list[str]] = {}
    for each in planned:
        if each.get("name") in mine and each.get("program") == SYSBENCH:
            told.setdefault(_options(each), []).append(str(each.get("name")))
    notes = [
        f"sysbench's fsyncs decide what a write costs: {options}"
        + (f" ({', '.join(its)})" if len(told) > 1 else "")
        for options, its in told.items()
    ]
    if mine and imported:
        notes.append("sysbench's fsyncs are not known of what was imported")
    return tuple(notes)


def _options(planned: Mapping[str, Any]) -> str:
    return " ".join(fsync_options(SysbenchSettings.model_validate(planned.get("settings", {}))))

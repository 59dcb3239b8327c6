"""The programs that a measurement can name, and the built-in profiles."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources

from vdisklab.errors import PlanError
from vdisklab.plan.profile import BOOT, DISCARD, MeasurementPlan
from vdisklab.results.model import Direction
from vdisklab.workload import (
    bonnie,
    dd,
    discard,
    diskspd,
    fio,
    mariadb,
    postgresql,
    program,
    rocksdb,
    sqlite,
    sysbench,
)
from vdisklab.workload.systems import PROGRAM as INSTALL
from vdisklab.workload.systems import Boot, Install

BONNIE = "bonnie++"
SYSBENCH = "sysbench"

WORKLOADS: Mapping[str, program.Workload] = {
    "fio": fio.Fio(),
    "dd": dd.Dd(),
    SYSBENCH: sysbench.Sysbench(),
    BONNIE: bonnie.Bonnie(),
    "sqlite": sqlite.Sqlite(),
    "postgresql": postgresql.Postgresql(),
    "mariadb": mariadb.Mariadb(),
    "rocksdb": rocksdb.Rocksdb(),
    DISCARD: discard.Discard(),
    INSTALL: Install(),
    BOOT: Boot(),
}


MICRO_GUEST_ONLY = frozenset({BOOT, INSTALL})
"""Programs that need the system of the micro guest, or programs in it."""


def workload_for(plan: MeasurementPlan, *, in_windows: bool = False) -> program.Workload:
    """The program of a measurement; DISKSPD for fio in a Windows guest.

    Raises PlanError for an unknown program, and for one that does not run on Windows.
    """
    if plan.program not in WORKLOADS:
        raise PlanError(
            f"measurement {plan.name!r} names the unknown program {plan.program!r}",
            hint=f"programs: {', '.join(WORKLOADS)}",
        )
    if not in_windows:
        return WORKLOADS[plan.program]
    if plan.program != "fio":
        raise PlanError(
            f"measurement {plan.name!r} needs {plan.program}, which does not run on Windows",
            hint="choose a profile of fio measurements, such as quick or crystaldiskmark, or leave "
            "out --diskspd for a Linux guest",
        )
    return diskspd.Diskspd()


def builtin_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with vdisklab, sorted."""
    folder = resources.files("vdisklab.workload") / "profiles"
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in folder.iterdir()
            if entry.name.endswith(".toml")
        )
    )


def builtin_profile_text(name: str) -> str:
    """The TOML text of a profile. Raises PlanError naming the nearest one."""
    known = builtin_profiles()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        suggestion = f"did you mean {close[0]}? " if close else ""
        raise PlanError(
            f"there is no profile {name!r}", hint=f"{suggestion}profiles: {', '.join(known)}"
        )
    return (resources.files("vdisklab.workload") / "profiles" / f"{name}.toml").read_text()


_ONE_WAY = {
    "read": Direction.READ,
    "randread": Direction.READ,
    "write": Direction.WRITE,
    "randwrite": Direction.WRITE,
}


def directions_of(measurement: MeasurementPlan) -> tuple[Direction, ...] | None:
    """The directions that a measurement reports; None if its settings do not tell."""
    match measurement.program:
        case "fio":
            value = measurement.settings.get("rw")
        case "dd":
            value = measurement.settings.get("direction", "write")
        case _:
            return None
    direction = _ONE_WAY.get(value) if isinstance(value, str) else None
    return None if direction is None else (direction,)

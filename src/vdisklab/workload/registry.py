"""Which program a measurement names, and the profiles that come with vdisklab: one line each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.workload.base import Workload
from vdisklab.workload.bonnie import Bonnie
from vdisklab.workload.dd import Dd
from vdisklab.workload.fio import Fio
from vdisklab.workload.sqlite import Sqlite
from vdisklab.workload.sysbench import Sysbench

WORKLOADS: Mapping[str, Workload] = {
    "fio": Fio(),
    "dd": Dd(),
    "sysbench": Sysbench(),
    "bonnie++": Bonnie(),
    "sqlite": Sqlite(),
}


def workload_for(plan: MeasurementPlan) -> Workload:
    """The program of a measurement. Raises PlanError for an unknown one."""
    if plan.program not in WORKLOADS:
        raise PlanError(
            f"measurement {plan.name!r} names the unknown program {plan.program!r}",
            hint=f"programs: {', '.join(WORKLOADS)}",
        )
    return WORKLOADS[plan.program]


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
        ask = f"did you mean {close[0]}? " if close else ""
        raise PlanError(f"there is no profile {name!r}", hint=f"{ask}profiles: {', '.join(known)}")
    return (resources.files("vdisklab.workload") / "profiles" / f"{name}.toml").read_text()

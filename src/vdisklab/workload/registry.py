"""The programs that a measurement can name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from vdisklab.errors import PlanError
from vdisklab.plan.profile import BOOT, DISCARD, LIFE, REPLAY, MeasurementPlan
from vdisklab.results.model import Direction
from vdisklab.workload import fio, program
from vdisklab.workload.grouped import BesideWorkload, GroupWorkload
from vdisklab.workload.systems import PROGRAM as INSTALL

BONNIE = "bonnie++"
SYSBENCH = "sysbench"

_DISKSPD = ("diskspd", "Diskspd")

_CLASSES: Mapping[str, tuple[str, str]] = {
    "fio": ("fio", "Fio"),
    "dd": ("dd", "Dd"),
    SYSBENCH: ("sysbench", "Sysbench"),
    BONNIE: ("bonnie", "Bonnie"),
    "sqlite": ("sqlite", "Sqlite"),
    "postgresql": ("postgresql", "Postgresql"),
    "mariadb": ("mariadb", "Mariadb"),
    "rocksdb": ("rocksdb", "Rocksdb"),
    DISCARD: ("discard", "Discard"),
    REPLAY: ("replay", "Replay"),
    INSTALL: ("systems", "Install"),
    BOOT: ("systems", "Boot"),
    LIFE: ("life", "Life"),
}
"""By a program's name, its module and its class."""


class _Workloads(Mapping[str, program.Workload]):
    """The programs by their names. Each is imported when it is asked for: most campaigns need fio
    alone."""

    def __getitem__(self, name: str) -> program.Workload:
        return _imported(*_CLASSES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


@cache
def _imported(module: str, name: str) -> program.Workload:
    workload: program.Workload = getattr(import_module(f"vdisklab.workload.{module}"), name)()
    return workload


WORKLOADS: Mapping[str, program.Workload] = _Workloads()


MICRO_GUEST_ONLY = frozenset({BOOT, INSTALL})
"""Programs that need the system of the micro guest, or programs in it."""


_ONE_WAY = {
    "read": Direction.READ,
    "randread": Direction.READ,
    "write": Direction.WRITE,
    "randwrite": Direction.WRITE,
}


def workload_for(plan: MeasurementPlan, *, in_windows: bool = False) -> program.Workload:
    """The program of a measurement; DISKSPD for fio in a Windows guest.

    Raises PlanError for an unknown program, and for one that does not run on Windows.
    """
    if plan.program not in _CLASSES:
        raise PlanError(
            f"measurement {plan.name!r} names the unknown program {plan.program!r}",
            hint=f"programs: {', '.join(_CLASSES)}",
        )
    if not in_windows:
        return WORKLOADS[plan.program]
    if plan.program != "fio":
        raise PlanError(
            f"measurement {plan.name!r} needs {plan.program}, which does not run on Windows",
            hint="choose a profile of fio measurements, such as quick or crystaldiskmark, or leave "
            "out --diskspd for a Linux guest",
        )
    return _imported(*_DISKSPD)


def grouped_workload_for(plan: MeasurementPlan) -> GroupWorkload:
    """The program of a measurement that several guests run at once.

    Raises PlanError for a program that does not log its requests.
    """
    workload = workload_for(plan)
    if isinstance(workload, fio.Fio):
        return workload
    if plan.program == REPLAY:
        from vdisklab.workload.replay import Replay  # noqa: PLC0415 - few campaigns replay a load

        return Replay()
    raise PlanError(
        f"measurement {plan.name!r} does not log its requests, so guests cannot run it at once",
        hint="choose a profile of fio measurements or a recorded load, or leave out --guests",
    )


def beside_workload_for(plan: MeasurementPlan) -> BesideWorkload:
    """The program of a measurement that runs on beside an operation.

    Raises PlanError for a program whose requests have no moments at which they are due.
    """
    workload = workload_for(plan)
    if plan.program == REPLAY:
        from vdisklab.workload.replay import TIMED, Replay  # noqa: PLC0415 - as above

        if plan.settings.get("mode") == TIMED:
            return Replay()
    if isinstance(workload, fio.Fio) and "job" not in plan.settings:
        return workload
    raise PlanError(
        f"--during measures beside random requests of fio or a recorded load, and measurement "
        f"{plan.name!r} is neither",
        hint="leave out --profile: the load is then a third of what the path carries",
    )


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

"""What `vdisklab powercut` is asked for, as questions; what cannot be is refused or named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vdisklab.errors import PlanError
from vdisklab.path.needs import Need
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.matrix import Matrix, expand_matrix, narrow_to_needs
from vdisklab.powercut.campaign import AccessKind, Question, Settings
from vdisklab.powercut.clients.bootsector import BUSES
from vdisklab.powercut.clients.driver import DriverSetting
from vdisklab.powercut.cutting.cuts import Wanted
from vdisklab.powercut.recording.stack import require_judgeable
from vdisklab.powercut.recording.trace import ClientKind

EXHAUSTIVE_CHANGES = 16
DEFAULT_STATES = 1000


def make_questions(
    paths: list[str] | None,
    clients: list[ClientKind] | None,
    access: AccessKind,
    drivers: list[DriverSetting] | None,
    settings: Settings,
    needs: Sequence[Need] = (),
) -> tuple[tuple[Question, ...], tuple[Dropped, ...]]:
    """Each path with each client and each setting of a driver, and what is left out and why.

    `needs` go by rules, not by stored power cuts: the verdicts are the question. Raises PlanError
    when nothing is left, or when the options contradict each other.
    """
    matrix = _matrix(paths, needs)
    kinds, settable = _clients(clients, access), _drivers(drivers, access)
    dropped = list(matrix.dropped)
    questions = []
    for path in dict.fromkeys(cell.path for cell in matrix.cells):
        bus = path.attachment.bus
        if access is AccessKind.BOOT_SECTOR and bus not in BUSES:
            reason = f"a boot sector is tried on {' and '.join(BUSES)}, not on {bus}"
            dropped.append(Dropped(path.canonical, reason, "write one of them as the bus"))
            continue
        for driver in settable:
            if bus not in driver.buses:
                reason = f"a guest's {bus} disk has no setting `{driver}`"
                dropped.append(Dropped(path.canonical, reason, "choose another --driver"))
                continue
            asked = replace(settings, driver=driver)
            questions += [Question(path, kind, asked, access) for kind in kinds]
    if not questions:
        raise PlanError(f"{dropped[0].path}: {dropped[0].reason}", hint=dropped[0].instead)
    return tuple(questions), tuple(dropped)


def make_wanted(states: int | None, tear: int, seed: int, *, exhaustive: bool) -> Wanted:
    """How many states are judged of each run. Raises PlanError."""
    if states is not None and exhaustive:
        raise PlanError("--states and --exhaustive exclude each other", hint="give one of them")
    if tear % 512 or tear < 0:
        raise PlanError(f"--tear {tear} is no multiple of 512", hint="write 4096, 512 or 0")
    if exhaustive:
        return Wanted(None, EXHAUSTIVE_CHANGES, tear, seed)
    return Wanted(states or DEFAULT_STATES, tear=tear, seed=seed)


def _matrix(asked: list[str] | None, needs: Sequence[Need]) -> Matrix:
    if not asked:
        raise PlanError("no path is named", hint="vdisklab powercut ext4/{raw,qcow2}/none")
    matrix = narrow_to_needs(expand_matrix(tuple(asked)), needs, {})
    for cell in matrix.cells:
        require_judgeable(cell.path)
    return matrix


def _clients(asked: list[ClientKind] | None, access: AccessKind) -> Sequence[ClientKind]:
    if access is AccessKind.BOOT_SECTOR:
        if asked and asked != [ClientKind.NEVER]:
            raise PlanError("a boot sector never flushes", hint="ask with --client never")
        return [ClientKind.NEVER]
    databases = [kind for kind in asked or () if kind.is_database]
    if databases and access is not AccessKind.GUEST:
        raise PlanError(
            f"the client {databases[0]} needs a guest to run in", hint="ask with --access guest"
        )
    return asked or [kind for kind in ClientKind if not kind.is_database]


def _drivers(asked: list[DriverSetting] | None, access: AccessKind) -> Sequence[DriverSetting]:
    drivers = asked or [DriverSetting.AS_FOUND]
    if access is not AccessKind.GUEST and drivers != [DriverSetting.AS_FOUND]:
        raise PlanError(
            f"--driver {drivers[0]} is a setting of a guest, and there is none",
            hint="ask with --access guest",
        )
    return drivers

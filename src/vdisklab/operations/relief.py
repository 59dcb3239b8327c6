"""What makes an operation bearable for a guest: lines to paste, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vdisklab.units import MIB

if TYPE_CHECKING:
    from vdisklab.operations.operation import DiskOperation
    from vdisklab.path.disk_path import DiskPath

LIBVIRT, PROXMOX, QEMU = "libvirt", "Proxmox VE", "QEMU"
EVERYWHERE = f"{LIBVIRT}, {PROXMOX} and {QEMU}"

_SPEED = 50 * MIB
"""Bytes a second, a limit to begin with: half of a gigabit network."""


@dataclass(frozen=True, slots=True)
class Relief:
    """One way, on one platform or several: `line` to paste, or else `reason` why there is none."""

    platform: str
    line: str = ""
    reason: str = ""


ReliefOf = Callable[["DiskOperation", "DiskPath"], Iterable[Relief]]
"""(the operation as it was measured, its path) -> ways that it has not taken yet."""


def none(reason: str, platform: str = EVERYWHERE) -> ReliefOf:
    """For an operation that nothing makes milder."""
    return lambda _order, _path: (Relief(platform, reason=reason),)


def no_setting(_order: DiskOperation, _path: DiskPath) -> Iterable[Relief]:
    """For an operation whose row says nothing else."""
    return (Relief(EVERYWHERE, reason="it is done in one step, which has no setting"),)


def limit_for(order: DiskOperation) -> int:
    """A limit in bytes a second: half of the operation's own, if it had one."""
    speed = order.option("speed") if "speed" in order.kind.options else None
    return _SPEED if speed is None else max(1, int(speed) // 2)


def in_mib(order: DiskOperation) -> int:
    """The limit in MiB a second, as virsh takes it."""
    return max(1, limit_for(order) // MIB)


def in_kib(order: DiskOperation) -> int:
    """The limit in KiB a second, as Proxmox VE takes it."""
    return max(1, limit_for(order) // 1024)


def qmp(command: str, arguments: dict[str, Any]) -> str:
    """A command of QEMU's monitor; words in capitals stand for names of the user's."""
    return json.dumps({"execute": command, "arguments": arguments})


def job_speed(order: DiskOperation) -> Relief:
    """A limit of a job of QEMU's, while it runs."""
    line = qmp("block-job-set-speed", {"device": "JOB", "speed": limit_for(order)})
    return Relief(f"{QEMU}, while it runs", line)

"""What makes an operation bearable for a guest: lines to paste, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from vdisklab.units import MIB
from vdisklab.value import Value

if TYPE_CHECKING:
    from vdisklab.operations.operation import DiskOperation
    from vdisklab.path.disk_path import DiskPath

LIBVIRT, PROXMOX, QEMU = "libvirt", "Proxmox VE", "QEMU"
EVERYWHERE = f"{LIBVIRT}, {PROXMOX} and {QEMU}"

_SPEED = 50 * MIB
"""Bytes a second, for an operation of which no rate is known: half of a gigabit network."""


class Relief(Value):
    """One way, on one platform or several: `line` to paste, or else `reason` why there is none.

    `basis` says where the limit in the line comes from.
    """

    platform: str
    line: str = ""
    reason: str = ""
    basis: str = ""


class Felt(Value):
    """An operation that a guest felt, on a path; `rate` is that of its copying in bytes a second,
    if it copied anything."""

    order: DiskOperation
    path: DiskPath
    rate: float | None = None

    @property
    def limit(self) -> int:
        """A limit in bytes a second: half of what it copied or of its own limit, in whole MiB if it
        can be."""
        rates = [value for value in (self.rate, self._speed) if value is not None]
        limit = int(min(rates) / 2) if rates else _SPEED
        return limit // MIB * MIB or max(1024, limit // 1024 * 1024)

    @property
    def basis(self) -> str:
        """Where the limit comes from."""
        if self._speed is not None and self._speed <= (self.rate or self._speed):
            return "at half of its speed="
        if self.rate is None:
            return f"at {_SPEED // MIB} MiB/s, as its own speed is not known"
        return f"at half of the {self.rate / MIB:.3g} MiB/s that it copied"

    @property
    def _speed(self) -> float | None:
        """The operation's own limit in bytes a second."""
        speed = self.order.option("speed") if "speed" in self.order.kind.options else None
        return None if speed is None else float(speed)

    def limited(self, platform: str, line: str) -> Relief:
        """A line that has the limit."""
        return Relief(platform, line, basis=self.basis)

    @property
    def limit_mib(self) -> int:
        """The limit in MiB a second, as virsh takes it."""
        return max(1, self.limit // MIB)

    @property
    def limit_kib(self) -> int:
        """The limit in KiB a second, as Proxmox VE takes it."""
        return self.limit // 1024


ReliefOf = Callable[[Felt], Iterable[Relief]]
"""The ways that an operation has not taken yet."""


def none(reason: str, platform: str = EVERYWHERE) -> ReliefOf:
    """For an operation that nothing makes milder."""
    return lambda _felt: (Relief(platform, reason=reason),)


def no_setting(_felt: Felt) -> Iterable[Relief]:
    """For an operation whose row says nothing else."""
    return (Relief(EVERYWHERE, reason="it is done in one step, which has no setting"),)


def qmp(command: str, arguments: dict[str, Any]) -> str:
    """A command of QEMU's monitor; words in capitals stand for names of the user's."""
    return json.dumps({"execute": command, "arguments": arguments})


def job_speed(felt: Felt) -> Relief:
    """A limit of a job of QEMU's, while it runs."""
    line = qmp("block-job-set-speed", {"device": "JOB", "speed": felt.limit})
    return felt.limited(f"{QEMU}, while it runs", line)

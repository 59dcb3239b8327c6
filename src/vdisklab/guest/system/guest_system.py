"""The interface to a guest's operating system, and its implementation for the micro guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from vdisklab.errors import GuestError
from vdisklab.guest.agent import Agent
from vdisklab.host.waiting import patience
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import SystemBus
from vdisklab.results.model import Check

FIND_DISK = "/usr/lib/vdisklab/find-disk"
STDERR_LOG = "/usr/lib/vdisklab/stderr"
LOAD_DRIVERS = "/usr/lib/vdisklab/load-drivers"

FIND_SECONDS = 30
_DRIVER_SECONDS = 60


class Family(StrEnum):
    """Operating systems that differ in the programs that exist for them."""

    LINUX = "linux"
    WINDOWS = "windows"


def expected_device(family: Family, bus: Bus, system: SystemBus) -> str:
    """The name of the first measured disk in a guest, which the guest itself decides.

    `system` is the bus of the disk that the guest boots from. A run reads the name from the guest.
    """
    if family is Family.WINDOWS:
        return "#1"  # the disk after the one that it boots from
    match bus:
        case Bus.VIRTIO | Bus.VHOSTUSER:
            return "/dev/vdb" if system is SystemBus.VIRTIO else "/dev/vda"
        case Bus.NVME:
            return "/dev/nvme1n1" if system is SystemBus.NVME else "/dev/nvme0n1"
        case _:
            return "/dev/sdb" if system is SystemBus.SATA else "/dev/sda"


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """The disk as the guest's kernel sees it: `/dev/vda` and the facts of its queue.

    `hidden` names the facts that this kind of guest never shows.
    """

    device: str
    facts: Mapping[str, str]
    hidden: frozenset[str] = field(default_factory=frozenset)


class UnfitGuestError(GuestError):
    """The user guest cannot be used for measuring; booting it again would not help."""


class GuestSystem(Protocol):
    """The operating system of a guest: the micro guest, Linux or Windows."""

    @property
    def family(self) -> Family:
        """The family, which decides the available programs."""

    @property
    def scratch(self) -> str:
        """A directory for programs' output files."""

    @property
    def stderr_log(self) -> str | None:
        """Prefix of file names that refer to a program's standard error; None if there are none."""

    def await_ready(self, agent: Agent) -> None:
        """Waits until the boot is finished and the guest is idle. Raises GuestError."""

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Raises UnfitGuestError naming the programs that are missing."""

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Waits until a disk with this serial number is there. Raises GuestError."""

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """Facts of a user guest to store with each run."""


class MicroGuest:
    """The guest that `guest.image` builds, with its scripts and all programs."""

    family = Family.LINUX
    scratch = "/tmp"  # noqa: S108 - nothing else runs in this guest
    stderr_log = STDERR_LOG

    def await_ready(self, agent: Agent) -> None:
        """Waits until all drivers are loaded, which happens after the agent's first answer.

        Until then its second CPU is busy, which would disturb a measurement.
        """
        # Unlike the agent's, the guest's clock counts the seconds in which QEMU waits for a CPU.
        command = (LOAD_DRIVERS, f"{4 * _DRIVER_SECONDS * patience():.0f}")
        ended = agent.run(command, timeout=_DRIVER_SECONDS, allowed=(0, 1))
        if ended.status != 0:
            raise GuestError(ended.stderr.strip() or "the guest did not load its drivers")

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Checks nothing: the image holds all programs, and running a missing one fails."""

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Uses the guest's script find-disk."""
        return find_by_script(agent, (FIND_DISK,), serial)

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """No facts: the image's manifest lists its contents."""
        del agent
        return ()


def find_by_script(
    agent: Agent, command: tuple[str, ...], serial: str, script: str | None = None
) -> GuestDisk:
    """The disk that the script find-disk finds. Raises GuestError."""
    ended = agent.run(
        (*command, serial, f"{FIND_SECONDS * patience():.0f}"),
        timeout=FIND_SECONDS + 15.0,
        allowed=(0, 1),
        stdin=script,
    )
    return disk_found(ended.status, ended.stdout, ended.stderr, serial)


def disk_found(
    status: int, stdout: str, stderr: str, serial: str, hidden: frozenset[str] = frozenset()
) -> GuestDisk:
    """The disk that `key=value` lines describe. Raises GuestError when there is none."""
    facts = dict(line.strip().split("=", 1) for line in stdout.splitlines() if "=" in line)
    if status != 0 or "device" not in facts:
        output = " ".join((stderr.strip() or stdout.strip()).split())
        raise GuestError(
            f"the guest does not see the disk {serial}: {output}",
            hint="its kernel may lack the bus's driver: choose another bus, or another kernel "
            "with `guest.kernel` in a plan file",
        )
    return GuestDisk(facts["device"], facts, hidden)

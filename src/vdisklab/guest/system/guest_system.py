"""The operating system inside a guest, as far as measuring needs it: one class for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from vdisklab.errors import GuestError
from vdisklab.guest.agent import Agent
from vdisklab.host.deadline import patience
from vdisklab.results.model import Check

FIND_DISK = "/usr/lib/vdisklab/find-disk"
STDERR_LOG = "/usr/lib/vdisklab/stderr"
LOAD_DRIVERS = "/usr/lib/vdisklab/load-drivers"

FIND_SECONDS = 15
_DRIVER_SECONDS = 60


class Family(StrEnum):
    """What programs can be expected in a guest."""

    LINUX = "linux"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """The disk as the guest's kernel sees it: `/dev/vda` and the facts of its queue.

    `untold` are facts that this kind of guest does not tell of any disk.
    """

    device: str
    facts: Mapping[str, str]
    untold: frozenset[str] = field(default_factory=frozenset)


class UnfitGuestError(GuestError):
    """The user's guest cannot be measured in, and booting it once more would not change that."""


class GuestSystem(Protocol):
    """What is asked of the inside of a guest."""

    @property
    def family(self) -> Family:
        """Decides which programs measure."""

    @property
    def scratch(self) -> str:
        """A directory where programs may leave what they found out."""

    @property
    def stderr_log(self) -> str | None:
        """A prefix of names that lead to a program's own standard error; None: there is none."""

    def await_ready(self, agent: Agent) -> None:
        """Returns when the guest has come to rest after its boot. Raises GuestError."""

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Raises UnfitGuestError naming the programs that are missing."""

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Waits until a disk with this serial number is there. Raises GuestError."""

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """What else is worth keeping of a guest that is not ours."""


class MicroGuest:
    """Our own guest, which holds our scripts and all programs."""

    family = Family.LINUX
    scratch = "/tmp"  # noqa: S108 - we are alone in there
    stderr_log = STDERR_LOG

    def await_ready(self, agent: Agent) -> None:
        """Waits for every driver, which it loads after its agent has answered.

        Until then its second processor is busy, and a measurement would be disturbed.
        """
        # where starting `usleep` takes a tenth of a second, looking often would starve the loading
        pause = f"{10_000 * patience():.0f}"
        command = (LOAD_DRIVERS, f"{_DRIVER_SECONDS * patience():.0f}", pause)
        ended = agent.run(command, timeout=_DRIVER_SECONDS + 15.0, allowed=(0, 1))
        if ended.status != 0:
            raise GuestError(ended.stderr.strip() or "the guest did not load its drivers")

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """It is built with all of them, and a missing one says so when it is run."""

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """By our script."""
        return find_by_script(agent, (FIND_DISK,), serial)

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """None: the image's manifest says what it holds."""
        del agent
        return ()


def find_by_script(
    agent: Agent, command: tuple[str, ...], serial: str, script: str | None = None
) -> GuestDisk:
    """What the script find-disk says of a disk. Raises GuestError."""
    ended = agent.run(
        (*command, serial, f"{FIND_SECONDS * patience():.0f}"),
        timeout=FIND_SECONDS + 15.0,
        allowed=(0, 1),
        stdin=script,
    )
    return disk_found(ended.status, ended.stdout, ended.stderr, serial)


def disk_found(
    status: int, stdout: str, stderr: str, serial: str, untold: frozenset[str] = frozenset()
) -> GuestDisk:
    """The disk that `key=value` lines describe. Raises GuestError when there is none."""
    facts = dict(line.strip().split("=", 1) for line in stdout.splitlines() if "=" in line)
    if status != 0 or "device" not in facts:
        said = " ".join((stderr.strip() or stdout.strip()).split())
        raise GuestError(
            f"the guest does not see the disk {serial}: {said}",
            hint="its kernel may lack the bus's driver: take another bus, or another kernel "
            "with `guest.kernel` in a plan file",
        )
    return GuestDisk(facts["device"], facts, untold)

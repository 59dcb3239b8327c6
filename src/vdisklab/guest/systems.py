"""The operating system of a guest: the micro guest, or a user's Linux or Windows.

A Linux user guest lacks vdisklab's scripts, so they are passed to its shell. Windows is asked with
PowerShell through the agent, and DISKSPD is copied into it: written from the documentation of
Microsoft (Get-Disk, Set-Disk; DISKSPD's wiki) and of QEMU's guest agent, and never run on a real
Windows.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Protocol

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.agent import Agent
from vdisklab.host.waiting import patience
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import SystemBus
from vdisklab.results.model import Check
from vdisklab.value import Value, field

FIND_DISK = "/usr/lib/vdisklab/find-disk"
STDERR_LOG = "/usr/lib/vdisklab/stderr"
LOAD_DRIVERS = "/usr/lib/vdisklab/load-drivers"
_FACTS = "/usr/lib/vdisklab/facts"

FIND_SECONDS = 30
_DRIVER_SECONDS = 60


_SETTLE_SECONDS = 600.0
_ASK_SECONDS = 60.0
# Services that still start after the agent's first answer would disturb a measurement. systemd
# reports when all are started (systemctl(1), is-system-running); other init systems do not.
_SETTLE = "command -v systemctl >/dev/null || exit 0; systemctl is-system-running --wait"

_MISSING = 'for p in "$@"; do command -v "$p" >/dev/null || echo "$p"; done'
_VERSIONS = "uname -sr; fio --version"
_STARTING_SECONDS = 60.0  # PowerShell takes seconds to start, and tens under emulation
# A new disk may be offline and read-only by the SAN policy (Set-Disk's documentation), and both
# must be off before its sectors can be written. It needs no initialisation: sectors of a disk
# without volumes can be written.
_FIND_DISK = r"""
$ErrorActionPreference = 'Stop'
$deadline = (Get-Date).AddSeconds(%(seconds)d)
do {
    $disk = Get-Disk | Where-Object { "$($_.SerialNumber)".Trim() -eq '%(serial)s' }
    if ($disk) { break }
    if ((Get-Date) -gt $deadline) {
        [Console]::Error.WriteLine('no disk with serial number %(serial)s within %(seconds)d s')
        exit 1
    }
    Start-Sleep -Milliseconds 200
} while ($true)
if ($disk.IsReadOnly) { Set-Disk -Number $disk.Number -IsReadOnly $false }
if ($disk.IsOffline) { Set-Disk -Number $disk.Number -IsOffline $false }
$disk = Get-Disk -Number $disk.Number
if ($disk.IsReadOnly -or $disk.IsOffline) {
    [Console]::Error.WriteLine('the disk stays offline or read-only')
    exit 1
}
if ($disk.IsBoot -or $disk.IsSystem -or $disk.NumberOfPartitions -ne 0) {
    [Console]::Error.WriteLine('the disk is not empty')
    exit 1
}
"device=#$($disk.Number)"
"size_bytes=$($disk.Size)"
"logical_block_size=$($disk.LogicalSectorSize)"
"physical_block_size=$($disk.PhysicalSectorSize)"
"bus=$($disk.BusType)"
"""

_HIDDEN = frozenset({"write_cache", "nr_hw_queues", "logical_block_size", "physical_block_size"})
"""Facts that Get-Disk does not show; they are not read back."""


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


class GuestDisk(Value):
    """The disk as the guest's kernel sees it: `/dev/vda` and the facts of its queue.

    `hidden` names the facts that this kind of guest never shows.
    """

    device: str
    facts: Mapping[str, str]
    hidden: frozenset[str] = field(default_factory=frozenset)
    plug_seconds: float | None = None
    """From the order to plug it until the guest had found it; None if it was there at boot."""


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
        """Kernel and page size of a guest of another architecture; the others have the host's."""
        if not is_foreign():
            return ()
        return micro_facts(agent.run((_FACTS,), timeout=_ASK_SECONDS).stdout)


def micro_facts(printed: str) -> tuple[Check, ...]:
    """The kernel, and the bytes of its pages, in what the guest's script facts prints."""
    found = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    facts = {"guest.kernel": f"Linux {found['kernel']}", "guest.page_size": found["page_size"]}
    return tuple(Check(name, None, value) for name, value in facts.items())


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
    """The disk described by `key=value` lines. Raises GuestError when there is none."""
    facts = dict(line.strip().split("=", 1) for line in stdout.splitlines() if "=" in line)
    if status != 0 or "device" not in facts:
        output = " ".join((stderr.strip() or stdout.strip()).split())
        if not output:  # the guest names a missing driver; silence does not
            raise GuestError(
                f"the search for the disk {serial} in the guest ended without an answer (exit "
                f"status {status})",
                hint="the same command measures this path again",
            )
        raise GuestError(
            f"the guest does not see the disk {serial}: {output}",
            hint="its kernel may lack the bus's driver: choose another bus, or another kernel "
            "with `guest.kernel` in a plan file",
        )
    return GuestDisk(facts["device"], facts, hidden)


class LinuxGuest:
    """Linux with the QEMU guest agent, a POSIX shell and the programs that measure."""

    family = Family.LINUX
    scratch = "/tmp"  # noqa: S108 - of a guest that is thrown away
    stderr_log = None

    def __init__(self, name: str, agent_version: str) -> None:
        self._name = name
        self._agent_version = agent_version

    def await_ready(self, agent: Agent) -> None:
        """Waits until systemd has started everything, or has given up on some of it."""
        agent.run(("sh", "-c", _SETTLE), timeout=_SETTLE_SECONDS, allowed=range(-64, 256))

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Looks for each program on the agent's PATH. Raises UnfitGuestError."""
        ended = agent.run(("sh", "-c", _MISSING, "sh", *programs), timeout=_ASK_SECONDS)
        missing = ended.stdout.split()
        if missing:
            raise UnfitGuestError(
                f"the guest ({self._name}) has no {', '.join(missing)}",
                hint="install them in the image, or measure another profile",
            )

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Passes the micro guest's script find-disk to the shell on standard input."""
        script = (
            resources.files("vdisklab.guest.image")
            .joinpath("guestfiles/find-disk.sh")
            .read_text("utf-8")
        )
        return find_by_script(
            agent, ("sh", "-s"), serial, script.replace("/usr/bin/busybox usleep 5000", "sleep 0.1")
        )

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """System, kernel, agent, fio, and the state of systemd."""
        state = agent.run(
            ("sh", "-c", _SETTLE), timeout=_ASK_SECONDS, allowed=range(-64, 256)
        ).stdout.strip()
        lines = agent.run(
            ("sh", "-c", _VERSIONS), timeout=_ASK_SECONDS, allowed=range(-64, 256)
        ).stdout.splitlines()
        facts = {
            "guest.system": self._name,
            "guest.kernel": lines[0] if lines else "",
            "guest.fio": lines[1] if len(lines) > 1 else "",
            "guest.agent": self._agent_version,
            "guest.state": state,
        }
        return tuple(Check(name, None, value) for name, value in facts.items() if value)


def powershell(script: str) -> tuple[str, ...]:
    """The command that runs a script, encoded to avoid quoting (about_PowerShell_exe)."""
    encoded = base64.b64encode(script.encode("utf-16-le")).decode()
    return (
        "powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass",
        "-EncodedCommand", encoded,
    )  # fmt: skip


class WindowsGuest:
    """Windows with the QEMU guest agent; `diskspd` is the host's copy of DISKSPD."""

    family = Family.WINDOWS
    scratch = r"C:\Windows\Temp"
    stderr_log = None

    def __init__(self, name: str, agent_version: str, diskspd: Path | None) -> None:
        self._name = name
        self._agent_version = agent_version
        self._diskspd = diskspd

    def await_ready(self, agent: Agent) -> None:
        """Returns at once: Windows does not report the end of its boot."""

    def require(self, agent: Agent, programs: Sequence[str]) -> None:
        """Copies DISKSPD into the guest. Raises UnfitGuestError if the user named none."""
        del programs
        if self._diskspd is None:
            raise UnfitGuestError(
                f"the guest runs {self._name}, where vdisklab measures with DISKSPD, but "
                "--diskspd is missing",
                hint=f"download DISKSPD from Microsoft and give --diskspd FILE ({GUEST.diskspd})",
            )
        agent.write_file(f"{self.scratch}\\vdisklab-diskspd.exe", read_diskspd(self._diskspd))

    def find_disk(self, agent: Agent, serial: str) -> GuestDisk:
        """Uses Get-Disk. The device is DISKSPD's name of a physical disk, such as `#1`."""
        seconds = round(FIND_SECONDS * patience())
        ended = agent.run(
            powershell(_FIND_DISK % {"serial": serial, "seconds": seconds}),
            timeout=seconds + _STARTING_SECONDS,
            allowed=range(-64, 256),
        )
        return disk_found(ended.status, ended.stdout, ended.stderr, serial, _HIDDEN)

    def facts(self, agent: Agent) -> tuple[Check, ...]:
        """The versions of system and agent."""
        del agent
        return (
            Check("guest.system", None, self._name),
            Check("guest.agent", None, self._agent_version),
        )


def read_diskspd(file: Path) -> bytes:
    """The content of DISKSPD. Raises HostError if the file is not a Windows program."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise HostError(
            f"{file} cannot be read: {error.strerror}",
            hint=f"give --diskspd the file {GUEST.diskspd} of Microsoft's DISKSPD",
        ) from error
    if content[:2] != b"MZ":
        raise HostError(
            f"{file} is not a Windows program", hint=f"give --diskspd the file {GUEST.diskspd}"
        )
    return content

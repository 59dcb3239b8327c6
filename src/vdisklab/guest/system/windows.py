"""A Windows user guest: PowerShell through the agent, DISKSPD copied into it.

Written from the documentation of Microsoft (Get-Disk, Set-Disk; DISKSPD's wiki) and of QEMU's guest
agent, and never run on a real Windows.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.agent import Agent
from vdisklab.guest.system.guest_system import (
    FIND_SECONDS,
    Family,
    GuestDisk,
    UnfitGuestError,
    disk_found,
)
from vdisklab.host.waiting import patience
from vdisklab.results.model import Check

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
"""Facts that Get-Disk does not show, so they are not read back."""


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
                hint="download DISKSPD from Microsoft and give --diskspd FILE (amd64/diskspd.exe)",
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
            hint="give --diskspd the file amd64/diskspd.exe of Microsoft's DISKSPD",
        ) from error
    if content[:2] != b"MZ":
        raise HostError(
            f"{file} is not a Windows program", hint="give --diskspd the file amd64/diskspd.exe"
        )
    return content

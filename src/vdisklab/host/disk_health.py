"""What disks say of themselves: firmware, wear and temperature, by smartctl (smartmontools)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.machine import read_text
from vdisklab.results.model import Check
from vdisklab.value import Value

SMARTCTL = "smartctl"
_DISK = re.compile(r"sd[a-z]+|nvme\d+n\d+")
"""Kernel names of disks that have SMART; virtual disks and layers have none of their own."""
_ANY_STATUS = range(256)
"""smartctl's exit status is a set of bits, most of which are about the disk: smartctl(8)."""


class DiskHealth(Value):
    """What smartctl reported; None for what it did not. `problem` says why it reported nothing."""

    firmware: str | None = None
    wear_percent: int | None = None
    celsius: int | None = None
    problem: str | None = None


def parse_smartctl(text: str) -> DiskHealth:
    """The health from the output of `smartctl --json -x`.

    Wear is what the disk's own standard says of its endurance, 100 % being all of it: NVMe's log
    and ATA's statistics (ACS-4, 9.5.8). Attributes of vendors are left out, as their meaning
    differs.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return DiskHealth(problem="its output is no JSON")
    firmware, celsius = said.get("firmware_version"), _of(said, "temperature", "current")
    health = DiskHealth(
        firmware if isinstance(firmware, str) and firmware else None,
        next(filter(_is_count, _wear(said)), None),
        celsius if isinstance(celsius, int) and not isinstance(celsius, bool) else None,
    )
    if health != DiskHealth():
        return health
    messages = _of(said, "smartctl", "messages")
    texts = [_of(message, "string") for message in messages] if isinstance(messages, list) else []
    reason = next((text for text in texts if isinstance(text, str)), "it names no value")
    return DiskHealth(problem=reason)


def _wear(said: dict[str, Any]) -> Iterator[Any]:
    yield _of(said, "endurance_used", "current_percent")  # smartmontools 7.5, of all kinds
    yield _of(said, "nvme_smart_health_information_log", "percentage_used")
    pages = _of(said, "ata_device_statistics", "pages")
    for page in pages if isinstance(pages, list) else ():
        table = _of(page, "table")
        for row in table if isinstance(table, list) else ():
            if _of(row, "name") == "Percentage Used Endurance Indicator":
                yield _of(row, "value")


def _of(part: Any, *names: str) -> Any:  # noqa: ANN401 - JSON from outside
    for name in names:
        part = part.get(name) if isinstance(part, dict) else None
    return part


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def disk_checks(
    host: Host, numbers: Sequence[tuple[int, int]], devices: Path = Path("/sys/dev/block")
) -> tuple[Check, ...]:
    """Firmware, wear and temperature of the disks below these devices, joined by `/` if several.

    The kernel knows the firmware as well. Why wear and temperature are unknown is said; disks that
    sleep are not woken. Empty if no disk with SMART is below.
    """
    found = dict.fromkeys(
        disk for major, minor in numbers for disk in _disks(devices / f"{major}:{minor}")
    )
    health = [_health(host, disk) for disk in found]
    both = zip(found, health, strict=True)
    said = {
        "firmware": [found.firmware or _firmware(disk) for disk, found in both],
        "wear": [_or_why(found, found.wear_percent, " % used") for found in health],
        "temperature": [_or_why(found, found.celsius, " °C") for found in health],
    }
    return tuple(
        Check(f"host.disk.{name}", None, "/".join(text or "unknown" for text in texts))
        for name, texts in said.items()
        if any(texts)
    )


def _or_why(found: DiskHealth, value: int | None, unit: str) -> str | None:
    if value is not None:
        return f"{value}{unit}"
    return None if found.problem is None else f"unknown: {found.problem}"


def _disks(place: Path) -> Iterator[Path]:
    """The disks below a block device, as directories of sysfs: a partition's, and each slave's."""
    node = place.resolve()
    if (node / "partition").exists():
        node = node.parent
    slaves = sorted((node / "slaves").glob("*"))
    for slave in slaves:
        yield from _disks(slave)
    if not slaves and _DISK.fullmatch(node.name):
        yield node


def _firmware(disk: Path) -> str | None:
    """The revision that the kernel read from the disk."""
    return read_text(disk / "device/firmware_rev") or read_text(disk / "device/rev")


def _health(host: Host, disk: Path) -> DiskHealth:
    if host.which(SMARTCTL) is None:
        return DiskHealth(problem="smartctl is not installed")
    argv = (SMARTCTL, "--json", "-x", "--nocheck=standby", f"/dev/{disk.name}")
    try:
        return parse_smartctl(host.run(*argv, timeout=10, allowed=_ANY_STATUS).stdout)
    except HostError as error:
        return DiskHealth(problem=error.message)

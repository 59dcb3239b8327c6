"""What QEMU and the guest's kernel really do with a disk, read back after it was plugged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.blockdev import AttachedNames, Disk, write_cache_property
from vdisklab.guest.disk import GuestDisk
from vdisklab.guest.machine import Machine
from vdisklab.plan.segments import Aio, Bus
from vdisklab.result.model import Check


@dataclass(frozen=True, slots=True)
class QemuProcess:
    """Traces that QEMU leaves in /proc: how many rings it has, and for how many event loops."""

    rings: int
    loops: int


def read_process(machine: Machine) -> QemuProcess:
    """Counts io_uring descriptors and event loops (the main loop and each iothread)."""
    threads = machine.query("query-iothreads")
    return QemuProcess(_count_rings(machine.pid), 1 + len(threads))


def check_state(
    machine: Machine, disk: Disk, seen: GuestDisk, at_start: QemuProcess
) -> tuple[Check, ...]:
    """All that was asked for this disk, with what was read back.

    `at_start` is the process before its first disk was plugged. A guest must serve one aio mode
    only: QEMU keeps an aio context for as long as it lives, so later modes cannot be told apart.
    """
    checks = [
        Check("guest.size", str(disk.size), seen.facts.get("size_bytes", "unknown")),
        Check(
            "guest.write_cache",
            _expected_write_cache(disk),
            seen.facts.get("write_cache", "unknown"),
        ),
        *_check_block(machine, disk),
    ]
    if disk.filename is not None:
        checks.append(_check_direct(machine.pid, disk))
        checks.append(Check("qemu.aio", disk.attachment.aio, _seen_aio(machine, at_start)))
    if disk.attachment.iothread:
        checks.append(_check_iothread(machine, disk))
    if disk.attachment.queues is not None:
        asked = str(disk.attachment.queues)
        checks.append(Check("guest.queues", asked, seen.facts.get("nr_hw_queues", "unknown")))
    return tuple(checks)


def _effective_write_cache(disk: Disk) -> bool:
    """`auto` means the block backend's own value, which -blockdev starts as on."""
    return write_cache_property(disk.cache, disk.attachment.write_cache) in ("on", "auto", None)


def _expected_write_cache(disk: Disk) -> str:
    """QEMU's NVMe device always announces a volatile write cache (hw/nvme/ctrl.c, id->vwc)."""
    if disk.attachment.bus is Bus.NVME or _effective_write_cache(disk):
        return "write back"
    return "write through"


def _check_block(machine: Machine, disk: Disk) -> tuple[Check, ...]:
    names = AttachedNames(disk.serial)
    inserted = _inserted(machine.query("query-block"), names.device)
    cache = inserted["cache"]
    return (
        Check("qemu.format", disk.driver, str(inserted["drv"])),
        Check("qemu.cache.direct", _word(disk.cache.direct), _word(cache["direct"])),
        Check("qemu.cache.no-flush", _word(disk.cache.no_flush), _word(cache["no-flush"])),
        Check(
            "qemu.cache.writeback",
            _word(_effective_write_cache(disk)),
            _word(cache["writeback"]),
        ),
    )


def _inserted(blocks: list[Mapping[str, Any]], device: str) -> Mapping[str, Any]:
    for block in blocks:
        # virtio-blk-pci is shown by the path of its inner virtio device
        if device in str(block.get("qdev", "")).split("/") and "inserted" in block:
            found: Mapping[str, Any] = block["inserted"]
            return found
    raise GuestError(f"QEMU does not list the disk {device} that it accepted")


def _word(value: bool) -> str:
    return "on" if value else "off"


def _check_direct(pid: int, disk: Disk) -> Check:
    """O_DIRECT as the kernel holds it in the flags of QEMU's open file (proc(5), fdinfo)."""
    seen = {_word(bool(flags & os.O_DIRECT)) for flags in _open_flags(pid, disk.filename or "")}
    return Check("kernel.o_direct", _word(disk.cache.direct), "/".join(sorted(seen)) or "not open")


def _open_flags(pid: int, filename: str) -> list[int]:
    wanted = Path(filename).stat()
    flags: list[int] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = link.stat()
        except OSError:
            continue  # closed meanwhile
        if not _same_file(found, wanted):
            continue
        for line in Path(f"/proc/{pid}/fdinfo/{link.name}").read_text().splitlines():
            if line.startswith("flags:"):
                flags.append(int(line.split()[1], 8))
    return flags


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    if other.st_rdev:
        return one.st_rdev == other.st_rdev
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _seen_aio(machine: Machine, at_start: QemuProcess) -> str:
    """The aio mode by what it leaves: a ring of libaio in memory, or io_uring descriptors.

    QEMU's event loops may have a ring each for polling; one more than that is the disk's.
    """
    maps = Path(f"/proc/{machine.pid}/maps").read_text()
    if "/[aio]" in maps or "[aio]" in maps:
        return Aio.NATIVE
    now = read_process(machine)
    polling = at_start.rings * now.loops // max(1, at_start.loops)
    return Aio.IO_URING if now.rings > polling else Aio.THREADS


def _count_rings(pid: int) -> int:
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += "io_uring" in os.readlink(link)  # noqa: PTH115 - not a path on disk
        except OSError:
            continue
    return count


def _check_iothread(machine: Machine, disk: Disk) -> Check:
    names = AttachedNames(disk.serial)
    owner = names.controller if disk.attachment.bus is Bus.SCSI else names.device
    seen = machine.monitor.execute(
        "qom-get", {"path": f"/machine/peripheral/{owner}", "property": "iothread"}
    )
    return Check("qemu.iothread", f"/objects/{names.iothread}", str(seen))

"""What QEMU and the guest's kernel really do with a disk, read back after it was plugged."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames, Disk
from vdisklab.guest.qemu.qmp_models import count_iothreads, inserted_node, running_version
from vdisklab.guest.system.guest_system import GuestDisk
from vdisklab.path.segments import Aio, Bus
from vdisklab.results.model import Check


@dataclass(frozen=True, slots=True)
class QemuProcess:
    """Traces that QEMU leaves in /proc: how many rings it has, and for how many event loops."""

    rings: int
    loops: int


def read_process(machine: Machine) -> QemuProcess:
    """Counts io_uring descriptors and event loops (the main loop and each iothread)."""
    return QemuProcess(_count_rings(machine.pid), 1 + count_iothreads(machine))


def check_state(
    machine: Machine, disk: Disk, seen: GuestDisk, at_start: QemuProcess
) -> tuple[Check, ...]:
    """All that was asked for this disk, with what was read back.

    `at_start` is the process before its first disk was plugged. A guest must serve one aio mode
    only: QEMU keeps an aio context for as long as it lives, so later modes cannot be told apart.
    """
    version = running_version(machine)
    checks = [
        Check("qemu.version", machine.config.version, version),
        Check("guest.size", str(disk.size), seen.facts.get("size_bytes", "unknown")),
        *_check_told(seen, "guest.write_cache", "write_cache", _expected_write_cache(disk)),
        *_check_block(machine, disk),
    ]
    if disk.filename is not None:
        checks.append(_check_direct(machine.pid, disk))
        checks.append(Check("qemu.aio", disk.attachment.aio, _seen_aio(machine, at_start)))
    if disk.attachment.iothread:
        checks.append(_check_iothread(machine, disk))
    if disk.attachment.queues is not None:
        asked = str(disk.attachment.queues)
        checks += _check_told(seen, "guest.queues", "nr_hw_queues", asked)
    return tuple(checks)


def _check_told(seen: GuestDisk, name: str, fact: str, asked: str | None) -> tuple[Check, ...]:
    """A fact of the disk; nothing where this kind of guest tells it of no disk."""
    if fact in seen.untold:
        return ()
    return (Check(name, asked, seen.facts.get(fact, "unknown")),)


def _offers_write_cache(disk: Disk) -> bool:
    return disk.attachment.write_cache.is_offered(disk.cache)


def _expected_write_cache(disk: Disk) -> str:
    """QEMU's NVMe device always announces a volatile write cache (hw/nvme/ctrl.c, id->vwc)."""
    if disk.attachment.bus is Bus.NVME or _offers_write_cache(disk):
        return "write back"
    return "write through"


def _check_block(machine: Machine, disk: Disk) -> tuple[Check, ...]:
    names = AttachedNames(disk.serial)
    inserted = inserted_node(machine, names.device)
    cache = inserted.cache
    return (
        Check("qemu.format", disk.driver, inserted.drv),
        Check("qemu.cache.direct", _word(disk.cache.direct), _word(cache.direct)),
        Check("qemu.cache.no-flush", _word(disk.cache.no_flush), _word(cache.no_flush)),
        Check(
            "qemu.cache.writeback",
            _word(_offers_write_cache(disk)),
            _word(cache.writeback),
        ),
    )


def _word(value: bool) -> str:
    return "on" if value else "off"


def _check_direct(pid: int, disk: Disk) -> Check:
    """O_DIRECT as the kernel holds it in the flags of QEMU's open file (proc(5), fdinfo)."""
    seen = {_word(bool(flags & os.O_DIRECT)) for flags in _open_flags(pid, disk.filename or "")}
    return Check("kernel.o_direct", _word(disk.cache.direct), "/".join(sorted(seen)) or "not open")


def _open_flags(pid: int, filename: str) -> list[int]:
    try:
        wanted = Path(filename).stat()
    except OSError as error:
        raise HostError(
            f"{filename} cannot be looked at: {error.strerror}",
            hint="see that nothing else removes files in the work directory meanwhile",
        ) from error
    return [
        flags
        for number in _descriptors(pid)
        if (flags := _flags_of(pid, number, wanted)) is not None
    ]


def _flags_of(pid: int, number: str, wanted: os.stat_result) -> int | None:
    """The flags of a descriptor, or None where it is another file or closed meanwhile."""
    try:
        if not _same_file(Path(f"/proc/{pid}/fd/{number}").stat(), wanted):
            return None
        text = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
    except OSError:
        return None
    found = re.search(r"^flags:\s*([0-7]+)$", text, re.MULTILINE)
    return None if found is None else int(found[1], 8)


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    if other.st_rdev:
        return one.st_rdev == other.st_rdev
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _seen_aio(machine: Machine, at_start: QemuProcess) -> str:
    """The aio mode by what it leaves: a ring of libaio in memory, or io_uring descriptors.

    QEMU's event loops may have a ring each for polling; one more than that is the disk's.
    """
    if _has_aio_ring(machine.pid):
        return Aio.NATIVE
    now = read_process(machine)
    polling = at_start.rings * now.loops // max(1, at_start.loops)
    return Aio.IO_URING if now.rings > polling else Aio.THREADS


def _has_aio_ring(pid: int) -> bool:
    """io_setup(2) maps its ring from a file that the kernel calls /[aio] (fs/aio.c)."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError as error:
        raise _gone(pid, error) from error
    return any(line.endswith((" /[aio]", " /[aio] (deleted)")) for line in maps.splitlines())


def _count_rings(pid: int) -> int:
    count = 0
    for number in _descriptors(pid):
        with contextlib.suppress(OSError):  # closed meanwhile
            link = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - not a path on disk
            count += link == "anon_inode:[io_uring]"
    return count


def _descriptors(pid: int) -> list[str]:
    try:
        return [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError as error:
        raise _gone(pid, error) from error


def _gone(pid: int, error: OSError) -> GuestError:
    return GuestError(
        f"QEMU (process {pid}) cannot be looked at any more: {error.strerror}",
        hint="QEMU ended by itself: `dmesg` says whether it was killed for want of memory",
    )


def _check_iothread(machine: Machine, disk: Disk) -> Check:
    names = AttachedNames(disk.serial)
    owner = names.controller if disk.attachment.bus is Bus.SCSI else names.device
    seen = machine.monitor.execute(
        "qom-get", {"path": f"/machine/peripheral/{owner}", "property": "iothread"}
    )
    return Check("qemu.iothread", f"/objects/{names.iothread}", str(seen))

"""The disks of a running guest, as its QEMU knows them, and what it counted of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vdisklab.errors import GuestError, PlanError, RefusedError
from vdisklab.loads.qemu_trace.trace_log import TracedBus, bus_of
from vdisklab.recording.guests import GuestMonitor
from vdisklab.units import SECTOR, named
from vdisklab.value import Value, replace

_BACKEND = "/virtio-backend"
_WITHOUT_ID = "/peripheral-anon/"


class RecordableDisk(Value):
    """A hard disk of a guest. `device` is its place in QEMU's tree, `kind` its type there."""

    device: str
    kind: str
    bus: TracedBus | None
    size_bytes: int | None
    logical_block: int
    names: tuple[str, ...]
    """What a user may call it: QEMU's id, drive and node, the image's file."""

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    def called(self, name: str) -> RecordableDisk:
        """The same disk, with this name first."""
        return replace(self, names=tuple(dict.fromkeys((name, *self.names))))


class DiskCounts(Value):
    """What QEMU has counted of a disk since the guest's start, and a few seconds more or less."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    flushes: int

    def since(self, before: DiskCounts) -> DiskCounts:
        """What was counted since an earlier look."""
        return DiskCounts(
            self.reads - before.reads,
            self.read_bytes - before.read_bytes,
            self.writes - before.writes,
            self.written_bytes - before.written_bytes,
            self.flushes - before.flushes,
        )


def disks_of(monitor: GuestMonitor) -> tuple[RecordableDisk, ...]:
    """The guest's hard disks. Raises GuestError."""
    return tuple(_disks(monitor))


def _disks(monitor: GuestMonitor) -> Iterator[RecordableDisk]:
    answer = monitor.execute("query-block")
    for entry in answer if isinstance(answer, list) else ():
        inserted = entry.get("inserted") if isinstance(entry, dict) else None
        place = entry.get("qdev") if isinstance(entry, dict) else None
        if not isinstance(inserted, dict) or not isinstance(place, str) or not place:
            continue
        device = place if place.startswith("/") else f"/machine/peripheral/{place}"
        kind = _property(monitor, device, "type")
        if not isinstance(kind, str) or kind.endswith(("-cd", "-floppy")) or kind == "floppy":
            continue
        image = inserted.get("image")
        size = image.get("virtual-size") if isinstance(image, dict) else None
        block = _property(monitor, device, "logical_block_size")
        file = inserted.get("file")
        names = [
            device.removesuffix(_BACKEND).rpartition("/")[2],
            str(entry.get("device") or ""),
            str(inserted.get("node-name") or ""),
            file if isinstance(file, str) else "",
        ]
        if _WITHOUT_ID in device:  # device[0]: nobody calls it so
            names[:3] = [*names[1:3], names[0]]
        yield RecordableDisk(
            device,
            kind,
            bus_of(kind),
            size if isinstance(size, int) and size > 0 else None,
            block if isinstance(block, int) and block >= SECTOR else SECTOR,
            tuple(dict.fromkeys(filter(None, names))),
        )


def choose_disk(
    disks: tuple[RecordableDisk, ...], wanted: str | None, files: Mapping[str, str], guest: str
) -> RecordableDisk:
    """The disk that the user means; `files` has image files by the guest's own names for disks,
    which come first among its names then.

    Raises PlanError if it is not clear.
    """
    if not disks:
        raise PlanError(f"guest {guest} has no hard disk", hint="name another guest")
    by_file = {file: target for target, file in files.items()}
    shown = [by_file.get(disk.names[-1], disk.name) for disk in disks]
    if wanted is None:
        if len(disks) == 1:
            return disks[0].called(shown[0])
        raise PlanError(
            f"guest {guest} has {len(disks)} disks: {named(shown, 8)}",
            hint=f"name one: --disk {shown[0]}",
        )
    file = files.get(wanted, wanted)
    found = [disk for disk in disks if file in disk.names or wanted in disk.names]
    if len(found) == 1:
        return found[0].called(shown[disks.index(found[0])])
    problem = "no disk" if not found else f"{len(found)} disks"
    raise PlanError(
        f"guest {guest} has {problem} called {wanted}", hint=f"its disks are {named(shown, 8)}"
    )


def counts_of(monitor: GuestMonitor, disk: RecordableDisk) -> DiskCounts:
    """What QEMU has counted of the disk. Raises GuestError."""
    stats = stats_of(monitor, disk)
    keys = ("rd_operations", "rd_bytes", "wr_operations", "wr_bytes", "flush_operations")
    numbers = [stats.get(key) for key in keys]
    if not all(isinstance(number, int) for number in numbers):
        raise GuestError(f"QEMU counts no requests of {disk.name}")
    return DiskCounts(*(number for number in numbers if isinstance(number, int)))


def stats_of(monitor: GuestMonitor, disk: RecordableDisk) -> Mapping[str, Any]:
    """The disk's part of `query-blockstats`. Raises GuestError if it is gone."""
    answer = monitor.execute("query-blockstats")
    for entry in answer if isinstance(answer, list) else ():
        place = entry.get("qdev") if isinstance(entry, dict) else None
        if place in (disk.device, disk.device.removeprefix("/machine/peripheral/")):
            stats = entry.get("stats")
            if isinstance(stats, dict):
                return stats
    raise GuestError(f"the guest has no disk {disk.name} any more")


def _property(monitor: GuestMonitor, device: str, name: str) -> object:
    try:
        return monitor.execute("qom-get", {"path": device, "property": name})
    except RefusedError:
        return None

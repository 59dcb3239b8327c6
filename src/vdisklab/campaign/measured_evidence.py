"""Counters during each measurement: of QEMU, the host's device, its kernel, the image."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames
from vdisklab.guest.qemu.probe import device_statistics
from vdisklab.host.command import Host
from vdisklab.host.counters import (
    children_cpu_seconds,
    process_cpu_seconds,
    read_devices,
    steal_seconds,
)
from vdisklab.host.pagecache import occupied_bytes, resident_share
from vdisklab.results.model import Direction, Evidence, IoCounters, Sample
from vdisklab.storage.image import DiskData, ImageFile, mapped_bytes
from vdisklab.storage.targets import Device

QemuCounter = Callable[[], IoCounters | None]


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of one measurement: of QEMU if there is one, the host's devices, its kernel.

    `image` is what holds the guest's data: a file, a device or a directory.
    """

    qemu: QemuCounter
    devices: tuple[tuple[int, int], ...]
    pid: int | None
    image: Path | None
    daemon: int | None = None

    def snapshot(self) -> Snapshot:
        """All counters at this moment; QEMU's CPU time has that of its daemon in it."""
        cpu = children_cpu_seconds() if self.pid is None else process_cpu_seconds(self.pid)
        if self.daemon is not None:
            served = process_cpu_seconds(self.daemon)
            cpu = None if cpu is None or served is None else cpu + served
        return Snapshot(
            qemu=self.qemu(),
            device=read_devices(self.devices),
            cpu=cpu,
            resident=None if self.image is None else resident_share(self.image),
            allocated=None if self.image is None else occupied_bytes(self.image),
            steal=steal_seconds(),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment; None where there is no counter."""

    qemu: IoCounters | None
    device: IoCounters | None
    cpu: float | None
    resident: float | None
    allocated: int | None
    steal: float | None


def guest_counters(
    machine: Machine,
    names: AttachedNames,
    devices: tuple[tuple[int, int], ...],
    image: Path | None,
    daemon: int | None = None,
) -> Counters:
    """The counters of a disk in a running guest.

    The `daemon` that serves a disk has no counters of its requests, only CPU time.
    """
    if daemon is not None:
        return Counters(lambda: None, devices, machine.pid, image, daemon)
    return Counters(lambda: device_statistics(machine, names.device), devices, machine.pid, image)


def evidence_between(before: Snapshot, after: Snapshot, guest: IoCounters | None) -> Evidence:
    """The differences of two snapshots, with the traffic that the program reports."""
    return Evidence(
        guest=guest,
        qemu=_since(before.qemu, after.qemu),
        device=_since(before.device, after.device),
        host_cpu_seconds=_difference(before.cpu, after.cpu),
        resident_before=before.resident,
        resident_after=after.resident,
        allocated_before=before.allocated,
        allocated_after=after.allocated,
        steal_seconds=_difference(before.steal, after.steal),
    )


def _since(before: IoCounters | None, after: IoCounters | None) -> IoCounters | None:
    return None if before is None or after is None else after.since(before)


def _difference(before: float | None, after: float | None) -> float | None:
    """None, too, for a counter that went back, as steal time does on some hosts."""
    return None if before is None or after is None or after < before else after - before


class Growth:
    """Measures how an image's mapped bytes grow, if `observe` contains `mapped`."""

    def __init__(self, host: Host, image: DiskData | None, observe: Collection[str]) -> None:
        self._host = host
        self._image = image if isinstance(image, ImageFile) and "mapped" in observe else None
        self._before = self._now()

    def mapped(self) -> int | None:
        """Bytes by which it grew; None for a device, which has no map, or if not observed."""
        now = self._now()
        return None if now is None or self._before is None else now - self._before

    def _now(self) -> int | None:
        if self._image is None or isinstance(self._image.target, Device):
            return None
        return mapped_bytes(self._host, self._image)


def observed_samples(
    observe: Collection[str], evidence: Evidence, mapped: int | None
) -> tuple[Sample, ...]:
    """A sample for each metric in `observe` that has a counter. An image that shrank has none."""
    allocated = None
    if evidence.allocated_before is not None and evidence.allocated_after is not None:
        allocated = evidence.allocated_after - evidence.allocated_before
    flushes = None if evidence.qemu is None else evidence.qemu.flush_operations
    totals = {"allocated": allocated, "mapped": mapped, "flushes": flushes}
    return tuple(
        Sample(name, Direction.WRITE, float(value))
        for name in observe
        if (value := totals[name]) is not None and value >= 0
    )

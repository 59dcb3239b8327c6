"""The state before a measurement, set and read back, and the counters during it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import HostError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.read_back import disk_statistics
from vdisklab.host import counters, pagecache, sync_calls
from vdisklab.host.answering import answered
from vdisklab.host.command import Host
from vdisklab.host.network import Link
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Check, Direction, Evidence, IoCounters, Sample
from vdisklab.storage.image import DiskData, ImageFile, mapped_bytes
from vdisklab.storage.server_url import Url
from vdisklab.storage.targets import Device
from vdisklab.units import in_percent
from vdisklab.value import Value, replace

# The share of an image that may be in the page cache after it was emptied (opening reads a format's
# header again), and the share that must be there after it was filled.
_COLD = 0.02
_WARM = 0.98

# Seconds before each attempt to empty it.
_PAUSES = (0.0, 0.02, 0.1, 0.5)


_COUNTED = 0.5
"""Share of the bytes left in memory that a sync writes if the device's counters show them."""

_Count = TypeVar("_Count")
QemuCounter = Callable[[], IoCounters | None]


class StateError(HostError):
    """The measured state differs from the requested one."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.checks = checks
        wrong = [f"{c.name} is {c.observed}, not {c.requested}" for c in checks if not c.confirmed]
        super().__init__("state not confirmed: " + "; ".join(wrong))


def set_page_cache(wanted: PageCache, image: DiskData | None) -> None:
    """Empties or fills the host's page cache for an image, and reads the state back.

    A shared directory without any data is in every state.

    A bypassed cache is emptied too: otherwise each direct write would have to invalidate pages of
    an earlier cell. Raises StateError.
    """
    if image is None:
        return
    if wanted is PageCache.WARM:
        for place in image.caches:
            answered(place, partial(_with_files, pagecache.warm, place))
        resident = _resident_share(image)
        confirmed = resident is None or resident >= _WARM
    else:
        resident = _emptied(image, 1.0 if wanted is PageCache.BYPASSED else _COLD)
        confirmed = wanted is PageCache.BYPASSED or (resident or 0.0) <= _COLD
    if resident is not None and not confirmed:
        raise StateError((Check("host.page_cache", wanted, f"{in_percent(resident)} resident"),))


def _resident_share(image: DiskData) -> float | None:
    """The share of the image in the host's page cache; None for one that no kernel here opens."""
    if isinstance(image.path, Url):
        return None
    return answered(image.path, partial(pagecache.resident_share, image.path))


def _emptied(image: DiskData, most: float) -> float | None:
    """Empties the page cache repeatedly until at most `most` of the image is in it; returns the
    share left.

    Pages in use cannot be removed. On a busy machine (load 10) they were 5 % of an image once in
    187 measurements; their user is unknown.
    """
    resident: float | None = 1.0
    for pause in _PAUSES:
        time.sleep(pause)
        pagecache.evict(*image.caches)
        resident = _resident_share(image)
        if resident is None or resident <= most:
            break
    return resident


def _with_files(act: Callable[[Path], None], place: Path) -> None:
    for file in pagecache.files_of([place]):
        act(file)


class WriteBack:
    """Writes an image's dirty pages back in the background.

    Otherwise the kernel would do it half a minute later (vm.dirty_expire_centisecs), while another
    cell is measured.
    """

    def __init__(self, image: DiskData | None, executor: Executor) -> None:
        self._image = image
        self._executor = executor
        self._writing: list[Future[None]] = []

    def begin(self) -> None:
        """Starts to write back the pages that are dirty now."""
        caches = () if self._image is None else self._image.caches
        self._writing += [
            self._executor.submit(
                answered, place, partial(_with_files, pagecache.write_back, place)
            )
            for place in caches
        ]

    def wait(self) -> None:
        """Waits until everything that was started is written. Raises HostError."""
        while self._writing:
            self._writing.pop().result()

    def now(self) -> None:
        """Writes back the pages that are dirty now, and waits for that. Raises HostError."""
        self.begin()
        self.wait()


@contextmanager
def writing_back(image: DiskData | None) -> Iterator[WriteBack]:
    """Background write-back for an image; waits at the end until everything is written."""
    with ThreadPoolExecutor(1) as executor:
        background = WriteBack(image, executor)
        yield background
        background.wait()


class Counters(Value):
    """Reads the counters for one measurement: QEMU's (in a guest), the host's devices', the
    kernel's.

    `image` is what holds the guest's data: a file, a device or a directory. The `link` to a server
    counts if the host has no device for the data. `syncs` counts the opener's calls of fdatasync.
    """

    qemu: QemuCounter
    devices: tuple[tuple[int, int], ...]
    pid: int | None
    image: Path | None
    daemon: int | None = None
    link: Link | None = None
    syncs: Callable[[], int | None] = lambda: None

    def snapshot(self) -> Snapshot:
        """All counters at this moment; QEMU's CPU time includes that of its daemon."""
        cpu = (
            counters.children_cpu_seconds()
            if self.pid is None
            else counters.process_cpu_seconds(self.pid)
        )
        if self.daemon is not None:
            served = counters.process_cpu_seconds(self.daemon)
            cpu = None if cpu is None or served is None else cpu + served
        return Snapshot(
            qemu=self.qemu(),
            device=self.device(),
            cpu=cpu,
            resident=self._of_image(pagecache.resident_share),
            allocated=self._of_image(pagecache.occupied_bytes),
            steal=counters.steal_seconds(),
            syncs=self.syncs(),
        )

    def device(self) -> IoCounters | None:
        """What the host's devices, or the link to a server, have transferred."""
        if self.link is None or self.devices:
            return counters.read_devices(self.devices)
        return self.link.counters()

    def _of_image(self, count: Callable[[Path], _Count]) -> _Count | None:
        image = self.image
        return None if image is None else answered(image, lambda: count(image))


class Snapshot(Value):
    """Counters at one moment; None where there is no counter."""

    qemu: IoCounters | None
    device: IoCounters | None
    cpu: float | None
    resident: float | None
    allocated: int | None
    steal: float | None
    syncs: int | None = None


def guest_counters(
    machine: Machine,
    disk: Disk,
    devices: tuple[tuple[int, int], ...],
    image: Path | None,
    daemon: int | None = None,
) -> Counters:
    """The counters of a disk in a running guest.

    A `daemon` that serves a disk does not count its requests: only its CPU time is known.
    """
    if daemon is not None:
        return Counters(lambda: None, devices, machine.pid, image, daemon)
    return Counters(lambda: disk_statistics(machine, disk), devices, machine.pid, image)


class Sync(Value):
    """What was written is brought to the device: how long that took, and the bytes that the device
    wrote meanwhile, None if nobody counts them."""

    seconds: float
    written: int | None


def synced(flush: Callable[[], None], write_back: WriteBack, seen: Counters) -> Sync:
    """Brings all that a disk's guest has written to the device.

    `flush` makes QEMU write what it holds itself, such as the tables of a qcow2 image, and flush.
    With cache=unsafe it does not flush, and then the host's sync of the image does it. The sync
    follows in any case: it also covers images that no QEMU has open.
    """
    before = seen.device()
    begin = time.monotonic()
    flush()
    write_back.now()
    seconds = time.monotonic() - begin
    during = _since(before, seen.device())
    return Sync(seconds, None if during is None else during.write_bytes)


def sustained_samples(
    samples: Sequence[Sample], evidence: Evidence, size: int
) -> tuple[Sample, ...]:
    """The rate at which a program's writes reached the device: bytes by the seconds of its run and
    of the sync after it. Nothing without a sync, or if nothing was written.

    A ramp before the run was written at the same rate, and its bytes are synced, too: QEMU counts
    them, the program does not. `size` is the disk's in bytes.
    """
    burst = sum(
        sample.value
        for sample in samples
        if sample.metric == "bandwidth" and sample.direction is Direction.WRITE
    )
    counts = [count.write_bytes for count in (evidence.guest, evidence.qemu) if count is not None]
    written = max(counts, default=0)
    if evidence.sync_seconds is None or not burst or not written:
        return ()
    seconds = evidence.sync_seconds * _overwritten(evidence, written, size)
    return (Sample("sustained", Direction.WRITE, 1 / (1 / burst + seconds / written)),)


class LastingWrites:
    """What several guests write on one device from now on, and the rate at which that lasts."""

    def __init__(
        self, disks: Sequence[Counters], device: Callable[[], IoCounters | None], size: int
    ) -> None:
        """`size` is that of one disk, in bytes."""
        self._disks, self._device = disks, device
        self._size = size * len(disks)
        self._before = self._now()
        self._evidence = Evidence()

    def _now(self) -> tuple[IoCounters | None, IoCounters | None]:
        return IoCounters.total([disk.qemu() for disk in self._disks]), self._device()

    def synced(self, syncs: Sequence[Callable[[], Sync | None]]) -> Sync | None:
        """Brings what was written to the device, one guest's disk after the other; None if nothing
        here can do that for one of them."""
        (qemu, device), now = self._before, self._now()
        self._evidence = Evidence(qemu=_since(qemu, now[0]), device=_since(device, now[1]))
        done = [sync() for sync in syncs]
        made = [counted for counted in done if counted is not None]
        if len(made) < len(done):
            return None
        written = [counted.written for counted in made if counted.written is not None]
        bytes_written = sum(written) if len(written) == len(made) else None
        return Sync(sum(counted.seconds for counted in made), bytes_written)

    def samples(self, samples: Sequence[Sample], sync: Sync | None) -> tuple[Sample, ...]:
        """The sustained rate of all guests together; nothing without a sync."""
        if sync is None:
            return ()
        evidence = replace(self._evidence, sync_seconds=sync.seconds, sync_bytes=sync.written)
        return sustained_samples(samples, evidence, self._size)


def _overwritten(evidence: Evidence, written: int, size: int) -> float:
    """How often each byte that the sync wrote had been written in memory, at least once.

    A fast program writes a small disk twice in half a second, and only the last version of each
    byte is synced. The bytes that had not reached the device say so, unless the sync wrote much
    less than they can be: then the device's counters do not show them (compression, a server).
    """
    if evidence.device is None or not evidence.sync_bytes:
        return 1.0
    left = written - evidence.device.write_bytes
    is_counted = evidence.sync_bytes >= _COUNTED * min(left, size)
    return max(1.0, left / evidence.sync_bytes) if is_counted else 1.0


@contextmanager
def counting_syncs(
    host: Host, counted: Counters, observe: Collection[str]
) -> Iterator[tuple[Counters, tuple[Check, ...]]]:
    """The counters, with one of the opener's calls of fdatasync if `host_syncs` is to be observed.

    Where the host cannot count them, they stay unknown, and the check says why.
    """
    opener = counted.pid if counted.daemon is None else counted.daemon
    if opener is None or "host_syncs" not in observe:
        yield counted, ()
        return
    with ExitStack() as entered:
        try:
            calls = entered.enter_context(sync_calls.counted_syncs(host, opener))
        except HostError as error:
            state = f"not counted: {error.message}"
        else:
            state, counted = "counted", replace(counted, syncs=calls.count)
        yield counted, (Check("host.fdatasync_calls", None, state),)


def evidence_between(
    before: Snapshot, after: Snapshot, guest: IoCounters | None, sync: Sync | None = None
) -> Evidence:
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
        sync_seconds=None if sync is None else sync.seconds,
        sync_bytes=None if sync is None else sync.written,
    )


def _since(before: IoCounters | None, after: IoCounters | None) -> IoCounters | None:
    return None if before is None or after is None else after.since(before)


def _difference(before: float | None, after: float | None) -> float | None:
    """The difference; None if a counter is unknown or went backwards, as steal time does on some
    hosts.
    """
    return None if before is None or after is None or after < before else after - before


class Growth:
    """Measures by how much an image's mapped bytes and the devices' discarded ones grow, as far as
    `observe` contains `mapped` and `freed_device`."""

    def __init__(
        self,
        host: Host,
        image: DiskData | None,
        observe: Collection[str],
        devices: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._host = host
        self._devices = devices if "freed_device" in observe else ()
        self._discarded = counters.discarded_bytes(self._devices)
        self._image = image if isinstance(image, ImageFile) and "mapped" in observe else None
        self._before = self._now()

    def mapped(self) -> int | None:
        """Bytes by which it grew; None for a device, which has no map, or if not observed."""
        now = self._now()
        return None if now is None or self._before is None else now - self._before

    def discarded(self) -> int | None:
        """Bytes that the devices were told to discard; None if unknown or not observed."""
        now = counters.discarded_bytes(self._devices)
        return None if now is None or self._discarded is None else now - self._discarded

    def _now(self) -> int | None:
        if self._image is None or isinstance(self._image.target, Device):
            return None
        return mapped_bytes(self._host, self._image)


def observed_samples(
    observe: Collection[str],
    evidence: Evidence,
    mapped: int | None,
    discarded: int | None = None,
    syncs: int | None = None,
) -> tuple[Sample, ...]:
    """A sample for each metric in `observe` that has a counter. An image that shrank did not grow
    by any number, and one that grew (by a journal) gave nothing back.
    """
    allocated = None
    if evidence.allocated_before is not None and evidence.allocated_after is not None:
        allocated = evidence.allocated_after - evidence.allocated_before
    guest, qemu, device = evidence.guest, evidence.qemu, evidence.device
    totals = {
        "allocated": allocated, "mapped": mapped,
        "flushes": None if qemu is None else qemu.flush_operations,
        "writes": None if guest is None else guest.write_operations,
        "host_syncs": syncs,
        "device_flushes": None if device is None else device.flush_operations,
        "freed_image": None if allocated is None else max(0, -allocated),
        "freed_device": discarded,
    }  # fmt: skip
    return tuple(
        Sample(name, Direction.TRIM if "freed" in name else Direction.WRITE, float(value))
        for name in observe
        if (value := totals[name]) is not None and value >= 0
    )

"""Records one disk of a running guest for some time, and makes a load of what QEMU logged."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath

import numpy as np

from vdisklab.errors import CommandError, GuestError, HostError, PlanError, WorkloadError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.loads.load import IoKind, LoadSource, RecordedBy, RecordedLoad
from vdisklab.loads.qemu_trace.trace_log import (
    GrowthClock,
    TracedBus,
    TraceLog,
    has_times,
    read_trace,
)
from vdisklab.loads.requests import PlaceRequests
from vdisklab.recording.guard import guard
from vdisklab.recording.guest_disks import (
    DiskCounts,
    RecordableDisk,
    choose_disk,
    counts_of,
    disks_of,
)
from vdisklab.recording.guests import GuestMonitor, RunningGuest, open_monitor
from vdisklab.recording.tracing import TracingLog, available_events, log_file, tracing
from vdisklab.units import format_bytes, format_duration, named
from vdisklab.value import Value

TAINTED = (
    "libvirt marks the domain as tainted (custom-monitor) until its next start: a note in its log, "
    "without effect"
)
LOG_LIMIT = 2 << 30
"""Bytes of a log, enough for 10 million requests."""

_LOOK_SECONDS = 0.25
_FINE_SECONDS = 0.004
"""How often the log's size is looked at where its lines have no times."""
_FIRST_LINE = 512
_PROXMOX = "qemu-server"
"""The directory of the monitors' sockets, VMID.qmp (PVE/QemuServer/Helpers.pm, qmp_socket)."""
_GUARD_SECONDS = 120.0
_LEAST_FREE = 8 << 20
_SAME_BYTES, _SAME_SHARE = 1 << 20, 0.05
"""Two counts of one disk's bytes differ by the requests in flight at both ends."""


class NotTraced(Value):
    """Why a guest's requests cannot be recorded one by one, as a clause."""

    disk: RecordableDisk
    why: str


@dataclass(slots=True)
class _LogGrowth:
    """The sizes of a log as it grew."""

    size: list[int] = field(default_factory=list)
    at_us: list[int] = field(default_factory=list)

    def clock(self) -> GrowthClock:
        return GrowthClock(np.array(self.size, np.int64), np.array(self.at_us, np.int64))


class Wait(Value):
    """How long to record, in seconds, and how long the log may become, in bytes.

    `ended_early` tells the user's wish to end; it is asked a few times a second.
    """

    seconds: float
    log_limit: int
    ended_early: Callable[[], bool]


def find_disk(
    host: Host, guest: RunningGuest, wanted: str | None
) -> tuple[RecordableDisk, tuple[str, ...] | NotTraced, str]:
    """The guest's disk, the events that trace it (or why none do), and QEMU's version.

    Raises PlanError and GuestError.
    """
    files = _libvirts_files(host, guest)
    with open_monitor(host, guest) as monitor:
        state = monitor.execute("query-status")
        if not (isinstance(state, dict) and state.get("running")):
            status = state.get("status") if isinstance(state, dict) else "unknown"
            raise GuestError(
                f"guest {guest.name} does not run at the moment ({str(status)[:40]})",
                hint=f"`virsh resume {guest.domain}`" if guest.domain else "resume it, then record",
            )
        disk = choose_disk(disks_of(monitor), wanted, files, guest.name)
        return disk, _events(monitor, disk), _version(monitor)


def _events(monitor: GuestMonitor, disk: RecordableDisk) -> tuple[str, ...] | NotTraced:
    bus = disk.bus
    if bus is None:
        return NotTraced(disk, f"requests of a {disk.kind} are not traced")
    events = available_events(monitor, bus.events)
    missing = sorted(set(bus.events) - set(events))
    if missing:
        return NotTraced(disk, f"this QEMU has no trace event {missing[0]}")
    # The event that ends requests comes last: see switch_on.
    return (*available_events(monitor, bus.further), *bus.events)


def record_disk(
    host: Host,
    ledger: Ledger,
    guest: RunningGuest,
    disk: RecordableDisk,
    *,
    events: Sequence[str],
    qemu: str,
    wait: Wait,
) -> RecordedLoad | NotTraced:
    """The load of the time that was waited for; NotTraced if QEMU logs nothing of it.

    Raises GuestError, HostError, LoadError, and WorkloadError for a guest that asked nothing of the
    disk, or whose requests cannot be told from those of another disk. DirtyHostError if the events
    could not be switched off.
    """
    assert disk.bus is not None  # noqa: S101 - it has events
    notes: list[str] = [TAINTED] if guest.domain else []
    looks, counts = _LogGrowth(), []
    began = datetime.now(UTC)
    watched = partial(guard, seconds=wait.seconds + _GUARD_SECONDS)
    with log_file(ledger, guest) as log:
        limit = min(wait.log_limit, _free(log) // 2)
        idle = _counts_beside(host, guest, disk)
        with tracing(host, ledger, guest, events=events, log=log, guard=watched):
            start_us = _now_us()
            counts.append(_counted(host, guest, disk))
            notes += _waited(log, guest, wait, limit, looks)
            end_us = _now_us()
            counts.append(_counted(host, guest, disk))
        if idle and (now := _counts_beside(host, guest, disk)) != idle:
            busy = [name for name, before in idle.items() if now.get(name) != before]
            return NotTraced(
                disk,
                f"QEMU's events do not tell several {disk.bus.name} disks apart, and "
                f"{named(busy or list(now))} worked, too",
            )
        traced = _read(log, disk.bus, disk.logical_block, looks, end_us)
    counted = _difference(counts)
    if not traced.lines and counted is not None and counted.reads + counted.writes:
        return NotTraced(
            disk, "this QEMU sends its trace events elsewhere (built without the backend `log`)"
        )
    place = place_of(traced, counted, disk, guest)
    notes += _what_was_not_seen(place, traced, counted, disk.bus, guest)
    lost = traced.strange + traced.requests.lost + _fewer(place, counted)
    fine = 1 if traced.timestamps else round(_FINE_SECONDS * 1e6)
    source = LoadSource(
        name=f"{guest.name} {disk.name}",
        recorded_by=RecordedBy.QEMU_TRACE,
        span_us=max(end_us - start_us, 1),
        recorded_at=began,
        disk_bytes=disk.size_bytes,
        bus=disk.bus.name,
        logical_block=disk.logical_block,
        qemu=qemu,
        lost=lost,
        resolution_us=fine,
        notes=tuple(notes),
    )
    return place.load(source, start_us, timed=traced.timestamps)


def _waited(
    log: TracingLog, guest: RunningGuest, wait: Wait, limit: int, looks: _LogGrowth
) -> Iterator[str]:
    """Waits; says why it ended early."""
    begun = time.monotonic()
    fine = None
    next_look = begun
    while (passed := time.monotonic() - begun) < wait.seconds:
        size = log.size
        if fine is None and size:
            fine = not has_times(os.pread(log.descriptor, _FIRST_LINE, 0))
        if fine is not False:
            looks.size.append(size)
            looks.at_us.append(_now_us())
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + _LOOK_SECONDS
            after = format_duration(passed)
            if size >= limit:
                yield f"the recording ended after {after}: the log reached {format_bytes(limit)}"
                return
            if _free_bytes(log) < _LEAST_FREE:
                yield f"the recording ended after {after}: the log's file system is full"
                return
            if not guest.is_running:
                yield f"the recording ended after {after}: the guest stopped, or was moved away"
                return
            if wait.ended_early():
                yield f"the recording was ended after {after}"
                return
        left = wait.seconds - (time.monotonic() - begun)
        time.sleep(max(0.0, min(left, _LOOK_SECONDS if fine is False else _FINE_SECONDS)))
    looks.size.append(log.size)
    looks.at_us.append(_now_us())


def _read(log: TracingLog, bus: TracedBus, block: int, looks: _LogGrowth, end_us: int) -> TraceLog:
    if not looks.size:
        looks.size.append(log.size)
        looks.at_us.append(_now_us())
    with open(log.descriptor, "rb", closefd=False) as stream:
        stream.seek(0)
        return read_trace(stream, bus, block, looks.clock(), end_us)


def place_of(
    traced: TraceLog, counted: DiskCounts | None, disk: RecordableDisk, guest: RunningGuest
) -> PlaceRequests:
    """The place in the log whose bytes are those that QEMU counted of the disk: the log names disks
    by addresses in QEMU's memory. Raises WorkloadError if none or several are."""
    places = traced.requests.places
    idle = counted is not None and not (counted.reads + counted.writes + counted.flushes)
    if not places or idle:
        raise WorkloadError(
            f"guest {guest.name} asked nothing of {disk.name} while it was recorded",
            hint="record for longer, or while the guest works: --for 1h",
        )
    if counted is None:
        if len(places) == 1:
            return next(iter(places.values()))
        raise WorkloadError(
            f"guest {guest.name} ended before its disks could be told apart",
            hint="record again",
        )
    near = sorted((_distance(place, counted), name) for name, place in places.items())
    allowed = max(_SAME_BYTES, _SAME_SHARE * (counted.read_bytes + counted.written_bytes))
    if near[0][0] > allowed or (len(near) > 1 and near[1][0] < 2 * near[0][0] + 4096):
        raise WorkloadError(
            f"the requests of {disk.name} cannot be told from those of the guest's other disks",
            hint="record for longer, or while the other disks are idle",
        )
    return places[near[0][1]]


def _distance(place: PlaceRequests, counted: DiskCounts) -> int:
    """How many bytes the log and QEMU's counters are apart.

    QEMU counts write-zeroes among the written bytes (virtio_blk_handle_discard_write_zeroes), and
    logs that there were some, but not how many bytes.
    """
    written = place.bytes_of(IoKind.WRITE) + place.bytes_of(IoKind.WRITE_ZEROES)
    missing = counted.written_bytes - written
    return abs(place.bytes_of(IoKind.READ) - counted.read_bytes) + (
        0 if place.untold and missing > 0 else abs(missing)
    )


def _what_was_not_seen(
    place: PlaceRequests,
    traced: TraceLog,
    counted: DiskCounts | None,
    bus: TracedBus,
    guest: RunningGuest,
) -> Iterator[str]:
    if bus.untold:
        yield f"QEMU does not log, for {bus.name}: {bus.untold}"
    flushes = place.count_of(IoKind.FLUSH)
    if bus.name == "virtio" and counted is not None and flushes > counted.flushes + 1:
        yield (
            f"{flushes - counted.flushes:,} of {flushes:,} flushes are discards, write-zeroes or "
            "queries: QEMU counted fewer flushes than requests without a beginning"
        )
    if place.untold:
        yield (
            f"{place.untold:,} discards, write-zeroes or queries of the disk's name are left out: "
            "QEMU logs that they were, not where"
        )
    if not traced.timestamps:
        yield (
            f"QEMU's log has no times (it was started without -msg timestamp=on): they are known "
            f"to {_FINE_SECONDS * 1000:.0f} ms, and no service times{_with_times(guest)}"
        )


def _with_times(guest: RunningGuest) -> str:
    """What gives the log times from the guest's next start, where a platform has a way."""
    socket = PurePath(guest.socket)
    if socket.parent.name != _PROXMOX:
        return ""
    return f"; from its next start: `qm set {socket.stem} --args '-msg timestamp=on'`"


def _fewer(place: PlaceRequests, counted: DiskCounts | None) -> int:
    """How many reads and writes QEMU counted that the log does not have."""
    if counted is None:
        return 0
    logged = sum(map(place.count_of, (IoKind.READ, IoKind.WRITE, IoKind.WRITE_ZEROES)))
    logged += place.untold
    return max(0, counted.reads + counted.writes - logged)


def _counted(host: Host, guest: RunningGuest, disk: RecordableDisk) -> DiskCounts | None:
    with contextlib.suppress(GuestError, HostError), open_monitor(host, guest) as monitor:
        return counts_of(monitor, disk)
    return None


def _counts_beside(
    host: Host, guest: RunningGuest, disk: RecordableDisk
) -> dict[str, DiskCounts | None]:
    """What QEMU has counted of the guest's other disks that its events do not tell from this one;
    none if they do, or when the guest has ended."""
    if disk.bus is None or not disk.bus.one_place:
        return {}
    with contextlib.suppress(GuestError, HostError), open_monitor(host, guest) as monitor:
        return {
            each.name: counts_of(monitor, each)
            for each in disks_of(monitor)
            if each.bus is disk.bus and each.device != disk.device
        }
    return {}


def _difference(counts: Sequence[DiskCounts | None]) -> DiskCounts | None:
    before, after = counts
    return None if before is None or after is None else after.since(before)


def _libvirts_files(host: Host, guest: RunningGuest) -> Mapping[str, str]:
    """The image files of a libvirt domain by the names that its XML has for disks, such as vda."""
    if not guest.domain:
        return {}
    try:
        printed = host.run(
            "virsh", "--connect", guest.uri, "domblklist", "--domain", guest.domain
        ).stdout
    except CommandError:
        return {}
    rows = [line.split(maxsplit=1) for line in printed.splitlines()[2:]]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def _version(monitor: GuestMonitor) -> str:
    answer = monitor.execute("query-version")
    qemu = answer.get("qemu") if isinstance(answer, dict) else None
    if not isinstance(qemu, dict):
        return "unknown"
    return ".".join(str(qemu.get(part)) for part in ("major", "minor", "micro"))


def _free_bytes(log: TracingLog) -> int:
    found = os.fstatvfs(log.descriptor)
    return found.f_bavail * found.f_frsize


def _free(log: TracingLog) -> int:
    free = _free_bytes(log)
    if free < 2 * _LEAST_FREE:
        raise HostError(
            f"only {format_bytes(free)} are free in {log.file.parent.parent}, too few for a log",
            hint="free some space there, or set VDISKLAB_STATE to another directory",
        )
    return free


def _now_us() -> int:
    """Microseconds since 1970, as QEMU's log counts."""
    return int(time.time() * 1_000_000)


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """A function that tells whether Ctrl-C, SIGTERM or SIGHUP asked to end.

    The signals interrupt nothing else in the body, so what was recorded so far is kept.
    """
    import signal  # noqa: PLC0415

    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, _: asked.append(got)) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def require_seconds(seconds: float) -> None:
    """Raises PlanError for a time that is too short or too long to record."""
    if not 1 <= seconds <= 7 * 86_400:
        raise PlanError("a recording takes from 1 s to 7 days", hint="write --for 10m")

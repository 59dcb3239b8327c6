"""Records a guest's disk into a load file, or counts it where it cannot be traced."""

from __future__ import annotations

import os
import re
from pathlib import Path

from vdisklab.actions.output_file import output_file, require_writable
from vdisklab.answers.record import CountedLatencyRow, CountedSecondRow, RecordAnswer
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.host.command import Host
from vdisklab.host.ledger import open_ledger
from vdisklab.loads.characteristics import characteristics_of
from vdisklab.loads.likeness import likeness_of
from vdisklab.loads.load import RecordedLoad
from vdisklab.loads.load_file import SUFFIX, encode
from vdisklab.progress import Note, Progress
from vdisklab.recording.block_device import record_device, traced_device
from vdisklab.recording.guest_disks import RecordableDisk
from vdisklab.recording.guests import RunningGuest, find_guest
from vdisklab.recording.recorder import (
    NotTraced,
    Wait,
    find_disk,
    record_disk,
    require_seconds,
    until_interrupted,
)
from vdisklab.recording.statistics import DiskStatistics, count_disk
from vdisklab.units import format_duration
from vdisklab.value import Value


class RecordWish(Value):
    """What to record: a guest's disk (None: its only one), for so many seconds, into a file
    (None: one in the current directory, named for the disk).

    `otherwise` is what to do where requests cannot be traced; None: QEMU's counters will do.
    """

    guest: str
    disk: str | None
    seconds: float
    file: Path | None
    libvirt: str | None
    log_limit: int
    otherwise: str | None = None


def record_guest(host: Host, wish: RecordWish, progress: Progress) -> RecordAnswer:
    """Records, writes the file, and says what was recorded. Ctrl-C ends the recording early.

    Raises PlanError, GuestError, HostError, WorkloadError; DirtyHostError if something could not be
    switched off.
    """
    require_seconds(wish.seconds)
    guest = find_guest(host, wish.guest, wish.libvirt)
    disk, events, qemu = find_disk(host, guest, wish.disk)
    file = wish.file or Path(file_name(guest.name, disk.name))
    # Before the wait: what cannot be written costs no time.
    if not isinstance(events, NotTraced):
        require_writable(file)
    else:
        _require_counters_do(wish, guest, events)
    with open_ledger() as ledger, until_interrupted() as ended_early:
        wait = Wait(wish.seconds, wish.log_limit, ended_early)
        progress(
            Note(
                f"recording {disk.name} of {guest.name} for {format_duration(wish.seconds)}; "
                "Ctrl-C ends it and keeps what was recorded"
            )
        )
        if not isinstance(events, NotTraced):
            recorded = record_disk(host, ledger, guest, disk, events=events, qemu=qemu, wait=wait)
            if isinstance(recorded, RecordedLoad):
                return _written(recorded, guest.name, disk.name, file)
            events = recorded
            _require_counters_do(wish, guest, events)
        progress(Note(f"{events.why}: its counters are read instead, and no file is written"))
        counted = count_disk(host, ledger, guest, disk, wait)
    return _counted(counted, guest, disk, events)


def _require_counters_do(wish: RecordWish, guest: RunningGuest, why: NotTraced) -> None:
    """Raises WorkloadError if only a recording of requests will do."""
    if wish.otherwise is not None:
        raise WorkloadError(
            f"the requests of {why.disk.name} of {guest.name} cannot be recorded, because "
            f"{why.why}",
            hint=wish.otherwise,
        )


def record_here(host: Host, device: str, wish: RecordWish, progress: Progress) -> RecordAnswer:
    """Records a disk of this machine by blktrace, and writes the file. Raises the same errors."""
    require_seconds(wish.seconds)
    if wish.disk is not None or wish.libvirt is not None:
        raise PlanError("--here names the disk already", hint="leave out --disk and --libvirt")
    traced = traced_device(device)
    file = wish.file or Path(file_name(os.uname().nodename, traced.file.name))
    require_writable(file)
    with open_ledger() as ledger, until_interrupted() as ended_early:
        wait = Wait(wish.seconds, wish.log_limit, ended_early)
        progress(
            Note(
                f"recording {traced.file} for {format_duration(wish.seconds)}; "
                "Ctrl-C ends it and keeps what was recorded"
            )
        )
        load = record_device(host, ledger, traced, wait)
    return _written(load, os.uname().nodename, str(traced.file), file)


def file_name(guest: str, disk: str) -> str:
    """A file's name for a guest's disk."""
    clean = re.sub(r"[^\w.-]+", "-", f"{guest}-{disk}", flags=re.ASCII).strip("-.")[:100]
    return f"{clean or 'guest'}{SUFFIX}"


def _written(load: RecordedLoad, guest: str, disk: str, file: Path) -> RecordAnswer:
    content = encode(load)
    with output_file(file) as stream:
        stream.write(content)
    return RecordAnswer(
        guest=guest,
        disk=disk,
        file=str(file),
        file_bytes=len(content),
        sentence=likeness_of(characteristics_of(load)).sentence,
        seconds=load.source.span_us / 1e6,
        requests=len(load),
        lost=load.source.lost,
        only_statistics=None,
        statistics=(),
        latencies=(),
        notes=load.source.notes,
    )


def _counted(
    counted: DiskStatistics, guest: RunningGuest, disk: RecordableDisk, why: NotTraced
) -> RecordAnswer:
    seconds = counted.seconds[-1].at_seconds if counted.seconds else 0.0
    counts_flushes = disk.bus is None or disk.bus.counts_flushes
    rows = tuple(
        CountedSecondRow(
            each.at_seconds, each.counts.reads, each.counts.read_bytes, each.counts.writes,
            each.counts.written_bytes, each.counts.flushes if counts_flushes else None,
        )
        for each in counted.seconds
    )  # fmt: skip
    latencies = tuple(
        CountedLatencyRow(each.kind, sum(each.counts), each.percentile(0.5), each.percentile(0.99))
        for each in counted.latencies
        if sum(each.counts)
    )
    return RecordAnswer(
        guest=guest.name,
        disk=disk.name,
        file=None,
        file_bytes=None,
        sentence="",
        seconds=seconds,
        requests=None,
        lost=None,
        only_statistics=why.why,
        statistics=rows,
        latencies=latencies,
        notes=(),
    )

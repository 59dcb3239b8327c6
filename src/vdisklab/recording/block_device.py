"""Records a block device of this machine by blktrace: inside a guest, or in a cloud's machine.

blktrace(8) writes what the kernel tells of each request; blkparse(1) turns it into text.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError, PlanError, WorkloadError
from vdisklab.host.command import Host, environment, require_programs
from vdisklab.host.ledger import Entry, Kind, Ledger
from vdisklab.host.safe_places import make_directory, make_state_directory
from vdisklab.host.state_directory import state_directory
from vdisklab.host.syscalls import die_with_parent
from vdisklab.host.waiting import patience
from vdisklab.loads.load import RecordedLoad
from vdisklab.loads.traces.blkparse import FORM
from vdisklab.loads.traces.trace_file import TraceWish, read_trace_file
from vdisklab.recording.recorder import Wait
from vdisklab.units import SECTOR, whole_number
from vdisklab.value import Value, replace

BLKTRACE = "blktrace of device"
"""The kind of thing that the ledger notes."""

_SYSFS = Path("/sys/class/block")
# Of each CPU the kernel hands over what filled a buffer: 2 MiB in pieces that are small enough for
# a small --log-limit (blktrace takes 4 of 512 KiB).
_BUFFERS = ("-b", "64", "-n", "32")
_LOOK_SECONDS = 0.25
_END_SECONDS = 30.0
_PARSE_SECONDS = 1800.0
_DROPPED = re.compile(r"dropped ([0-9]{1,12})")
_LOCKED = (
    "the kernel's lockdown forbids it, as with Secure Boot: record the guest on its host, with "
    "`vdisklab record GUEST`"
)
_FORBIDDEN = re.compile("permitted|denied", re.IGNORECASE)
_UNOPENED = re.compile("Invalid path .*(?:permitted|denied)", re.IGNORECASE)
"""blktrace could not open the disk itself, which lockdown does not forbid."""
_BUSY = re.compile("resource busy", re.IGNORECASE)
"""BLKTRACESETUP of a disk that is traced already (kernel/trace/blktrace.c)."""


class TracedDevice(Value):
    """A whole disk: its file, its number as blkparse writes it, its size and logical block."""

    file: Path
    number: str
    size_bytes: int
    logical_block: int


def traced_device(name: str, sysfs: Path = _SYSFS) -> TracedDevice:
    """The disk of that name. Raises PlanError for what is no whole disk."""
    file = Path(name if name.startswith("/") else f"/dev/{name}")
    place = sysfs / os.path.realpath(file).rpartition("/")[2]
    number, size = _read(place / "dev"), whole_number(_read(place / "size"))
    if not number or size is None:
        raise PlanError(f"{file} is not a block device", hint="name a disk: `lsblk` lists them")
    if _read(place / "partition"):
        disk = place.resolve().parent.name
        raise PlanError(f"{file} is a partition", hint=f"name the whole disk: /dev/{disk}")
    block = whole_number(_read(place / "queue" / "logical_block_size"))
    return TracedDevice(file, number.replace(":", ","), size * SECTOR, block or SECTOR)


def record_device(host: Host, ledger: Ledger, device: TracedDevice, wait: Wait) -> RecordedLoad:
    """The load of the time that was waited for. Raises HostError, LoadError, and WorkloadError for
    a disk that was asked for nothing; DirtyHostError if blktrace does not end."""
    require_programs(host, "blktrace", "blkparse")
    base = state_directory() / "recordings"
    make_state_directory(base)
    directory = base / f"vdisklab-{ledger.run_id}"
    began = datetime.now(UTC)
    with ExitStack() as stack:
        stack.enter_context(ledger.entry(Kind.DIRECTORY, directory))
        make_directory(directory, "the log directory", "set VDISKLAB_STATE", 0o700)
        stack.callback(_remove, directory)
        with ledger.entry(BLKTRACE, device.file):
            seconds, dropped, notes = _traced(host, device, directory, wait)
        text = directory / "text"
        host.run(
            "blkparse", "-q", "-i", "trace", "-D", directory, "-o", text, timeout=_PARSE_SECONDS
        )
        try:
            load = read_trace_file(text, FORM, TraceWish(device.number), str(device.file))
        except WorkloadError as error:
            if text.stat().st_size and device.number.encode() in text.read_bytes()[: 1 << 20]:
                raise
            raise WorkloadError(
                f"{device.file} was asked for nothing while it was recorded",
                hint="record for longer: --for 1h",
            ) from error
    source = replace(
        load.source,
        name=str(device.file),
        span_us=max(load.source.span_us, round(seconds * 1e6)),
        recorded_at=began,
        disk_bytes=device.size_bytes,
        logical_block=device.logical_block,
        lost=dropped,
        notes=(*load.source.notes, *notes),
    )
    return replace(load, source=source)


def _traced(
    host: Host, device: TracedDevice, directory: Path, wait: Wait
) -> tuple[float, int, list[str]]:
    """Runs blktrace. Returns seconds, dropped events, and notes."""
    program = str(host.which("blktrace") or "blktrace")
    command = [program, "-d", str(device.file), "-a", "issue", "-a", "complete",
               *_BUFFERS, "-D", str(directory), "-o", "trace"]  # fmt: skip
    begun = time.monotonic()
    notes: list[str] = []
    output = directory / "said"
    with output.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            env=environment(), start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGINT),  # noqa: PLW1509 - one thread
        )  # fmt: skip
        try:
            while process.poll() is None and time.monotonic() - begun < wait.seconds:
                if wait.ended_early():
                    notes.append("the recording was ended early")
                    break
                if sum(file.stat().st_size for file in directory.iterdir()) > wait.log_limit:
                    notes.append("the recording ended early: blktrace's files reached --log-limit")
                    break
                time.sleep(_LOOK_SECONDS)
            ended = process.poll() is not None
            process.send_signal(signal.SIGINT)  # it writes what it has, and takes the trace down
            process.wait(_END_SECONDS * patience())
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise DirtyHostError(f"blktrace of {device.file} does not end") from error
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    printed = output.read_text(errors="replace")
    if ended or process.returncode not in (0, -signal.SIGINT):
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        raise HostError(
            f"blktrace cannot trace {device.file}: {' | '.join(lines[-2:])[:200] or 'it ended'}",
            hint=_way_out(printed),
        )
    dropped = sum(int(match[1]) for match in _DROPPED.finditer(printed))
    return time.monotonic() - begun, dropped, notes


def _way_out(printed: str) -> str:
    """What helps if blktrace prints this and ends."""
    if _BUSY.search(printed):
        return (
            "another program traces it: wait for it; after a killed recording run `vdisklab clean`"
        )
    if _FORBIDDEN.search(printed) and os.geteuid() != 0:
        return "be root"
    if _UNOPENED.search(printed):
        return "a container may not open its host's disks: record on the host"
    if _FORBIDDEN.search(printed):
        return _LOCKED
    return "mount debugfs: mount -t debugfs debugfs /sys/kernel/debug"


def stop_blktrace(host: Host, entry: Entry) -> None:
    """Takes the kernel's trace of a device down that a killed blktrace left. Raises HostError."""
    if Path(entry.name).exists():
        host.run("blktrace", "-d", entry.name, "-k", allowed=range(256))


def _remove(directory: Path) -> None:
    if not directory.is_dir():
        return
    for file in directory.iterdir():
        file.unlink(missing_ok=True)
    directory.rmdir()


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""

"""A block device whose every change is logged: the disk below the host's file system.

Two instruments log it: the project's own FUSE server, and device-mapper's target `log-writes`
(Documentation/admin-guide/device-mapper/log-writes.rst) where the kernel has it. The target logs a
write some time after acknowledging it, and only after the next flush. So the length of a growing
log is not a position. Instead a position is a mark, which is queued after the acknowledged
requests; `resolve_marks` replaces marks by positions when the log is complete.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host import command, mounts, pagecache, syscalls, waiting
from vdisklab.host.ledger import Kind
from vdisklab.powercut import client, rebuild, write_log
from vdisklab.powercut.disk_server import FULL, HONEST, READY, Lies
from vdisklab.results.power_cut import DISK_LOG
from vdisklab.storage.device import read_direct_io, require_flushes
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device
from vdisklab.units import GIB, whole_number

TARGET = "log-writes"
_START_SECONDS = 30.0
_END_SECONDS = 60.0
_SPARSE_LOG_BYTES = 16 * GIB
_MARK = "vdisklab-"


class LoggedBy(StrEnum):
    """The instrument that logs the disk."""

    FUSE = "fuse"
    DM = "dm-log-writes"


@dataclass(slots=True)
class MarkTail:
    """Positions as marks, numbered from 0."""

    host: command.Host
    device: str
    _next: int = 0

    def position(self) -> int:
        """Sends a mark and returns its number."""
        number, self._next = self._next, self._next + 1
        self.host.run("dmsetup", "message", self.device, "0", "mark", f"{_MARK}{number}")
        return number


@dataclass(frozen=True, slots=True)
class LoggedDisk:
    """The logged file or device with the properties that were read back, and its growing log.

    `marks` is set if positions are marks instead of lengths of the log.
    """

    path: Path
    log: Path
    size: int
    marks: MarkTail | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def device(self) -> Device:
        """The device to build on. It must not be a logged file."""
        return Device(self.path, self.properties)


@contextmanager
def logged_disk(
    site: Site,
    name: str,
    size: int,
    *,
    lies: Lies = HONEST,
    direct_io: bool = True,
    log: Path | None = None,
) -> Iterator[LoggedDisk]:
    """A loop device of `size` bytes over a logged file. Raises HostError as `logged_file` does."""
    with (
        logged_file(site, name, size, lies=lies, log=log) as below,
        site.tracked(Kind.LOOP, below.path),
    ):
        device = Path(syscalls.attach_loop(below.path, direct_io=direct_io))
        require_flushes(device)
        yield replace(below, path=device, properties=_direct_io(site, device))


@contextmanager
def rated_disk(site: Site, name: str, size: int, rate: float) -> Iterator[Path]:
    """A loop device of `size` bytes that completes `rate` requests a second, one after the other.

    Raises HostError as `logged_file` does.
    """
    with _served_file(site, name, size, f"--rate={rate:g}") as file, site.tracked(Kind.LOOP, file):
        yield Path(syscalls.attach_loop(file, direct_io=True))


@contextmanager
def logged_file(
    site: Site, name: str, size: int, *, lies: Lies = HONEST, log: Path | None = None
) -> Iterator[LoggedDisk]:
    """A file whose size stays `size` bytes; the FUSE server logs each change to it.

    Content and log lie in the site's directory, which should be in memory. A `log` elsewhere is
    kept; otherwise it is removed with the file. Raises HostError without FUSE or when the server
    does not start.
    """
    log = log or site.directory / f"{name}.log"
    options = (f"--dropped-flushes={lies.dropped_flushes}", f"--seed={lies.seed}")
    with (
        site.tracked(Kind.FILE, log) if log.parent == site.directory else nullcontext(),
        _served_file(site, name, size, *options, log=log) as file,
    ):
        yield LoggedDisk(file, log, size)


@contextmanager
def _served_file(
    site: Site, name: str, size: int, *options: str, log: Path | None = None
) -> Iterator[Path]:
    refused = pagecache.try_device("fuse")
    if refused is not None:
        raise HostError(f"/dev/fuse: {refused.strerror}", hint="modprobe fuse, or run as root")
    mountpoint, content = site.directory / f"{name}.disk", site.directory / f"{name}.content"
    marker = f"{site.directory.name}-{name}"
    argv = (
        sys.executable, "-m", "vdisklab.powercut.disk_server", f"--marker={marker}",
        f"--size={size}", *options, *map(os.fspath, filter(None, (mountpoint, content, log))),
    )  # fmt: skip
    with (
        site.tracked(Kind.FILE, content),
        site.tracked(Kind.FILE, mountpoint),
        site.tracked(Kind.PROCESS, f"--marker={marker}"),
    ):
        site.new_file(mountpoint)
        with site.tracked(Kind.MOUNT, mountpoint), _server(argv, marker):
            yield mountpoint
            # The server ends with its mount; `_server` waits for that.
            site.host.run("umount", mountpoint)


def _direct_io(site: Site, loop: Path) -> dict[str, str]:
    return {"loop.direct_io": "on" if read_direct_io(site.host, loop) else "off"}


@contextmanager
def _server(argv: tuple[str, ...], marker: str) -> Iterator[None]:
    """The running server. It ends when its file is unmounted; otherwise it is killed."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # Ctrl-C goes to the whole process group, but the disk must outlive its users.
        start_new_session=True,
    )
    try:
        _await_ready(process)
        with _required_health(process, marker):
            yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _required_health(process: subprocess.Popen[bytes], marker: str) -> Iterator[None]:
    """Waits for the server's end when the context closes.

    Raises HostError if the server was killed or ran out of memory, even if the body raised another
    error: the disk's users then saw errors that are not part of the disk model.
    """
    try:
        yield
        process.wait(_END_SECONDS * waiting.patience())
    except subprocess.TimeoutExpired as error:
        raise mounts.still_mounted("the logged disk", marker) or HostError(
            "the logged disk did not end when it was unmounted"
        ) from error
    except DirtyHostError:
        raise
    except Exception as error:
        status = waiting.exit_status(process)
        _require_memory_sufficed(process, error)
        if status is not None:
            raise _ended_early(status) from error
        raise
    else:
        _require_memory_sufficed(process)
        if process.returncode:
            raise _ended_early(process.returncode)


def _ended_early(status: int) -> HostError:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
    return HostError(
        f"the logged disk's server {how} while the disk was in use",
        hint="`dmesg` shows whether it was killed for lack of memory; run the same command again",
    )


def _require_memory_sufficed(
    process: subprocess.Popen[bytes], cause: Exception | None = None
) -> None:
    """Raises MemoryFullError if the server reported it; ends the server to read its report."""
    if FULL in _error_output(process):
        raise rebuild.memory_full("the data written to the logged disk") from cause


def _error_output(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    return process.communicate()[1]


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None  # noqa: S101 - Popen was given a pipe
    readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS * waiting.patience())
    line = process.stdout.readline() if readable else b""
    if line != READY:
        errors = _error_output(process)
        if FULL in errors:
            raise rebuild.memory_full("a logged disk")
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise HostError(f"the logged disk cannot be started: {last[0]}")


def dm_table(size: int, disk: str, log: str) -> str:
    """The device's table: start sector, number of sectors, target, the disk and its log."""
    return f"0 {size // 512} {TARGET} {disk} {log}"


def require_log_writes(host: command.Host) -> str:
    """The target with its version: `log-writes v1.1.0`. Raises HostError where device-mapper or the
    target is missing."""
    command.require_programs(host, "dmsetup")
    version = pagecache.mapper_target(host, TARGET)
    if version is not None:
        return version
    raise HostError(
        f"this kernel's device-mapper has no target {TARGET}",
        hint="leave out --logged-by to log the disk through FUSE",
    )


def _require_mapped(host: command.Host, device: str) -> None:
    """Reads the table back. Raises HostError when the device has another target."""
    table = host.run("dmsetup", "table", device).stdout.split()
    if table[2:3] != [TARGET]:
        raise HostError(
            f"dmsetup created the device {device}, but its table is {' '.join(table)!r}",
            hint="another program created a device of that name: run the same command again",
        )


@contextmanager
def mapped_disk(site: Site, name: str, size: int, log: Path) -> Iterator[LoggedDisk]:
    """A device that device-mapper logs into the file `log`, complete when the context closes."""
    target = require_log_writes(site.host)
    content, device = site.directory / f"{name}.content", site.unique(name)
    with site.tracked(Kind.FILE, content):
        for file, length in ((content, size), (log, _SPARSE_LOG_BYTES)):
            site.new_file(file)
            os.truncate(file, length)
        with site.tracked(Kind.LOOP, content), site.tracked(Kind.LOOP, log):
            disks = [syscalls.attach_loop(file) for file in (content, log)]
            for disk in disks:
                require_flushes(Path(disk))
            with site.tracked(Kind.MAPPED, device):
                site.host.run("dmsetup", "create", device, "--table", dm_table(size, *disks))
                _require_mapped(site.host, device)
                properties = {**_direct_io(site, Path(disks[0])), DISK_LOG: target}
                mapped, marks = Path("/dev/mapper") / device, MarkTail(site.host, device)
                yield LoggedDisk(mapped, log, size, marks, properties)


def mark_positions(log: write_log.Log) -> Mapping[int, int]:
    """The position of each of vdisklab's marks in the log, by the mark's number."""
    positions: dict[int, int] = {}
    for at, entry in enumerate(log.entries):
        text = write_log.mark_text(log, entry)
        if text is not None and text.startswith(_MARK):
            number = whole_number(text.removeprefix(_MARK))
            if number is not None:
                positions[number] = at
    return positions


def resolve_marks(trace: client.Trace, log: write_log.Log) -> client.Trace:
    """The trace with positions instead of marks. Raises LogError when a mark is missing."""
    positions = mark_positions(log)

    def position(mark: int) -> int:
        if mark not in positions:
            raise write_log.LogError(f"the log {log.path} lacks the mark {_MARK}{mark}")
        return positions[mark]

    return replace(
        trace,
        begin=position(trace.begin),
        end=position(trace.end),
        writes=tuple(
            replace(
                write,
                submitted=position(write.submitted),
                acked=None if write.acked is None else position(write.acked),
                durable_at=None if write.durable_at is None else position(write.durable_at),
            )
            for write in trace.writes
        ),
        flushes=tuple((position(first), position(last)) for first, last in trace.flushes),
    )

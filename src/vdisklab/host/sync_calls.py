"""How often a process asks its kernel to make data durable: fsync, fdatasync, io_uring's fsync.

QEMU counts the flushes that its guest sends. What QEMU then asks of the host is another number:
with cache=writethrough fdatasync follows each write, with cache=unsafe no flush becomes one. QEMU
7.2 has no trace event of these calls, so the kernel's tracepoints are counted (perf_event_open(2)):
for one process with all threads that it has and will have, without a record of any. While such a
counter exists, every system call of the machine enters the kernel by its slow way, so it exists
only in measurements that ask for it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.path.architecture import SYSTEM_CALLS
from vdisklab.units import whole_number
from vdisklab.value import Value

TRACEFS = Path("/sys/kernel/tracing")

_SYSTEM_CALLS = ("syscalls/sys_enter_fdatasync", "syscalls/sys_enter_fsync")
_RINGS = ("io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe")
"""Its name since Linux 6.3, and before."""

_IS_FSYNC = b"opcode == 3\0"  # IORING_OP_FSYNC in linux/io_uring.h

# linux/perf_event.h
_PERF_TYPE_TRACEPOINT, _PERF_ATTR_BYTES, _INHERIT = 2, 136, 1 << 1
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_EVENT_IOC_SET_FILTER = 0x40082406

_ATTEMPTS = 20

_libc = ctypes.CDLL(None, use_errno=True)


class SyncCalls(Value):
    """The open counters of one process, one for each of its threads and each kind of call."""

    counters: tuple[int, ...]

    def count(self) -> int:
        """How many calls there were since the counting began, of threads that have ended, too."""
        return sum(struct.unpack("<Q", os.read(counter, 8))[0] for counter in self.counters)


@contextmanager
def counted_syncs(
    host: Host, pid: int, tracefs: Path = TRACEFS, processes: Path = Path("/proc")
) -> Iterator[SyncCalls]:
    """Counts a process's calls from now on. Raises HostError where the kernel does not count them,
    for this user or at all."""
    calls = SYSTEM_CALLS.get(platform.machine())
    if calls is None:
        raise HostError(f"calls of fdatasync are not counted on {platform.machine()}")
    points = _tracepoints(host, tracefs)
    for _ in range(_ATTEMPTS):
        with ExitStack() as opened:
            threads = _threads(processes / str(pid))
            counters = []
            for thread in threads:
                for point, only in points:
                    counter = _opened(calls.perf_event_open, point, thread)
                    if counter is not None:
                        opened.callback(os.close, counter)
                        counters.append(counter)
                        if only:
                            fcntl.ioctl(counter, _PERF_EVENT_IOC_SET_FILTER, only)
            # A thread that a counted thread starts is counted with it, and one that was started
            # before would be missed.
            if _threads(processes / str(pid)) == threads:
                yield SyncCalls(tuple(counters))
                return
    raise HostError(
        f"process {pid} starts threads faster than their calls of fdatasync can be counted",
        hint="the machine may be too busy: stop other work",
    )


def _threads(process: Path) -> Sequence[int]:
    try:
        return sorted(int(task.name) for task in (process / "task").iterdir())
    except OSError as error:
        raise HostError(
            f"process {process.name} ended before its calls could be counted"
        ) from error


def _opened(call: int, point: int, thread: int) -> int | None:
    """A counter of one thread and those that it starts; None if the thread has ended meanwhile."""
    attributes = bytearray(_PERF_ATTR_BYTES)
    struct.pack_into(
        "<IIQQQQQ", attributes, 0, _PERF_TYPE_TRACEPOINT, _PERF_ATTR_BYTES, point, 0, 0, 0, _INHERIT
    )
    buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    counter = _libc.syscall(call, buffer, thread, -1, -1, _PERF_FLAG_FD_CLOEXEC)
    if counter >= 0:
        return int(counter)
    number = ctypes.get_errno()
    if not Path(f"/proc/{thread}").exists():
        return None
    raise HostError(
        f"the kernel does not let this user count calls of fdatasync: {os.strerror(number)}",
        hint="measure as root",
    )


def _tracepoints(host: Host, tracefs: Path) -> list[tuple[int, bytes]]:
    """The numbers of the tracepoints, each with its filter; a kernel without io_uring has no third.

    Where tracefs is not mounted, it is mounted in a namespace that ends with the command.
    """
    names = [*_SYSTEM_CALLS, *_RINGS]
    found = {name: number for name in names if (number := _number(tracefs, name)) is not None}
    if not found:
        script = (
            f'mount -t tracefs vdisklab {tracefs} && cd {tracefs}/events && for name in "$@"; do '
        )
        script += 'echo "$name $(cat "$name/id")"; done 2>/dev/null'
        asked = ("unshare", "--mount", "sh", "-c", script, "sh", *names)
        lines = host.run(*asked, allowed=range(256)).stdout.splitlines()
        pairs = [line.partition(" ")[::2] for line in lines]
        found = {name: number for name, text in pairs if (number := whole_number(text)) is not None}
    if not found.keys() >= set(_SYSTEM_CALLS):
        raise HostError(
            "this kernel does not count calls of fdatasync, or not for this user",
            hint="measure as root, on a kernel with CONFIG_FTRACE_SYSCALLS",
        )
    rings = [(found[name], _IS_FSYNC) for name in _RINGS if name in found]
    return [*((found[name], b"") for name in _SYSTEM_CALLS), *rings[:1]]


def _number(tracefs: Path, name: str) -> int | None:
    try:
        return whole_number((tracefs / "events" / name / "id").read_text().strip())
    except OSError:
        return None

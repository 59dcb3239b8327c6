"""Deadlines, and signals that are blocked while something must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Protocol

from vdisklab.errors import INTERRUPTS, DirtyHostError, HostError, VdisklabError
from vdisklab.host.machine import SYSTEM, is_emulated

KVM_DEVICE = Path("/dev/kvm")

# The share of one CPU: looking at the 40 processes of a fio job takes 7 ms, and asking QEMU for its
# counters 20 ms in the lab's emulated host.
_LOOKING = 0.01
_PF_EXITING = 0x4  # include/linux/sched.h
_DYING_SECONDS = 30.0


def factor_of_machine(root: Path = SYSTEM, kvm: Path = KVM_DEVICE) -> float:
    """1 on a usual machine, 8 if QEMU emulates its CPU, 20 if it also has no KVM.

    Guests of an emulated host answer slowly, and very slowly if they are emulated in it.
    """
    if not is_emulated(root):
        return 1.0
    return 8.0 if kvm.exists() else 20.0


_OF_THIS_MACHINE = factor_of_machine()
_FACTOR: ContextVar[float] = ContextVar("factor", default=_OF_THIS_MACHINE)


def patience() -> float:
    """The factor of all deadlines in this thread: that of the machine, or a larger one within
    `longer_deadlines`.
    """
    return _FACTOR.get()


@contextmanager
def longer_deadlines(factor: float) -> Iterator[None]:
    """Makes all deadlines in this thread longer by a factor."""
    before = _FACTOR.set(factor * patience())
    try:
        yield
    finally:
        _FACTOR.reset(before)


def pause_after(look: Callable[[], None], *, least: float = 0.0) -> float:
    """Looks once, and returns the seconds to wait before the next look: at least `least`, and
    enough to use no more than 1 % of a CPU, so that looking does not change the measurement.
    """
    before = time.thread_time()
    look()
    return max(least, (time.thread_time() - before) / _LOOKING)


def seconds_without_cpu(pid: int, proc: Path = Path("/proc")) -> float:
    """Seconds for which a process was ready to run but had no CPU: those of its thread that waited
    longest.

    0 if the process has ended or the kernel does not count this. Source: the second number of
    /proc/PID/task/TID/schedstat, in ns (Documentation/scheduler/sched-stats.rst).
    """
    waited = [0]
    with contextlib.suppress(OSError):  # a thread may end at any time
        for task in (proc / str(pid) / "task").iterdir():
            waited.append(int((task / "schedstat").read_text().split()[1]))
    return max(waited) / 1e9


def exit_status(
    process: subprocess.Popen[bytes] | subprocess.Popen[str], proc: Path = Path("/proc")
) -> int | None:
    """A process's exit status; None if it runs.

    The kernel closes a dying process's files before it tells the parent (do_exit in kernel/exit.c),
    on a busy machine long before. So one whose connection was lost may seem to run; the flag in the
    ninth field of /proc/PID/stat tells, and the end is waited for.
    """
    if process.poll() is None:
        with contextlib.suppress(OSError):
            fields = (proc / str(process.pid) / "stat").read_text().rpartition(")")[2].split()
            if int(fields[6]) & _PF_EXITING:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_DYING_SECONDS * patience())
    return process.poll()


def clock_of(pid: int) -> Callable[[], float]:
    """A clock in seconds that stands still while a busy host lets the process wait for a CPU."""
    waited = 0.0

    def clock() -> float:
        nonlocal waited
        waited = max(waited, seconds_without_cpu(pid))  # it is 0 again when the process has ended
        return time.monotonic() - waited

    return clock


class Clock(Protocol):
    """Monotonic time and sleep: the module `time`, or a fake in tests."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Waits for `seconds`."""


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    what: str,
    clock: Clock = time,
    interval: float = 0.01,
    error: type[VdisklabError] = HostError,
) -> None:
    """Returns once `condition()` is true; raises `error` naming `what` after `timeout` seconds.

    The condition is checked at least once, and once more after the deadline: a sleep may take
    longer than it should. The interval grows to 0.1 s.
    """
    deadline = clock.monotonic() + timeout * patience()
    while not condition():
        if clock.monotonic() >= deadline:
            raise error(f"no {what} within {timeout:g} s")
        clock.sleep(interval)
        interval = min(interval * 1.5, 0.1)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delivers the signals in INTERRUPTS only after the body has ended.

    Does nothing outside the main thread, because Python runs signal handlers in the main thread
    only. Signals that are ignored or have their default action are not changed. A DirtyHostError
    discards the signal: the error ends vdisklab anyway, and what lies below the remaining thing
    must stay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    replaced = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in replaced:
            signal.signal(number, hold)
        yield
    except DirtyHostError:
        received.clear()
        raise
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])

"""Other namespaces: of mounts, as a container has one, and of processes, to die slowly in."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.host.mounts import mounted_elsewhere
from vdisklab.host.syscalls import opened
from vdisklab.host.waiting import wait_until

_CLONE_NEWPID = 0x20000000
_libc = ctypes.CDLL(None, use_errno=True)


def hold_elsewhere(stack: ExitStack, source: str, how: str = "private") -> None:
    """Holds what is mounted from `source` until the stack closes; `how` is the propagation."""
    argv = ("unshare", "--mount", "--propagation", how, "sleep", "60")
    holder = stack.enter_context(subprocess.Popen(argv))
    stack.callback(holder.kill)
    wait_until(lambda: bool(mounted_elsewhere(source)), timeout=30, what="the other namespace")


@contextmanager
def first_process() -> Iterator[None]:
    """The next program that this thread starts is the first process of a PID namespace.

    While a thread's children go to another namespace, it cannot start a thread (copy_process in
    kernel/fork.c). So the namespace is made when Python says that a program is to be started, and
    left at the next thing that Python says.
    """
    starter, moved, waits = (os.getpid(), threading.get_ident()), False, True

    def hook(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal moved, waits
        if (os.getpid(), threading.get_ident()) != starter:  # another thread, or the child itself
            return
        if moved:
            moved = False
            assert _libc.setns(here.fileno(), _CLONE_NEWPID) == 0
        elif waits and event == "subprocess.Popen":
            waits, moved = False, True
            assert _libc.unshare(_CLONE_NEWPID) == 0

    with Path("/proc/self/ns/pid").open() as here:
        sys.addaudithook(hook)  # it stays, and does nothing once `waits` and `moved` are false
        try:
            yield
        finally:
            waits = False
            if moved:
                moved = False
                assert _libc.setns(here.fileno(), _CLONE_NEWPID) == 0


def die_slowly(stack: ExitStack, first: int, seconds: float = 0.5) -> None:
    """Keeps a `first_process` for so long between closing its files and its end, when it is killed.

    It waits there for the end of all others in its namespace (zap_pid_ns_processes in
    kernel/pid_namespace.c), and nobody asks for the end of one that we started.
    """
    with opened("/proc/self/ns/pid", os.O_RDONLY) as here:
        with opened(Path(f"/proc/{first}/ns/pid"), os.O_RDONLY) as other:
            assert _libc.setns(other, _CLONE_NEWPID) == 0
        held = subprocess.Popen(["sleep", "60"])
        assert _libc.setns(here, _CLONE_NEWPID) == 0

    def let_go() -> None:
        os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOWAIT)
        time.sleep(seconds)
        held.wait()

    letting_go = threading.Thread(target=let_go)
    letting_go.start()
    stack.callback(letting_go.join)
    stack.callback(held.kill)

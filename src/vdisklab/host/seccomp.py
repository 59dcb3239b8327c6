"""Drops some fsyncs of a process, which succeed without effect.

This is a control of the power cut: it must detect a QEMU that drops one flush in fifty. An
LD_PRELOAD library would need a compiler on the user's machine; seccomp's user notification
(seccomp_unotify(2), Linux 5.5) does not. Numbers are from linux/seccomp.h and linux/filter.h.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import HostError


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers that depend on the architecture: AUDIT_ARCH_… and system calls."""

    audit: int
    seccomp: int
    fsync: int
    fdatasync: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 74, 75),
    "aarch64": _Machine(0xC00000B7, 277, 82, 83),
}

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_RET_ALLOW, _RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_INSTRUCTION = struct.Struct("HBBI")
_NOTIF_RECV, _NOTIF_SEND = 0xC0502100, 0xC0182101
_NOTIFICATION_BYTES = 80
_RESPONSE = struct.Struct("<QqiI")
_CONTINUE = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass(slots=True)
class Forgetful:
    """`before` must run in the process; the counts of sync calls grow while it runs."""

    before: Callable[[], None]
    calls: int = 0
    dropped: int = 0


@contextmanager
def forgetful_syncs(every: int) -> Iterator[Forgetful]:
    """Drops every `every`-th fsync or fdatasync of a process that has called `before`.

    A dropped call returns 0. Raises HostError on an unknown architecture.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise HostError(f"dropping fsyncs is not supported on {platform.machine()}")
    near, far = socket.socketpair()
    stop_end, stop = os.pipe()
    state = Forgetful(lambda: _install(far, machine))
    watcher = threading.Thread(target=_watch, args=(near, stop_end, state, every), daemon=True)
    with near, far:
        watcher.start()
        try:
            yield state
        finally:
            os.close(stop)
            watcher.join()
            os.close(stop_end)


def _filter(machine: _Machine) -> bytes:
    """The BPF program: fsync and fdatasync go to the listener, other calls to the kernel."""
    return b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_JUMP_EQUAL, 0, 3, machine.audit),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_JUMP_EQUAL, 2, 0, machine.fsync),
            (_JUMP_EQUAL, 1, 0, machine.fdatasync),
            (_RETURN, 0, 0, _RET_ALLOW),
            (_RETURN, 0, 0, _RET_USER_NOTIF),
        )
    )


def _install(far: socket.socket, machine: _Machine) -> None:
    """Runs in the new process before exec: installs the filter and sends us the listener."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(machine)
    program = _Program(len(code) // _INSTRUCTION.size, code)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(machine.seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(far, [b"."], [listener])
    os.close(listener)


def _watch(near: socket.socket, stop: int, state: Forgetful, every: int) -> None:
    readable, _, _ = select.select([near.fileno(), stop], [], [])
    if near.fileno() not in readable:
        return
    _, (listener, *_), _, _ = socket.recv_fds(near, 1, 1)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(stop, select.POLLIN)
    try:
        while True:
            events = dict(poll.poll())
            if stop in events or not events.get(listener, 0) & select.POLLIN:
                return
            _answer(listener, state, every)
    finally:
        os.close(listener)


def _answer(listener: int, state: Forgetful, every: int) -> None:
    notification = bytearray(_NOTIFICATION_BYTES)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, notification)
        (number,) = struct.unpack_from("<Q", notification)
        state.calls += 1
        drop = state.calls % every == 0
        response = bytearray(_RESPONSE.pack(number, 0, 0, 0 if drop else _CONTINUE))
        fcntl.ioctl(listener, _NOTIF_SEND, response)
        state.dropped += drop
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINTR):  # the caller was killed meanwhile
            raise

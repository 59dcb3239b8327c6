"""A process of QEMU or its storage daemon, killed at the end of its context or of this program."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.command import environment
from vdisklab.host.syscalls import die_with_parent

_KILL_SECONDS = 30.0
_ATTEMPTS = 8


@contextmanager
def qemu_process(
    argv: tuple[str, ...],
    inherited: tuple[socket.socket, ...],
    errors: Path,
    *,
    before: Callable[[], None] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs one of QEMU's programs, and kills it at the end. Its output goes to `errors`.

    The program inherits the given sockets. `before` runs in the process just before the program.
    """

    def prepare() -> None:
        die_with_parent(signal.SIGKILL)
        if before is not None:
            before()

    descriptors = tuple(end.fileno() for end in inherited)
    with errors.open("wb") as sink:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=descriptors,
                env=environment(),
                start_new_session=True,  # Ctrl-C must not reach it: disks must be detached first
                preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
            )
        except FileNotFoundError as error:
            raise HostError(
                f"{argv[0]} is not installed", hint="`vdisklab doctor` names its package"
            ) from error
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DirtyHostError(
            f"QEMU (process {process.pid}) did not end when killed: it waits for the host's disk",
            hint="see `dmesg`, then run `vdisklab clean`",
        ) from error


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets, closed at the end."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A new event loop, whose tasks are cancelled at the end."""
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        _finish_tasks(loop)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # or asyncio prints a Ctrl-C that a task raised again
        loop.close()


def _finish_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Lets cancelled tasks end.

    A Ctrl-C inside a task is raised again by each task that waits for it, so this may take several
    attempts. Otherwise asyncio would print warnings about unfinished tasks.
    """
    with contextlib.suppress(RuntimeError):
        closing = loop.create_task(loop.shutdown_asyncgens())
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(KeyboardInterrupt):
                loop.run_until_complete(closing)
                return

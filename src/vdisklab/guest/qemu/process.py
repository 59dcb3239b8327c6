"""A process of QEMU's: started so that it dies with us, and certainly gone when the block ends."""

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
    """A program of QEMU's, told to write to `errors`, killed when the block ends.

    It inherits the given sockets, and `before` runs in it just before the program does.
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
                start_new_session=True,  # Ctrl-C is ours to handle: first detach, then end
                preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
            )
        except FileNotFoundError as error:
            raise HostError(
                f"{argv[0]} is not installed", hint="`vdisklab doctor` says which package has it"
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
            f"QEMU (process {process.pid}) did not end when killed; it waits for the host's disk",
            hint="look at dmesg, then run `vdisklab clean`",
        ) from error


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets, closed when the block ends."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop of its own, with nothing left running in it at the end."""
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        _come_to_rest(loop)
        loop.close()


def _come_to_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Lets cancelled tasks end.

    A Ctrl-C that came within a task is raised again by each task that waits for that one, so this
    may take several attempts; given up, asyncio would complain of what it never began.
    """
    with contextlib.suppress(RuntimeError):
        closing = loop.create_task(loop.shutdown_asyncgens())
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(KeyboardInterrupt):
                loop.run_until_complete(closing)
                return

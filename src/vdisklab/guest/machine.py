"""A running guest: started, awaited, used, and certainly gone when the block ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.errors import DirtyHostError, GuestError, HostError
from vdisklab.guest.agent import Agent
from vdisklab.guest.argv import Channels, GuestConfig, build_argv
from vdisklab.guest.monitor import Channel, open_channel
from vdisklab.host.command import environment
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.plan.guest import Accelerator

_CONSOLE_LINES = 8
_KILL_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

BOOT_SECONDS = {Accelerator.KVM: 15.0, Accelerator.TCG: 90.0}
"""Deadline for the guest agent's first answer; ten times and more of what was measured."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One QEMU process whose guest answers."""

    config: GuestConfig
    argv: tuple[str, ...]
    pid: int
    monitor: Channel
    agent: Agent

    def freeze(self) -> None:
        """Stops the virtual CPUs, so that a guest in waiting costs no time."""
        self.monitor.execute("stop")

    def thaw(self) -> None:
        """Lets the virtual CPUs run again."""
        self.monitor.execute("cont")

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """What a QMP query returns."""
        return self.monitor.execute(command)


@contextmanager
def start_machine(
    config: GuestConfig, ledger: Ledger, directory: Path, *, timeout: float | None = None
) -> Iterator[Machine]:
    """A guest that has answered through its agent.

    Raises GuestError with the console's last lines when it dies or does not answer within
    `timeout` seconds. The process is killed at the end: nothing in the micro guest is worth an
    orderly shutdown, and its disks have been detached or are thrown away.
    """
    limit = timeout or BOOT_SECONDS[config.accelerator]
    console = directory / f"{config.marker}.console"
    errors = directory / f"{config.marker}.stderr"
    with ExitStack() as stack:
        stack.enter_context(ledger.entry(Kind.PROCESS, f"guest={config.marker},"))
        stack.enter_context(_console_note(console, errors))
        monitor_end, monitor_far = stack.enter_context(_socketpair())
        agent_end, agent_far = stack.enter_context(_socketpair())
        channels = Channels(monitor_far.fileno(), agent_far.fileno(), console)
        argv = build_argv(config, channels)
        process = stack.enter_context(_process(argv, (monitor_far, agent_far), errors))
        monitor_far.close()
        agent_far.close()
        loop = stack.enter_context(_event_loop())
        monitor = stack.enter_context(
            open_channel(loop, monitor_end, "monitor", negotiate=True, timeout=limit)
        )
        _await_agent_port(monitor, limit)
        channel = stack.enter_context(
            open_channel(loop, agent_end, "agent", negotiate=False, timeout=limit)
        )
        agent = Agent(channel)
        agent.synchronise(timeout=limit)
        yield Machine(config, argv, process.pid, monitor, agent)


def _await_agent_port(monitor: Channel, timeout: float) -> None:
    """Waits until the guest has opened the agent's port.

    Nothing is sent to the agent before: messages that pile up in a port which nobody has opened
    yet were seen to hang a guest of two CPUs under TCG (QEMU 7.2). The event is sent for ports
    that have an id only.
    """

    def opened(data: Mapping[str, Any]) -> bool:
        return bool(data.get("open"))

    with monitor.expecting("VSERPORT_CHANGE", opened) as wait:
        wait(timeout)


@contextmanager
def _process(
    argv: tuple[str, ...], inherited: tuple[socket.socket, ...], errors: Path
) -> Iterator[subprocess.Popen[bytes]]:
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
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads here
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


def _die_with_parent() -> None:
    """The kernel kills QEMU when we die, even by SIGKILL (prctl(2), PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _socketpair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        with contextlib.suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def _console_note(console: Path, errors: Path) -> Iterator[None]:
    """Adds what the guest and QEMU said last to an error of the guest."""
    try:
        yield
    except GuestError as error:
        for what, file in (("QEMU said", errors), ("last lines of the guest's console", console)):
            lines = _tail(file)
            if lines:
                error.add_note("\n".join([f"{what}:", *(f"  {line}" for line in lines)]))
        raise


def _tail(file: Path) -> list[str]:
    try:
        text = file.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return []
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    return [line.strip() for line in printable.splitlines() if line.strip()][-_CONSOLE_LINES:]

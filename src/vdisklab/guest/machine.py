"""A running guest: started, awaited, used, and certainly gone when the block ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.agent import Agent
from vdisklab.guest.argv import Channels, GuestConfig, build_argv
from vdisklab.guest.monitor import Channel, open_channel
from vdisklab.guest.process import event_loop, qemu_process, socket_pair
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.plan.guest import Accelerator

_CONSOLE_LINES = 8

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
        monitor_end, monitor_far = stack.enter_context(socket_pair())
        agent_end, agent_far = stack.enter_context(socket_pair())
        channels = Channels(monitor_far.fileno(), agent_far.fileno(), console)
        argv = build_argv(config, channels)
        process = stack.enter_context(qemu_process(argv, (monitor_far, agent_far), errors))
        monitor_far.close()
        agent_far.close()
        loop = stack.enter_context(event_loop())
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
def _console_note(console: Path, errors: Path) -> Iterator[None]:
    """Adds what the guest and QEMU said last to an error of the guest."""
    try:
        yield
    except GuestError as error:
        said = _tail(errors)
        if said:
            error.add_note("\n".join(["QEMU said:", *said]))
        last = _tail(console) or ["(it printed nothing)"]
        error.add_note("\n".join(["last lines of the guest's console:", *last]))
        raise


def _tail(file: Path) -> list[str]:
    try:
        text = file.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return []
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    lines = [f"  {line.strip()}" for line in printable.splitlines() if line.strip()]
    return lines[-_CONSOLE_LINES:]

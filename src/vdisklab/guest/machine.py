"""A running guest: started, awaited, used, and certainly gone when the block ends."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError
from vdisklab.guest.agent import Agent
from vdisklab.guest.qemu.command_line import Channels, GuestConfig, OwnBoot, build_argv
from vdisklab.guest.qemu.process import event_loop, qemu_process, socket_pair
from vdisklab.guest.qemu.qmp import Channel, open_channel
from vdisklab.guest.system.detect_os import look_inside
from vdisklab.guest.system.guest_system import Family, GuestDisk, GuestSystem, MicroGuest
from vdisklab.host.deadline import patience
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.plan.guest import Accelerator

SHUT_DOWN = "/usr/lib/vdisklab/shutdown"

_CONSOLE_LINES = 8

BOOT_SECONDS = {Accelerator.KVM: 15.0, Accelerator.TCG: 90.0}
"""Deadline for the guest agent's first answer; ten times and more of what was measured."""

OWN_BOOT_SECONDS = {Accelerator.KVM: 300.0, Accelerator.TCG: 900.0}
"""The same for a guest of the user's own, whatever it starts before its agent."""

ANSWER_SECONDS = {Accelerator.KVM: 30.0, Accelerator.TCG: 120.0}
"""Deadline for each answer of the agent to a question about a program.

On a machine with other work an emulated processor was seen to stand still for 36 s (the guest's own
watchdog said so) in the middle of an installation, which was then lost.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """One QEMU process whose guest answers."""

    config: GuestConfig
    argv: tuple[str, ...]
    pid: int
    monitor: Channel
    agent: Agent
    system: GuestSystem

    def await_ready(self) -> None:
        """Returns when the guest has come to rest after its boot. Raises GuestError."""
        self.system.await_ready(self.agent)

    def find_disk(self, serial: str) -> GuestDisk:
        """Waits until the guest shows a disk with this serial number, and reads its facts."""
        return self.system.find_disk(self.agent, serial)

    def freeze(self) -> None:
        """Stops the virtual CPUs, so that a guest in waiting costs no time."""
        self.monitor.execute("stop")

    def thaw(self) -> None:
        """Lets the virtual CPUs run again."""
        self.monitor.execute("cont")

    def shut_down(self, timeout: float) -> None:
        """Has the guest end itself, and waits until its QEMU has ended.

        Raises GuestError when that takes more than `timeout` seconds.
        """
        process = os.pidfd_open(self.pid)
        try:
            # The answer may be lost with the guest.
            with contextlib.suppress(GuestError):
                self.agent.start((SHUT_DOWN,))
            ended, _, _ = select.select([process], [], [], timeout * patience())
        finally:
            os.close(process)
        if not ended:
            raise GuestError(
                f"the guest did not shut down within {timeout:g} s",
                hint="the machine may be too busy: try when it is quiet; a guest of your own "
                "must shut down on the power button (`acpid`, or its agent)",
            )

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """What a QMP query returns."""
        return self.monitor.execute(command)


@contextmanager
def start_machine(
    config: GuestConfig,
    ledger: Ledger,
    directory: Path,
    *,
    timeout: float | None = None,
    watch: Callable[[Channel], None] | None = None,
) -> Iterator[Machine]:
    """A guest that has answered through its agent.

    `watch` is called with QEMU's monitor as soon as there is one, and while the guest boots.

    Raises GuestError with the console's last lines when it dies or does not answer within
    `timeout` seconds. The process is killed at the end: nothing in the micro guest is worth an
    orderly shutdown, and its disks have been detached or are thrown away.
    """
    limit = timeout or _boot_seconds(config)
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
        look = None if watch is None else partial(watch, monitor)
        _await_agent_port(monitor, limit, config.accelerator, look)
        channel = stack.enter_context(
            open_channel(loop, agent_end, "agent", negotiate=False, timeout=limit)
        )
        agent = Agent(channel, patience_seconds=ANSWER_SECONDS[config.accelerator])
        agent.synchronise(timeout=limit)
        system = _system(config, agent)
        if system.family is Family.WINDOWS:
            agent = agent.on_windows()
        yield Machine(config, argv, process.pid, monitor, agent, system)


def _boot_seconds(config: GuestConfig) -> float:
    if isinstance(config.boot, OwnBoot):
        return config.boot.seconds or OWN_BOOT_SECONDS[config.accelerator]
    return BOOT_SECONDS[config.accelerator]


def _system(config: GuestConfig, agent: Agent) -> GuestSystem:
    if isinstance(config.boot, OwnBoot):
        return look_inside(agent, config.boot.diskspd)
    return MicroGuest()


def _await_agent_port(
    monitor: Channel,
    timeout: float,
    accelerator: Accelerator,
    look: Callable[[], None] | None,
) -> None:
    """Waits until the guest has opened the agent's port.

    Nothing is sent to the agent before: messages that pile up in a port which nobody has opened
    yet were seen to hang a guest of two CPUs under TCG (QEMU 7.2). The event is sent for ports
    that have an id only.
    """

    def opened(data: Mapping[str, Any]) -> bool:
        return bool(data.get("open"))

    what = f"sign of the guest's agent under {accelerator.value}"
    with monitor.expecting("VSERPORT_CHANGE", opened, what=what, meanwhile=look) as wait:
        if look is not None:
            look()
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

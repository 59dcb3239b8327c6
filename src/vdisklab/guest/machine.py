"""A running guest: one QEMU process, its monitor and its agent, killed when the context closes."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from vdisklab.errors import GuestError, WrongClockError
from vdisklab.guest import systems
from vdisklab.guest.agent import Agent
from vdisklab.guest.qemu.command_line import Channels, GuestConfig, UserBoot, build_argv
from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel, qemu_process, socket_pair
from vdisklab.guest.steps import StepPort
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.host.waiting import clock_of, patience
from vdisklab.plan.accelerator import Accelerator
from vdisklab.value import Value

SHUT_DOWN = "/usr/lib/vdisklab/shutdown"

_CONSOLE_LINES = 8
_FLUSH_SECONDS = 1200.0

BOOT_SECONDS = {Accelerator.KVM: 15.0, Accelerator.TCG: 90.0}
"""Deadline for the guest agent's first answer: at least ten times the longest measured time."""

USER_BOOT_SECONDS = {Accelerator.KVM: 300.0, Accelerator.TCG: 900.0}
"""The same for a user guest, which may start many services before its agent."""

ANSWER_SECONDS = {Accelerator.KVM: 30.0, Accelerator.TCG: 120.0}
"""Deadline for each later answer of the agent.

On a busy machine the guest's watchdog once reported an emulated CPU that was stopped for 36 s.
"""


NOTHING_PRINTED = "(it printed nothing)"
"""In the place of a console's last lines."""

_MOST_AHEAD = 2.0  # seconds; a right clock is up to 1 s behind, as the RTC counts whole seconds
_COMPARED = 2.0  # seconds
_MOST_OFF = 0.1
"""The share by which a user guest's clock may be off, and as many seconds: it may tick coarsely."""

_NEEDED = (
    "guest-exec", "guest-exec-status", "guest-file-open", "guest-file-read", "guest-file-close",
    "guest-get-osinfo",
)  # fmt: skip


class Machine(Value):
    """One QEMU process with a guest whose agent answers."""

    config: GuestConfig
    argv: tuple[str, ...]
    pid: int
    monitor: Channel
    agent: Agent
    system: systems.GuestSystem
    steps: StepPort | None = None
    """The port of programs that run in steps; None in a user's guest."""

    def await_ready(self) -> None:
        """Waits until the boot is finished and the guest is idle. Raises GuestError."""
        self.system.await_ready(self.agent)

    def find_disk(self, serial: str) -> systems.GuestDisk:
        """Waits until the guest shows a disk with this serial number, and reads its facts."""
        return self.system.find_disk(self.agent, serial)

    def freeze(self) -> None:
        """Stops the virtual CPUs, so that a waiting guest uses no CPU time."""
        self.monitor.execute("stop")

    def thaw(self) -> None:
        """Lets the virtual CPUs run again."""
        self.monitor.execute("cont")

    def flush(self, node: str) -> None:
        """Makes QEMU write and flush what it holds of a block node, as a guest's flush does.

        QMP has no command for it; HMP's `qemu-io` has (hmp-commands.hx). Raises GuestError.
        """
        said = self.monitor.execute(
            "human-monitor-command",
            {"command-line": f"qemu-io {node} flush"},
            timeout=_FLUSH_SECONDS,
        )
        if said:
            raise GuestError(f"QEMU could not flush {node}: {str(said).strip()[:200]}")

    def reset(self) -> None:
        """Resets the guest as its reset button does, and waits until it is booted and idle again.

        QEMU keeps all that it holds. Since it was started with -no-reboot, a reset would end it;
        set-action (qapi/run-state.json) prevents that this once. Raises GuestError.
        """
        left = _countdown(_boot_seconds(self.config), self.monitor.clock)
        self.monitor.execute("set-action", {"reboot": "reset"})
        _await_agent_port(
            self.monitor,
            left(),
            self.config.accelerator,
            begin=lambda: self.monitor.execute("system_reset"),
        )
        self.monitor.execute("set-action", {"reboot": "shutdown"})
        self.agent.synchronise(timeout=left())
        self.await_ready()

    def is_running(self) -> bool:
        """False when its QEMU has ended."""
        try:
            process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            return not select.select([process], [], [], 0)[0]
        finally:
            os.close(process)

    def shut_down(self, timeout: float) -> None:
        """Shuts the guest down and waits until its QEMU has ended.

        Raises GuestError when that takes more than `timeout` seconds.
        """
        process = os.pidfd_open(self.pid)
        try:
            # The guest may stop before its answer arrives.
            with contextlib.suppress(GuestError):
                self.agent.start((SHUT_DOWN,))
            ended, _, _ = select.select([process], [], [], timeout * patience())
        finally:
            os.close(process)
        if not ended:
            raise GuestError(
                f"the guest did not shut down within {timeout:g} s",
                hint="the machine may be too busy: try again when it is idle",
            )

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The answer to a QMP query."""
        return self.monitor.execute(command)


@contextmanager
def start_machine(
    config: GuestConfig,
    ledger: Ledger,
    directory: Path,
    *,
    timeout: float | None = None,
    watch: Callable[[Channel], None] | None = None,
    stops_are_errors: bool = True,
) -> Iterator[Machine]:
    """Starts a guest and waits until its agent answers.

    Unless `stops_are_errors`, waits go on when QEMU stops the guest because its storage fails.

    `watch` is called with QEMU's monitor as soon as it answers, and while the guest boots.

    Raises GuestError with the console's last lines when it dies or does not answer within `timeout`
    seconds, not counting those in which QEMU waits for a CPU of a busy host. The process is killed
    at the end: its disks have been detached or are discarded, so an orderly shutdown is not needed.
    """
    console = directory / f"{config.marker}.console"
    errors = directory / f"{config.marker}.stderr"
    with ExitStack() as stack:
        stack.enter_context(ledger.entry(Kind.PROCESS, f"guest={config.marker},"))
        stack.enter_context(_console_note(console, errors))
        monitor_end, monitor_far = stack.enter_context(socket_pair())
        agent_end, agent_far = stack.enter_context(socket_pair())
        steps_end, steps_far = stack.enter_context(socket_pair())
        inherited = (monitor_far, agent_far, steps_far)
        channels = Channels(monitor_far.fileno(), agent_far.fileno(), steps_far.fileno(), console)
        argv = build_argv(config, channels)
        process = stack.enter_context(qemu_process(argv, inherited, errors))
        for far in inherited:
            far.close()
        clock = clock_of(process.pid)
        left = _countdown(timeout or _boot_seconds(config), clock)
        loop = stack.enter_context(event_loop())
        monitor = stack.enter_context(
            open_channel(loop, monitor_end, "monitor", negotiate=True, timeout=left(), clock=clock)
        )
        if stops_are_errors:
            stack.enter_context(monitor.noticing_stops())
        meanwhile = None if watch is None else partial(watch, monitor)
        _await_agent_port(monitor, left(), config.accelerator, begin=meanwhile, meanwhile=meanwhile)
        channel = stack.enter_context(
            open_channel(
                loop, agent_end, "agent", negotiate=False, timeout=left(), clock=clock,
                stopped=monitor.stopped,
            )
        )  # fmt: skip
        agent = Agent(channel, patience_seconds=ANSWER_SECONDS[config.accelerator])
        agent.synchronise(timeout=left())
        boot = config.boot
        system = (
            detect_os(agent, boot.diskspd) if isinstance(boot, UserBoot) else systems.MicroGuest()
        )
        if config.accelerator is Accelerator.TCG:
            is_users = isinstance(boot, UserBoot)
            (require_steady_rate if is_users else require_steady_clock)(agent)
        if system.family is systems.Family.WINDOWS:
            agent = agent.on_windows()
        steps = None if isinstance(boot, UserBoot) else StepPort(steps_end, loop, monitor)
        yield Machine(config, argv, process.pid, monitor, agent, system, steps)


def require_steady_clock(agent: Agent, now: Callable[[], float] = time.time) -> None:
    """Raises WrongClockError if the guest's clock has run ahead of the host's since its boot.

    Linux takes the time from the emulated RTC, then counts with the CPU's counter (TSC), whose
    rate an emulated kernel may measure wrong on a busy host: 388 MHz for 2445 were seen, "PIT
    calibration deviates from HPET" (arch/x86/kernel/tsc.c, native_calibrate_tsc).
    """
    ahead = agent.clock_seconds() - now()
    if ahead > _MOST_AHEAD:
        raise WrongClockError(
            f"the guest's clock ran {ahead:.0f} s ahead of the host's while it booted",
            hint="an emulated guest measured its CPU wrong: measure when this host is less busy",
        )


def require_steady_rate(
    agent: Agent,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Raises WrongClockError if the guest's clock counts other seconds than the host's.

    A user guest may have any time of day, so the seconds that both clocks count are compared. A
    slow answer makes the test milder, because the host's seconds are then known less exactly.
    """

    def ask() -> tuple[float, float, float]:
        sent = now()
        return sent, agent.clock_seconds(), now()

    sent, begun, answered = ask()
    sleep(_COMPARED)
    sent_again, ended, answered_again = ask()
    least, most = sent_again - answered, answered_again - sent
    counted = ended - begun
    if not (1 - _MOST_OFF) * least - _MOST_OFF <= counted <= (1 + _MOST_OFF) * most + _MOST_OFF:
        raise WrongClockError(
            f"the guest's clock counted {counted:.1f} s in {least:.1f} s of the host's",
            hint="an emulated guest measured its CPU wrong: measure when this host is less busy, "
            "or take tsc=reliable out of its kernel's command line",
        )


def _countdown(seconds: float, clock: Callable[[], float]) -> Callable[[], float]:
    """A function that returns how much is left of `seconds`, in tenths rounded up.

    Each wait multiplies its seconds by `patience`, so the clock's are divided by it.
    """
    started = clock()

    def left() -> float:
        passed = (clock() - started) / patience()
        return max(0.1, math.ceil((seconds - passed) * 10) / 10)

    return left


def _boot_seconds(config: GuestConfig) -> float:
    if isinstance(config.boot, UserBoot):
        return config.boot.seconds or USER_BOOT_SECONDS[config.accelerator]
    return BOOT_SECONDS[config.accelerator]


def _await_agent_port(
    monitor: Channel,
    timeout: float,
    accelerator: Accelerator,
    *,
    begin: Callable[[], object] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Calls `begin`, then waits until the guest has opened the agent's port.

    Messages to a port that is not open yet hung a guest with two CPUs under TCG (QEMU 7.2). QEMU
    sends the event only for ports with an id.
    """

    def opened(data: Mapping[str, Any]) -> bool:
        return bool(data.get("open"))

    what = f"answer of the guest's agent under {accelerator.value}"
    with monitor.expecting("VSERPORT_CHANGE", opened, what=what, meanwhile=meanwhile) as wait:
        if begin is not None:
            begin()
        wait(timeout)


@contextmanager
def _console_note(console: Path, errors: Path) -> Iterator[None]:
    """Adds the last lines of QEMU's errors and of the guest's console to a GuestError."""
    try:
        yield
    except GuestError as error:
        output = _tail(errors)
        if output:
            error.printed = tuple(line.strip() for line in output)
            error.add_note("\n".join(["QEMU printed:", *output]))
        last = _tail(console) or [NOTHING_PRINTED]
        note = "\n".join(["last lines of the guest's console:", *last])
        if note not in getattr(error, "__notes__", ()):  # of several guests
            error.add_note(note)
        raise


def _tail(file: Path) -> list[str]:
    try:
        text = file.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return []
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    lines = [f"  {line.strip()}" for line in printable.splitlines() if line.strip()]
    return lines[-_CONSOLE_LINES:]


def detect_os(agent: Agent, diskspd: Path | None) -> systems.GuestSystem:
    """The operating system of a guest, as its agent reports it.

    Raises UnfitGuestError when its agent does not allow running programs, which is the default on
    Red Hat's distributions.
    """
    info = agent.query("guest-info")
    if not isinstance(info, dict) or not isinstance(info.get("supported_commands", []), list):
        raise GuestError(
            f"the guest agent's answer to guest-info is not as expected: {info!r:.200}",
            hint="install a current qemu-guest-agent in the guest",
        )
    version = str(info.get("version", "unknown"))
    allowed = {
        str(command.get("name"))
        for command in info.get("supported_commands", ())
        if isinstance(command, dict) and command.get("enabled")
    }
    missing = [name for name in _NEEDED if name not in allowed]
    if missing:
        raise systems.UnfitGuestError(
            f"the guest's agent ({version}) does not allow {', '.join(missing)}",
            hint="allow it in the guest: --allow-rpcs or --block-rpcs of qemu-ga, on Red Hat's "
            "distributions in /etc/sysconfig/qemu-ga",
        )
    system = agent.query("guest-get-osinfo")
    if not isinstance(system, dict):
        raise GuestError(
            f"the guest agent's answer to guest-get-osinfo is not as expected: {system!r:.200}",
            hint="install the qemu-guest-agent of the guest's distribution in it",
        )
    name = str(system.get("pretty-name") or system.get("name") or system.get("id") or "unknown")
    if system.get("id") == "mswindows":
        return systems.WindowsGuest(name, version, diskspd)
    return systems.LinuxGuest(name, version)

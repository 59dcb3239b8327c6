"""Runs a job in the lab: passes its output on, and says why a lab ended early."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel, qemu_process, socket_pair
from vdisklab.host import ledger, mounts, waiting
from vdisklab.host.safe_places import make_state_directory
from vdisklab.host.state_directory import state_directory
from vdisklab.lab.lab_machine import LabConfig, LabFiles, lab_argv
from vdisklab.plan.accelerator import Accelerator
from vdisklab.storage.site import Site
from vdisklab.units import MIB, format_bytes, format_duration
from vdisklab.value import Value

_BOOT_SECONDS = {Accelerator.KVM: 60.0, Accelerator.TCG: 420.0}
_SILENCE_SECONDS = 1800.0
_PULSE_SECONDS = 180.0  # the lab writes every 5 s, on a busy machine every 20 s
_NUDGE_SECONDS = 20.0
_QUIET_SECONDS = 10.0  # without a pulse; then QEMU is queried whether the lab has shut down
_MONITOR_SECONDS = 30.0
_TRACE_SECONDS = 20.0
_SPARE_ROOM = 64 * MIB
_CONSOLE_LINES = 12
_KEPT_RECORDS = 10
_MEMORY_HINT = (
    "if its last words are about memory, choose a --lab-memory that fits this host (4 GiB is usual)"
)
_BUSY_HINT = "this machine may be too slow or too busy for a lab: try again when it is idle"


class JobOutput(Value):
    """Callbacks: one for each line that a job prints, one for each run that it measured."""

    print_line: Callable[[str], None]
    take_run: Callable[[str], None] = lambda _run: None


class LabEnd(Value):
    """How a job ended. `up_seconds` is by the lab's clock since its boot, `wall_seconds` by
    the host's."""

    status: int
    up_seconds: float
    wall_seconds: float


class _NewLines:
    """The complete lines that are appended to a file; `clock` gives seconds."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file.open("rb")
        self._clock = clock
        self._rest = b""
        self.last = clock()
        """When the last bytes were read."""

    def close(self) -> None:
        self._file.close()

    def read(self) -> list[str]:
        """The lines since the last call."""
        output = self._file.read()
        if not output:
            return []
        self.last = self._clock()
        *lines, self._rest = (self._rest + output).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    @property
    def seconds_silent(self) -> float:
        """Seconds since a line was last appended."""
        return self._clock() - self.last


class _Deadlines:
    """Deadlines of a lab: an error if it hangs, is silent for too long, or has filled the disk."""

    def __init__(
        self,
        files: LabFiles,
        monitor: Channel,
        accelerator: Accelerator,
        clock: Callable[[], float],
    ) -> None:
        self._files = files
        self._monitor = monitor
        self._clock = clock
        self._started = self._nudged = clock()
        self._boot_seconds = _BOOT_SECONDS[accelerator] * waiting.patience()

    def check(self, job: _NewLines, pulse: _NewLines, *, up: bool) -> None:
        """Raises GuestError for a lab that does not boot, hangs or is silent; HostError for a full
        disk, because QEMU would pause the lab at its next write."""
        if not up and self._clock() - self._started > self._boot_seconds:
            if self._is_paused():
                self._started = self._clock()
            else:
                boot = format_duration(self._boot_seconds)
                self._stop(f"the lab did not come up within {boot}")
        if up and pulse.seconds_silent > _NUDGE_SECONDS:
            self._nudge()
        if up and pulse.seconds_silent > _PULSE_SECONDS * waiting.patience():
            if self._is_paused():
                job.last = pulse.last = self._clock()
            else:
                still = format_duration(pulse.seconds_silent)
                self._stop(f"the lab's machine has been stuck for {still}")
        if up and job.seconds_silent > _SILENCE_SECONDS * waiting.patience():
            self._stop(f"the lab has printed nothing for {format_duration(job.seconds_silent)}")
        free = mounts.free_bytes(self._files.directory)
        if free < _SPARE_ROOM:
            raise HostError(
                f"the lab has filled {self._files.directory.parent}: {format_bytes(free)} are left",
                hint="free some space there, or name another directory with --dir",
            )

    def _nudge(self) -> None:
        """Raises an interrupt in the lab (its power button), at most every 20 s.

        When a guest under emulated KVM is entered, QEMU before 10.2 may change the pending
        interrupts without its lock, and lose one that arrives just then. If it was the timer's, and
        the guest waits with interrupts off, nothing runs in the lab any more. Any new interrupt
        brings the lost one back (docs/decisions/0015).
        """
        if self._clock() - self._nudged > _NUDGE_SECONDS:
            self._nudged = self._clock()
            self._monitor.execute("system_powerdown", timeout=_MONITOR_SECONDS)

    def _is_paused(self) -> bool:
        """True if somebody has stopped the lab through its monitor. Raises GuestError."""
        status = self._monitor.execute("query-status", timeout=_MONITOR_SECONDS)
        return bool(status["status"] == "paused")

    def _stop(self, problem: str) -> None:
        """Records the state of the CPUs, as QEMU and the lab's kernel see it, and raises
        GuestError.
        """
        try:
            _record_registers(self._files, self._monitor, "When it was ended")
            self._monitor.execute("inject-nmi")
            self._monitor.pause(_TRACE_SECONDS)
        except GuestError as error:
            problem += f", and QEMU does not answer either ({error})"
        raise GuestError(problem, hint=_BUSY_HINT)


def run_job(site: Site, config: LabConfig, files: LabFiles, output: JobOutput) -> LabEnd:
    """Boots the lab, passes on what its job writes, and returns how the job ended.

    Raises GuestError when the lab does not come up, stands still, prints nothing for too long or
    dies; its notes are the last lines of the console, and the file with everything else.
    """
    name = f"vdisklab-lab-{site.ledger.run_id}"
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(site.tracked(ledger.Kind.PROCESS, f"guest={name},"))
        stack.enter_context(_record_of_failure(files, name))
        ours, far = stack.enter_context(socket_pair())
        argv = lab_argv(config, files, name, far.fileno())
        for file in (files.stream, files.runs, files.pulse):
            file.touch()
        process = stack.enter_context(qemu_process(argv, (far,), files.errors))
        far.close()
        clock = waiting.clock_of(process.pid)
        lines, runs, pulse = (
            stack.enter_context(_new_lines(file, clock))
            for file in (files.stream, files.runs, files.pulse)
        )
        monitor = _monitor(stack, ours, process)
        deadlines = _Deadlines(files, monitor, config.accelerator, clock)
        up: float | None = None
        while True:
            status = process.poll()
            quiet = pulse.seconds_silent > _QUIET_SECONDS
            ended = status is not None or (quiet and _is_shut_down(monitor))
            for run in runs.read():
                output.take_run(run)
            for line in lines.read():
                if line.startswith("@lab up "):
                    up = float(line.split()[2])
                elif line.startswith("@lab done ") and up is not None:
                    job_status = int(line.split()[2])
                    _await_end(process, monitor)
                    for run in runs.read():
                        output.take_run(run)
                    return LabEnd(job_status, up, time.monotonic() - started)
                else:
                    output.print_line(line)
            if ended:
                if status is None:
                    with suppress(GuestError):  # QEMU may be killed meanwhile
                        _record_registers(files, monitor, "When it shut down or was reset")
                raise _death(status, up=up is not None)
            pulse.read()
            deadlines.check(lines, pulse, up=up is not None)
            time.sleep(0.2)


@contextmanager
def _new_lines(file: Path, clock: Callable[[], float]) -> Iterator[_NewLines]:
    lines = _NewLines(file, clock)
    try:
        yield lines
    finally:
        lines.close()


def _monitor(stack: ExitStack, ours: socket.socket, process: subprocess.Popen[bytes]) -> Channel:
    """QEMU's monitor. Raises GuestError with QEMU's exit status if it ends at once."""
    try:
        loop = stack.enter_context(event_loop())
        opened = open_channel(loop, ours, "monitor", negotiate=True, timeout=_MONITOR_SECONDS)
        return stack.enter_context(opened)
    except GuestError as error:
        try:
            status = process.wait(10 * waiting.patience())
        except subprocess.TimeoutExpired:
            raise error from None
        raise _death(status, up=False) from error


def _is_shut_down(monitor: Channel) -> bool:
    """True if the lab has shut down or reset itself, and QEMU waits (-no-shutdown)."""
    try:
        status = monitor.execute("query-status", timeout=_MONITOR_SECONDS)
    except GuestError:  # QEMU has ended or is busy; deadlines are checked elsewhere
        return False
    return bool(status["status"] == "shutdown")


def _await_end(process: subprocess.Popen[bytes], monitor: Channel) -> None:
    """Waits until the lab has shut down; QEMU is killed in any case."""
    with suppress(GuestError):  # all that the job wrote has been read
        waiting.wait_until(
            lambda: process.poll() is not None or _is_shut_down(monitor),
            timeout=60, what="end of the lab", error=GuestError,
        )  # fmt: skip


def _record_registers(files: LabFiles, monitor: Channel, title: str) -> None:
    """Stores the registers of the lab's CPUs. Raises GuestError if QEMU does not answer."""
    line = {"command-line": "info registers -a"}
    registers = monitor.execute("human-monitor-command", line)
    with files.resets.open("a") as record:
        record.write(f"\n{title}:\n{registers}")


def _death(status: int | None, *, up: bool) -> GuestError:
    """The error for a machine that ended before its job did; `status` is QEMU's, if it ended."""
    if status is None:
        reason = "it shut down, or its kernel panicked or was reset"
    elif status < 0:
        reason = f"QEMU was killed by signal {-status}"
    else:
        reason = f"QEMU ended with status {status}"
    if up:
        return GuestError(f"the lab ended before its job did: {reason}")
    return GuestError(f"the lab ended before it was up: {reason}", hint=_MEMORY_HINT)


@contextmanager
def _record_of_failure(files: LabFiles, name: str) -> Iterator[None]:
    """Stores everything known about a failed lab, and adds the last lines to the GuestError."""
    try:
        yield
    except GuestError as error:
        parts = {
            "QEMU": files.errors, "the lab's console": files.console,
            "the job": files.stream, "resets of the lab's CPUs": files.resets,
        }  # fmt: skip
        texts = {
            title: file.read_text(errors="replace") if file.is_file() else ""
            for title, file in parts.items()
        }
        record = state_directory() / "lab-failures" / f"{name}.txt"
        make_state_directory(record.parent)
        whole = [f"== {title}\n{text}" for title, text in texts.items()]
        record.write_text("\n".join([str(error), *whole]))
        for title in ("QEMU", "the lab's console"):
            if texts[title].strip():
                last = texts[title].rstrip().splitlines()[-_CONSOLE_LINES:]
                error.add_note("\n".join([f"{title}:", *last]))
        error.add_note(f"the full record: {record}")
        for old in sorted(record.parent.iterdir(), key=lambda file: file.stat().st_mtime)[
            :-_KEPT_RECORDS
        ]:
            old.unlink()
        raise

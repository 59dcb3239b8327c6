"""Programs in a guest whose parts wait for the host, so that one start serves several measurements.

Starting fio takes most of a second in an emulated guest, because it loads 60 libraries. So one fio
has a job for each measurement, and every job waits in a shell (`exec_prerun`) until the host starts
it. All jobs exist from the start: with `stonewall` fio creates each job after the last one has
ended, which takes it 0.3 s (it sleeps for 0.1 s at a time in run_threads, backend.c of 3.33).

The host and the guest's script `steps` talk over a virtio port of their own, so the host learns at
once that a part has ended and does not ask the guest while a part works.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from vdisklab.errors import GuestError, SilentGuestError, TooSlowError
from vdisklab.guest.agent import Agent, CompletedInGuest
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.value import Value

PORT = "vdisklab.steps"
"""Name of the virtio port."""

SCRIPT = "/usr/lib/vdisklab/steps"

_READY_SECONDS = 60.0
_END_SECONDS = 60.0
# A line is `ready N`, `done N` or `ended`; a guest could send anything.
_LONGEST = 64


class StepPort:
    """The host's end of the port."""

    def __init__(
        self, end: socket.socket, loop: asyncio.AbstractEventLoop, monitor: Channel
    ) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = loop
        self._monitor = monitor
        self._left = b""

    def say(self, word: str) -> None:
        """Sends a line to the guest's script."""
        self._end.sendall(f"{word}\n".encode())

    def hear(self, timeout: float, meanwhile: Callable[[], None] | None = None) -> str:
        """The guest's next line. `meanwhile` is called twice a second during the wait.

        Raises GuestError if none comes within `timeout` seconds, or if the guest sends no lines.
        """
        what = "word of a program that runs in steps"
        return self._monitor.wait(self._line(), timeout, what, meanwhile)

    async def _line(self) -> str:
        while b"\n" not in self._left:
            if len(self._left) > _LONGEST:
                raise GuestError(f"the guest sent {self._left[:_LONGEST]!r} instead of a step")
            received = await self._loop.sock_recv(self._end, _LONGEST)
            if not received:
                raise EOFError
            self._left += received
        line, _, self._left = self._left.partition(b"\n")
        return line.decode(errors="replace")


class SteppedProgram(Value):
    """A program whose parts, numbered from 1, are ready and wait."""

    argv: tuple[str, ...]
    pid: int
    agent: Agent
    port: StepPort

    def run(self, number: int, timeout: float, watch: Callable[[], None]) -> None:
        """Lets a part run to its end, under a watch that looks as rarely as `Agent.run`'s does.

        Raises TooSlowError if it does not end within `timeout` seconds, WorkloadError if the
        program ended instead.
        """
        self.port.say(str(number))
        try:
            with self.agent.sparing(watch) as looks:
                line = self.port.hear(timeout, looks)
        except SilentGuestError as error:
            raise TooSlowError(
                f"part {number} of `{self.argv[2]}` did not end within {timeout:g} s",
                hint="the machine may be too busy: try again when it is idle",
            ) from error
        if line == "ended":
            self.ended_early()
        if line != f"done {number}":
            raise GuestError(f"the guest sent {line!r} instead of `done {number}`")

    def finish(self) -> CompletedInGuest:
        """The program's output, once all parts have run. Raises WorkloadError if it failed."""
        line = self.port.hear(_END_SECONDS)
        if line != "ended":
            raise GuestError(f"the guest sent {line!r} instead of `ended`")
        self.port.say("end")
        return self.agent.finish(self.pid, self.argv, timeout=_END_SECONDS)

    def ended_early(self) -> NoReturn:
        """Raises WorkloadError with what the program printed, GuestError if it reports success."""
        self.port.say("end")
        ended = self.agent.finish(self.pid, self.argv, timeout=_END_SECONDS)
        raise GuestError(f"`{ended.argv[2]}` ended before it had run all of its parts")


@contextmanager
def started_in_steps(
    agent: Agent, port: StepPort, command: Sequence[str], count: int
) -> Iterator[SteppedProgram]:
    """Starts a program of `count` parts in the guest, and waits until all parts are ready.

    Raises GuestError when they are not ready in time, WorkloadError when the program fails. A guest
    in which the body fails must be ended, because the program goes on waiting.
    """
    argv = (SCRIPT, str(count), *command)
    program = SteppedProgram(argv, agent.start(argv), agent, port)
    ready: set[str] = set()
    while len(ready) < count:
        line = port.hear(_READY_SECONDS)
        if line == "ended":
            program.ended_early()
        if line not in {f"ready {number}" for number in range(1, count + 1)} - ready:
            raise GuestError(f"the guest sent {line!r} instead of `ready`")
        ready.add(line)
    yield program

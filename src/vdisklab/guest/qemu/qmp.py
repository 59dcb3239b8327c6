"""A process of QEMU or its storage daemon, and a synchronous interface to its monitor.

The library qemu.qmp speaks the machine protocol, and the guest agent's too. A guest decides what
its agent sends, so each answer has a budget of bytes, values and depth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from qemu.qmp import EventListener, ExecuteError, Message, QMPClient, QMPError, Runstate
from qemu.qmp.error import ProtocolError

from vdisklab.errors import (
    DirtyHostError,
    GuestError,
    HostError,
    RefusedError,
    SilentGuestError,
    StoppedGuestError,
)
from vdisklab.guest.qemu.block_nodes import QmpCommand
from vdisklab.host.command import environment
from vdisklab.host.syscalls import die_with_parent
from vdisklab.host.waiting import interrupts_held, patience

T = TypeVar("T")

_LOST_CONNECTION_POLL = 0.25
_MEANWHILE = 0.5
_SLOWEST = 4  # a clock that stands still while QEMU waits for a CPU must not wait for ever
_LINE_LIMIT = 64 << 20  # fio's JSON comes as one line of base64
_LEAST_LINE = 128 << 10  # shorter ones count as this: 1,000 messages without an answer are a flood
_MOST_DEPTH = 64
_MOST_VALUES = 1 << 20  # `[],[],…` takes 20 times its length in memory


_KILL_SECONDS = 30.0
_ATTEMPTS = 8


class BoundedClient(QMPClient):
    """A client that ends the connection when an answer is out of bounds.

    `from_guest`: a guest sends the answers, so all that arrives between two commands must fit into
    the budget of one answer. Events are kept only while somebody listens for them. The library's
    log of messages is left out, because formatting it cost 5 ms per measurement.
    """

    def __init__(self, name: str, *, from_guest: bool) -> None:
        super().__init__(name, _LINE_LIMIT)
        self.damage: str | None = None
        """The fault of the last message, if it had one."""
        self.await_greeting = self.negotiate = not from_guest
        self.events.event_filter = lambda _event: False
        self.logger.setLevel(logging.CRITICAL)  # its errors are raised by the channel
        self._from_guest = from_guest
        self._left = 2 * _LINE_LIMIT

    def renew_budget(self) -> None:
        """Allows one more answer."""
        self._left = 2 * _LINE_LIMIT

    # The library documents these two as hooks to override.
    def _cb_outbound(self, msg: Message) -> Message:
        return msg

    def _cb_inbound(self, msg: Message) -> Message:
        return msg

    async def _do_recv(self) -> Message:
        try:
            try:
                line = await self._readline()
            except ValueError:  # asyncio's, for a line that is longer than the buffer
                most = f"{_LINE_LIMIT >> 20} MiB"
                raise ProtocolError(f"it sent more than {most} in one line") from None
            self._left -= max(len(line), _LEAST_LINE)
            if self._from_guest and self._left < 0:
                raise ProtocolError("it sent messages without end")
            return read_message(line)
        except ProtocolError as error:
            self.damage = str(error)
            raise


def read_message(line: bytes) -> Message:
    """The message in a line. Raises ProtocolError with the reason if it is no JSON object or out of
    bounds.
    """
    opened = line.count(b"{") + line.count(b"[")
    if opened + line.count(b",") > _MOST_VALUES:
        raise ProtocolError(f"it sent more than {_MOST_VALUES:,} values at once")
    try:
        message = Message(line, eager=True)
    except (QMPError, ValueError, RecursionError):  # ValueError: a number of 5,000 digits
        raise ProtocolError("it sent a line that is not JSON, or is nested too deep") from None
    if opened > _MOST_DEPTH and _is_deep(dict(message)):
        raise ProtocolError(f"it sent values nested more than {_MOST_DEPTH} deep")
    # The library looks both up in a table.
    if not all(isinstance(message.get(key), str | int | None) for key in ("event", "id")):
        raise ProtocolError("it sent a message without a proper name")
    return message


def _is_deep(value: object) -> bool:
    """True if lists and objects are nested deeper than _MOST_DEPTH."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each
                 for each in level if isinstance(each, dict | list)]  # fmt: skip
        level = [value for values in inner for value in values]
        if not level:
            return False
    return True


class Channel:
    """One connection to QEMU or to the agent, driven by its machine's event loop."""

    def __init__(
        self,
        client: BoundedClient,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        stopped: asyncio.Task[Message] | None = None,
    ) -> None:
        """`clock` measures the deadlines, in seconds. `stopped` is the monitor's, for the agent."""
        self._client = client
        self._loop = loop
        self.clock = clock
        self.stopped = stopped
        """Done as soon as QEMU has stopped the guest, if that is looked for: no wait goes on."""

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The `return` of a command.

        Raises RefusedError when it is refused, GuestError when there is no answer within
        `timeout` seconds or the connection is lost.
        """
        self._client.renew_budget()
        call = self._client.execute(command, dict(arguments) if arguments else None)
        return self.wait(call, timeout, f"answer to {command} from {self._who}")

    @property
    def _who(self) -> str:
        return "the guest agent" if self._client.name == "agent" else "QEMU"

    def perform(self, command: QmpCommand) -> Any:  # noqa: ANN401
        """The `return` of a `QmpCommand`. Raises the same errors as `execute`."""
        return self.execute(command.execute, command.arguments)

    @contextmanager
    def expecting(
        self,
        event: str,
        matches: Callable[[Mapping[str, Any]], bool],
        *,
        what: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Iterator[Callable[[float], None]]:
        """Listens for an event from now on, and yields `wait(timeout)`, which waits for the event.

        `what` describes the event in errors. `meanwhile` is called twice a second during the wait.
        """

        def accept(message: Message) -> bool:
            data = message.get("data", {})
            return isinstance(data, dict) and matches(data)

        listener = EventListener((event,), accept)

        def wait(timeout: float) -> None:
            self.wait(self._next_event(listener), timeout, what or f"event {event}", meanwhile)

        with self._client.listen(listener):
            yield wait

    @contextmanager
    def noticing_stops(self) -> Iterator[None]:
        """Ends all waits with StoppedGuestError once QEMU has stopped the guest.

        QEMU stops a guest when a write fails for lack of space, and passes all other errors on to
        the guest (werror=enospc, the default; qapi/block-core.json, BLOCK_IO_ERROR).
        """

        def stops(message: Message) -> bool:
            data = message.get("data", {})
            return isinstance(data, dict) and data.get("action") == "stop"

        listener = EventListener(("BLOCK_IO_ERROR",), stops)
        with self._client.listen(listener):
            self.stopped = self._loop.create_task(listener.get())
            yield

    @contextmanager
    def noting(self, events: tuple[str, ...]) -> Iterator[Callable[[], list[tuple[str, float]]]]:
        """Listens for events, and yields what returns those so far, with QEMU's time of day."""
        listener = EventListener(events)

        def noted() -> list[tuple[str, float]]:
            return [(str(event["event"]), _time_of(event)) for event in listener.clear()]

        with self._client.listen(listener):
            yield noted

    async def _next_event(self, listener: EventListener) -> Message:
        """The next event. Raises EOFError as soon as the connection is lost."""
        while True:
            try:
                return await asyncio.wait_for(listener.get(), _LOST_CONNECTION_POLL)
            except TimeoutError:
                if self._client.runstate is not Runstate.RUNNING:
                    raise EOFError from None

    def deadline(self, seconds: float) -> Callable[[], float]:
        """A function that returns how many of `seconds` of the channel's clock are left."""
        end, latest = self.clock() + seconds, time.monotonic() + _SLOWEST * seconds
        return lambda: min(end - self.clock(), latest - time.monotonic())

    def pause(self, seconds: float) -> None:
        """Sleeps, but continues to receive messages."""
        stopped = self.stopped
        idle: Coroutine[Any, Any, object] = (
            asyncio.wait({stopped}, timeout=seconds) if stopped else asyncio.sleep(seconds)
        )
        self._loop.run_until_complete(idle)
        self._require_running()

    def wait(
        self,
        work: Coroutine[Any, Any, T],
        timeout: float,
        what: str,
        meanwhile: Callable[[], None] | None = None,
    ) -> T:
        """The result of `work`, which runs on the machine's event loop.

        Raises GuestError when it takes more than `timeout` seconds, naming `what` did not come, or
        when a connection is lost. `meanwhile` is called twice a second during the wait.
        """
        task = self._loop.create_task(work)
        try:
            self._await(task, timeout * patience(), meanwhile)
            return task.result()
        except (KeyboardInterrupt, GuestError, TimeoutError) as error:
            # Otherwise the task fails when the connection is closed, and asyncio prints a
            # traceback.
            task.cancel()
            self._is_done(task, 1)
            work.close()  # or Python warns about a task that was cancelled before it began
            if not isinstance(error, TimeoutError):
                raise
            raise SilentGuestError(
                f"no {what} within {timeout:g} s",
                hint="the guest may hang, its agent may have been stopped, or the machine may "
                "be too busy: the guest's console is in the message or in the run's "
                "evidence",
            ) from error
        except ExecuteError as error:
            raise RefusedError(f"{self._who} refused: {error}") from error
        except (QMPError, EOFError, OSError) as error:
            if self._client.damage:
                raise GuestError(f"no {what}: {self._client.damage}") from error
            raise GuestError(
                f"no {what}: the connection was lost",
                hint="QEMU ended: `dmesg` shows whether it was killed for lack of memory",
            ) from error

    def _await(
        self, task: asyncio.Task[Any], seconds: float, meanwhile: Callable[[], None] | None
    ) -> None:
        """Waits for the task. Raises TimeoutError after `seconds` of the channel's clock."""
        left = self.deadline(seconds)
        interval = seconds if meanwhile is None else _MEANWHILE
        while not self._is_done(task, interval):
            self._require_running()
            if left() <= 0:
                raise TimeoutError
            if meanwhile is None:
                interval = max(_LOST_CONNECTION_POLL, left())
            else:
                meanwhile()

    def _is_done(self, task: asyncio.Task[Any], seconds: float) -> bool:
        """Waits up to `seconds` for the task, but not in a stopped guest; True if it is done."""
        ends = {task} if self.stopped is None else {task, self.stopped}
        waiting = asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._loop.run_until_complete(waiting)
        return task.done()

    def _require_running(self) -> None:
        if self.stopped is not None and self.stopped.done():
            data: Any = self.stopped.result()["data"]
            raise StoppedGuestError(
                f"QEMU stopped the guest at a {data.get('operation')}: {data.get('reason')}",
                hint="free some space where its disk lies",
            )


def _time_of(event: Message) -> float:
    """When QEMU sent an event, in seconds of the day's clock."""
    stamp: Any = event.get("timestamp", {})
    return float(stamp.get("seconds", 0)) + float(stamp.get("microseconds", 0)) / 1e6


@contextmanager
def open_channel(
    loop: asyncio.AbstractEventLoop,
    end: socket.socket,
    name: str,
    *,
    negotiate: bool,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    stopped: asyncio.Task[Message] | None = None,
) -> Iterator[Channel]:
    """A channel over one end of a socket pair. The agent's protocol has no greeting.

    `clock` measures its deadlines. `stopped` ends the agent's waits: the monitor's.

    Raises GuestError when the other side does not greet within `timeout` seconds.
    """
    client = BoundedClient(name, from_guest=not negotiate)
    try:
        loop.run_until_complete(asyncio.wait_for(client.connect(end), timeout * patience()))
    except TimeoutError as error:
        raise SilentGuestError(f"QEMU's {name} sent no greeting within {timeout:g} s") from error
    except (QMPError, EOFError, OSError, AssertionError) as error:
        # qemu.qmp asserts that the connection, which may be lost by then, is established.
        if client.damage:
            raise GuestError(f"QEMU's {name} cannot be used: {client.damage}") from error
        raise GuestError(f"QEMU ended before its {name} could be used") from error
    try:
        yield Channel(client, loop, clock, stopped)
    finally:
        with contextlib.suppress(QMPError, EOFError, OSError, TimeoutError):
            loop.run_until_complete(asyncio.wait_for(client.disconnect(), 5))


@contextmanager
def qemu_process(
    argv: tuple[str, ...],
    inherited: tuple[socket.socket, ...],
    errors: Path,
    *,
    before: Callable[[], None] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs one of QEMU's programs, and kills it at the end. Its output goes to `errors`, whose
    directory is its current one: sockets that it names lie there, where only this user may connect.

    The program inherits the given sockets. `before` runs in the process just before the program.
    """
    process = None
    try:
        with interrupts_held():
            process = _started(argv, inherited, errors, before)
        yield process
    finally:
        if process is not None:
            _end(process)


def _started(
    argv: tuple[str, ...],
    inherited: tuple[socket.socket, ...],
    errors: Path,
    before: Callable[[], None] | None,
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        die_with_parent(signal.SIGKILL)
        if before is not None:
            before()

    descriptors = tuple(end.fileno() for end in inherited)
    with errors.open("wb") as sink:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=descriptors,
                env=environment(),
                cwd=errors.parent,
                start_new_session=True,  # Ctrl-C must not reach it: disks must be detached first
                preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
            )
        except FileNotFoundError as error:
            raise HostError(
                f"{argv[0]} is not installed", hint="`vdisklab doctor` names its package"
            ) from error


def socket_of(pid: int, name: str) -> str:
    """The address of a socket that one of QEMU's programs has made under this name.

    By its current directory (proc(5)), because a socket's address has 107 bytes (unix(7)).
    """
    return f"/proc/{pid}/cwd/{name}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_KILL_SECONDS * patience())
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

    After a Ctrl-C inside a task, each task that waits for it raises it again, so this may take
    several attempts. Otherwise asyncio would print warnings about unfinished tasks.
    """
    with contextlib.suppress(RuntimeError):
        closing = loop.create_task(loop.shutdown_asyncgens())
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(KeyboardInterrupt):
                loop.run_until_complete(closing)
                return

"""A synchronous interface to qemu.qmp, for QEMU's machine protocol and the guest agent's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from qemu.qmp import EventListener, ExecuteError, Message, QMPClient, QMPError, Runstate

from vdisklab.errors import GuestError, RefusedError, SilentGuestError
from vdisklab.guest.qemu.block_nodes import QmpCommand
from vdisklab.host.waiting import patience

T = TypeVar("T")

_LOST_CONNECTION_POLL = 0.25
_MEANWHILE = 0.5
_SLOWEST = 4  # a clock that stands still while QEMU waits for a CPU must not wait for ever
_LINE_LIMIT = 64 << 20  # fio's JSON comes as one line of base64


class _QuietClient(QMPClient):
    """A client without qemu.qmp's log of messages, whose formatting cost 5 ms per measurement.

    The library documents both methods as hooks to override.
    """

    def _cb_outbound(self, msg: Message) -> Message:
        return msg

    def _cb_inbound(self, msg: Message) -> Message:
        return msg


class Channel:
    """One connection to QEMU or to the agent, driven by its machine's event loop."""

    def __init__(
        self,
        client: QMPClient,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` measures the deadlines, in seconds."""
        self._client = client
        self._loop = loop
        self.clock = clock

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The `return` of a command.

        Raises RefusedError when it is refused, GuestError when there is no answer within
        `timeout` seconds or the connection is lost.
        """
        call = self._client.execute(command, dict(arguments) if arguments else None)
        return self._wait(call, timeout, f"answer to {command} from {self._who}")

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
            self._wait(self._next_event(listener), timeout, what or f"event {event}", meanwhile)

        with self._client.listen(listener):
            yield wait

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
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def _wait(
        self,
        work: Coroutine[Any, Any, T],
        timeout: float,
        what: str,
        meanwhile: Callable[[], None] | None = None,
    ) -> T:
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
            raise GuestError(f"no {what}: the connection was lost") from error

    def _await(
        self, task: asyncio.Task[Any], seconds: float, meanwhile: Callable[[], None] | None
    ) -> None:
        """Waits for the task. Raises TimeoutError after `seconds` of the channel's clock."""
        left = self.deadline(seconds)
        interval = seconds if meanwhile is None else _MEANWHILE
        while not self._is_done(task, interval):
            if left() <= 0:
                raise TimeoutError
            if meanwhile is None:
                interval = max(_LOST_CONNECTION_POLL, left())
            else:
                meanwhile()

    def _is_done(self, task: asyncio.Task[Any], seconds: float) -> bool:
        """Waits up to `seconds` for the task; True if it is done."""
        self._loop.run_until_complete(asyncio.wait({task}, timeout=seconds))
        return task.done()


@contextmanager
def open_channel(
    loop: asyncio.AbstractEventLoop,
    end: socket.socket,
    name: str,
    *,
    negotiate: bool,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Channel]:
    """A channel over one end of a socket pair. The agent's protocol has no greeting.

    `clock` measures its deadlines.

    Raises GuestError when the other side does not greet within `timeout` seconds.
    """
    client = _QuietClient(name)
    client.readbuflen = _LINE_LIMIT
    client.await_greeting = negotiate
    client.negotiate = negotiate
    client.logger.setLevel(logging.CRITICAL)  # its errors are raised here
    try:
        loop.run_until_complete(asyncio.wait_for(client.connect(end), timeout * patience()))
    except TimeoutError as error:
        raise SilentGuestError(f"QEMU's {name} sent no greeting within {timeout:g} s") from error
    except (QMPError, EOFError, OSError, AssertionError) as error:
        # qemu.qmp asserts that the connection, which may be lost by then, is established.
        raise GuestError(f"QEMU ended before its {name} could be used") from error
    try:
        yield Channel(client, loop, clock)
    finally:
        with contextlib.suppress(QMPError, EOFError, OSError, TimeoutError):
            loop.run_until_complete(asyncio.wait_for(client.disconnect(), 5))

"""Connections that cost the server little: their requests come in time, and files can be opened.

Thousands of connections that send nothing would otherwise keep all descriptors of the process, and
no page could open the database.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 5.0
"""Time for a request's headers, and for a TLS handshake."""

_RESERVED = 64
"""Descriptors that connections do not get: the database, its journals, the programs' files."""

_MOST_DESCRIPTORS = 4096


class PromptProtocol(H11Protocol):
    """HTTP on a connection that ends if the headers of a request do not come in time.

    The library ends connections only between two requests.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as h11_impl
        """Waits for the first request."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Waits on if the data are less than a request's headers."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        super().connection_lost(exc)
        self._end_wait()

    def _look(self) -> None:
        if not self._waits():
            self._end_wait()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self._waits():
            self.transport.abort()

    def _waits(self) -> bool:
        """True if no request is being answered. The library's type leaves out None."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)


class ReservingSocket(socket.socket):
    """A listening socket that accepts nobody while few descriptors are left.

    Who is not accepted waits in the kernel's queue. asyncio tries again after a second.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises OSError (EMFILE) if too few descriptors would be left."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.dup(self.fileno())  # the lowest free number
        os.close(probe)
        if probe >= most - _RESERVED:
            raise OSError(errno.EMFILE, "too few descriptors are left")
        return super().accept()


def reserving(listening: socket.socket) -> ReservingSocket:
    """The socket, with the other's descriptor. Raises the limit of descriptors as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return ReservingSocket(fileno=listening.detach())


class PromptLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers end TLS handshakes that take too long, and say nothing of
    connections that have to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.set_exception_handler(_say_what_is_no_flood)

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:  # noqa: ANN401
        """A server with a deadline for handshakes."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HEADER_SECONDS
        return await super().create_server(*arguments, **options)


def _say_what_is_no_flood(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not (isinstance(error, OSError) and error.errno == errno.EMFILE):
        loop.default_exception_handler(context)

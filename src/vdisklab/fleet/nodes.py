"""The scheduler and the worker as processes that run until they are told to end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Scheduler, Worker
from distributed.comm import CommClosedError
from distributed.core import rpc
from distributed.security import Security

from vdisklab.errors import INTERRUPTS, HostError
from vdisklab.fleet.host_campaign import host_facts, host_state, running, stop_here
from vdisklab.fleet.quiet_settings import own_versions, version_difference

HEARTBEAT_SECONDS = 5.0
"""Interval of a worker's heartbeats; Dask's own is half a second."""

RETRY_SECONDS = 5.0

Say = Callable[[str], None]


class _WithoutHttp:
    """Starts no HTTP server, which would listen without encryption."""

    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Does nothing."""


class FleetScheduler(_WithoutHttp, Scheduler):  # type: ignore[misc]
    """A scheduler that also says its versions."""

    def identity(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - Dask's
        """The identity that `client.scheduler_info` returns."""
        return {**super().identity(*arguments, **options), "versions": own_versions()}


class FleetWorker(_WithoutHttp, Worker):  # type: ignore[misc]
    """A worker for one task at a time, with few heartbeats."""

    _last_heartbeat = 0.0

    async def heartbeat(self) -> None:
        """Sends a heartbeat if the last one was long enough ago."""
        now = time.monotonic()
        if now - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = now
            await super().heartbeat()


def place_of(host: str) -> str:
    """The resource that only this host's worker has. It pins a task to the host.

    Dask's `workers=[NAME]` is replaced by the worker's address when the task arrives, and a worker
    that comes back has another one; a resource also waits for a host that was never there.
    """
    return f"host {host}"


async def serve_scheduler(address: str, security: Security, say: Say) -> None:
    """Runs the scheduler until a signal ends it. Raises HostError if it cannot listen."""
    stopped = _stop_event()
    host, _, port = address.removeprefix("tls://").rpartition(":")
    try:
        async with FleetScheduler(
            host=host or None,
            port=int(port),
            protocol="tls",
            security=security,
            dashboard=False,
            dashboard_address=None,
        ) as scheduler:
            say(f"the scheduler listens on {scheduler.address}")
            await stopped.wait()
    except OSError as error:
        if error.filename is not None:
            raise HostError(
                f"{error.filename} cannot be written: {error.strerror}",
                hint="set VDISKLAB_STATE to a directory that can be written",
            ) from error
        raise HostError(
            f"the scheduler cannot listen on {address}: {error.strerror or error}",
            hint="choose another address with --listen",
        ) from error


async def serve_worker(
    address: str, name: str, security: Security, say: Say, *, port: int, until: str
) -> None:
    """Runs the worker of this host until a signal ends it, then stops its campaign cleanly.

    Waits for a scheduler that is away. If the connection breaks while a campaign runs, the process
    replaces itself: the campaign goes on meanwhile. It listens on `port` (0: any); `until` is the
    last day of the certificate. Raises HostError if versions differ or the port is in use.
    """
    stopped = _stop_event()
    hello = json.dumps({"versions": own_versions(), "facts": host_facts(), "until": until})
    waiting = False
    while not stopped.is_set():
        try:
            await _check_versions(address, security)
            waiting = False
            await _serve_once(
                address, name, security, port=port, hello=hello, stopped=stopped, say=say
            )
        except HostError:
            raise
        except (TimeoutError, OSError, ValueError, RuntimeError, CommClosedError) as error:
            if not waiting:
                say(f"waiting for the scheduler {address}: {_reason(error)}")
            waiting = True
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopped.wait(), RETRY_SECONDS)
        else:
            if not stopped.is_set():
                say("the scheduler is gone; waiting for it")
                # A thread may wait for the campaign, and threads cannot be ended.
                os.execv(sys.executable, [sys.executable, "-m", "vdisklab", *sys.argv[1:]])  # noqa: S606
    if running() is not None:
        say("interrupting the campaign, which removes what it has built")
        say(await asyncio.to_thread(stop_here))


def _reason(error: Exception) -> str:
    """The error in one line; Dask's messages name the whole traceback of the other end."""
    return (str(error) or type(error).__name__).splitlines()[0]


async def _check_versions(address: str, security: Security) -> None:
    connection = security.get_connection_args("worker")
    try:
        async with asyncio.timeout(30):
            async with rpc(address, connection_args=connection, deserialize=False) as scheduler:
                identity = await scheduler.identity(n_workers=0)
    except (OSError, CommClosedError) as error:  # Dask's message would name its own methods
        raise ConnectionError("it does not answer, or refuses this certificate") from error
    difference = version_difference("the scheduler", identity.get("versions"))
    if difference is not None:
        raise HostError(difference, hint="install the same versions on all hosts of the fleet")


async def _serve_once(
    address: str,
    name: str,
    security: Security,
    *,
    port: int,
    hello: str,
    stopped: asyncio.Event,
    say: Say,
) -> None:
    """A worker from its registration until it loses the scheduler or is stopped."""
    worker = FleetWorker(
        address,
        name=name,
        port=port,
        nthreads=1,
        memory_limit=0,
        security=security,
        protocol="tls",
        resources={place_of(name): 1},
        dashboard=False,
        metrics={"campaign": lambda _worker: host_state()},
        startup_information={"hello": lambda _worker: hello},
    )
    try:
        await worker
    except RuntimeError as error:
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            raise HostError(
                f"port {port} of this host is in use", hint="choose another one with --port"
            ) from error
        raise
    try:
        say(f"{name} is a worker of {address}")
        ended = asyncio.ensure_future(worker.finished())
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
    finally:
        with suppress(TimeoutError):
            await asyncio.wait_for(worker.close(timeout=1, executor_wait=False), 10)


def _stop_event() -> asyncio.Event:
    """An event that the signals of `INTERRUPTS` set."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in INTERRUPTS:
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:
            loop.add_signal_handler(number, stopped.set)
    return stopped

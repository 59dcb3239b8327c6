"""The server: its routes, and the process that serves them."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from vdisklab.errors import DatabaseBusyError, DatabaseError, VdisklabError
from vdisklab.watch import metrics, pages
from vdisklab.watch.connections import PromptLoop, PromptProtocol, reserving
from vdisklab.watch.door import Door, Guard
from vdisklab.watch.pages import Naming

_SECONDS_TO_END = 1


def make_app(db: str | None, door: Door, naming: Naming) -> Starlette:
    """The application on the results at `--db`; `naming` adds that option to the commands that it
    shows.
    """
    return Starlette(
        routes=[*pages.routes(db, naming), *metrics.routes(db)],
        middleware=[Middleware(Guard, door=door)],
        exception_handlers={VdisklabError: _sentences(naming)},
    )


def _sentences(naming: Naming) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def sentence(_request: Request, error: Exception) -> Response:
        """The sentence of an error, as text; 404 for a campaign that is not there."""
        status = 409
        if isinstance(error, DatabaseError):
            status = 503 if isinstance(error, DatabaseBusyError) else 404
        hint = getattr(error, "hint", None)
        said = f"{error}\n" + (f"hint: {hint}\n" if hint else "")
        return PlainTextResponse(naming((), ()).in_text(said), status)

    return sentence


def without_root(needed: Sequence[Path]) -> bool:
    """Becomes `nobody` for good, if that user may read the needed files and this program.

    False if this process stays root's.
    """
    if os.geteuid() != 0:
        return True
    groups, nobody = os.getgroups(), pwd.getpwnam("nobody")
    os.setgroups([])
    os.setegid(nobody.pw_gid)
    os.seteuid(nobody.pw_uid)
    program = (Path(sys.executable), Path(__file__), Path(uvicorn.__file__))
    may = all(os.access(file, os.R_OK, effective_ids=True) for file in (*needed, *program))
    os.seteuid(0)
    if may:
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    else:
        os.setegid(os.getgid())
        os.setgroups(groups)
    return may


def make_server(app: Starlette, door: Door) -> uvicorn.Server:
    """The server, for a thread or a process of its own. It has read its certificate and key."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # it would hold the token
        server_header=False,
        ssl_certfile=door.certificate,
        ssl_keyfile=door.key,
        timeout_graceful_shutdown=_SECONDS_TO_END,
        http=PromptProtocol,
    )
    config.load()
    return uvicorn.Server(config)


def serve(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM, with what no other process wants of the CPU."""
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with reserving(listening) as reserved, asyncio.Runner(loop_factory=PromptLoop) as runner:
        runner.run(server.serve(sockets=[reserved]))

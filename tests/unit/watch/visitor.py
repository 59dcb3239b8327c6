"""A visitor of the server without a network: one request, and its whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    text: str


def ask(
    app: ASGIApp,
    target: str = "/",
    *,
    method: str = "GET",
    host: str | None = "127.0.0.1:8765",
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """The answer to one request (ASGI 3.0)."""
    path, _, query = target.partition("?")
    given = {**({} if host is None else {"host": host}), **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": unquote(path), "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8765),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def answered() -> None:
        await app(scope, receive, send)

    asyncio.run(answered())
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answered(start["status"], found, body.decode())

"""A disk that an NBD server exports, over TCP, TLS or a socket of this host."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote

from vdisklab.errors import PlanError
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_url import HELD, server_of, shown


def members(target: NamedTarget, _secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    if parts.scheme.endswith("+unix"):
        sockets = parse_qs(parts.query).get("socket")
        if not sockets:
            raise PlanError(
                f"{shown(parts)} names no socket", hint="write nbd+unix:///EXPORT?socket=FILE"
            )
        server = {"type": "unix", "path": sockets[0]}
    else:
        server = {"type": "inet", **server_of(parts, 10809)}
    export = unquote(parts.path.removeprefix("/"))
    tls = {"tls-creds": HELD} if parts.scheme.startswith("nbds") else {}
    return {"server": server, **tls, **({"export": export} if export else {})}

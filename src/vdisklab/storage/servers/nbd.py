"""A disk that an NBD server exports, over TCP, TLS or a socket of this host."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, unquote

from vdisklab.errors import CommandError, CommandTimeoutError, HostError, PlanError
from vdisklab.host.command import Host, require_programs
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_answers import ANSWER_SECONDS
from vdisklab.storage.server_url import HELD, Url, server_of, shown

_FLAGS = ("can_flush", "can_fua", "can_multi_conn", "is_read_only", "can_trim", "can_zero")
_LIMITS = ("block_size_minimum", "block_size_preferred", "block_size_maximum")


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


def promises(host: Host, target: NamedTarget, url: Url) -> dict[str, str]:
    """The flags and block sizes of the export (NBD's doc/proto.md). Raises HostError."""
    require_programs(host, "nbdinfo")
    place = url.text
    if "tls-creds" in url.node:
        (held,) = url.objects
        # libnbd would present the user of this host.
        place = place.replace("://", f"://{held.get('username', '')}@", 1)
        place += ("&" if "?" in place else "?") + f"tls-psk-file={held['dir']}/keys.psk"
    try:
        text = host.run("nbdinfo", "--json", place, timeout=ANSWER_SECONDS).stdout
        (export,) = json.loads(text)["exports"]
    except (CommandError, CommandTimeoutError, ValueError, KeyError) as error:
        raise HostError(
            f"target {target.name} ({url.text}): nbdinfo cannot read what the server promises",
            hint="run `nbdinfo` on the URL to see why",
        ) from error
    flags = {f"nbd.{name}": "on" if export.get(name) else "off" for name in _FLAGS}
    return flags | {f"nbd.{name}": str(export[name]) for name in _LIMITS if name in export}

"""A LUN of an iSCSI target."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from vdisklab.errors import PlanError
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_url import server_of, shown
from vdisklab.units import whole_number


def members(target: NamedTarget, secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    name, _, lun = parts.path.removeprefix("/").partition("/")
    number = whole_number(lun)
    if not name or number is None:
        raise PlanError(f"{shown(parts)} names no LUN", hint="write iscsi://HOST[:PORT]/TARGET/LUN")
    server = server_of(parts, 3260)
    user = {"user": unquote(parts.username)} if parts.username else {}
    password = {"password-secret": secret} if secret else {}
    portal = f"{server['host']}:{server['port']}"
    return {
        "transport": "tcp", "portal": portal, "target": unquote(name), "lun": number,
        **user, **password,
    }  # fmt: skip

"""A directory that an NFS server exports, by libnfs."""

from __future__ import annotations

from typing import Any

from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_url import server_of


def members(target: NamedTarget, _secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    return {"server": {"type": "inet", "host": server_of(parts, 2049)["host"]}, "path": parts.path}

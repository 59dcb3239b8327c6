"""A directory of a host that ssh reaches."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote

from vdisklab.errors import PlanError
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_url import server_of, shown


def members(target: NamedTarget, secret: str | None) -> dict[str, Any]:
    """The members of the node for a URL. Raises PlanError for a wrong one."""
    parts = urlsplit_of(target.name, target.place)
    if secret is not None:
        raise PlanError(
            f"{shown(parts)} takes no file with a key: QEMU asks your ssh agent",
            hint="leave out --secret, and load the key: ssh-add FILE",
        )
    user = {"user": unquote(parts.username)} if parts.username else {}
    return {
        "server": server_of(parts, 22), "path": unquote(parts.path), **user,
        **_host_key_check(parts),
    }  # fmt: skip


def _host_key_check(parts: SplitResult) -> dict[str, Any]:
    """QEMU's own parameter of the URL: `no`, `yes` (known_hosts), or `sha256:HEX`."""
    (word,) = parse_qs(parts.query).get("host_key_check", ["yes"])
    if word in ("yes", "no"):
        modes = {"yes": "known_hosts", "no": "none"}
        return {"host-key-check": {"mode": modes[word]}}
    kind, _, digest = word.partition(":")
    return {"host-key-check": {"mode": "hash", "type": kind, "hash": digest.replace(":", "")}}

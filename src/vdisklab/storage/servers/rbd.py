"""An image of a Ceph cluster, by librbd."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from vdisklab.errors import PlanError
from vdisklab.host.command import Host
from vdisklab.path.named_target import NamedTarget
from vdisklab.storage.server_url import Url


def members(target: NamedTarget, secret: str | None) -> dict[str, Any]:
    """The members for `rbd:POOL[/NAMESPACE]/IMAGE[@CONF]`, with `?id=USER` at the end.

    Raises PlanError for a wrong one.
    """
    place = target.place
    named, _, query = place.removeprefix("rbd:").partition("?")
    named, _, conf = named.partition("@")
    parts = named.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise PlanError(f"{place} names no image", hint="write rbd:POOL/IMAGE, or add @CEPH.CONF")
    users = parse_qs(query).get("id")
    return {
        "pool": parts[0], "image": parts[-1],
        **({"namespace": parts[1]} if len(parts) == 3 else {}),
        **({"conf": conf} if conf else {}), **({"user": users[0]} if users else {}),
        **({"key-secret": secret} if secret else {}),
    }  # fmt: skip


def promises(_host: Host, _target: NamedTarget, _url: Url) -> dict[str, str]:
    """Nothing: the protocol has no words for flushes and limits."""
    return {}

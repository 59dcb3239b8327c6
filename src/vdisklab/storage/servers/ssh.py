"""A directory of a host that ssh reaches."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote

from vdisklab.errors import PlanError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.storage.server_answers import undone
from vdisklab.storage.server_url import Node, Url, server_of, shown


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


def promises(_host: Host, _target: NamedTarget, _url: Url) -> dict[str, str]:
    """Nothing: the protocol has no words for flushes and limits."""
    return {}


def remove(host: Host, entry: Entry, node: Node) -> None:
    """Removes a file. Raises DirtyHostError if the server does not let it go."""
    server = node["server"]
    user = ("-l", node["user"]) if "user" in node else ()
    where = (*user, "-p", server["port"], "-o", "BatchMode=yes")
    removal = ("rm", "-f", "--", _quoted(str(PurePosixPath(node["path"]))))
    with _known_hosts(host, entry, server, node["host-key-check"]) as known_hosts:
        undone(host, entry, "ssh", *where, *known_hosts, server["host"], *removal)


@contextmanager
def _known_hosts(
    host: Host, entry: Entry, server: Mapping[str, str], check: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """The options with which ssh accepts the same host key as QEMU does."""
    if check["mode"] == "known_hosts":
        yield ()
        return
    with tempfile.NamedTemporaryFile("w", suffix=".known_hosts") as file:
        strict = "no"
        if check["mode"] == "hash":
            strict = "yes"
            keys = undone(host, entry, "ssh-keyscan", "-p", server["port"], server["host"])
            file.writelines(f"{line}\n" for line in keys.splitlines() if _is_key(line, check))
            file.flush()
        yield ("-o", f"StrictHostKeyChecking={strict}", "-o", f"UserKnownHostsFile={file.name}")


def _is_key(line: str, check: Mapping[str, str]) -> bool:
    """True for the line of ssh-keyscan whose key has the hash."""
    with contextlib.suppress(ValueError, IndexError):
        digest = hashlib.new(check["type"], base64.b64decode(line.split()[2]))
        return digest.hexdigest() == check["hash"].lower()
    return False


def _quoted(text: str) -> str:
    """A word for the shell on the server."""
    return "'" + text.replace("'", "'\\''") + "'"

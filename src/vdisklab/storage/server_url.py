"""URLs of servers as QEMU's nodes: NBD, iSCSI, NFS (libnfs), Ceph (librbd), ssh.

A password or key is never in them: QEMU's objects read it from a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote

from vdisklab.errors import PlanError
from vdisklab.path.named_target import NamedTarget, urlsplit_of
from vdisklab.path.segments import LayerKind
from vdisklab.units import whole_number

Node = Mapping[str, Any]
"""The file or device that QEMU opens: the members of a -blockdev protocol node, or of an -fsdev."""

KEYS = "keys.psk"
"""The name that QEMU wants of a file of TLS keys, of which each line is one."""

_HELD = "secret"
"""The id of the object that holds a target's password or key."""


@dataclass(frozen=True, slots=True)
class Url:
    """A disk or a file on a server: `node` is the protocol node with which QEMU opens it.

    `objects` are QEMU's objects that hold its secrets, which read them from files; `text` is the
    URL, without any.
    """

    text: str
    node: Node
    objects: tuple[Mapping[str, str], ...] = ()

    @property
    def opened(self) -> str:
        """The file name with which QEMU's programs open it as a raw image."""
        return "json:" + json.dumps({"driver": "raw", "file": self.node})

    @property
    def secrets(self) -> tuple[str, ...]:
        """The arguments of QEMU's programs that make the objects."""
        return tuple(
            word
            for each in self.objects
            for word in ("--object", ",".join([each["qom-type"], *map("=".join, _rest(each))]))
        )

    @property
    def server(self) -> tuple[str, int | None] | None:
        """The server's name and TCP port; None for a socket of this host, and for Ceph."""
        if "portal" in self.node:
            host, _, port = str(self.node["portal"]).rpartition(":")
            return host.strip("[]"), whole_number(port)
        server = self.node.get("server", {})
        number = whole_number(str(server.get("port", "")))
        return (server["host"], number) if "host" in server else None

    def file(self, name: str) -> Url:
        """A file in this directory."""
        path = f"{str(self.node['path']).rstrip('/')}/{name}"
        base, question, query = self.text.partition("?")
        text = f"{base.rstrip('/')}/{name}{question}{query}"
        return Url(text, {**self.node, "path": path}, self.objects)


def _rest(object_: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in object_.items() if name != "qom-type")


def _shown(parts: SplitResult) -> str:
    """The URL as it was given: `geturl` leaves out the slashes before a host that is missing."""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


def _server(parts: SplitResult, port: int) -> dict[str, str]:
    if not parts.hostname:
        raise PlanError(f"{_shown(parts)} names no server", hint="write HOST after the two slashes")
    return {"host": parts.hostname, "port": str(parts.port or port)}


def _nbd(parts: SplitResult, _secret: str | None) -> dict[str, Any]:
    if parts.scheme.endswith("+unix"):
        sockets = parse_qs(parts.query).get("socket")
        if not sockets:
            raise PlanError(
                f"{_shown(parts)} names no socket", hint="write nbd+unix:///EXPORT?socket=FILE"
            )
        server = {"type": "unix", "path": sockets[0]}
    else:
        server = {"type": "inet", **_server(parts, 10809)}
    export = unquote(parts.path.removeprefix("/"))
    tls = {"tls-creds": _HELD} if parts.scheme.startswith("nbds") else {}
    return {"server": server, **tls, **({"export": export} if export else {})}


def _iscsi(parts: SplitResult, secret: str | None) -> dict[str, Any]:
    name, _, lun = parts.path.removeprefix("/").partition("/")
    number = whole_number(lun)
    if not name or number is None:
        raise PlanError(
            f"{_shown(parts)} names no LUN", hint="write iscsi://HOST[:PORT]/TARGET/LUN"
        )
    server = _server(parts, 3260)
    user = {"user": unquote(parts.username)} if parts.username else {}
    password = {"password-secret": secret} if secret else {}
    portal = f"{server['host']}:{server['port']}"
    return {
        "transport": "tcp", "portal": portal, "target": unquote(name), "lun": number,
        **user, **password,
    }  # fmt: skip


def _libnfs(parts: SplitResult, _secret: str | None) -> dict[str, Any]:
    return {"server": {"type": "inet", "host": _server(parts, 2049)["host"]}, "path": parts.path}


def _ssh(parts: SplitResult, secret: str | None) -> dict[str, Any]:
    if secret is not None:
        raise PlanError(
            f"{_shown(parts)} takes no file with a key: QEMU asks your ssh agent",
            hint="leave out --secret, and load the key: ssh-add FILE",
        )
    user = {"user": unquote(parts.username)} if parts.username else {}
    return {
        "server": _server(parts, 22), "path": unquote(parts.path), **user,
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


def _rbd(place: str, secret: str | None) -> dict[str, Any]:
    """The members for `rbd:POOL[/NAMESPACE]/IMAGE[@CONF]`, with `?id=USER` at the end."""
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


_MEMBERS: Mapping[LayerKind, Callable[[SplitResult, str | None], dict[str, Any]]] = {
    LayerKind.NBD: _nbd, LayerKind.ISCSI: _iscsi, LayerKind.LIBNFS: _libnfs, LayerKind.SSH: _ssh,
}  # fmt: skip


def url_of(target: NamedTarget, secret: Path | None) -> Url:
    """The URL as QEMU's node, with the object for its secret. Raises PlanError for a wrong one."""
    if target.kind is None or target.kind.facts.target is None:
        raise ValueError(f"{target} is no URL")
    driver = str(target.kind.facts.target.driver)
    held = None if secret is None else _HELD
    if target.kind is LayerKind.RBD:
        members = _rbd(target.place, held)
    else:
        members = _MEMBERS[target.kind](urlsplit_of(target.name, target.place), held)
    return Url(target.place, {"driver": driver, **members}, _objects(target, members, secret))


def _objects(
    target: NamedTarget, members: Mapping[str, Any], secret: Path | None
) -> tuple[Mapping[str, str], ...]:
    if "tls-creds" in members:
        if secret is None:
            raise PlanError(
                f"target {target.name} wants TLS, and no key is named",
                hint=f"write --secret {target.name}=FILE with lines USER:KEY (`psktool` makes one)",
            )
        # QEMU takes the directory of keys.psk (qemu-options.hx, tls-creds-psk).
        # The user name of its first line; QEMU would use `qemu`.
        user = _first_user(secret)
        place = {"dir": str(secret.absolute().parent), "endpoint": "client"}
        return ({"qom-type": "tls-creds-psk", "id": _HELD, **place, **user},)
    if secret is None:
        return ()
    # A cephx key is in base64, and librbd gets it so again (qemu_rbd_set_auth).
    form = {"format": "base64"} if "key-secret" in members else {}
    return ({"qom-type": "secret", "id": _HELD, "file": str(secret.absolute()), **form},)


def _first_user(keys: Path) -> dict[str, str]:
    """The user of a file of keys, whose lines are USER:KEY; empty if it cannot be read."""
    try:
        name, colon, _ = keys.read_text().partition(":")
    except OSError:
        return {}
    return {"username": name.strip()} if colon else {}

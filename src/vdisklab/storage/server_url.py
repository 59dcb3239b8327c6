"""URLs of servers as QEMU's nodes; `servers` has a file for each kind.

A password or key is never in them: QEMU's objects read it from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult

from vdisklab.errors import PlanError
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.segments import LayerKind
from vdisklab.units import whole_number
from vdisklab.value import Value

Node = Mapping[str, Any]
"""The file or device that QEMU opens: the members of a -blockdev protocol node, or of an -fsdev."""

KEYS = "keys.psk"
"""The name that QEMU wants of a file of TLS keys, of which each line is one."""

INITIATOR = "iqn.2008-11.org.linux-kvm"
"""What a QEMU without `initiator-name` calls itself, before `:` and its guest's name or UUID, if it
has one (block/iscsi.c, get_initiator_name)."""

HELD = "secret"
"""The id of the object that holds a target's password or key."""


class Url(Value):
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


def shown(parts: SplitResult) -> str:
    """The URL as it was given: `geturl` leaves out the slashes before a host that is missing."""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


def server_of(parts: SplitResult, port: int) -> dict[str, str]:
    """The server in a URL. Raises PlanError if it names none."""
    if not parts.hostname:
        raise PlanError(f"{shown(parts)} names no server", hint="write HOST after the two slashes")
    return {"host": parts.hostname, "port": str(parts.port or port)}


def url_of(target: NamedTarget, secret: Path | None) -> Url:
    """The URL as QEMU's node, with the object for its secret. Raises PlanError for a wrong one."""
    if target.kind is None or target.kind.facts.target is None:
        raise ValueError(f"{target} is no URL")
    held = None if secret is None else HELD
    members: dict[str, Any] = server_module(target).members(target, held)
    driver = str(target.kind.facts.target.driver)
    return Url(target.place, {"driver": driver, **members}, _objects(target, members, secret))


def server_module(target: NamedTarget) -> ModuleType:
    """The module for the kind of server that a target is on. Raises PlanError if it is not here."""
    if target.kind is None:
        raise ValueError(f"{target} is on no server")
    return module_of(target.kind, f"target {target.name}: ")


def module_of(kind: LayerKind, subject: str = "") -> ModuleType:
    """The module for a kind of server. Raises PlanError if this vdisklab has none."""
    name = f"vdisklab.storage.servers.{kind}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise PlanError(
            f"{subject}this vdisklab opens no {kind} targets",
            hint="install the whole of vdisklab, or name another place",
        ) from None


def kind_opened_by(driver: str) -> LayerKind:
    """The kind of server that a driver of QEMU opens."""
    return next(
        kind
        for kind in LayerKind
        if kind.facts.target is not None and kind.facts.target.driver == driver
    )


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
        return ({"qom-type": "tls-creds-psk", "id": HELD, **place, **user},)
    if secret is None:
        return ()
    # A cephx key is in base64, and librbd gets it so again (qemu_rbd_set_auth).
    form = {"format": "base64"} if "key-secret" in members else {}
    return ({"qom-type": "secret", "id": HELD, "file": str(secret.absolute()), **form},)


def _first_user(keys: Path) -> dict[str, str]:
    """The user of a file of keys, whose lines are USER:KEY; empty if it cannot be read."""
    try:
        name, colon, _ = keys.read_text().partition(":")
    except OSError:
        return {}
    return {"username": name.strip()} if colon else {}

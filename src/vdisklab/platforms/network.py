"""Disks on servers: from the node with which QEMU opens a disk to the URL that `--target` takes.

`storage.server_url.url_of` goes the other way. Whether a node has a password or key is read, never
the password or key itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer
from vdisklab.path.named_target import NamedTarget, parse_target
from vdisklab.path.segments import ImageFormat, LayerKind, TargetFacts
from vdisklab.storage.server_url import INITIATOR, url_of
from vdisklab.value import Value, replace

_PORTS = {LayerKind.NBD: "10809", LayerKind.ISCSI: "3260", LayerKind.SSH: "22"}
SPARE = "SPARE"
"""Stands for a disk on the server that holds nothing."""

_SPARE_DISKS = {
    LayerKind.ISCSI: "the number of a LUN",
    LayerKind.RBD: "an RBD image",
    LayerKind.KRBD: "an RBD image",
    LayerKind.NBD: "an export",
}
"""What a server calls a disk of its own."""

KEY_FILE = "FILE"
"""Stands for a file with a password or key."""


_OF_SESSION = ("initiator-name", "header-digest", "timeout")
_FILES = ("backing", "overlay", "data_file")


class ServerDisk(Value):
    """A disk or an image on a server: `place` is as `--target` takes it, without any password.

    `has_secret`: its configuration names a password or key. `note` says what a placeholder in
    `place` stands for. `session` are the members of QEMU's node that its configuration sets for the
    session with an iSCSI target (qapi/block-core.json, BlockdevOptionsIscsi).
    """

    kind: LayerKind
    place: str
    has_secret: bool = False
    note: str = ""
    session: tuple[tuple[str, str], ...] = ()

    @property
    def initiator(self) -> str:
        """The name under which an iSCSI target knows the guest; empty for QEMU's usual one."""
        return dict(self.session).get("initiator-name", "")


def server_disk(node: Mapping[str, Any]) -> ServerDisk | None:
    """The disk of a protocol node of QEMU's; None for a driver that opens no server of a kind that
    is known. Raises ValueError for a node that names too little, or has more than a place.
    """
    name, driver = str(node.get("filename", "")), str(node.get("driver", ""))
    match = re.match(r"(nbd|iscsi|nfs|rbd|ssh)(\+tcp|\+unix)?:", name)
    try:
        if match is not None:
            driver = match[1]
            node = {**(_url if "://" in name else _NAMED[driver])(name), **node}
        writer = _PLACES.get(driver)
        return None if writer is None else writer(node)
    except (KeyError, AttributeError, IndexError, TypeError, PlanError):
        raise ValueError(f"its {driver} node names no server or no disk there") from None


def _url(name: str) -> Mapping[str, Any]:
    """The node for a URL, which may hold a password: iscsi://USER%PASSWORD@HOST (block/iscsi.c)."""
    settings = parse_qs(urlsplit(name).query).keys() - {"socket", "host_key_check"}
    if settings:
        raise ValueError(f"its URL has settings that no path has: {', '.join(sorted(settings))}")
    clean = re.sub("(?<=//)([^/@:%]*)[^/@]*@", r"\1@", name.replace("+tcp:", ":"))
    node = url_of(parse_target(f"t={clean.replace('//@', '//')}"), None).node
    return node if clean == name.replace("+tcp:", ":") else {**node, "password-secret": ""}


def without_secret(name: str) -> str:
    """A file name of QEMU's without the user, password and key that it may hold."""
    return re.sub(r"(?<=//)[^/@]*@|:(key|keyfile|password)=[^:]*", "", name)


def _host(server: Mapping[str, Any], kind: LayerKind) -> str:
    host, port = str(server["host"]), str(server.get("port") or "")
    host = f"[{host}]" if ":" in host else host
    return host if port in ("", _PORTS.get(kind)) else f"{host}:{port}"


def _nbd_of_name(name: str) -> dict[str, Any]:
    """`nbd:HOST:PORT:exportname=X` and `nbd:unix:FILE:exportname=X` (block/nbd.c)."""
    place, _, export = name.removeprefix("nbd:").partition(":exportname=")
    if place.startswith("unix:"):
        return {"server": {"path": place[5:]}, "export": export}
    host, _, port = place.rpartition(":")
    return {"server": {"host": host.strip("[]"), "port": port}, "export": export}


def _nbd(node: Mapping[str, Any]) -> ServerDisk:
    server = node.get("server", node)
    scheme = "nbds" if "tls-creds" in node else "nbd"
    export = quote(str(node.get("export") or ""), safe="/")
    if "path" in server:
        place = f"{scheme}+unix:///{export}?socket={server['path']}"
    else:
        place = f"{scheme}://{_host(server, LayerKind.NBD)}" + (f"/{export}" if export else "")
    return ServerDisk(LayerKind.NBD, place, "tls-creds" in node)


def _iscsi(node: Mapping[str, Any]) -> ServerDisk:
    user = f"{quote(str(node['user']))}@" if "user" in node else ""
    portal = str(node["portal"]).removesuffix(f":{_PORTS[LayerKind.ISCSI]}")
    place = f"iscsi://{user}{portal}/{quote(str(node['target']), safe=':')}/{node.get('lun', 0)}"
    session = tuple((name, str(node[name])) for name in _OF_SESSION if node.get(name))
    return ServerDisk(LayerKind.ISCSI, place, "password-secret" in node, session=session)


def with_iscsi_options(disk: ServerDisk, options: Sequence[str]) -> ServerDisk:
    """The disk of a URL with what QEMU's `-iscsi` adds to it: a password, the initiator's name. Of
    several it is the one with the target as its id, else the first. A node that names the target's
    members takes nothing from it (block/iscsi.c, iscsi_parse_iscsi_option), nor does another
    server's disk."""
    if not disk.place.startswith("iscsi://"):
        return disk
    each = [dict(re.findall(r"(?:^|,)([\w-]+)=([^,]*)", option)) for option in options]
    target = urlsplit(disk.place).path.split("/")[1:2]
    found = next((option for option in each if [option.get("id")] == target), (each or [{}])[0])
    has_secret = disk.has_secret or not found.keys().isdisjoint(("password", "password-secret"))
    # -iscsi has CRC32C, and the node's enum crc32c.
    given = {name: found[name] for name in _OF_SESSION if name in found}
    given |= {"header-digest": given["header-digest"].lower()} if "header-digest" in given else {}
    session = tuple((given | dict(disk.session)).items())
    return replace(disk, has_secret=has_secret, session=session)


def _libnfs(node: Mapping[str, Any]) -> ServerDisk:
    return ServerDisk(LayerKind.LIBNFS, f"nfs://{node['server']['host']}{node['path']}")


def _ssh(node: Mapping[str, Any]) -> ServerDisk:
    user = f"{quote(str(node['user']))}@" if "user" in node else ""
    host = _host(node.get("server", node), LayerKind.SSH)
    check = node.get("host-key-check") or {}
    spelled = {"none": "no", "hash": f"{check.get('type')}:{check.get('hash')}"}
    word = spelled.get(str(check.get("mode")))
    query = f"?host_key_check={word}" if word else ""
    return ServerDisk(LayerKind.SSH, f"ssh://{user}{host}{quote(str(node['path']))}{query}")


def _rbd_of_name(name: str) -> dict[str, Any]:
    """`rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][:KEY=VALUE…]`, with backslashes (block/rbd.c)."""
    fields = [re.sub(r"\\(.)", r"\1", word) for word in re.split(r"(?<!\\):", name)[1:]]
    settings = dict(word.partition("=")[::2] for word in fields[1:])
    image, _, snapshot = fields[0].partition("@")
    parts = image.split("/")
    return {
        "pool": parts[0], "image": parts[-1],
        **({"namespace": parts[1]} if len(parts) == 3 else {}),
        **({"snapshot": snapshot} if snapshot else {}),
        **({"user": settings["id"]} if "id" in settings else {}),
        **({"conf": settings["conf"]} if "conf" in settings else {}),
        **({"server": settings["mon_host"]} if "mon_host" in settings else {}),
        **({"key-secret": ""} if {"key", "keyfile", "keyring"} & settings.keys() else {}),
    }  # fmt: skip


def _rbd(node: Mapping[str, Any]) -> ServerDisk:
    if node.get("snapshot"):
        raise ValueError("it is a snapshot on Ceph, which nothing can be written to")
    parts = [node["pool"], *([node["namespace"]] if node.get("namespace") else []), node["image"]]
    conf, servers, note = node.get("conf"), node.get("server"), ""
    if servers and not conf:
        hosts = re.split("[;, ]+", servers) if isinstance(servers, str) else [
            _host(server, LayerKind.RBD) for server in servers
        ]  # fmt: skip
        conf, note = "CEPH.CONF", f"CEPH.CONF is a file with mon_host = {','.join(hosts)}"
    place = "rbd:" + "/".join(map(str, parts)) + (f"@{conf}" if conf else "")
    user = f"?id={node['user']}" if node.get("user") else ""
    return ServerDisk(LayerKind.RBD, place + user, "key-secret" in node, note)


_NAMED: Mapping[str, Callable[[str], dict[str, Any]]] = {"nbd": _nbd_of_name, "rbd": _rbd_of_name}
_PLACES: Mapping[str, Callable[[Mapping[str, Any]], ServerDisk]] = {
    "nbd": _nbd, "iscsi": _iscsi, "nfs": _libnfs, "ssh": _ssh, "rbd": _rbd,
}  # fmt: skip


def placed(path: DiskPath, kind: LayerKind) -> DiskPath:
    """The path of a disk on storage of that kind, which vdisklab does not build.

    `aio` is how QEMU's file driver does I/O; a server's driver ignores it.
    """
    facts, image, attachment = kind.facts, path.image, path.attachment
    target = facts.target or TargetFacts("")
    if not (facts.holds_files or target.takes_format) and image == Image(ImageFormat.RAW):
        image = None
    if target.by_qemu:
        options = tuple(option for option in attachment.options if option[0] != "aio")
        attachment = Attachment(attachment.bus, options)
        if image is not None:  # no file beside it
            image = Image(
                image.format, tuple(option for option in image.options if option[0] not in _FILES)
            )
    return replace(path, layers=(Layer(kind),), image=image, attachment=attachment)


def beyond_server(image: Image | None) -> tuple[str, ...]:
    """What a path on a server cannot say of an image: the files beside it."""
    options = () if image is None else image.options
    return tuple(f"{name}={value}" for name, value in options if name in _FILES)


class SpareTarget(Value):
    """A place beside a guest's disk on its server, as `run` takes it; `said` explains the words of
    it that stand for something."""

    target: NamedTarget
    secret: tuple[tuple[str, Path], ...] = ()
    said: tuple[str, ...] = ()


def spare_target(kind: LayerKind, place: str, disk: ServerDisk | None) -> SpareTarget:
    """The place beside a disk at `place`, the guest's file, device or URL.

    Images that vdisklab makes stand beside the guest's; a disk is another one, which holds nothing.
    """
    name = f"my{kind}"
    target = replace(parse_target(f"{name}={_beside(kind, place)}"), kind=kind)
    has_secret = disk is not None and disk.has_secret
    said = (
        "" if kind.facts.holds_files else _spare_disk(kind),
        f"{KEY_FILE} is a file with its password or key" if has_secret else "",
        _of_initiator(disk),
        "" if disk is None else disk.note,
    )
    secret = ((name, Path(KEY_FILE)),) if has_secret else ()
    return SpareTarget(target, secret, tuple(filter(None, said)))


def _of_initiator(disk: ServerDisk | None) -> str:
    """That a target which knows the guest by its initiator's name must admit those of `run`: QEMU's
    usual name for a program, and for a guest with the guest's name, which is new in each run."""
    if disk is None or not disk.initiator:
        return ""
    return (
        f"the target knows the guest as {disk.initiator}, so its ACL must also admit {INITIATOR} "
        f"and {INITIATOR}:GUEST, where GUEST is a new name in each run"
    )


def _spare_disk(kind: LayerKind) -> str:
    """What `SPARE` stands for, as a clause."""
    disk = _SPARE_DISKS.get(kind, "a disk")
    return f"{SPARE} is {disk} there that nothing uses, never the guest's: it is overwritten"


def command_on_server(
    path: DiskPath, beside: DiskPath | None, place: str, disk: ServerDisk | None
) -> str:
    """`vdisklab run` for such a disk on its server, and there `beside` it or a local one, as a
    clause."""
    spare = spare_target(path.layers[0].kind, place, disk)
    name = spare.target.name
    there, local = _as_typed(path), _as_typed(beside or path)
    other = local if beside is None else f"{name}/{local}"
    argv = ["vdisklab", "run", f"{name}/{there}", other, "--target", str(spare.target)]
    argv += [word for pair in spare.secret for word in ("--secret", f"{pair[0]}={pair[1]}")]
    return "; ".join([f"`{shlex.join(argv)}`", *spare.said])


def _as_typed(path: DiskPath) -> str:
    """What a user types after the target's name."""
    image = path.image or Image(ImageFormat.RAW)
    return DiskPath((), image, path.cache, path.attachment).canonical


def _beside(kind: LayerKind, place: str) -> str:
    """The directory of an image, or a spare disk in the place of the guest's."""
    base, mark, query = place.partition("?")
    if kind is LayerKind.RBD:
        base, separator, conf = base.partition("@")
        query = f"{separator}{conf}{mark}{query}"
        mark = ""
    if "/" not in base and kind.facts.target is not None:  # a claim's name, not a place
        base = kind.facts.target.example
    above = base.rpartition("/")[0]
    if kind.facts.holds_files:
        return above
    if kind is LayerKind.NBD and base.count("/") < 3:  # a server's only export has no name
        return f"{base}/{SPARE}{mark}{query}"
    return f"{above}/{SPARE}{mark}{query}"


def same_server(kind: LayerKind, place: str, other: str) -> bool:
    """True for two places on one server: of images, the server; of disks, also pool or target."""
    if kind.facts.holds_files:
        parts = urlsplit(place), urlsplit(other)
        return parts[0].scheme != "" and parts[0][:2] == parts[1][:2]
    return _beside(kind, place) == _beside(kind, other)

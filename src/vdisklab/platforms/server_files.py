"""Files of servers whose disks guests use: what each server loses, as its file says.

targets.conf(5) of tgt, LIO's saveconfig.json, the commands of targetcli(8), and nbd-server(5).
tgt's backing store `aio` skips SYNCHRONIZE CACHE (tgt's usr/bs_aio.c), `rdwr` syncs for it, and
after each write with `write-cache off` (usr/bs_rdwr.c). LIO opens a file with O_DSYNC unless
`write_back` is set, and syncs for SYNCHRONIZE CACHE (Linux' target_core_file.c); the kernel's
initiator sends that only if the target reports a cache (emulate_write_cache), QEMU's own always
(block/iscsi.c). nbd-server's booleans are false unless they are set, and QEMU's flush does nothing
if the server does not offer it (block/nbd.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qs

from vdisklab.errors import PlanError
from vdisklab.path.memory_names import memory_by_name
from vdisklab.platforms import beside, targetcli
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.no_guests import beside_guests, first_of
from vdisklab.platforms.reading import DisklessGuest, GuestText, Tree, branches, tree, word
from vdisklab.units import counted
from vdisklab.value import Value, replace

_TGT = re.compile(r"^[ \t]*<target[ \t]+(?P<name>[^>\s]+)[ \t]*>", re.MULTILINE)
_STORE = re.compile(r"^[ \t]*<?(?:backing|direct)-store\b", re.MULTILINE)
_LIO = re.compile(r'"storage_objects"\s*:')
_NBD = re.compile(r"^[ \t]*exportname[ \t]*=", re.MULTILINE)
_PORT = "10809"
_JUDGED_STORES = ("rdwr", "aio", "null")
_ON_DISK = "serve a file or device on a disk"
_BY_KERNEL = " if the host's kernel attaches it, not QEMU's own initiator"
_MOST_NAMED = 3


class ServedDisk(Value):
    """A disk of a server's file: an NBD export, or a LUN of an iSCSI target.

    `loss` says why it loses flushed data, None if it keeps them; `instead` is what to write in
    line `line`. `unknown` is what the file has that is not understood. With `by_kernel` only a disk
    that the kernel's initiator attaches loses. `initiator` is the only one that has this LUN, by
    its ACL; empty for any but those in `others`, whose ACLs have LUNs of their own numbers.
    """

    program: str
    name: str
    lun: str | None = None
    port: str = _PORT
    socket: str | None = None
    loss: str | None = None
    instead: str = ""
    unknown: str = ""
    line: int | None = None
    by_kernel: bool = False
    initiator: str = ""
    others: tuple[str, ...] = ()
    host: str = ""
    """The initiator of the guests' host, in small letters, if that is known."""

    @property
    def title(self) -> str:
        """The disk's name, as an address ends with it."""
        return self.name if self.lun is None else f"{self.name}/{self.lun}"

    def serves(self, disk: ConfiguredDisk, place: str) -> bool:
        """True if a guest's disk, which is at `place`, is this one: by its name, as the file does
        not say which host it is of. A disk of an unknown initiator is that of each."""
        if self.lun is not None:
            return self._is_given_to(disk) and self._is_at(place, self.lun)
        url = beside.url_of(place)
        if url is None or not url.scheme.startswith("nbd"):
            return False
        if url.path.removeprefix("/") != self.name:
            return False
        if "+unix" in url.scheme:
            return parse_qs(url.query).get("socket") == [self.socket]
        return str(url.port or _PORT) == self.port

    def _is_given_to(self, disk: ConfiguredDisk) -> bool:
        asks = self.host if disk.server is None else disk.server.initiator.lower()
        return not asks or (asks not in self.others and self.initiator in ("", asks))

    def _is_at(self, place: str, lun: str) -> bool:
        if place.startswith("/dev/"):
            by_path = rf"-iscsi-{re.escape(self.name)}-lun-{lun}(?![0-9])"
            return re.search(by_path, place) is not None
        url = beside.url_of(place)
        if url is None or self.by_kernel:
            return False
        return url.scheme == "iscsi" and url.path == f"/{self.title}"


def is_server_file(text: GuestText) -> bool:
    """True for a file of a server that is read here."""
    return _kind_of(text) is not None


def _kind_of(text: GuestText) -> str | None:
    body = text.text
    if _TGT.search(body) and _STORE.search(body) and "<domain" not in body:
        return "tgt"
    if _LIO.search(body) and body.lstrip().startswith("{"):
        return "LIO"
    if _NBD.search(body):
        return "nbd-server"
    return "targetcli" if targetcli.is_targetcli(body) else None


def is_commands(text: GuestText) -> bool:
    """True for a script, which may start guests, too."""
    return _kind_of(text) == "targetcli"


def served_disks(text: GuestText) -> tuple[ServedDisk, ...]:
    """The disks of a server's file; none of another text. Raises PlanError for a broken one."""
    match _kind_of(text):
        case "tgt":
            return tuple(_of_tgt(text.text))
        case "LIO":
            return tuple(_of_lio(next(iter(text.documents), {})))
        case "nbd-server":
            return tuple(_of_nbd_server(text.text))
        case "targetcli":
            return tuple(_of_lio(targetcli.configuration(text.text)))
        case _:
            return ()


def lossy_disks(text: GuestText) -> Iterator[ServedDisk]:
    """Those that lose flushed data; none of a file that cannot be read, which `said` names."""
    try:
        yield from (disk for disk in served_disks(text) if disk.loss)
    except PlanError:
        return


def said(text: GuestText) -> DisklessGuest:
    """What a server's file says, and what to name with it."""
    try:
        disks = served_disks(text)
    except PlanError as error:
        why = f"a file of {_kind_of(text)}, a server, which cannot be read ({error})"
        return beside_guests(text, why)
    parts = [f"a file of {_kind_of(text)}, a server, with {counted(len(disks), 'disk')}"]
    lossy = [
        f"{disk.title} loses flushed data{_BY_KERNEL if disk.by_kernel else ''}, as {disk.loss}"
        for disk in disks
        if disk.loss
    ]
    parts += first_of(lossy)
    parts += [f"{disk.title}: {disk.unknown} is not understood" for disk in disks if disk.unknown]
    parts += [_included(text.text)] if _included(text.text) else []
    if len(parts) == 1:
        parts.append("nothing in it drops flushes")
    return beside_guests(text, *parts)


def _included(body: str) -> str:
    """The files that a server's file includes, which are not read."""
    names = re.findall(r"^[ \t]*(?:include|includedir)[ \t=]+(\S+)", body, re.MULTILINE)
    return f"{', '.join(names[:_MOST_NAMED])} is included and was not read" if names else ""


def _without_comment(line: str) -> str:
    return line.partition("#")[0].strip()


def _of_tgt(body: str) -> Iterator[ServedDisk]:
    """The LUNs of each target, numbered from 1: those of backing-store come before direct-store."""
    matches = [*_TGT.finditer(body)]
    ends = [*(match.start() for match in matches[1:]), len(body)]
    for match, end in zip(matches, ends, strict=True):
        first = body.count("\n", 0, match.start()) + 1
        inside = re.split(r"^[ \t]*</target>", body[match.end() : end], flags=re.MULTILINE)[0]
        stores = [*_stores_of(inside, first)]
        ordered = sorted(stores, key=lambda store: not store[0].startswith("backing"))
        for number, (_, file, settings, line) in enumerate(ordered, 1):
            yield _of_store(match["name"], settings.get("lun", str(number)), file, settings, line)


_Store = tuple[str, str, Mapping[str, str], int]
"""A directive, its file, its settings and its line."""


def _stores_of(inside: str, first: int) -> Iterator[_Store]:
    of_target: dict[str, str] = {}
    found: list[tuple[str, str, dict[str, str], int]] = []
    settings = of_target
    for number, raw in enumerate(inside.split("\n"), first):
        line = _without_comment(raw)
        opened = re.fullmatch(r"<?((?:backing|direct)-store)\s+(.+?)>?", line)
        if opened is not None:
            of_store: dict[str, str] = {}
            found.append((opened[1], opened[2].strip("\"'"), of_store, number))
            settings = of_store if line.startswith("<") else of_target
        elif line.startswith("</"):
            settings = of_target
        elif line:
            key, _, value = line.partition(" ")
            settings[key] = value.strip()
    for directive, file, of_store, number in found:
        yield directive, file, {**of_target, **of_store}, number


def _of_store(
    target: str, lun: str, file: str, settings: Mapping[str, str], line: int
) -> ServedDisk:
    kind = settings.get("bs-type", "rdwr")
    loss, instead, unknown = None, "", ""
    if kind == "aio":
        loss = "its backing store type aio of tgt skips flushes (SYNCHRONIZE CACHE)"
        instead = "write bs-type rdwr, or leave bs-type out"
    elif kind == "null":
        loss, instead = "its backing store type null of tgt keeps nothing", "leave out bs-type null"
    elif memory := memory_by_name(file):
        loss, instead = f"tgtd serves {file}, which is memory ({memory})", _ON_DISK
    elif kind not in _JUDGED_STORES:
        unknown = f"bs-type {kind}"
    if settings.get("readonly") in ("1", "on", "yes"):
        loss = None
    return ServedDisk("tgtd", target, lun, loss=loss, instead=instead, unknown=unknown, line=line)


def _of_lio(document: Tree) -> Iterator[ServedDisk]:
    """The LUNs of each target of a saveconfig.json by the storage object that they name."""
    objects = {
        f"/backstores/{word(each, 'plugin')}/{word(each, 'name')}": each
        for each in branches(document, "storage_objects")
    }
    for target in branches(document, "targets"):
        for group in branches(target, "tpgs"):
            yield from _of_group(word(target, "wwn") or "", group, objects)


def _of_group(
    target: str, group: Mapping[str, object], objects: Mapping[str, Mapping[str, object]]
) -> Iterator[ServedDisk]:
    """The LUNs of a portal group, and those that the ACL of an initiator gives other numbers
    (`mapped_luns`): an initiator with an ACL has no others. Without ACLs, and with
    generate_node_acls, any other initiator has the group's own (Linux' target_core_tpg.c,
    core_tpg_check_initiator_node_acl).
    """
    names = {
        word(lun, "index"): word(lun, "storage_object") or "" for lun in branches(group, "luns")
    }
    acls = {(word(acl, "node_wwn") or "").lower(): acl for acl in branches(group, "node_acls")}
    if not acls or word(tree(group, "attributes"), "generate_node_acls") == "1":
        for lun, named in names.items():
            served = _of_object(target, lun or "0", objects.get(named, {}), named)
            yield replace(served, others=tuple(acls))
    for initiator, acl in acls.items():
        for mapped in branches(acl, "mapped_luns"):
            named = names.get(word(mapped, "tpg_lun"), "")
            lun = word(mapped, "index") or "0"
            served = _of_object(target, lun, objects.get(named, {}), named)
            protected = mapped.get("write_protect") is True
            loss = None if protected or served.loss is None else f"{served.loss} (for {initiator})"
            yield replace(served, loss=loss, initiator=initiator)


def _of_object(target: str, lun: str, stored: Mapping[str, object], named: str) -> ServedDisk:
    plugin, file = word(stored, "plugin") or "", word(stored, "dev") or ""
    reports = word(tree(stored, "attributes"), "emulate_write_cache")
    loss, instead, unknown, by_kernel = None, "", "", False
    if plugin in ("ramdisk", "rd_mcp"):
        loss, instead = f"LIO's {named} is memory (ramdisk)", _ON_DISK
    elif memory := memory_by_name(file):
        loss, instead = f"LIO's {named} is {file}, which is memory ({memory})", _ON_DISK
    elif plugin == "fileio" and stored.get("write_back") is True and reports == "0":
        loss = (
            f"LIO's {named} keeps writes in the server's memory (write_back) and reports no cache "
            "(emulate_write_cache=0), so the initiator sends no flush"
        )
        instead = f"set emulate_write_cache=1 of {named} in targetcli, or write_back=false"
        by_kernel = True
    elif plugin not in ("fileio", "block", "iblock"):
        unknown = f"storage object {named or plugin or '?'}"
    return ServedDisk(
        "LIO", target, lun, loss=loss, instead=instead, unknown=unknown, by_kernel=by_kernel
    )


def _of_nbd_server(body: str) -> Iterator[ServedDisk]:
    """The export of each section but `generic`, which has the port and the socket."""
    sections: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    now: dict[str, str] = {}
    for number, raw in enumerate(body.split("\n"), 1):
        line = raw.strip()
        if header := re.fullmatch(r"\[(.+)\]", line):
            now = sections.setdefault(header[1], {})
            lines.setdefault(header[1], number)
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            now[key.strip()] = value.strip()
    general = sections.pop("generic", {})
    for name, settings in sections.items():
        loss, instead = _of_export(settings)
        yield ServedDisk(
            "nbd-server", name, None, general.get("port", _PORT), general.get("unixsock"), loss,
            instead, line=lines[name],
        )  # fmt: skip


def _of_export(settings: Mapping[str, str]) -> tuple[str | None, str]:
    """Why an export loses flushed data, and what to write there."""
    is_set = {name for name, value in settings.items() if value == "true"}
    file = settings.get("exportname", "")
    thrown: Sequence[str] = [name for name in ("copyonwrite", "temporary") if name in is_set]
    if thrown:
        away = "nbd-server throws all writes away when its client disconnects"
        return f"{away} ({thrown[0]} = true)", f"leave out {thrown[0]}"
    if "readonly" in is_set:
        return None, ""
    if memory := memory_by_name(file):
        return f"nbd-server serves {file}, which is memory ({memory})", _ON_DISK
    if is_set.isdisjoint(("flush", "sync")):
        why = "nbd-server offers no flush (flush is not true), so QEMU sends none"
        return why, "add flush = true"
    return None, ""

"""Servers whose command lines stand beside the guests': what each loses below a guest's disk.

Read are `qemu-nbd` (qemu-nbd(8)), `qemu-storage-daemon --export type=nbd` and nbdkit (nbdkit(1),
nbdkit-fua-filter(1), nbdkit-cache-filter(1), nbdkit-cow-filter(1)), and what gives the host a
device, a directory or a target: `nbd-client`, `losetup`, `mount -t tmpfs`, `tgtadm`. Servers' own
files are read by `server_files`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from urllib.parse import parse_qs, urlsplit

from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.durability import dropped_flushes
from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.segments import CacheMode, ImageFormat, LayerKind
from vdisklab.platforms import beside, initiators, nfs_exports, server_files
from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.network import placed
from vdisklab.platforms.no_guests import beside_guests
from vdisklab.platforms.qemu_arguments import disks_exported_by_nbd
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.shell_script import commands_of
from vdisklab.platforms.where_set import line_with
from vdisklab.units import counted
from vdisklab.value import Value, replace

_PORT = "10809"
_NBD = ("qemu-nbd", "qemu-storage-daemon", "nbdkit", "nbd-server")
_PROGRAMS = (*_NBD, *beside.PROGRAMS)
_COMMANDS = re.compile(
    r"qemu-nbd|qemu-storage-daemon|nbdkit|nbd-server|losetup|tgtadm|sync=disabled|\bln[ \t]"
    r"|\bmount[ \t][^\n]{0,200}(\b(tmp|ram)fs\b|barrier|/dev/z?ram|:/)"
)
_OF_UNIT = re.compile(r"^Exec\w+[ \t]*=[-@:+!|]*[ \t]*", re.MULTILINE)
_GUEST = re.compile(
    r"qemu-(system|kvm|storage-daemon)|\bkvm\b|virt-install|\bqm\s|(^|\s)--?(drive|blockdev)\s"
)
_OF_RUN = re.compile(r"\$\{?(nbd|uri|unixsocket|port)\b")
"""The variables of the command of `nbdkit --run`, which say where its server is (nbdkit(1))."""


_LONG = {"k": "socket", "p": "port", "b": "bind", "x": "export-name", "c": "connect", "f": "format",
         "U": "unix", "i": "ipaddr", "e": "export"}  # fmt: skip

_VALUES = "kpbxcfleoPdDtUiegumS"
"""Letters that take a value in qemu-nbd or in nbdkit; `-e` and `-t` of qemu-nbd, and `-o`, are no
part of any answer, so that it does not matter where they differ."""

_ALONE = (
    "fork", "read-only", "snapshot", "nocache", "persistent", "verbose", "list", "bitmap",
    "image-opts", "foreground", "readonly", "exit-with-parent", "no-fork", "newstyle", "vsock",
)  # fmt: skip

_ANY = ("", "0.0.0.0", "::", "*")  # noqa: S104 - read, not bound
_OPEN = re.compile(r"\$|%[iI]")
"""A name that a variable completes, or the instance of a unit's template."""
_INSTANCE = re.compile(r"@(?P<instance>[^/@]+)\.(service|socket)$")
_IS_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*")

_UNSAFE_PLUGINS = ("memory", "data", "tmpdisk", "null", "ones", "random", "pattern", "zero")
"""Plugins that keep what is written in memory, in a file that they remove, or nowhere."""


_OF_FILES = ("file", "split", "floppy", "ondemand")
"""Plugins that keep what is written in a file, or in files of a directory (`dir=`)."""


class NbdServer(Value):
    """A server's socket, port (with the address that it listens on), or device of the kernel.

    `export` is None for a server that has one disk under any name. `loss` says why it loses
    flushed data, None for one that does not.
    """

    socket: str | None = None
    port: str | None = None
    address: str = ""
    device: str | None = None
    export: str | None = None
    loss: str | None = None
    instead: str = ""
    """What to write in the server's command line, as a clause."""
    run: str = ""
    """The command that nbdkit starts, and ends with."""
    program: str = ""
    named: str | None = None
    """The name of its one export, if it has a name."""

    def serves(self, disk: ConfiguredDisk, place: str) -> bool:
        """True if a guest's disk, which is at `place`, is this server's."""
        if self.run and _OF_RUN.search(disk.source or ""):
            named = re.search(r"-name\s+['\"]?(?:guest=)?([^\s,'\"]+)", self.run)
            return named is None or named[1] == disk.domain or "$" in named[1]
        if self.device is not None:
            return re.fullmatch(rf"{re.escape(self.device)}(p[0-9]+)?", place) is not None
        return place.startswith("nbd") and self._serves_url(place)

    def _serves_url(self, place: str) -> bool:
        if self.socket is not None:
            return self._has_export(place) and _socket_of(place) == self.socket
        host = self._host_at(place)
        return host is not None and (host in beside.HERE or host == self.address)

    def serves_if_on(self, place: str) -> str:
        """The host that a guest's address names, if this server has the disk as soon as it runs
        there: its port and export are the same. Empty if it has not."""
        host = self._host_at(place) or ""
        asked = urlsplit(place).path.removeprefix("/") if host else ""
        is_other = self.named not in (None, asked) and _OPEN.search(self.named or "") is None
        return "" if is_other or self._listens_elsewhere(host) else host

    def _listens_elsewhere(self, host: str) -> bool:
        """True if the address that it is bound to is surely none of that host's."""
        if self.address in _ANY or "$" in self.address:
            return False
        is_local = self.address in beside.HERE
        return is_local or (_IS_ADDRESS.fullmatch(host) is not None and host != self.address)

    def _has_export(self, place: str) -> bool:
        return self.export in (None, urlsplit(place).path.removeprefix("/"))

    def _host_at(self, place: str) -> str | None:
        """The host of an address with this server's port and export; None for another address."""
        url = beside.url_of(place)
        if url is None or url.scheme not in ("nbd", "nbds"):
            return None
        is_this = str(url.port or _PORT) == self.port and self._has_export(place)
        return (url.hostname or "") if is_this else None


def _socket_of(place: str) -> str | None:
    url = beside.url_of(place)
    return None if url is None else next(iter(parse_qs(url.query).get("socket", ())), None)


_SERVERS = (*_NBD, "tgtadm")
_Server = NbdServer | beside.Lossy | server_files.ServedDisk | nfs_exports.NfsExport


class _LossyServer(Value):
    """A server that loses flushed data, in a text that the user named, and its command; none of a
    server's file."""

    server: _Server
    text: GuestText
    argv: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The line that starts it, as far as it is known, as `line 3 of FILE`."""
        if isinstance(self.server, server_files.ServedDisk | nfs_exports.NfsExport):
            number = self.server.line
        else:
            number = line_with(self.text.text, self.argv)
        return f"line {number} of {self.text.origin}" if number else self.text.origin


def with_servers(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText], named: Sequence[GuestText] = ()
) -> tuple[ConfiguredDisk, ...]:
    """The disks, each with the loss of the server in these texts that has it. The lines that are
    said are those of the texts that the user `named`, which a form may have rewritten."""
    written = {text.origin: text for text in named}
    host = initiators.initiator_of(texts)
    lossy: list[_LossyServer] = []
    clients: dict[str, str] = {}
    mounts: list[beside.Command] = []
    for text in texts:
        original = written.get(text.origin, text)
        commands = [*_servers_in(_of_instance(text))]
        lossy += (
            _LossyServer(server, original, (program, *argv))
            for program, argv in commands
            for server in _of(program, argv)
            if server.loss
        )
        lossy += (
            _LossyServer(server, original, (server.program,)) for server in beside.lossy(commands)
        )
        lossy += (
            _LossyServer(replace(server, host=host), original)
            for server in server_files.lossy_disks(text)
        )
        lossy += (_LossyServer(server, original) for server in nfs_exports.lossy_exports(text))
        clients |= beside.clients(commands)
        mounts += commands
    places = _Places(clients, nfs_exports.mounted_directories(texts, mounts))
    return tuple(_with_loss(places.on_nfs(disk), lossy, places) for disk in disks)


class _Places(Value):
    """The URLs of the disks behind the kernel's clients of NBD, and of mounted directories."""

    clients: Mapping[str, str]
    mounted: Mapping[str, str]

    def on_nfs(self, disk: ConfiguredDisk) -> ConfiguredDisk:
        """The disk, on NFS if its file is in a directory that is mounted from a server."""
        file = disk.source or ""
        is_on_nfs = nfs_exports.url_of_place(file, self.mounted) != file and file.startswith("/")
        if not is_on_nfs or disk.path is None or disk.path.layers:
            return disk
        return replace(disk, path=placed(disk.path, LayerKind.NFS))

    def of(self, disk: ConfiguredDisk) -> str:
        """Where a disk is, as a URL if a server has it."""
        source = disk.source or ""
        if disk.server is not None:
            return disk.server.place
        client = self.clients.get(re.sub(r"p[0-9]+$", "", source))
        return client or nfs_exports.url_of_place(source, self.mounted)


def _of_instance(text: GuestText) -> str:
    """A unit's text with its instance, as far as its file's name says it (systemd.unit(5)): `web`
    of `qemu-nbd@web.service`."""
    found = _INSTANCE.search(text.origin)
    return re.sub("(?<!%)%[iI]", lambda _: found["instance"], text.text) if found else text.text


def starts_servers(text: GuestText) -> bool:
    """True if commands of this text start a server of disks, or make what loses flushed data."""
    commands = [*_servers_in(text.text)]
    serves = any(program in _SERVERS for program, _ in commands)
    return serves or any(True for _ in beside.lossy(commands))


def only_servers(text: GuestText) -> bool:
    """True for a text that starts NBD servers, and no program that makes a guest."""
    return starts_servers(text) and _GUEST.search(text.text) is None


def said(text: GuestText) -> DisklessGuest:
    """What a script or unit says that starts servers and no guest, and what to name with it."""
    commands = [*_servers_in(text.text)]
    count = sum(program in _SERVERS for program, _ in commands)
    servers = (server for program, argv in commands for server in _of(program, argv))
    losses = [
        *(server.loss for server in servers if server.loss),
        *(each.loss for each in beside.lossy(commands)),
    ]
    kind = "systemd unit" if text.origin.endswith(".service") else "script"
    parts = [f"a {kind} that starts {counted(count, 'server')} of disks and no guest"]
    parts += [f"flushed data is lost, as {loss}" for loss in dict.fromkeys(losses)]
    if not losses:
        parts.append("nothing in it is known to drop flushes")
    return beside_guests(text, *parts, guest="GUEST.sh")


def _with_loss(
    disk: ConfiguredDisk, servers: Sequence[_LossyServer], places: _Places
) -> ConfiguredDisk:
    """The disk with what its server loses, or would lose, and what to change there."""
    if memory := beside.memory_in_place(disk.source or ""):
        return replace(disk, lost_below=disk.lost_below or memory)
    if disk.lost_below is not None:
        return disk
    place = places.of(disk)
    found = next((each for each in servers if each.server.serves(disk, place)), None)
    if found is not None:
        instead = found.server.instead and (
            f"Change its server in {found.where}: {found.server.instead}"
        )
        return replace(disk, lost_below=found.server.loss, below_instead=instead)
    for each in servers:
        host = (
            ""
            if isinstance(each.server, server_files.ServedDisk)
            else (each.server.serves_if_on(place))
        )
        if host:
            return replace(disk, lost_if=_lost_if(host, each))
    return disk


def _lost_if(host: str, lossy: _LossyServer) -> tuple[str, str]:
    """Why a disk at that host may lose flushed data, as a clause, and what to change."""
    loss = re.sub(r"^\S+ serves it: ", "", lossy.server.loss or "")
    why = (
        f"if {host} is the machine of {lossy.text.origin}, {lossy.where} serves this disk, and "
        f"flushed data is lost ({loss})"
    )
    return why, f"Change its server in {lossy.where}: {lossy.server.instead}"


def _servers_in(text: str) -> Iterator[beside.Command]:
    """The commands that start a server or make a device, each with the program's name."""
    if _COMMANDS.search(text) is None:
        return
    if "[Service]" in text:  # systemd.service(5)
        text = _OF_UNIT.sub("", text)
    lines = [text.split("\0")] if "\0" in text else (command.argv for command in commands_of(text))
    for argv in lines:
        names = [PurePath(word).name for word in argv]
        program = next((name for name in names[:8] if name in _PROGRAMS), None)
        if program is not None:
            yield program, argv[names.index(program) + 1 :]


def _of(program: str, argv: Sequence[str]) -> Iterator[NbdServer]:
    match program:
        case "qemu-nbd":
            yield _of_qemu_nbd(argv)
        case "nbdkit":
            yield _of_nbdkit(argv)
        case "nbd-server":
            yield from _of_nbd_server(argv)
        case "qemu-storage-daemon":
            yield from _of_daemon(argv)
        case _:
            pass


def _options(argv: Sequence[str], alone: str) -> tuple[Mapping[str, list[str]], list[str]]:
    """The options by their long names, and the other words; `alone` are letters without a value."""
    options: dict[str, list[str]] = {}
    others: list[str] = []
    rest = deque(argv)
    while rest:
        word = rest.popleft()
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _ALONE and rest:
                value = rest.popleft()
            options.setdefault(name, []).append(value)
        elif word.startswith("-") and len(word) > 1:
            letter, value = word[1], word[2:].removeprefix("=")
            if letter in alone:
                rest.extendleft([f"-{value}"] if value else [])
                value = ""
            elif letter in _VALUES and not value and rest:
                value = rest.popleft()
            options.setdefault(_LONG.get(letter, letter), []).append(value)
        else:
            others.append(word)
    return options, others


def _last(options: Mapping[str, list[str]], name: str) -> str | None:
    return options[name][-1] if name in options else None


def _of_qemu_nbd(argv: Sequence[str]) -> NbdServer:
    options, files = _options(argv, "nrsvtLAhV")
    socket, device = _last(options, "socket"), _last(options, "connect")
    word = _last(options, "cache") or ("none" if "n" in options else "writeback")
    form = _last(options, "format") or "raw"
    file = files[-1] if files else ""
    loss, instead = None, ""
    if "s" in options or "snapshot" in options:
        loss = "qemu-nbd throws all writes away when it stops (--snapshot)"
        instead = "leave out --snapshot"
    elif word in tuple(CacheMode) and form in tuple(ImageFormat):
        path = DiskPath((), Image(ImageFormat(form)), CacheMode(word))
        loss = next((drop.reason for drop in dropped_flushes(path)), None)
        instead = (
            f"write --cache=writeback in place of --cache={word}"
            if path.cache.no_flush
            else (f"serve an image of another format than {form}")
        )
    if loss is None and (memory := memory_by_name(file)):
        loss, instead = f"{file} is memory ({memory})", "serve a file or device on a disk"
    port = None if socket or device else _last(options, "port") or _PORT
    address = _last(options, "bind") or ""
    said = loss and f"qemu-nbd serves it: {loss}"
    named = _last(options, "export-name") or ""
    return NbdServer(socket, port, address, device, loss=said, instead=instead, named=named)


def _of_nbdkit(argv: Sequence[str]) -> NbdServer:
    options, others = _options(argv, "fnrsvhV")
    filters = options.get("filter", [])
    plugin = PurePath(others[0] if others else "").name
    settings = dict(word.partition("=")[::2] for word in others[1:])
    loss, instead = None, ""
    if plugin in _UNSAFE_PLUGINS:
        loss = f"nbdkit's plugin {plugin} keeps nothing when the server stops"
        instead = "serve a file with its plugin file: nbdkit file FILE"
    if "fua" in filters and "discard" in (settings.get("fuamode"), settings.get("fua-mode")):
        loss = "nbdkit's filter fua discards flushes (fuamode=discard)"
        instead = "write fuamode=pass in place of fuamode=discard"
    if "cache" in filters and settings.get("cache") == CacheMode.UNSAFE:
        loss = "nbdkit's filter cache ignores flushes (cache=unsafe)"
        instead = "write cache=writeback in place of cache=unsafe"
    if "cow" in filters and not {"cow-on-read", "cow-file"} & settings.keys():
        loss = "nbdkit's filter cow throws all writes away when the server stops"
        instead = "leave out --filter=cow"
    key = "dir" if plugin in ("ondemand", "floppy") else "file"
    file = settings.get(key) or next((w for w in others[1:] if w.startswith("/")), "")
    inside = f"{file}/x" if key == "dir" else file
    if loss is None and plugin in _OF_FILES and memory_by_name(inside):
        loss = f"{file} is memory ({memory_by_name(inside)})"
        instead = "serve a file or device on a disk"
    socket = _last(options, "unix")
    port = None if socket else _last(options, "port") or _PORT
    return NbdServer(
        socket, port, _last(options, "ipaddr") or "", loss=loss, instead=instead,
        run=_last(options, "run") or "",
    )  # fmt: skip


def _of_nbd_server(argv: Sequence[str]) -> Iterator[NbdServer]:
    """`nbd-server [ADDRESS@]PORT FILE [-c] [-r]`, whose command line cannot offer flushes
    (nbd-server(1)); with -C its file says all, which is read if it is named."""
    options, others = _options(argv, "crndm")
    if "C" in options or len(others) < 2 or "r" in options:
        return
    address, _, port = others[0].rpartition("@")
    loss = "nbd-server offers no flush on its command line, so QEMU sends none"
    instead = "write a config with flush = true for it, and start it with -C"
    if "-c" in argv:
        loss = "nbd-server throws all writes away when its client disconnects (-c)"
        instead = "leave out -c"
    yield NbdServer(None, port, address, loss=loss, instead=instead, program="nbd-server")


def _of_daemon(argv: Sequence[str]) -> Iterator[NbdServer]:
    for server, export, disk in disks_exported_by_nbd(argv):
        loss, instead = loses_writes(disk), ""
        if loss is None and disk.path is not None:
            loss = next((drop.reason for drop in dropped_flushes(disk.path)), None)
        if loss is None and (memory := memory_by_name(disk.source or "")):
            loss = f"{disk.source} is memory ({memory})"
            instead = "serve a file or device on a disk"
        if disk.path is not None and disk.path.cache.no_flush:
            instead = "write cache.no-flush=off in its --blockdev"
        socket = server.get("path")
        port = None if socket else str(server.get("port", _PORT))
        said = loss and f"qemu-storage-daemon serves it: {loss}"
        yield NbdServer(
            socket, port, str(server.get("host", "")), export=export, loss=said, instead=instead
        )

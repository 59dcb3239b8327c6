"""/etc/exports of an NFS server beside the guests: which directories it exports with `async`, so
that a write is called stable before it is on its disk (exports(5)).

A guest's disk is in one by its server and directory: of QEMU's own NFS client, of a libvirt pool
of type netfs, of a volume of Kubernetes, or of what `mount` mounts in a script.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vdisklab.platforms import beside, host_mounts, storage_pools
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.no_guests import beside_guests, first_of
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.where_set import only_line
from vdisklab.units import counted
from vdisklab.value import Value

_LINE = re.compile(
    r"(?m)^[ \t]*(?P<quote>\"?)(?P<directory>/[^\s\"#()]*)(?P=quote)[ \t]*"
    r"(?P<clients>(?<=\s)[^#\n]+)?$"
)
_USUAL = re.compile(r"\((?:[^()\n]*,)?(?:rw|ro|a?sync)(?:,[^()\n]*)?\)")
_OPTIONS = re.compile(r"\(([^()]*)\)")
_COMMENTS = re.compile(r"(?m)[ \t]*#.*$")
_REMOTE = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<path>/.*)")
_STORAGE = re.compile(r"(?m)^nfs:[ \t]*(?P<name>\S+)[ \t]*$(?P<options>(?:\r?\n[ \t]+[^\r\n]*)*)")
"""A storage of Proxmox VE's storage.cfg."""

_OF_OVIRT = re.compile(
    r"/rhev/data-center/mnt/(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<directory>_[^/]*)(?P<file>/.*)"
)
"""A file in a storage domain of oVirt, whose directory on the server has its slashes as `_` and its
own `_` doubled (transformPath of VDSM's lib/vdsm/storage/fileUtils.py)."""


class NfsExport(Value):
    """A directory that a server exports with `async`; `line` is None if several have its name."""

    directory: str
    line: int | None
    program: str = "NFS"

    @property
    def loss(self) -> str:
        """Why flushed data is lost."""
        return f"the NFS server exports {self.directory} with async, so not even a flush is on disk"

    @property
    def instead(self) -> str:
        """What to write there."""
        return "write sync in place of async, and run `exportfs -ra` there"

    def serves(self, _disk: ConfiguredDisk, place: str) -> bool:
        """True if a guest's disk, which is at `place`, is in it on this machine."""
        return self._host_at(place) in beside.HERE[1:]

    def serves_if_on(self, place: str) -> str:
        """The host that the place names, if the export has the disk as soon as it is that host's;
        empty if it has not."""
        return self._host_at(place) or ""

    def _host_at(self, place: str) -> str | None:
        url = beside.url_of(place)
        if url is None or url.scheme != "nfs":
            return None
        inside = posixpath.normpath(url.path).startswith(f"{self.directory.rstrip('/')}/")
        return url.hostname if inside else None


def is_exports_file(text: GuestText) -> bool:
    """True for a text of exports alone."""
    body = _joined(text)
    lines = [line for line in _COMMENTS.sub("", body).splitlines() if line.strip()]
    return _USUAL.search(body) is not None and all(_LINE.match(line) for line in lines)


def _joined(text: GuestText) -> str:
    return text.text.replace("\\\r\n", " ").replace("\\\n", " ")


def lossy_exports(text: GuestText) -> Iterator[NfsExport]:
    """The directories that a file exports with `async`; `sync` is the default (exports(5))."""
    if not is_exports_file(text):
        return
    for match in _LINE.finditer(_COMMENTS.sub("", _joined(text))):
        clients = match["clients"] or ""
        defaults = [each[1:] for each in clients.split() if each.startswith("-")]
        lists = (*defaults, *_OPTIONS.findall(clients))
        if any("async" in options.split(",") for options in lists):
            spelled = rf'(?m)^[ \t]*"?{re.escape(match["directory"])}"?[ \t]'
            line = only_line(text.text, spelled)
            yield NfsExport(posixpath.normpath(match["directory"]), line)


def said(text: GuestText) -> DisklessGuest:
    """What a file of exports says, and what to name with it."""
    count, lossy = len(_LINE.findall(_COMMENTS.sub("", _joined(text)))), [*lossy_exports(text)]
    what = f"/etc/exports of an NFS server, with {counted(count, 'line')}"
    lost = first_of([f"flushed data is lost, as {each.loss}" for each in lossy])
    return beside_guests(text, what, *(lost or ["none with async, which loses flushed data"]))


def mounted_directories(
    texts: Sequence[GuestText], commands: Sequence[beside.Command]
) -> Mapping[str, str]:
    """The URL of the exported directory that is mounted at each directory."""
    found = {**host_mounts.directories_on_nfs(texts), **_of_proxmox(texts)}
    for pool in (pool for text in texts for pool in storage_pools.pools_of(text)):
        host, directory = pool.element.find("source/host"), pool.element.find("source/dir")
        if pool.kind == "netfs" and host is not None and directory is not None:
            found[pool.directory] = f"nfs://{host.get('name')}{directory.get('path')}"
    for program, argv in commands:
        places = [each for each in argv if not each.startswith("-")]
        remote = _REMOTE.fullmatch(places[-2]) if program == "mount" and len(places) > 1 else None
        if remote is not None and "ceph" not in argv:
            found[posixpath.normpath(places[-1])] = f"nfs://{remote['host']}{remote['path']}"
    return found


def _of_proxmox(texts: Iterable[GuestText]) -> Mapping[str, str]:
    """The URL of the exported directory of each NFS storage in a storage.cfg of Proxmox VE, which
    mounts it at /mnt/pve/NAME unless `path` is given (PVE::Storage::NFSPlugin)."""
    found: dict[str, str] = {}
    for match in (match for text in texts for match in _STORAGE.finditer(text.text)):
        options = dict(re.findall(r"(?m)^[ \t]+(\w+)[ \t]+(\S+)", match["options"]))
        server, export = options.get("server"), options.get("export")
        if server and export:
            directory = options.get("path", f"/mnt/pve/{match['name']}")
            host = f"[{server}]" if ":" in server else server
            found[posixpath.normpath(directory)] = f"nfs://{host}{export}"
    return found


def url_of_place(place: str, mounted: Mapping[str, str]) -> str:
    """The URL of a disk on NFS; its place as it is for another one."""
    remote = _REMOTE.fullmatch(place)
    if remote is not None:
        return f"nfs://{remote['host']}{remote['path']}"
    of_ovirt = _OF_OVIRT.fullmatch(place)
    if of_ovirt is not None:
        directory = of_ovirt["directory"].replace("_", "/").replace("//", "_")
        return f"nfs://{of_ovirt['host']}{directory}{of_ovirt['file']}"
    above = posixpath.dirname(place) if place.startswith("/") else ""
    while above not in ("", "/"):
        if above in mounted:
            return f"{mounted[above].rstrip('/')}{place.removeprefix(above)}"
        above = posixpath.dirname(above)
    return place

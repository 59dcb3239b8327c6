"""Texts that say what a host has mounted, named beside the guests: fstab(5), what mount(8),
findmnt(8), df(1), lsblk(8) and `zfs get sync` print, a `.mount` unit of systemd.

A guest's file loses flushed data if the directory that it is in is memory, or sends no flushes.
/proc/mounts has the form of fstab. An overlay that is mounted with `volatile` omits all syncs
(the kernel's Documentation/filesystems/overlayfs.rst, "Volatile mount").
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.mount_options import SOFT, without_flushes
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.network import placed
from vdisklab.platforms.no_guests import beside_guests, first_of
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.units import counted
from vdisklab.value import Value, replace

_MEMORY_TYPES = ("tmpfs", "ramfs", "rootfs", "devtmpfs")
_NFS_TYPES = ("nfs", "nfs4")
_SMB_TYPES = ("cifs", "smb3")
_NETWORK: Mapping[str, LayerKind] = {
    **dict.fromkeys(_NFS_TYPES, LayerKind.NFS), **dict.fromkeys(_SMB_TYPES, LayerKind.SMB),
}  # fmt: skip
_FSTAB = re.compile(
    r"(?P<source>\S+)[ \t]+(?P<directory>/\S*|none|swap)[ \t]+(?P<type>[a-z][\w.,-]*)"
    r"(?:[ \t]+(?P<options>[^\s()]+)(?:[ \t]+[0-9]+){0,2})?"
)
_MOUNT = re.compile(
    r"(?P<source>.+?) on (?P<directory>/.*?) type (?P<type>\S+) \((?P<options>.*)\)"
)
_MOUNT_UNIT = re.compile(r"(?m)^\[Mount\]\s*$")
_KEYS_OF_UNIT = re.compile(r"(?m)^(What|Where|Type|Options)[ \t]*=[ \t]*(.*?)[ \t]*$")
_TREE = re.compile(r"^[\s│├└─|`-]+(?=[\w/])")
_SYNC = re.compile(r"[\w./:%-]+[ \t]+(?:sync|mountpoint)[ \t]+\S+[ \t]+\S.*")
"""A line of `zfs get -H`."""
_ESCAPED = {r"\011": "\t", r"\040": " ", r"\134": "\\"}
"""The characters that fstab(5) writes in octal."""

_PROMPT = re.compile(r"^[^\n]{0,80}[$#>] (?=(?:sudo )?(?:mount|findmnt|df|lsblk|cat|zfs)\b)")
_DEEPEST = 8


class HostMount(Value):
    """A directory of a host and what is mounted there; `type` is empty if the text lacks it.

    `devices` are those that `source` is made of, as far as the text tells. `sync` is that of a data
    set of ZFS.
    """

    directory: str
    source: str
    type: str = ""
    options: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    sync: str = ""

    @property
    def loss(self) -> str | None:
        """Why flushed data of a file in it is lost; None if it is not known to be."""
        where = self.directory
        if self.type in _MEMORY_TYPES or self.source in _MEMORY_TYPES:
            return f"{where} is memory ({self.type or self.source})"
        for device in (self.source, *self.devices):
            if memory := memory_by_name(device) or memory_by_name(f"{device}/x"):
                return f"{where} is on {device}, which is memory ({memory})"
        if self.type.startswith("overlay") and "volatile" in self.options:
            return f"{where} is an overlay mounted with `volatile`, which omits all syncs"
        if self.sync == "disabled":
            return f"{self.source} has sync=disabled, so ZFS calls a flush done at once"
        option = without_flushes(self.options)
        return option and f"{where} is mounted with `{option}`, so no flush reaches the disk"

    @property
    def instead(self) -> str:
        """What to change there, as a clause."""
        if self.sync == "disabled":
            return f"`zfs set sync=standard {self.source}`"
        option = without_flushes(self.options)
        if self.type.startswith("overlay"):
            option = "volatile"
        if option is not None:
            return f"mount {self.directory} without `{option}`"
        return f"mount a file system of a disk at {self.directory}"

    @property
    def soft(self) -> str | None:
        """The option by which requests fail when the server does not answer in time; CIFS has it
        unless `hard` is given (mount.cifs(8))."""
        given = [option for option in self.options if option in ("hard", *SOFT)]
        given = ["soft", *given] if self.type in _SMB_TYPES else given
        return given[-1] if self.type in _NETWORK and given and given[-1] != "hard" else None

    @property
    def is_bound(self) -> bool:
        """True if it is another directory of the host."""
        return self.source.startswith("/") and bool({"bind", "rbind"} & {*self.options})

    @property
    def url(self) -> str | None:
        """The URL of the server's directory; None if it is not NFS."""
        host, _, path = self.source.rpartition(":/")
        return f"nfs://{host}/{path}" if self.type in _NFS_TYPES and host else None


def is_mounts_file(text: GuestText) -> bool:
    """True for a text of mounts alone, in one of the forms that are read here."""
    return any(True for _ in mounts_of(text))


def mounts_of(text: GuestText) -> Iterator[HostMount]:
    """The mounts of a text, in its order; none of another text."""
    body = _PROMPT.sub("", text.text)
    lines = [line.rstrip() for line in body.splitlines()]
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return
    if _MOUNT_UNIT.search(text.text):
        yield from _of_unit(text.text)
        return
    heading, *rows = lines
    titles = heading.split()
    if {"SOURCE", "TARGET"} <= {*titles}:
        yield from _of_columns(titles, rows)
    elif titles[:1] == ["Filesystem"] and heading.endswith("Mounted on"):
        yield from _of_df(titles, rows)
    elif titles[:1] == ["NAME"] and {"SYNC", "PROPERTY"} & {*titles}:
        yield from _of_zfs(titles, rows)
    elif titles[:1] == ["NAME"] and {"MOUNTPOINT", "MOUNTPOINTS"} & {*titles}:
        yield from _of_lsblk(heading, rows)
    elif all(map(_SYNC.fullmatch, lines)):  # -H leaves out the heading
        yield from _of_zfs(("NAME", "PROPERTY", "VALUE"), lines)
    else:
        yield from _of_lines(lines)


def _of_lines(lines: Sequence[str]) -> Iterator[HostMount]:
    """The lines of fstab or /proc/mounts, or those that mount prints; none unless all are."""
    if lines[0].split()[-1:] == ["mount"]:  # the command above what it printed
        lines = lines[1:]
    for form in (_FSTAB, _MOUNT):
        found = [form.fullmatch(line.strip()) for line in lines]
        matches = [match for match in found if match is not None]
        if not matches or len(matches) < len(found):
            continue
        for match in matches:
            options = (match["options"] or "").split(",")
            directory = _unescaped(match["directory"])
            if directory.startswith("/"):
                yield HostMount(
                    posixpath.normpath(directory), _unescaped(match["source"]), match["type"],
                    tuple(options),
                )  # fmt: skip
        return


def _unescaped(word: str) -> str:
    """The word with the characters that its file writes in octal."""
    for octal, character in _ESCAPED.items():
        word = word.replace(octal, character)
    return word


def _of_unit(body: str) -> Iterator[HostMount]:
    """systemd.mount(5)."""
    keys = dict(_KEYS_OF_UNIT.findall(body))
    what, where = keys.get("What"), keys.get("Where")
    if what and where:
        options = tuple(keys.get("Options", "").split(","))
        yield HostMount(posixpath.normpath(where), what, keys.get("Type", ""), options)


def _of_columns(names: Sequence[str], rows: Iterable[str]) -> Iterator[HostMount]:
    """What findmnt prints, whatever columns it was asked for."""
    for row in rows:
        cells = dict(zip(names, _TREE.sub("", row).split(None, len(names) - 1), strict=False))
        target = cells.get("TARGET", "")
        if target.startswith("/"):
            options = tuple(cells.get("OPTIONS", "").split(","))
            yield HostMount(target, cells.get("SOURCE", ""), cells.get("FSTYPE", ""),
                            options)  # fmt: skip


def _of_df(names: Sequence[str], rows: Iterable[str]) -> Iterator[HostMount]:
    for row in rows:
        cells = row.split()
        place = next((number for number, word in enumerate(cells) if word.endswith("%")), None)
        directory = " ".join(cells[place + 1 :]) if place else ""
        if directory.startswith("/"):
            kind = cells[1] if names[1:2] == ["Type"] else ""
            yield HostMount(directory, cells[0], kind)


def _of_lsblk(heading: str, rows: Iterable[str]) -> Iterator[HostMount]:
    """The directories on devices; those above a device in the tree are what it is made of."""
    start = re.search("MOUNTPOINTS?", heading)
    above: list[tuple[int, str]] = []
    for row in rows:
        name = re.search(r"[\w.@-]+", row)
        if name is None or start is None:
            continue
        depth = name.start()
        if row[:depth].strip() == "" and depth:  # a further mount point of the same device
            depth = above[-1][0] if above else 0
        else:
            above = [(column, device) for column, device in above if column < depth]
            above.append((depth, f"/dev/{name[0]}"))
        places = [word for word in row.split() if word.startswith("/")]
        if places and above:
            devices = tuple(device for _, device in above[:-1])
            yield HostMount(places[-1], above[-1][1], "", (), devices)


def _of_zfs(names: Sequence[str], rows: Sequence[str]) -> Iterator[HostMount]:
    """`zfs get sync,mountpoint` and `zfs list -o name,sync,mountpoint`: a data set is mounted at
    its name unless its mount point is said (zfsprops(7))."""
    values: dict[str, dict[str, str]] = {}
    for row in rows:
        cells = dict(zip(names, row.split(), strict=False))
        of_set = values.setdefault(cells.get("NAME", ""), {})
        if "PROPERTY" in cells:
            of_set[cells.get("PROPERTY", "")] = cells.get("VALUE", "")
        else:
            of_set |= {"sync": cells.get("SYNC", ""), "mountpoint": cells.get("MOUNTPOINT", "")}
    for name, of_set in values.items():
        if "sync" not in of_set:
            continue
        place = of_set.get("mountpoint", "")
        places = [place if place.startswith("/") else f"/{name}", f"/dev/zvol/{name}"]
        for directory in places:
            yield HostMount(directory, name, "zfs", (), (), of_set["sync"])


def mount_of(place: str, mounts: Sequence[HostMount]) -> tuple[HostMount, str] | None:
    """What a file or device is on, and its name there: the deepest mount, and of several at one
    directory the last; a directory that is bound is followed. None if no text says it."""
    for _ in range(_DEEPEST):
        place = posixpath.normpath(place)
        found = [each for each in mounts if _is_below(place, each.directory)]
        if not found:
            return None
        deepest = max(len(each.directory) for each in found)
        mount = [each for each in found if len(each.directory) == deepest][-1]
        if not mount.is_bound or mount.loss is not None:
            return mount, place
        place = f"{mount.source}/{place.removeprefix(mount.directory).lstrip('/')}"
    return None


def _is_below(place: str, directory: str) -> bool:
    if place.startswith("/dev/") and not directory.startswith("/dev/"):
        return False  # a device has its own storage, though /dev is a tmpfs
    return place == directory or place.startswith(f"{directory.rstrip('/')}/")


def _with_sync(mounts: Sequence[HostMount]) -> Iterator[HostMount]:
    """The mounts, those of ZFS with the `sync` of their data set or of the one that they have it
    from (zfsprops(7))."""
    syncs = {mount.source: mount.sync for mount in mounts if mount.sync}
    for mount in mounts:
        name = mount.source
        while mount.type == "zfs" and name not in syncs and "/" in name:
            name = posixpath.dirname(name)
        yield replace(mount, sync=mount.sync or syncs.get(name, "")) if syncs else mount


def directories_on_nfs(texts: Iterable[GuestText]) -> Mapping[str, str]:
    """The URL of the exported directory that is mounted at each directory."""
    mounts = (mount for text in texts for mount in mounts_of(text))
    return {mount.directory: mount.url for mount in mounts if mount.url is not None}


def with_mounts(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText]
) -> tuple[ConfiguredDisk, ...]:
    """The disks, each with what the mounts in these texts lose below it."""
    found = [(mount, text.origin) for text in texts for mount in mounts_of(text)]
    mounts = [*_with_sync([mount for mount, _ in found])]
    origins = {mount: origin for mount, (_, origin) in zip(mounts, found, strict=True)}
    return tuple(_on_its_mount(disk, origins) for disk in disks) if mounts else (*disks,)


def _on_its_mount(disk: ConfiguredDisk, origins: Mapping[HostMount, str]) -> ConfiguredDisk:
    if disk.server is not None or not (disk.source or "").startswith("/"):
        return disk
    found = mount_of(disk.source or "", [*origins])
    if found is None:
        return disk
    mount, where = found[0], f"Change what {origins[found[0]]} says"
    if disk.path is not None and not disk.path.layers and mount.type in _NETWORK:
        disk = replace(disk, path=placed(disk.path, _NETWORK[mount.type]))
    if mount.loss is not None and disk.lost_below is None:
        disk = replace(disk, lost_below=mount.loss, below_instead=f"{where}: {mount.instead}")
    if mount.soft is not None and disk.soft_mount is None:
        kept = [option for option in mount.options if option not in SOFT]
        hard = ",".join([*filter(None, kept), "hard"])
        said = f"{mount.directory} is {mount.type} mounted with `{mount.soft}`"
        disk = replace(disk, soft_mount=(said, f"`-o {hard}` of its mount, with its guests off"))
    return disk


def said(text: GuestText) -> DisklessGuest:
    """What a text of mounts says, and what to name with it."""
    mounts = [*mounts_of(text)]
    losses = list(dict.fromkeys(mount.loss for mount in mounts if mount.loss))
    what = f"what a host has mounted, {counted(len(mounts), 'line')}"
    lost = first_of([f"flushed data is lost where {loss}" for loss in losses])
    return beside_guests(text, what, *(lost or ["nothing in it drops flushes"]))

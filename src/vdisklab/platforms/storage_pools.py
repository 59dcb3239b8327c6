"""libvirt's storage pools, as `virsh pool-dumpxml` prints them: the options that a pool's directory
is mounted with, and what they mean for the guests' disks in it.

formatstorage.html, "Storage pool namespaces": `fs:mount_opts`, for pools of the types fs and netfs.
"""

from __future__ import annotations

import posixpath
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vdisklab.path.mount_options import SOFT, without_flushes
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText

_POOL = re.compile(r"<pool[\s>].*?</pool>", re.DOTALL)
_OPTION = "{http://libvirt.org/schemas/storagepool/fs/1.0}option"
_EDIT = "`virsh pool-edit {0}`, and restart the pool with its guests off"


@dataclass(frozen=True, slots=True)
class StoragePool:
    """A pool: its directory, and the options that it is mounted with."""

    name: str
    kind: str
    directory: str
    options: tuple[str, ...]

    def has(self, disk: ConfiguredDisk) -> bool:
        """True if a guest's disk is in it: by its file, or as a volume of a pool of that name."""
        if disk.source is not None:
            place = posixpath.normpath(disk.source)
            return bool(self.directory) and place.startswith(f"{self.directory}/")
        return f"of the pool {self.name!r}" in (disk.problem or "")

    @property
    def loss(self) -> str | None:
        """Why flushed data are lost below its images; None if they are not."""
        option = without_flushes(self.options)
        if option is None:
            return None
        return f"the pool {self.name} is mounted with `{option}`, so no flush reaches the disk"

    @property
    def soft_mount(self) -> str | None:
        """How it is mounted, as a sentence begins, if requests fail once the server is away."""
        chosen = [option for option in self.options if option in ("hard", *SOFT)]
        if not chosen or chosen[-1] == "hard":
            return None
        return f"The pool {self.name} is mounted with `{chosen[-1]}`"

    def on(self, disk: ConfiguredDisk) -> ConfiguredDisk:
        """The disk with what the pool's mount loses."""
        edit = _EDIT.format(self.name)
        if self.loss is not None and disk.lost_below is None:
            instead = f"Leave `{without_flushes(self.options)}` out: {edit}"
            disk = replace(disk, lost_below=self.loss, below_instead=instead)
        if self.soft_mount is not None and disk.soft_mount is None:
            disk = replace(disk, soft_mount=(self.soft_mount, edit))
        return disk


def is_pool_file(text: GuestText) -> bool:
    """True for a text of storage pools alone."""
    return _POOL.search(text.text) is not None and "<domain" not in text.text


def with_pools(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText]
) -> tuple[ConfiguredDisk, ...]:
    """The disks, each with what the mount of its pool in these texts loses."""
    pools = [pool for text in texts for pool in pools_of(text)]
    return tuple(_in_its_pool(disk, pools) for disk in disks)


def _in_its_pool(disk: ConfiguredDisk, pools: Iterable[StoragePool]) -> ConfiguredDisk:
    found = next((pool for pool in pools if pool.has(disk)), None)
    return disk if found is None else found.on(disk)


def pools_of(text: GuestText) -> Iterator[StoragePool]:
    """The pools of a text, as far as they are XML."""
    for match in _POOL.finditer(text.text):
        try:
            pool = ET.fromstring(match[0])  # noqa: S314 - no entities: a pool has no DTD
        except ET.ParseError:
            continue
        name, place = pool.findtext("name") or "?", pool.findtext("target/path") or ""
        options = tuple(option.get("name", "") for option in pool.iter(_OPTION))
        directory = posixpath.normpath(place) if place else ""
        yield StoragePool(name, pool.get("type", "?"), directory, options)


def said(text: GuestText) -> DisklessGuest:
    """What a file of pools says, and what to name with it."""
    parts = [_said_of(pool) for pool in pools_of(text)]
    return DisklessGuest(
        text.file_name,
        "; ".join(parts) or "a storage pool of libvirt, which is not valid XML",
        f"name a guest's file beside it: `vdisklab audit GUEST.xml {text.origin}`",
    )


def _said_of(pool: StoragePool) -> str:
    what = f"the storage pool {pool.name} of libvirt ({pool.kind})"
    soft = pool.soft_mount and "mounted so that requests fail when the server is away"
    why = pool.loss or soft or "nothing in it drops flushes"
    return f"{what}: {why}"

"""libvirt's storage pools, as `virsh pool-dumpxml` prints them: where their volumes are, and what
the options that a pool's directory is mounted with mean for the guests' disks in it.

formatstorage.html, "Storage pool namespaces": `fs:mount_opts`, for pools of the types fs and netfs.
What becomes of a disk of type volume: virStorageTranslateDiskSourcePool (storage_driver.c of
libvirt 3, later virDomainDiskTranslateSourcePool): a file or device in the pool's target, for a
pool of iSCSI in the mode `direct` a disk of the network; of rbd, gluster and mpath "isn't yet
supported".
"""

from __future__ import annotations

import posixpath
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.mount_options import SOFT, without_flushes
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.network import placed
from vdisklab.platforms.no_guests import beside_guests
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.value import replace

_POOL = re.compile(r"<pool[\s>].*?</pool>", re.DOTALL)
_OPTION = "{http://libvirt.org/schemas/storagepool/fs/1.0}option"
_OF_FILES = ("dir", "fs", "netfs", "vstorage")
_OF_DEVICES = ("logical", "disk")
_NOT_STARTED = ("rbd", "gluster", "mpath", "sheepdog")
_SERVERS = {"nfs": LayerKind.NFS, "auto": LayerKind.NFS, "glusterfs": LayerKind.GLUSTERFS,
            "cifs": LayerKind.SMB}  # fmt: skip
"""What a pool of type netfs is mounted from, by its format; `auto` mounts HOST:DIR."""

_UNIT = re.compile(r"unit:[0-9]+:[0-9]+:(?P<lun>[0-9]+)")
"""The name of a volume of an iSCSI pool."""

_OF_NETWORK = ("host", "auth", "initiator")
_BY_PATH = "/dev/disk/by-path"
_EDIT = "`virsh pool-edit {0}`, and restart the pool with its guests off"


@dataclass(frozen=True, slots=True)
class StoragePool:
    """A pool: its directory, and the options that it is mounted with."""

    name: str
    kind: str
    directory: str
    options: tuple[str, ...]
    element: ET.Element = field(compare=False, default_factory=lambda: ET.Element("pool"))

    def has(self, disk: ConfiguredDisk) -> bool:
        """True if a guest's disk is in it: by its file, or as a volume of a pool of that name."""
        if disk.source is not None:
            place = posixpath.normpath(disk.source)
            return bool(self.directory) and place.startswith(f"{self.directory}/")
        return f"of the pool {self.name!r}" in (disk.problem or "")

    @property
    def loss(self) -> str | None:
        """Why flushed data are lost below its images; None if they are not."""
        devices = [each.get("path", "") for each in self.element.iterfind("source/device")]
        for device in devices:
            if memory := memory_by_name(device):
                return f"the pool {self.name} is on {device}, which is memory ({memory})"
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
        server = _SERVERS.get(self._source("format", "type") or "auto")
        if self.kind == "netfs" and server is not None and disk.path and not disk.path.layers:
            disk = replace(disk, path=placed(disk.path, server))
        if self.kind in _NOT_STARTED and disk.path is None:
            disk = replace(disk, unseen=None, refused=self._refusal(disk.problem or ""))
        if self.loss is not None and disk.lost_below is None:
            option = without_flushes(self.options)
            instead = f"Leave `{option}` out: {edit}" if option else "Make the pool on a disk"
            disk = replace(disk, lost_below=self.loss, below_instead=instead)
        if self.soft_mount is not None and disk.soft_mount is None:
            disk = replace(disk, soft_mount=(self.soft_mount, edit))
        return disk

    def source_of(self, volume: str, mode: str) -> tuple[str, ET.Element] | None:
        """The type and the source of a disk that has this volume, as libvirt gives them to QEMU;
        None for a pool that does not tell."""
        if self.kind in _OF_FILES and self.directory:
            return "file", ET.Element("source", {"file": f"{self.directory}/{volume}"})
        if self.kind in _OF_DEVICES and self.directory:
            return "block", ET.Element("source", {"dev": f"{self.directory}/{volume}"})
        if self.kind == "zfs" and (dataset := self.element.findtext("source/name")):
            return "block", ET.Element("source", {"dev": f"/dev/zvol/{dataset}/{volume}"})
        unit, target = _UNIT.fullmatch(volume), self._source("device", "path")
        if self.kind not in ("iscsi", "iscsi-direct") or unit is None or target is None:
            return None
        if self.kind == "iscsi" and mode != "direct":
            host, port = self._source("host", "name"), self._source("host", "port") or "3260"
            device = f"ip-{host}:{port}-iscsi-{target}-lun-{unit['lun']}"
            return "block", ET.Element("source", {"dev": f"{self.directory or _BY_PATH}/{device}"})
        name = f"{target}/{unit['lun']}"
        source = ET.Element("source", {"protocol": "iscsi", "name": name})
        for tag in _OF_NETWORK:
            for each in self.element.iterfind(f"source/{tag}"):
                made = ET.SubElement(source, tag, each.attrib)
                made.extend(ET.Element(inner.tag, inner.attrib) for inner in each)
        return "network", source

    def _source(self, tag: str, name: str) -> str | None:
        found = self.element.find(f"source/{tag}")
        return None if found is None else found.get(name)

    def _refusal(self, problem: str) -> tuple[str, str]:
        """Why libvirt starts no guest with a volume of the pool, which the disk's problem names,
        and what to write."""
        place = self.element.findtext("source/name") or "POOL"
        volume = re.search(r"the volume '([^']+)'", problem)
        instead = (
            f"write <disk type='network'> with <source protocol='{self.kind}' "
            f"name='{place}/{volume[1] if volume else 'VOLUME'}'>"
        )
        if self.kind == "mpath":
            instead = "write <disk type='block'> with <source dev='/dev/mapper/NAME'>"
        return f"libvirt gives no guest a volume of a pool of type {self.kind}", instead


def resolved(domain: ET.Element, pools: Mapping[str, StoragePool]) -> None:
    """Writes the disks of type volume in a domain as what they are, as far as their pool is among
    these."""
    for disk in domain.iterfind("./devices/disk"):
        source = disk.find("source")
        if disk.get("type") != "volume" or source is None:
            continue
        pool = pools.get(source.get("pool", ""))
        volume, mode = source.get("volume", ""), source.get("mode", "host")
        found = None if pool is None else pool.source_of(volume, mode)
        if found is not None:
            kind, place = found
            place.extend(each for each in source if each.tag not in _OF_NETWORK)
            disk.set("type", kind)
            disk.insert([*disk].index(source), place)
            disk.remove(source)


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
        yield StoragePool(name, pool.get("type", "?"), directory, options, pool)


def said(text: GuestText) -> DisklessGuest:
    """What a file of pools says, and what to name with it."""
    pools = [_said_of(pool) for pool in pools_of(text)]
    return beside_guests(text, *(pools or ["a storage pool of libvirt, which is not valid XML"]))


def _said_of(pool: StoragePool) -> str:
    what = f"the storage pool {pool.name} of libvirt ({pool.kind})"
    soft = pool.soft_mount and "mounted so that requests fail when the server is away"
    why = pool.loss or soft or "nothing in it drops flushes"
    return f"{what}: {why}"

"""Targets: the top of a stack of host layers, which a guest gets. A closed sum.

    Directory   holds files, among them images
    Device      a block device: the guest's disk itself, or an image's place
    Share       a directory that a guest mounts as its own file system
    Remote      a disk or a directory on a server, opened by one of QEMU's own drivers

Code asks the target for everything that differs between them, so a new kind is one class here.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import blockdevice, ledger, pagecache
from vdisklab.host.counters import device_below
from vdisklab.host.direct_alignment import LEAST_BLOCK, direct_block
from vdisklab.host.machine import page_size
from vdisklab.path.backing import BackingDevices, in_memory
from vdisklab.path.disk_path import Layer
from vdisklab.storage.server_url import Node, Url
from vdisklab.storage.site import Site
from vdisklab.units import whole_number
from vdisklab.value import Value, field, replace

WRITABLE = "export and mount it read-write for this user (NFS: no_root_squash for root)"
"""The way out where a directory of a server cannot be written."""


class Volume(Value):
    """A volume or dataset as LVM and ZFS name it, `GROUP/VOLUME` or `POOL/DATASET`, and the devices
    of its group or pool."""

    name: str
    members: tuple[Path, ...]

    @property
    def container(self) -> str:
        """The group or pool."""
        return self.name.partition("/")[0]


class _Place(Value):
    """The fields of all targets; valid while the context that made the target is open.

    `properties` were read back from the system, named `layer.option`, such as `xfs.reflink`.
    `cached_below` are files of lower layers whose pages are in the host's page cache: emptying the
    cache must include them. `volume` is the highest volume or dataset that the target lies on.
    """

    path: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    cached_below: tuple[Path, ...] = ()
    volume: Volume | None = None

    @property
    def on_host(self) -> Path:
        """The directory or device, which the host's kernel opens."""
        return self.path

    @property
    def caches(self) -> tuple[Path, ...]:
        """The files and devices whose pages in the host's page cache must be dropped before a
        measurement, because they hold the target's data.
        """
        return (self.path, *self.cached_below)

    def counters(self) -> tuple[tuple[int, int], ...]:
        """The numbers of the host's devices whose counters show the target's transfers."""
        number = device_below(self.path)
        return () if number is None else (number,)


class Directory(_Place):
    """Holds files: the work directory, or a mounted file system."""

    @property
    def server(self) -> tuple[str, int | None] | None:
        """The server of a network file system and its port, by the mount's options (nfs(5),
        mount.cifs(8)); None for any other.
        """
        options = dict(
            option.partition("=")[::2]
            for option in self.properties.get("target.options", "").split(",")
        )
        port = options.get("port", "")
        number = whole_number(port) or _usual_port(self.properties)
        return (options["addr"], number) if "addr" in options else None

    @property
    def holds_files(self) -> bool:
        """True: images are files in it."""
        return True

    def usable(self) -> bool:
        """True when O_DIRECT works in the directory, tried by writing a file and reading it back.

        Raises HostError if nothing can be written: a full disk is not a lack of O_DIRECT.
        """
        if pagecache.try_o_direct(self.path) is None:
            return True
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(bytes(LEAST_BLOCK))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            way = "free some space there" if full else WRITABLE
            raise HostError(
                f"nothing can be written in {self.path}: {error.strerror}",
                hint=f"{way}, or name another directory",
            ) from error
        return False

    def identity(self) -> str | None:
        """The medium below, in the form that runs store; None if unknown."""
        return blockdevice.medium_of(self.path)

    def of_guest(self, _member: int) -> Directory:
        """The target of one guest in a group: all share the directory."""
        return self

    def image_path(self, name: str, form: str) -> Path:
        """The file of a new image."""
        return self.path / f"{name}.{form}"

    def node(self, file: Path) -> Node:
        """The protocol node with which QEMU opens an image file in the directory."""
        return {"driver": "file", "filename": str(file)}


def _usual_port(properties: Mapping[str, str]) -> int | None:
    kind = properties.get("target.filesystem", "")
    return {"nfs": 2049, "nfs4": 2049, "cifs": 445, "smb3": 445}.get(kind)


class Device(_Place):
    """A block device.

    `disks` are all devices side by side at the bottom of a stack, and `volumes` those of several
    guests at its top; `path` is the first of them.
    """

    disks: tuple[Path, ...] = ()
    volumes: tuple[Path, ...] = ()

    @property
    def server(self) -> tuple[str, int | None] | None:
        """The server of an iSCSI disk or of NVMe over a network, and its port; else None."""
        server, _, port = self.properties.get("device.server", "").rpartition(":")
        number = whole_number(port)
        return (server.strip("[]"), number) if server and number is not None else None

    @property
    def holds_files(self) -> bool:
        """False: the device itself holds one image."""
        return False

    @property
    def members(self) -> tuple[Path, ...]:
        """The devices for a layer that can use several; at least `path`."""
        return self.disks or (self.path,)

    def usable(self) -> bool:
        """True when O_DIRECT works on the device, tried by reading a block. Raises HostError if it
        cannot be opened for other reasons.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return False
            raise HostError(
                f"{self.path} cannot be opened: {error.strerror}",
                hint="check that the device still exists (`lsblk`) and that you are root",
            ) from error
        try:
            size = direct_block(descriptor, page_size())
            with mmap.mmap(-1, size) as block:
                return os.preadv(descriptor, [block], 0) == size
        finally:
            os.close(descriptor)

    def identity(self) -> str | None:
        """The device, in the form that runs store."""
        return blockdevice.describe_device(self.path) or str(self.path)

    def of_guest(self, member: int) -> Device:
        """The target of guest `member` (from 0) in a group: its own volume."""
        return replace(self, path=self.volumes[member]) if self.volumes else self

    def image_path(self, _name: str, _form: str) -> Path:
        """The device itself: an image on it has no other name."""
        return self.path

    def node(self, _file: Path) -> Node:
        """The protocol node with which QEMU opens the device."""
        return {"driver": "host_device", "filename": str(self.path)}

    def file_system(self, mountpoint: Path, properties: Mapping[str, str]) -> Directory:
        """The file system that a layer has made on it, with all that is known so far."""
        merged = {**self.properties, **properties}
        return Directory(mountpoint, merged, self.cached_below, volume=self.volume)

    def device(self, node: Path, properties: Mapping[str, str]) -> Device:
        """The device that a layer has made of it, with all that is known so far."""
        merged = {**self.properties, **properties}
        return Device(node, merged, self.cached_below, volume=self.volume)


class Share(_Place):
    """A directory that a guest mounts as its own file system, in place of an image."""

    def node(self, _file: Path) -> Node:
        """The directory as QEMU's -fsdev names it."""
        return {"driver": "local", "path": str(self.path)}


class Remote(Value):
    """A disk on a server, or a directory if it `holds_files`; no kernel of the host opens it.

    The names of files begin with `prefix`, because qemu-img overwrites a file that is there.
    """

    url: Url
    holds_files: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    cached_below: tuple[Path, ...] = ()
    prefix: str = ""

    @property
    def on_host(self) -> Path:
        """Raises HostError: no kernel of the host opens it."""
        raise HostError(
            f"QEMU's own driver opens {self.url.text}, and this needs a file or device",
            hint="mount it and name the directory: --target NAME=DIR",
        )

    @property
    def caches(self) -> tuple[Path, ...]:
        """None: QEMU's own drivers do not use the host's page cache."""
        return ()

    @property
    def server(self) -> tuple[str, int | None] | None:
        """The server's name and TCP port; None for a socket of this host, and for Ceph."""
        return self.url.server

    def counters(self) -> tuple[tuple[int, int], ...]:
        """None: no device of the host shows the transfers."""
        return ()

    def usable(self) -> bool:
        """True: O_DIRECT is of no importance, as no file is opened."""
        return True

    def identity(self) -> str | None:
        """The place, in the form that runs store."""
        return self.url.text

    def of_guest(self, _member: int) -> Remote:
        """The target of one guest in a group."""
        return self

    def image_path(self, name: str, form: str) -> Url:
        """The place of a new image: the disk itself, or a file in the directory."""
        return self.url.file(f"{self.prefix}-{name}.{form}") if self.holds_files else self.url

    def node(self, _file: Path) -> Node:
        """The protocol node with which QEMU opens the disk."""
        return self.url.node


Target = Directory | Device | Remote
"""The top of a stack of host layers."""


def bottoms(
    layers: tuple[Layer, ...], backing: BackingDevices, directory: Path
) -> tuple[Target, ...]:
    """The storage below a stack: the work directory, or what the user names.

    Empty for memory, and for what no kernel of the host opens.
    """
    if in_memory(layers):
        return ()
    named = backing.target_of(layers)
    if named is not None:
        if named.opened_by_qemu:
            return ()
        holds_files = layers[0].kind.facts.holds_files
        return (Directory(Path(named.place)) if holds_files else Device(Path(named.place)),)
    if backing.on_devices(layers):
        return tuple(Device(path) for path in backing.devices[: backing.disks_for(layers)])
    return (Directory(directory),)


@contextmanager
def shared_directory(site: Site, target: Target, name: str) -> Iterator[Share]:
    """An empty directory on a file system, removed with its contents at the end."""
    directory = target.on_host / name
    with site.tracked(ledger.Kind.DIRECTORY, directory):
        site.run("mkdir", directory)
        yield Share(directory, target.properties)

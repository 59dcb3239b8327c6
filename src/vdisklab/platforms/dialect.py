"""What every platform can do with a disk: the interface of its file in this room.

A platform reads its configurations, writes a disk path as one, and changes an existing disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from vdisklab.documents import RARE
from vdisklab.errors import PlanError
from vdisklab.path.architecture import GUEST, Architecture
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.named_target import parse_target
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.drive_arguments import names_device
from vdisklab.platforms.reading import DisklessGuest, GuestText, Tree
from vdisklab.storage.server_url import Url, url_of
from vdisklab.units import GIB

DOMAIN_TYPES = ("kvm", "qemu")
CACHE_MODES_OF_LIBVIRT = tuple(mode for mode in CacheMode if mode is not CacheMode.DIRECTUNSAFE)
"""Other platforms have them too: those that start guests through libvirt, or have its words."""

WHOLE_DEVICE = "/dev/sdX"
"""Stands for a whole device that nobody named."""


Reader = Callable[[GuestText], Iterable[ConfiguredDisk]]
"""Returns the disks of all guests in a text. Raises PlanError for a broken one."""

HOST_DEVICES = "passed-through devices, which may hold disks"
"""A kind of `left_out`."""

_BY_THE_KERNEL = {
    LayerKind.RBD: "map it (`rbd map`) and name the device: --target NAME=/dev/rbd0",
    LayerKind.ISCSI: "log in (`iscsiadm`) and name the device: --target NAME=/dev/sdb",
    LayerKind.NBD: "attach it (`nbd-client`) and name the device: --target NAME=/dev/nbd0",
}
"""How the host's kernel reaches the same storage, by another path."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A disk path to configure, the file or device that holds the disk, and the guest's name.

    With `source` None the platform's default place is used, on the user's `storage` if it is named:
    a target's directory, device or URL. `secret` is the file with its password or key. `size`
    (bytes) is for an image that has to be created. `domain_type` is libvirt's: `kvm`, or `qemu` for
    emulation. `libvirt` is the version of the libvirt that reads the configuration; None is the
    oldest supported one. `guest` is the guest's architecture. No command that creates
    the source is written if it `exists`.
    """

    path: DiskPath
    source: str | None = None
    name: str = "guest"
    size: int = 10 * GIB
    domain_type: str = DOMAIN_TYPES[0]
    libvirt: tuple[int, ...] | None = None
    storage: str | None = None
    secret: Path | None = None
    guest: Architecture = GUEST
    exists: bool = False
    pasted: bool = False
    """True if the text takes the place of a disk in a guest's definition: nothing is attached."""

    @property
    def url(self) -> Url | None:
        """The disk as QEMU's own driver opens it; None for one that the host's kernel opens.

        Raises PlanError for a source that is no URL of the path's kind.
        """
        if not self.path.opened_by_qemu:
            return None
        kind, place = self.path.layers[0].kind, self.place("")
        target = parse_target(f"{self.path.layers[0].option('at') or f'my{kind}'}={place}")
        if target.kind is not kind:
            example = "" if self.path.target is None else self.path.target.example
            raise PlanError(f"{place} is no {kind} disk", hint=f"write --source {example}")
        return url_of(target, self.secret)

    @property
    def on_device(self) -> bool:
        """True when the guest gets a block device, with or without a format in it."""
        if self.path.opened_by_qemu:
            return False
        whole = not self.path.layers and names_device(self.source or "")
        return whole or backing_below(self.path).ends_on_device(self.path.layers)

    @property
    def machine(self) -> str:
        """QEMU's machine for the guest, without options."""
        return self.guest.machines.get(self.path.attachment.bus, self.guest.default_machine)

    @property
    def cpu(self) -> str | None:
        """QEMU's CPU where its default is of no use: on Arm that has 32 bits (hw/arm/virt.c)."""
        if self.guest.has_bios:
            return None
        return "host" if self.domain_type == DOMAIN_TYPES[0] else self.guest.emulated_cpu

    @property
    def driver(self) -> str:
        """QEMU's name of the image format."""
        return "raw" if self.path.image is None else self.path.image.driver

    def place(self, directory: str) -> str:
        """The source, or a default: a file in the directory, or a block device in /dev."""
        if self.source is not None:
            return self.source
        target, layers = self.path.target, self.path.layers
        if target is not None and len(layers) == 1 and not layers[0].kind.facts.holds_files:
            return self.storage or target.example
        if self.on_device:
            return layers[-1].kind.facts.device.format(self.name) if layers else WHOLE_DEVICE
        if target is not None and target.by_qemu:
            directory = target.example
        storage = self.storage if len(layers) == 1 else None  # else a file system lies on it
        base, mark, query = (storage or directory).partition("?")
        return f"{base.rstrip('/')}/{self.name}.{self.driver}{mark}{query}"


@dataclass(frozen=True, slots=True)
class Gap:
    """One option that a platform cannot express, and what the guest gets instead."""

    option: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option} cannot be expressed here: {self.instead}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The text of a configuration; its comments name gaps and requirements too.

    `requirements` are sentences that say what must be set elsewhere for it to work.
    """

    text: str
    gaps: tuple[Gap, ...] = ()
    requirements: tuple[str, ...] = ()


class NotExpressibleError(PlanError):
    """The platform lacks the cache mode, bus or format; a substitute would be a different path."""

    def __init__(self, platform: str, what: str, instead: str) -> None:
        super().__init__(f"{platform} has no {what}", hint=instead)


Writer = Callable[[ExportRequest], Configuration]
"""Returns the configuration. Raises PlanError if the platform has nothing equivalent."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a platform's configuration, under the name that `export --to` knows.

    `write` is for disks, `write_share` for host directories. `title` heads it in a report, which
    leaves out a form without a title, and shows one that `leads` first. `absolute` is True where a
    source must be an absolute path, `relative` where it may be one from the current directory; in
    other forms such a text names a volume or a claim. A form that is a whole guest names the form
    that is one `disk`.
    """

    name: str
    write: Writer
    write_share: Writer
    title: str = ""
    leads: bool = False
    absolute: bool = False
    relative: bool = False
    disk: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One line that changes the settings from the guest's next start on, and one that undoes it."""

    paste: str
    undo: str
    node: Annotated[
        str | None, RARE, "the node of a cluster on which both are run, if that matters"
    ] = None


class NotChangeableError(PlanError):
    """The platform cannot give the disk these settings without touching image, bus or guest."""


def lacks(platform: Platform, what: str) -> NotChangeableError:
    """The error for a setting that the platform does not have."""
    return NotChangeableError(f"{platform.full_name} has no {what}", hint="choose another path")


Changer = Callable[[ConfiguredDisk, DiskPath, DiskPath], Change]
"""The change of a disk from one path to another. Raises NotChangeableError."""


class CommandRunner(Protocol):
    """Runs a command, and returns its standard output."""

    def __call__(self, *argv: str) -> str:
        """Raises CommandError if it fails, HostError if it is missing or takes too long."""
        ...


@dataclass(frozen=True, slots=True)
class Location:
    """Where a host keeps a platform's configurations: a program prints them, or files hold them.

    `printed` returns what the program prints; the files in `directory` are read if there is no
    program, or if it fails. `printed_at` does it for an address that the user names. `users` are
    those as which the platform starts QEMU, beside root.
    """

    directory: str = ""
    program: str = ""
    printed: Callable[[CommandRunner], Iterator[GuestText]] | None = None
    users: tuple[str, ...] = ()
    printed_at: Callable[[CommandRunner, str], Iterator[GuestText]] | None = None


def _never(_text: object) -> bool:
    return False


def _nothing_known(_text: GuestText) -> DisklessGuest | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a platform describes a disk."""

    cache_modes: tuple[CacheMode, ...]
    change: Changer
    forms: tuple[Form, ...] = ()
    reader: Callable[[Sequence[GuestText], Sequence[Tree]], Reader]
    """Gets all texts, and the documents of those that are YAML, because a guest's disks may need
    another text; returns what reads one text.
    """
    recognises: Callable[[GuestText], bool] = _never
    """True for a text of the platform, asked before the text is read as YAML."""
    recognises_document: Callable[[Tree], bool] = _never
    """True for a YAML document of the platform."""
    beside: tuple[str, ...] = ()
    """Names of files that belong to the guests' files in the same directory, or in one below."""
    below: tuple[str, ...] = ()
    """Patterns of directories with guests' files, in a copy of the platform's own directory."""
    location: Location = field(default_factory=Location)
    aio_of: Callable[[ConfiguredDisk, CacheMode], Aio] | None = None
    """Set where the aio mode follows the cache mode, and no I/O thread can be set."""
    buses: tuple[Bus, ...] = tuple(Bus)
    """The buses of its guests' disks and directories: no change leads to another one."""
    other_buses: tuple[Bus, ...] = ()
    """Buses that one line gives a disk, and whose drivers the platform expects in every guest."""
    without_disk: Callable[[GuestText], DisklessGuest | None] = _nothing_known
    """Why the guest of a text has no hard disk; asked if none was found."""
    changes_on_node: bool = False
    """True if the line that changes a guest is run on the guest's own node."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """A search pattern for each kind of data holder that is no hard disk; what its group `device`
    finds is named.
    """


def require_supported(
    platform: Platform,
    modes: Collection[CacheMode],
    path: DiskPath,
    *,
    buses: Collection[Bus] = tuple(Bus),
    formats: Collection[ImageFormat] = tuple(ImageFormat),
    guest: Architecture | None = None,
) -> None:
    """Raises NotExpressibleError for a cache mode, bus or format that the platform lacks.

    `guest` is the architecture of the guests that have these buses, if others have more.
    """
    name, bus, image = platform.full_name, path.attachment.bus, path.image
    if path.cache.spelled_out not in modes:
        raise NotExpressibleError(name, f"cache mode {path.cache}", f"it has {', '.join(modes)}")
    if bus not in buses:
        instead = f"it has {', '.join(buses)}; or use --to qemu"
        where = "" if guest is None else f" on {guest.aliases[0]}"
        raise NotExpressibleError(name, f"bus {bus}{where}", instead)
    if image is not None and image.format not in formats:
        names = ", ".join(formats)
        instead = f"it has {names}" if len(formats) > 1 else f"it opens every file as {names}"
        raise NotExpressibleError(name, f"format {image.format}", instead)
    if image is not None and image.encrypted:
        instead = "encrypt the storage below with LUKS, or use --to qemu"
        raise NotExpressibleError(name, "images that QEMU encrypts", instead)


def require_no_error_policy(platform: Platform, path: DiskPath) -> None:
    """Raises NotExpressibleError for werror= and rerror=, on a platform that has neither."""
    said = "".join(f":{name}={policy}" for name, policy in path.attachment.error_policy)
    if said:
        instead = "its guests get QEMU's default, enospc and report; or use --to libvirt or qemu"
        raise NotExpressibleError(platform.full_name, f"error policy ({said[1:]})", instead)


def require_target(
    platform: Platform,
    request: ExportRequest,
    kinds: Collection[LayerKind] = (),
    *,
    namespaces: bool = False,
) -> None:
    """Raises NotExpressibleError for a server that QEMU itself opens, except one of `kinds`, and
    for an image in a namespace of Ceph's unless the platform has `namespaces`.
    """
    path = request.path
    if not path.opened_by_qemu:
        return
    kind, what = path.layers[0].kind, None
    if kind not in kinds:
        what = f"disk that QEMU's own driver opens ({kind})"
    elif request.url is not None and "namespace" in request.url.node and not namespaces:
        what = "namespaces of Ceph"
    if what is not None:
        way = _BY_THE_KERNEL.get(kind, "mount it and name the directory: --target NAME=DIR")
        instead = f"{way}; or use --to libvirt or qemu"
        raise NotExpressibleError(platform.full_name, what, instead)

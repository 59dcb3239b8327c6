"""What this host knows about a configured disk, and the disk path that both give together."""

from __future__ import annotations

from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.durability import HostDisk
from vdisklab.path.segments import ImageFormat
from vdisklab.path.volume_names import NamedVolume
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import Value, replace


class ThinPool(Value):
    """The pool of a thin volume; sizes are bytes."""

    name: str
    may_grow: int
    """By how much its thin volumes may still grow together."""
    free: int
    volumes: int
    waits: bool
    """True if requests wait for space when it is full; false if they fail at once."""


class DiskContext(Value):
    """What this host knows about a disk's source; unknown values are None, sizes are bytes."""

    header: ImageFormat | None = None
    """The format that the image's first bytes show."""
    layers: tuple[Layer, ...] | None = None
    """The file system that holds the image."""
    below: str | None = None
    """Stacked devices below that file system, of which the layers are not read."""
    image: Image | None = None
    """The image's format, with the options that qemu-img reads."""
    not_followed: str | None = None
    """A backing file that only the image's header names."""
    without_flushes: str | None = None
    """Why its file system sends no flushes."""
    lost_below: str | None = None
    """Why flushed data are lost below the image, whatever the disk is."""
    virtual_size: int | None = None
    allocated: int | None = None
    free: int | None = None
    others: int = 0
    """Images of the same configurations that lie on the same file system and may grow, too."""
    others_grow: int = 0
    """Bytes by which those may grow."""
    pool: ThinPool | None = None
    """The pool of a thin volume."""
    soft_mount: str | None = None
    """How its directory is mounted, if requests fail once a server does not answer in time."""
    named_volume: NamedVolume | None = None
    """For a device that is not on this host: the logical volume that its name probably means."""
    has_quota: bool = False
    """True if a quota may refuse writes before the file system is full."""
    disk: HostDisk = HostDisk.VOLATILE
    """What the user says about the host's disk."""

    @property
    def file_system(self) -> str | None:
        """The file system of the image's directory, on which power cuts count for it; None if it is
        not known, or not alone below the image."""
        return self.layers[0].kind.value if self.layers and len(self.layers) == 1 else None

    @property
    def drops_flushes(self) -> str | None:
        """Why flushed data are lost below the image in a power cut, as far as a path does not say
        it; None if they are not."""
        return self.lost_below or (None if self.disk.keeps_its_cache else self.without_flushes)


UNKNOWN_CONTEXT = DiskContext()


def disk_path(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> DiskPath | None:
    """The complete path: the noted one if still valid, else the configuration with the context.

    The image's header applies to both.
    """
    path = disk.path
    if path is None:
        return None
    path = disk.valid_note or path
    image, found = path.image, context.image
    if found is not None and image is not None and found.format is image.format:
        path = replace(path, image=Image(image.format, (*image.options, *found.options)))
    if disk.valid_note is not None or context.layers is None:
        return path
    return replace(path, layers=context.layers)


def unknown_layers(disk: ConfiguredDisk, context: DiskContext = UNKNOWN_CONTEXT) -> str | None:
    """A clause that says why the disk's host layers are unknown; None if all are known."""
    if disk.valid_note is not None or (disk.path is not None and disk.path.target is not None):
        return None
    if context.layers is None:
        return f"the host layers of {disk.source or 'its source'} are unknown"
    return context.below and f"the host layers below its file system are unknown: {context.below}"

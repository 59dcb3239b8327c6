"""Images that one disk writes to and others open, in one guest or in several.

QEMU locks each image that it writes to, and refuses to start with one that is locked (qemu(1),
`locking` of the file driver; docs/system/images.rst, "Disk image file locking"). A disk that only
reads, and one with snapshot=on, do not let others write meanwhile: beside a writer, QEMU 7.2 starts
neither, in whichever order. Without the lock two writers corrupt the image. Incus opens all but
Ceph's with locking=off (addDriveConfig in internal/server/instance/drivers/driver_qemu.go).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import replace

_MOST_NAMED = 3
_OF_TERRAFORM = re.compile(r"libvirt_volume\.[\w-]+(\[([0-9]+|\"[^\"$]*\")\])?|\{'\w+': .*")
_NEW = re.compile(r"-disk-N(\.\w+)?$")
"""A volume that Proxmox VE makes and numbers."""

_OF_EACH = re.compile(r"\b(each|count)\.")
"""An expression that is another one for each guest that Terraform makes."""


def with_shared_images(disks: Iterable[ConfiguredDisk]) -> tuple[ConfiguredDisk, ...]:
    """The disks, each with the others that cannot have its image at the same time."""
    found = tuple(disks)
    by_image: dict[str, list[ConfiguredDisk]] = {}
    for disk in found:
        image = _image_of(disk)
        if image is not None:
            by_image.setdefault(image, []).append(disk)
    return tuple(_beside(disk, by_image.get(_image_of(disk) or "", ())) for disk in found)


def _image_of(disk: ConfiguredDisk) -> str | None:
    """The file or device that a disk opens; None for one that others surely may have: it is
    shareable, of a template, or of another time."""
    place = _place_of(disk)
    if place is None or disk.shareable or disk.template or disk.past or disk.server is not None:
        return None
    directory = disk.bus is not None and disk.bus.shares_directory
    return None if directory else f"{disk.node}:{place}"


def _place_of(disk: ConfiguredDisk) -> str | None:
    """A disk's file or device, or what its platform or Terraform calls its volume; None if a
    variable decides it, or nothing tells it."""
    source = disk.source or ""
    if source.startswith("/") and "$" not in source and not _NEW.search(source):
        return posixpath.normpath(source)
    if disk.volume:
        return f"{disk.platform.value} {disk.volume}"
    if _OF_TERRAFORM.fullmatch(source) and not _OF_EACH.search(source):
        return f"{PurePath(disk.origin).parent} {source}"  # of one file's resources
    return None


def _writes(disk: ConfiguredDisk) -> bool:
    return not disk.read_only and not disk.transient


def _is_same(disk: ConfiguredDisk, other: ConfiguredDisk) -> bool:
    """True for one disk of one guest, which two platforms' words may name by two targets."""
    of_number = (disk.platform, disk.guest) == (other.platform, other.guest) and disk.guest != ""
    if disk.domain != other.domain and not (of_number and disk.platform is Platform.PROXMOX):
        return False
    return disk.target == other.target or disk.platform is not other.platform


def _not_at_once(disk: ConfiguredDisk, alike: Sequence[ConfiguredDisk]) -> Sequence[ConfiguredDisk]:
    """Those of the disks of one image that must not be open while this one is: without QEMU's lock
    two writers, with it a writer and any other."""
    writers = [each for each in alike if _writes(each)]
    if any(each.unlocked for each in alike):
        return writers if _writes(disk) else ()
    return alike if _writes(disk) else writers


def _beside(disk: ConfiguredDisk, alike: Sequence[ConfiguredDisk]) -> ConfiguredDisk:
    """The disk with those of other names that have its image, of which a few are named."""
    alike = _not_at_once(disk, alike)
    first = alike[: _MOST_NAMED + 2]
    others = [each for each in first if not _is_same(disk, each)]
    if not others:
        return disk
    names = list(dict.fromkeys(f"{each.domain} {each.target}" for each in others))
    more = ["others"] if len(names) > _MOST_NAMED or len(alike) > len(first) else []
    named = ", ".join([*names[:_MOST_NAMED], *more])
    if all(each.volume and each.platform is Platform.INCUS for each in (disk, *others)):
        return replace(disk, same_volume=named)
    if any(each.unlocked for each in (disk, *others)):
        loss = f"{named} may write to it at the same time without QEMU's lock, which corrupts it"
        if disk.lost_below is not None:
            return disk
        by_incus = any(each.platform is Platform.INCUS for each in (disk, *others))
        instead = "Leave locking=off out, and give each an image of its own"
        if by_incus:  # it always opens them so
            instead = "Give each an image of its own"
        return replace(disk, lost_below=loss, below_instead=instead)
    return replace(disk, written_by=named)

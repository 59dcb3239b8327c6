"""Images that several disks write to at once, in one guest or in several.

QEMU locks each image that it writes to, and refuses to start with one that is locked (qemu(1),
`locking` of the file driver; docs/system/images.rst, "Disk image file locking"). Without the lock
two writers corrupt the image.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vdisklab.platforms.configured_disk import ConfiguredDisk

_MOST_NAMED = 3


def with_shared_images(disks: Iterable[ConfiguredDisk]) -> tuple[ConfiguredDisk, ...]:
    """The disks, each with the others that write to its image, too."""
    found = tuple(disks)
    by_image: dict[str, list[ConfiguredDisk]] = {}
    for disk in found:
        image = _image_of(disk)
        if image is not None:
            by_image.setdefault(image, []).append(disk)
    return tuple(_beside(disk, by_image.get(_image_of(disk) or "", ())) for disk in found)


def _image_of(disk: ConfiguredDisk) -> str | None:
    """The file or device that a disk writes to; None for one that several may have: it is read
    only, has an overlay, is shareable, is of a template, or of another time or node."""
    is_file = disk.source is not None and disk.source.startswith("/") and "$" not in disk.source
    alone = disk.read_only or disk.transient or disk.shareable or disk.template
    if not is_file or alone or disk.past or disk.server is not None or disk.source is None:
        return None
    directory = disk.bus is not None and disk.bus.shares_directory
    return None if directory else f"{disk.node}:{posixpath.normpath(disk.source)}"


def _is_same(disk: ConfiguredDisk, other: ConfiguredDisk) -> bool:
    """True for one disk of one guest, which two platforms' words may name by two targets."""
    if disk.domain != other.domain:
        return False
    return disk.target == other.target or disk.platform is not other.platform


def _beside(disk: ConfiguredDisk, alike: Sequence[ConfiguredDisk]) -> ConfiguredDisk:
    """The disk with those of other names that have its image, of which a few are named."""
    first = alike[: _MOST_NAMED + 2]
    others = [each for each in first if not _is_same(disk, each)]
    if not others:
        return disk
    names = list(dict.fromkeys(f"{each.domain} {each.target}" for each in others))
    more = ["others"] if len(names) > _MOST_NAMED or len(alike) > len(first) else []
    named = ", ".join([*names[:_MOST_NAMED], *more])
    if any(each.unlocked for each in (disk, *others)):
        loss = f"{named} may write to it at the same time without QEMU's lock, which corrupts it"
        if disk.lost_below is not None:
            return disk
        instead = "Leave locking=off out, and give each an image of its own"
        return replace(disk, lost_below=loss, below_instead=instead)
    return replace(disk, written_by=named)

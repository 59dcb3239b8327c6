"""Logical volumes of LVM, known by the names of their devices alone."""

from __future__ import annotations

import posixpath
import re

from vdisklab.value import Value

_OTHER_DIRECTORIES = frozenset(
    {
        "block", "bsg", "bus", "cciss", "char", "cpu", "disk", "dri", "drbd", "etherd", "fd", "ida",
        "infiniband", "input", "loop", "mapper", "md", "mqueue", "net", "nvme-fabrics", "pts",
        "raw", "rbd", "shm", "snd", "usb", "vfio", "vhost", "zvol",
    }
)  # fmt: skip
"""Directories of /dev that udev, the kernel's devtmpfs and drivers make, not LVM."""

_OTHER_MAPPINGS = re.compile(r"(luks|crypt|mpath|dm|ceph|veracrypt|live|osprober)-", re.IGNORECASE)
"""How programs other than LVM begin the names of their device-mapper devices."""

_NAME = r"[a-zA-Z0-9+_.][a-zA-Z0-9+_.-]*"
"""Names that LVM takes (lvm(8), VALID NAMES)."""


class NamedVolume(Value):
    """A logical volume of a volume group."""

    group: str
    volume: str

    def __str__(self) -> str:
        return f"a logical volume {self.volume} of the group {self.group}"


def volume_by_name(source: str) -> NamedVolume | None:
    """The logical volume that a device's name probably means; None for any other name.

    LVM makes /dev/GROUP/VOLUME and /dev/mapper/GROUP-VOLUME, in which it doubles each hyphen of a
    name (lvm(8)).
    """
    name = posixpath.normpath(source)
    mapped = re.fullmatch(r"/dev/mapper/([^/]+)", name)
    if mapped is not None and not _OTHER_MAPPINGS.match(mapped[1]):
        parts = re.split(r"(?<!-)-(?!-)", re.sub("--", "\0", mapped[1]))
        if len(parts) != 2:
            return None
        group, volume = (part.replace("\0", "-") for part in parts)
        return _volume(group, volume)
    in_group = re.fullmatch(r"/dev/([^/]+)/([^/]+)", name)
    if in_group is None or in_group[1] in _OTHER_DIRECTORIES:
        return None
    return _volume(in_group[1], in_group[2])


def _volume(group: str, volume: str) -> NamedVolume | None:
    named = all(re.fullmatch(_NAME, name) for name in (group, volume))
    return NamedVolume(group, volume) if named else None

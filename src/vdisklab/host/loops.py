"""Loop devices that are attached, told by the file below each: its device and inode, and its name.

The kernel is asked about each device (LOOP_GET_STATUS64 in linux/loop.h), so a file that was
renamed or deleted is still found, also where sysfs is hidden, as in some containers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import DirtyHostError
from vdisklab.host.machine import read_text
from vdisklab.value import Value

_LOOP_GET_STATUS64 = 0x4C05
_INFO_BYTES = 232
_LOOP = re.compile(r"loop\d+")
_DELETED = " (deleted)"


class Loop(Value):
    """A loop device that is attached.

    `file` is the name of the file below as sysfs shows it now, None if sysfs is hidden. `inode` is
    `DEVICE INODE` as `whereabouts.inode_of` writes it, None if the kernel cannot say: the file's
    server has died. `writable` is False if the device is known to be read-only.
    """

    device: str
    file: Path | None
    inode: str | None
    writable: bool = True


def attached_loops(root: Path = Path("/")) -> tuple[Loop, ...]:
    """The loop devices that are attached.

    Raises DirtyHostError if as root neither /dev nor sysfs shows what one is attached to.
    """
    block = root / "sys/block"
    shown = {name for line in _partitions(root) if _LOOP.fullmatch(name := line.split()[-1])}
    places = (*(root / "dev").glob("loop[0-9]*"), *block.glob("loop[0-9]*"))
    names = {place.name for place in places if _LOOP.fullmatch(place.name)} | shown
    found = []
    for name in sorted(names):
        file = read_text(block / name / "loop/backing_file")
        inode: str | None
        writable = read_text(block / name / "ro") != "1"
        try:
            inode = _status(root / "dev" / name)
        except OSError as error:
            if error.errno == errno.ENXIO:
                continue
            inode = None
            hidden = not (block / name).is_dir()
            if not file and hidden and name in shown and os.geteuid() == 0:
                raise DirtyHostError(
                    f"whether a file of vdisklab is attached to {name} cannot be seen: "
                    f"/dev/{name} ({error.strerror}) and /sys/block/{name} are hidden",
                    hint="run `vdisklab clean` outside of this container or namespace",
                ) from error
            if not file:
                continue
        place = None if not file else Path(file.removesuffix(_DELETED))
        found.append(Loop(f"/dev/{name}", place, inode, writable))
    return tuple(found)


def _partitions(root: Path) -> list[str]:
    with suppress(OSError):
        return [line for line in (root / "proc/partitions").read_text().splitlines() if line]
    return []


def _status(device: Path) -> str:
    """Raises OSError; ENXIO for a device that is free."""
    descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        information = bytearray(_INFO_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, information)
    finally:
        os.close(descriptor)
    number, inode = struct.unpack_from("<QQ", information)
    # huge_encode_dev() in linux/kdev_t.h.
    major, minor = (number & 0xFFF00) >> 8, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return f"{major}:{minor} {inode}"

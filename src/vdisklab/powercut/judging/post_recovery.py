"""Life after the cut: QEMU opens the image read-write, the guest writes on; is all still there?

Reading a recovered image shows what is on the disk. What is wrong with a format's metadata
shows itself when QEMU repairs it, allocates clusters again, and overwrites what it took for free.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import CacheMode
from vdisklab.powercut.clients.blocklayer import NbdDisk
from vdisklab.powercut.judging.daemonkeeper import DaemonKeeper
from vdisklab.powercut.judging.imagereader import BadImageError
from vdisklab.powercut.sectors import SECTOR, Bytes, Numbers, extents_of, judge_sectors

_WRITES = 48
_SECTORS = 8
_BRIDGE = 128
_SERIAL = "afterlife"
_NEW_VERSION = 1 << 40
"""Larger than any version of a recorded run."""


@dataclass(frozen=True, slots=True)
class Living:
    """The image to live on with, and what it must still hold: sorted sectors, least versions."""

    image: Path
    image_format: str
    size: int
    sectors: Numbers
    promised: Numbers


def image_disk(image: Path, image_format: str, size: int) -> Disk:
    """An image as QEMU opens it after the cut: for writing, as the next boot of a guest would."""
    return Disk(_SERIAL, size, str(image), False, image_format, CacheMode.WRITEBACK, Attachment())


def live_on(keeper: DaemonKeeper, living: Living, seed: int) -> str | None:
    """What went wrong, in words; None when everything old and new was read back."""
    disk = image_disk(living.image, living.image_format, living.size)
    try:
        return keeper.with_disk(disk, lambda opened: _write_and_compare(opened, living, seed))
    except BadImageError as error:
        return str(error)


def _write_and_compare(disk: NbdDisk, living: Living, seed: int) -> str | None:
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    due = dict(zip(living.sectors.tolist(), living.promised.tolist(), strict=True))
    exact: dict[int, int] = {}
    for number in range(_WRITES):
        first = rng.randrange(living.size // SECTOR // _SECTORS) * _SECTORS
        version = _NEW_VERSION + number
        disk.write(first, _SECTORS, version, fua=False)
        disk.await_one()
        exact |= dict.fromkeys(range(first, first + _SECTORS), version)
    disk.client.sync()
    numbers = np.array(sorted(due | exact), dtype=np.int64)
    found = judge_sectors(read_sectors(disk, numbers), numbers)
    wrong = [
        (number, version)
        for number, version in zip(numbers.tolist(), found.tolist(), strict=True)
        if (version != exact[number] if number in exact else version < due[number])
    ]
    if not wrong:
        return None
    number, version = wrong[0]
    kind = "new" if number in exact else "old"
    return (
        f"{len(wrong)} sectors are lost after QEMU went on with the image; {kind} sector {number} "
        f"was promised to hold version {exact.get(number, due.get(number))} and holds {version}"
    )


def read_sectors(disk: NbdDisk, numbers: Numbers) -> Bytes:
    """The sectors with these sorted numbers, through QEMU. Raises GuestError."""
    found = np.zeros((len(numbers), SECTOR), dtype=np.uint8)
    for extent in extents_of(numbers, _BRIDGE):
        raw = disk.client.read(extent.first * SECTOR, extent.count * SECTOR)
        rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, SECTOR)
        begin, end = np.searchsorted(numbers, (extent.first, extent.first + extent.count))
        found[begin:end] = rows[numbers[begin:end] - extent.first]
    return found.reshape(-1)

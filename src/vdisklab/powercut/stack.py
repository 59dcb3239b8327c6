"""The stack that is recorded: a logged disk, the path's file system on it, the image in that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.host.syscalls import sync_filesystem
from vdisklab.plan.path import DiskPath, Image, Layer
from vdisklab.plan.segments import ImageFormat, LayerKind
from vdisklab.powercut.diskserver import Lies
from vdisklab.powercut.logdisk import HONEST, LoggedDisk, logged_disk
from vdisklab.powercut.sectors import SECTOR, make_sectors
from vdisklab.powercut.trace import FILLED
from vdisklab.storage.filesystem import filesystem
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.room import size_for
from vdisklab.storage.site import Site
from vdisklab.units import MIB

JUDGED_LAYERS = (LayerKind.EXT4, LayerKind.XFS, LayerKind.BTRFS)
JUDGED_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2)

_SOURCE_SECTORS = 2048


@dataclass(frozen=True, slots=True)
class RecordedStack:
    """What stands while a client writes."""

    disk: LoggedDisk
    layer: Layer
    mountpoint: Path
    image: ImageFile
    filled: bool


def require_judgeable(path: DiskPath) -> tuple[Layer, Image]:
    """The one file system and the format of a path; PlanError says what to write instead."""
    if path.on_host:
        raise PlanError(
            f"{path} has no guest disk, so nothing is promised", hint="write a path with a format"
        )
    if not path.layers:
        raise PlanError(
            f"{path} has no host layer to put a logged disk under",
            hint=f"add a file system: ext4/{path}",
        )
    (layer, *above) = path.layers
    if above or layer.kind not in JUDGED_LAYERS:
        raise PlanError(
            f"the power cut cannot yet be judged on {path.stack}",
            hint=f"write one of {', '.join(JUDGED_LAYERS)} as the only host layer",
        )
    if path.image is None or path.image.format not in JUDGED_FORMATS:
        raise PlanError(
            f"the power cut cannot yet be judged on {path.image or 'a bare device'}",
            hint=f"write one of {', '.join(JUDGED_FORMATS)} as the image format",
        )
    return layer, path.image


@contextmanager
def recorded_stack(
    site: Site,
    path: DiskPath,
    size: int,
    name: str,
    *,
    log: Path | None = None,
    lies: Lies = HONEST,
    direct_io: bool = True,
) -> Iterator[RecordedStack]:
    """The path's host side with an image of `size` bytes, all of it durable when it is yielded."""
    layer, image = require_judgeable(path)
    capacity = size_for(path.layers, 2 * size + 4 * MIB)
    with (
        logged_disk(site, name, capacity, lies=lies, direct_io=direct_io, log=log) as disk,
        filesystem(site, disk.target, layer, f"{name}.mnt", size) as target,
    ):
        source = None if image.is_thin else site.directory / f"{name}.source"
        if source is not None:
            _write_source(source, size)
        with image_file(site, target, image, size=size, name="disk", source=source) as made:
            if source is not None:
                source.unlink()
            _make_durable(made.path, target.path)
            yield RecordedStack(disk, layer, target.path, made, filled=source is not None)


def _write_source(file: Path, size: int) -> None:
    """What a full image is filled with: sectors that say that they are the filling."""
    with file.open("xb") as sink:
        for first in range(0, size // SECTOR, _SOURCE_SECTORS):
            count = min(_SOURCE_SECTORS, size // SECTOR - first)
            sink.write(make_sectors(first, count, FILLED))


def _make_durable(image: Path, directory: Path) -> None:
    """Syncs a new image and its name: `qemu-img create` alone was seen to lose the file."""
    for path in (image, directory):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_filesystem(directory)

"""The stack that is recorded: a logged disk, the path's file system on it, the image in that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.host.syscalls import freeze_and_thaw, sync_filesystem
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.path.segments import LayerKind
from vdisklab.powercut.judging.recovery import RECOVERIES
from vdisklab.powercut.recording.diskserver import Lies
from vdisklab.powercut.recording.dmlog import mapped_disk
from vdisklab.powercut.recording.logdisk import HONEST, LoggedBy, LoggedDisk, logged_disk
from vdisklab.powercut.recording.trace import FILLED
from vdisklab.powercut.sectors import SECTOR, make_sectors
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.room import size_for
from vdisklab.storage.site import Site
from vdisklab.storage.stack import BUILDERS
from vdisklab.storage.zfs import DATASET
from vdisklab.units import MIB

JUDGED_LAYERS = tuple(RECOVERIES)

_SOURCE_SECTORS = 2048


@dataclass(frozen=True, slots=True)
class RecordedStack:
    """What stands while a client writes; `pool` is the name of a ZFS pool."""

    disk: LoggedDisk
    layer: Layer
    mountpoint: Path
    image: ImageFile
    filled: bool
    pool: str | None = None


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
    known = ", ".join(JUDGED_LAYERS)
    if layer.kind is LayerKind.TMPFS:
        raise PlanError(
            f"{path} lies in memory: nothing is left after a power cut, so nothing can be judged",
            hint=f"write one of {known} instead of tmpfs",
        )
    if above or layer.kind not in RECOVERIES:
        stranger = layer if layer.kind not in RECOVERIES else above[0]
        raise PlanError(
            f"{path} cannot be judged: how a host finds {stranger} again after a power cut is not "
            "known to vdisklab",
            hint=f"write one of {known} as the only host layer",
        )
    if layer.option("raid") not in (None, "single"):
        raise PlanError(
            f"{path} cannot be judged: one disk is logged, and {layer} stands on several",
            hint="leave raid out",
        )
    if path.image is None or not path.image.format.is_file:
        raise PlanError(
            f"{path} has no image on its host layer, so nothing of it is kept",
            hint=f"name a format: {path.stack}/raw/{path.cache}",
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
    by: LoggedBy = LoggedBy.FUSE,
) -> Iterator[RecordedStack]:
    """The path's host side with an image of `size` bytes, all of it durable when it is yielded."""
    layer, image = require_judgeable(path)
    capacity = size_for(path.layers, 2 * size + 4 * MIB)
    with (
        _disk(site, name, capacity, lies=lies, direct_io=direct_io, log=log, by=by) as disk,
        BUILDERS[layer.kind](site, disk.target, layer, f"{name}.mnt", size) as target,
    ):
        source = None if image.is_thin else site.directory / f"{name}.source"
        if source is not None:
            _write_source(source, size)
        with image_file(site, target, image, size=size, name="disk", source=source) as made:
            if source is not None:
                source.unlink()
            pool = site.unique(f"{name}.mnt") if layer.kind is LayerKind.ZFS else None
            _make_durable(made.path, target.path)
            if pool is None:
                freeze_and_thaw(target.path)
            else:
                _sync_pool(site, pool)
            yield RecordedStack(disk, layer, target.path, made, source is not None, pool)


@contextmanager
def _disk(
    site: Site, name: str, size: int, *, lies: Lies, direct_io: bool, log: Path | None, by: LoggedBy
) -> Iterator[LoggedDisk]:
    if by is LoggedBy.FUSE:
        with logged_disk(site, name, size, lies=lies, direct_io=direct_io, log=log) as disk:
            yield disk
        return
    if lies != HONEST:
        raise PlanError(f"{by} cannot be told to lie", hint="controls are logged through FUSE")
    file = log or site.directory / f"{name}.log"
    with mapped_disk(site, name, size, file) as (target, marks):
        yield LoggedDisk(target, file, size, marks)


def _write_source(file: Path, size: int) -> None:
    """What a full image is filled with: sectors that say that they are the filling."""
    with file.open("xb") as sink:
        for first in range(0, size // SECTOR, _SOURCE_SECTORS):
            count = min(_SOURCE_SECTORS, size // SECTOR - first)
            sink.write(make_sectors(first, count, FILLED))


def _sync_pool(site: Site, pool: str) -> None:
    """Has a pool write its transaction group: a snapshot waits for it.

    zfs-fuse 0.7.0 was seen to lose a new, empty file whose fsync had returned.
    """
    snapshot = f"{pool}/{DATASET}@made"
    for verb in ("snapshot", "destroy"):
        site.host.run("zfs", verb, snapshot)


def _make_durable(image: Path, directory: Path) -> None:
    """Syncs a new image and its name: `qemu-img create` alone was seen to lose the file."""
    for path in (image, directory):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_filesystem(directory)

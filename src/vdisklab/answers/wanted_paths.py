"""The paths to measure for an existing disk, whichever verb asks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vdisklab.answers.disks import default_path
from vdisklab.path.adjacent import adjacent_paths, same_image_and_bus
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import impossible
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.registry import can_change, can_express, dialect_of


def wanted_paths(
    disk: ConfiguredDisk, path: DiskPath, to: DiskPath | None = None
) -> Iterator[DiskPath]:
    """The disk's path as it is measured, the adjacent paths that it can have, what it would be
    changed `to`, and the default of its platform; none for a directory."""
    if path.shares_directory:
        return
    paths = [path]
    for other in _adjacent(disk, path):
        rebuilt = not same_image_and_bus(path, other)
        if can_express(disk.platform, other) if rebuilt else can_change(disk, other):
            paths.append(other)
    paths += filter(None, [to, default_path(disk.platform, path)])
    for each in dict.fromkeys(paths):
        if impossible(each, backing_below(each)) is None:
            yield each


def settings_of(disk: ConfiguredDisk, path: DiskPath) -> Iterator[DiskPath]:
    """The adjacent paths that differ in settings alone."""
    return (other for other in _adjacent(disk, path) if same_image_and_bus(path, other))


def _adjacent(disk: ConfiguredDisk, path: DiskPath) -> tuple[DiskPath, ...]:
    aio_of = dialect_of(disk.platform).aio_of
    return adjacent_paths(path, None if aio_of is None else partial(aio_of, disk))

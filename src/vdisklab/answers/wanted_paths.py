"""The paths to measure for an existing disk, whichever verb asks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vdisklab.answers.disks import ExistingDisk, default_path
from vdisklab.answers.measuring_place import MeasuringPlace
from vdisklab.path.adjacent import adjacent_paths, same_image_and_bus
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.rules import impossible
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.registry import can_change, can_express, dialect_of
from vdisklab.value import replace


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


def wanted_of(row: ExistingDisk, place: MeasuringPlace) -> Iterator[DiskPath]:
    """The paths to measure for a disk, as far as they can be measured in a place."""
    path = row.advised.path or row.disk.assumed
    if path is not None:
        paths = (*wanted_paths(row.disk, path, row.advised.to), *_thin(row, path))
        yield from filter(place.can_hold, dict.fromkeys(paths))


def _thin(row: ExistingDisk, path: DiskPath) -> Iterator[DiskPath]:
    """The path with a thin image, as the disk's own was made: its standing is that of this path,
    which `audit` shows, while changes are judged with an allocated image."""
    image, present = path.image, None if row.path is None else row.path.image
    if image is None or present is None or present.format is not image.format:
        return
    if present.is_thin and not image.is_thin:
        made = present.word("preallocation")
        options = tuple(option for option in image.options if option[0] != "preallocation")
        yield replace(path, image=Image(image.format, (*options, ("preallocation", made))))


def _adjacent(disk: ConfiguredDisk, path: DiskPath) -> tuple[DiskPath, ...]:
    aio_of = dialect_of(disk.platform).aio_of
    return adjacent_paths(path, None if aio_of is None else partial(aio_of, disk))

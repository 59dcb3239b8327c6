"""One disk of an existing guest, as its configuration describes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vdisklab.path.disk_path import DiskPath, Image, Layer


@dataclass(frozen=True, slots=True)
class ConfiguredDisk:
    """`path` holds what the configuration says, `noted` what vdisklab wrote beside it.

    `target` is the guest's name for the disk (`vda`), `source` the file or device, None where it
    is on the network or left out; `problem` says why there is no disk path.
    """

    domain: str
    target: str
    source: str | None
    path: DiskPath | None
    noted: DiskPath | None = None
    problem: str | None = None

    @property
    def note_is_stale(self) -> bool:
        """True when the configuration was changed after vdisklab had written it."""
        return self.noted is not None and self.path is not None and not _agree(self)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the host says of a disk's source; None is not known, as on another host.

    `layers` is the file system (or device) that holds it, `image` its format with options as
    qemu-img reads them. Sizes are bytes.
    """

    layers: tuple[Layer, ...] | None = None
    image: Image | None = None
    virtual_size: int | None = None
    allocated: int | None = None
    free: int | None = None


NOWHERE = Surroundings()


def disk_path(disk: ConfiguredDisk, around: Surroundings = NOWHERE) -> DiskPath | None:
    """The whole path: of the note while it is true, else of what the host says."""
    path = disk.path
    if path is None:
        return None
    if disk.noted is not None and _agree(disk):
        return disk.noted
    if around.image is not None and path.image and around.image.format is path.image.format:
        path = replace(path, image=around.image)
    return path if around.layers is None else replace(path, layers=around.layers)


def _agree(disk: ConfiguredDisk) -> bool:
    """True when the note and the configuration describe the same disk to the guest."""
    if disk.noted is None or disk.path is None:
        return False
    return disk.noted.guest_side == disk.path.guest_side

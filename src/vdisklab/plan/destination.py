"""Where an operation's copy goes: `--to ext4/qcow2`, `--to nas/raw`, `--to /mnt/backup`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, Image, parse_path
from vdisklab.path.named_target import COPIES, NamedTarget, with_targets
from vdisklab.path.segments import FORMAT_OPTIONS, CacheMode, ImageFormat, LayerKind
from vdisklab.value import Value, replace

_FILE_NAME = ("/", "./", "../", "~/")


class Destination(Value):
    """Where a copy goes. `path` is built for each cell anew; its bus is not used.

    `chosen` is False for a directory, or a disk on a server, without a format: the operation
    chooses one.
    """

    path: DiskPath
    chosen: bool

    def image(self, wanted: ImageFormat) -> Image | None:
        """The new image: thin unless the user says otherwise; None for a device as it is."""
        image = self.path.image if self.chosen else Image(wanted)
        if image is None or "preallocation" not in FORMAT_OPTIONS[image.format]:
            return image
        options = {"preallocation": "off", **dict(image.options)}
        return replace(image, options=tuple(sorted(options.items())))

    @property
    def cache(self) -> CacheMode | None:
        """The cache mode that the user wrote; None for that of the guest's disk."""
        return None if self.path.cache is CacheMode.DEFAULT else self.path.cache


def named_directory(to: str | None) -> NamedTarget | None:
    """The target of a `--to` that is a directory; None for a disk path.

    Raises PlanError for an empty `--to`.
    """
    if to is not None and not to.strip():
        raise PlanError(
            "--to names no place",
            hint="write --to ext4/qcow2 or --to /mnt/backup, or leave it out",
        )
    if to is None or not (f"{to}/").startswith(_FILE_NAME):
        return None
    return NamedTarget(COPIES, str(Path(to).expanduser().absolute()), LayerKind.DIR)


def destination_of(to: str | None, targets: Collection[NamedTarget]) -> Destination | None:
    """The destination that a user wrote; None if there is none. Raises PathSyntaxError."""
    if to is None:
        return None
    directory = named_directory(to)
    text = with_targets(to, targets) if directory is None else directory.layer
    path = parse_path(text)
    holds_files = not path.layers or path.layers[-1].kind.facts.holds_files
    if path.image is None and (holds_files or path.may_hold_formats):
        return Destination(parse_path(f"{text}/{ImageFormat.RAW}"), chosen=False)
    return Destination(path, chosen=True)

"""The images that an operation on a running guest's disk writes to, made for it and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vdisklab.campaign.attachment import disk_for
from vdisklab.campaign.host_stacks import room_of_image
from vdisklab.errors import OperationError
from vdisklab.guest.qemu.block_nodes import Disk, nested_node, node_objects
from vdisklab.host.ledger import Kind
from vdisklab.operations.operation import TARGET, DiskOperation, Monitor
from vdisklab.path.disk_path import DiskPath, Image, parse_path
from vdisklab.path.segments import CacheMode, ImageFormat
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.destination import Destination
from vdisklab.results.model import Check
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Directory, Remote, Target
from vdisklab.value import replace

_NAME = "to"
_ENCRYPTED = "luks"
"""QEMU's driver of an encrypted raw image, whose copy is plain."""


@dataclass(slots=True)
class NewImages:
    """Makes images of the disk's size, and removes them when `made` is closed.

    `target` is the top of the stack that `destination` names. `files` are those on this host.
    """

    site: Site
    source: Path
    image: ImageFile
    disk: Disk
    monitor: Monitor
    made: ExitStack
    destination: Destination | None = None
    target: Target | None = None
    checks: tuple[Check, ...] = ()
    files: tuple[Path, ...] = ()
    objects: list[Mapping[str, Any]] = field(default_factory=list)

    def track(self, file: Path) -> None:
        """Makes sure that a file that QEMU creates is removed."""
        self.made.enter_context(self.site.tracked(Kind.FILE, file))
        self.files = (*self.files, file)

    @property
    def volume(self) -> str:
        """The volume or dataset that the guest's image lies on; empty if it lies on none."""
        target = self.image.target
        volume = None if isinstance(target, Remote) else target.volume
        return "" if volume is None else volume.name

    def new_file(self, name: str, suffixes: tuple[str, ...] = ()) -> Path:
        """The place of a new file: on `--to`, else in the work directory; see `NewFile`.

        Raises OperationError if `--to` holds no files.
        """
        target = self.target or Directory(self.site.directory)
        if not isinstance(target, Directory):
            raise OperationError(
                "a stream is written to a file, and --to names no directory",
                hint="name one, such as --to ext4/raw",
            )
        file = target.path / f"{self.disk.serial}.{name}"
        for each in (file, *(file.with_name(f"{file.name}{suffix}") for suffix in suffixes)):
            self.track(each)
        return file

    def new(self, purpose: str, driver: str) -> Mapping[str, Any]:
        """A new, empty image, as arguments of `blockdev-add`; see `operation.NewImage`."""
        form = _format(driver)
        name = f"{self.disk.serial}.{purpose}"
        if purpose == TARGET and self.destination is not None and self.target is not None:
            image, target = self.destination.image(form), self.target
            path, cache = self.destination.path, self.destination.cache
        else:
            path, cache = parse_path(f"{form}:preallocation=off"), None
            image, target = path.image, self._beside()
        source = None if image is None or image.is_thin else self.source
        made = self.made.enter_context(
            image_file(self.site, target, image, size=self.disk.size, name=name, source=source)
        )
        self.files = (*self.files, *([] if made.file is None else [made.file]))
        if purpose == TARGET:
            self.checks = (*self.checks, *_checks(path, image, made))
        return self._opened(path, image, made, cache or self.disk.cache)

    def _beside(self) -> Target:
        """The directory of the guest's own image, else the work directory."""
        below = self.image.target
        return below if isinstance(below, Directory) else Directory(self.site.directory)

    def _opened(
        self, path: DiskPath, image: Image | None, made: ImageFile, cache: CacheMode
    ) -> Mapping[str, Any]:
        shown = replace(path, image=image, cache=cache)
        disk = disk_for(shown, made, self.disk.size, f"{self.disk.serial}-{_NAME}")
        there = {needed["id"] for needed in node_objects(self.disk)}
        for needed in node_objects(disk):
            if needed["id"] in there:  # the secret of a server that both are on
                continue
            self.monitor.execute("object-add", needed)
            self.objects.append(needed)
        return {**nested_node(disk), "discard": "unmap"}

    def close_objects(self) -> None:
        """Takes away the objects of the images, once their nodes are closed."""
        for needed in reversed(self.objects):
            self.monitor.execute("object-del", {"id": needed["id"]})
        self.objects.clear()


def _checks(path: DiskPath, image: Image | None, made: ImageFile) -> tuple[Check, ...]:
    named = "/".join([*map(str, path.layers), *([] if image is None else [str(image)])])
    seen = made.properties.get("image.virtual_size")
    sized = () if seen is None else (Check("to.virtual_size", str(made.size), seen),)
    return (Check("to", None, named), *sized)


def _format(driver: str) -> ImageFormat:
    return ImageFormat.RAW if driver == _ENCRYPTED else ImageFormat(driver)


@contextmanager
def destination_stack(
    site: Site, plan: CampaignPlan, operation: DiskOperation, source: DiskPath
) -> Iterator[Target | None]:
    """The host stack of `--to`, built for one cell; `source` is the path of the cell's disk.

    None without `--to`, or without a copy. A server's disk that holds a raw copy as it is may be as
    large as the guest's disk; all else needs room for a format or a file system.
    """
    to = plan.destination
    if to is None or not operation.kind.copies:
        yield None
        return
    driver = "raw" if source.image is None else source.image.driver
    image = to.image(_format(operation.copy_driver(driver)))
    if image is None or (to.path.may_hold_formats and image.driver == "raw"):
        room = plan.size_bytes
    else:
        room = room_of_image(image, plan.size_bytes)
    with build_stack(site, to.path.layers, room, _NAME, backing=plan.backing) as target:
        yield target

"""A way of making a guest's disk from a template: its row of facts, and its commands. Pure.

A way knows neither loads nor clocks: who runs the commands times them and counts their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from vdisklab.as_text import AsText
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import OptionType, OptionValue, Schema
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import LayerKind
from vdisklab.value import Value, field

Command = tuple[str, ...]

PACKED = ".xz"
"""How the name of a raw template ends that is packed by xz."""


class TemplateForm(StrEnum):
    """The form in which a way takes its template."""

    OF_DISK = "of the disk"
    """In the format of the disk that is made, and as large."""
    GIVEN = "given"
    """As the user has it."""
    XZ = "xz"
    """Raw, compressed by xz."""
    NONE = "none"
    """No template is used: the disk is empty."""


class Template(Value):
    """What disks are made from: a file in QEMU's format `driver`, `size` bytes for a guest.

    `volume` is the volume or dataset that it is or lies on, as LVM or ZFS names it, for the ways
    that clone volumes.
    """

    file: Path
    driver: str
    size: int
    volume: str = ""


class NewDisk(Value):
    """A disk to be made: its file or block device, QEMU's driver, its size in bytes.

    `settings` are options of its format as qemu-img takes them, such as `cluster_size=65536`.
    `volume` is the volume or dataset that the way makes, as LVM or ZFS names it.
    """

    place: Path
    driver: str
    size: int
    settings: tuple[str, ...] = ()
    is_device: bool = False
    volume: str = ""

    @property
    def format_options(self) -> Command:
        """qemu-img's arguments for the format's options."""
        return ("-o", ",".join(self.settings)) if self.settings else ()


Make = Callable[["Way", Template, NewDisk], tuple[Command, ...]]


def remove_file(disk: NewDisk) -> tuple[Command, ...]:
    """Deletes a disk that is a file; a block device is not deleted."""
    return () if disk.is_device else (("rm", "--", str(disk.place)),)


class WayKind(Value, eq=False):
    """The row of one way.

    `make` are the commands that are timed; `before` those that a new disk needs before. `refusal`
    is why a path's disk cannot be made in this way. `delete` undoes `make`.
    """

    name: str
    summary: str
    make: Make
    refusal: Callable[[DiskPath], Impossible | None]
    template: TemplateForm = TemplateForm.OF_DISK
    options: Schema = field(default_factory=dict)
    before: Make = lambda _way, _template, _disk: ()
    delete: Callable[[NewDisk], tuple[Command, ...]] = remove_file
    beneath: Callable[[Way, Path], tuple[Path, ...]] = lambda _way, _disk: ()
    """Images that `make` puts between the disk and its template, nearest to the disk first."""
    reads_template: bool = False
    """True if the disk reads from the template for as long as it lives."""
    in_subvolume: bool = False
    """True if the template and each disk lie in a directory of their own, which is a subvolume."""
    clones: LayerKind | None = None
    """The host layer whose volumes or datasets the way clones: the template is or has one."""
    shares_blocks: bool = False
    """True if the disk's file shares its blocks with the template's: not every file system can."""
    copies: bool = False
    """True if the way writes the template's data anew, so that its time grows with the disk."""
    first_write: str = ""
    """Why the disk's first write and flush may be slow, as a clause."""


class Way(AsText, Value):
    """A way with its options, as a user writes it: `convert:workers=8`."""

    kind: WayKind
    options: tuple[tuple[str, OptionValue], ...] = ()

    def __str__(self) -> str:
        values = [f"{name}={self.kind.options[name].format(value)}" for name, value in self.options]
        return ":".join((self.kind.name, *values))

    def option(self, name: str) -> OptionValue | None:
        """The value of an option, or its default."""
        kind: OptionType = self.kind.options[name]
        return dict(self.options).get(name, kind.default)

    def refusal(self, path: DiskPath) -> Impossible | None:
        """Why a path's disk cannot be made in this way."""
        return self.kind.refusal(path)

    def make(self, template: Template, disk: NewDisk) -> tuple[Command, ...]:
        """The commands that make the disk."""
        return self.kind.make(self, template, disk)

    def before(self, template: Template, disk: NewDisk) -> tuple[Command, ...]:
        """The commands that a new disk needs before the clock starts."""
        return self.kind.before(self, template, disk)


def created(disk: NewDisk, size: int) -> Command:
    """The command that makes an empty image of `size` bytes."""
    create = ("qemu-img", "create", "-q", "-f", disk.driver, *disk.format_options)
    return (*create, str(disk.place), str(size))


def needs_image(path: DiskPath) -> Impossible | None:
    """Why a way that makes a file cannot make a path's disk; None for a path with a plain file."""
    if path.image is None or (path.layers and not path.layers[-1].kind.facts.holds_files):
        return Impossible(
            "this way makes a file, and the path ends on a block device", "write dd or convert"
        )
    return needs_plain(path)


def needs_plain(path: DiskPath) -> Impossible | None:
    """Why no way makes a path's disk: its image is more than one plain file; else None."""
    image = path.image
    if image is None:
        return None
    if image.encrypted:
        return Impossible(
            "a template has no key: each disk would need one of its own", "leave out encrypt"
        )
    parts: Mapping[str, object] = {
        "data_file": image.has_data_file,
        "backing": image.backing,
        "snapshots": image.snapshots,
        "bitmaps": image.bitmaps,
        "compression": image.compressed,
    }
    for name, has in parts.items():
        if has:
            return Impossible(
                f"the way alone decides what the image is made of, not {name}",
                f"leave out {name}",
            )
    return None

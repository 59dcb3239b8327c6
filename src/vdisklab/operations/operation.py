"""An operation on a running guest's disk: its row of facts, and the operation while it runs.

An operation knows neither loads nor verdicts. Who measures what a guest feels and who cuts the
power in the middle use the same rows. The commands are QMP's (qapi/block-core.json), as libvirt and
Proxmox VE send them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from vdisklab.as_text import AsText
from vdisklab.errors import OperationError
from vdisklab.operations.relief import Felt, Relief, ReliefOf, no_setting
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.needs import NeedKind
from vdisklab.path.options import OptionType, OptionValue, Schema
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat, LayerKind
from vdisklab.value import Value, field, replace


class Monitor(Protocol):
    """QEMU's monitor, as far as operations use it."""

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The `return` of a command. Raises GuestError."""


class OpenDisk(Value):
    """A disk that a QEMU has open.

    `node` is the block node that the guest's device uses. `nodes` are the arguments with which all
    nodes were made, lowest first. `backing` are the files below the image, nearest first, and
    `backing_nodes` their nodes. `image` is None for a disk without a file or device.
    """

    serial: str
    size: int
    driver: str
    node: str
    nodes: tuple[Mapping[str, Any], ...]
    image: Path | None
    backing: tuple[Path, ...] = ()
    backing_nodes: tuple[str, ...] = ()


NewImage = Callable[[str, str], Mapping[str, Any]]
"""(purpose, format) -> a new, empty image of the disk's size, as the arguments of `blockdev-add`
without the node's name. The purpose is TARGET or SCRATCH."""

NewFile = Callable[[str, tuple[str, ...]], Path]
"""(name, suffixes) -> where a program may write a file that is removed at the end, and others whose
names have the suffixes."""

TARGET, SCRATCH = "target", "scratch"


def no_new_image(purpose: str, _format: str) -> Mapping[str, Any]:
    """For a disk beside which nothing can be made. Raises OperationError."""
    raise OperationError(f"there is no place for the {purpose} of an operation")


def no_new_file(name: str, _suffixes: tuple[str, ...] = ()) -> Path:
    """For a disk beside which nothing can be made. Raises OperationError."""
    raise OperationError(f"there is no place for the {name} of an operation")


def no_other_node(node: str) -> None:
    """For a disk whose device keeps its node. Raises OperationError."""
    raise OperationError(f"the device cannot be given the node {node}")


def no_program(*argv: str) -> str:
    """For a disk whose host or guest runs no programs for an operation. Raises OperationError."""
    raise OperationError(f"{argv[0]} cannot be run for an operation here")


class DiskAccess(Value):
    """How an operation reaches a disk: the monitor of its QEMU, and what gives it another size.

    `resize` gets bytes; where a client must connect again afterwards, it does so. `use_node` makes
    the guest's device use another block node. `device` is the device's place among QEMU's objects.
    `on_host` and `in_guest` run a program and return what it printed; the guest's file system of
    `OperationKind.filesystem` is mounted at `mount_point`. `layers` are the host's layers below the
    image, lowest first; `volume` is the highest of their volumes or datasets, as LVM or ZFS names
    it.
    """

    monitor: Monitor
    resize: Callable[[int], None]
    new_image: NewImage = no_new_image
    use_node: Callable[[str], None] = no_other_node
    device: str = ""
    on_host: Callable[..., str] = no_program
    in_guest: Callable[..., str] = no_program
    mount_point: str = ""
    layers: tuple[LayerKind, ...] = ()
    volume: str = ""
    new_file: NewFile = no_new_file


class RunningOperation(ABC):
    """An operation on one disk. `start` and `finish` are called once each.

    `start` begins what copies while the guest writes. `finish` returns when QEMU says that the
    guest uses the images that `files_after` names.
    """

    def __init__(self, order: DiskOperation, disk: OpenDisk, access: DiskAccess) -> None:
        self.order = order
        self.disk = disk
        self.monitor = access.monitor
        self.resize = access.resize
        self.access = access

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The guest's image once `finish` has returned, and those below, nearest first."""
        return (self.image, *self.disk.backing)

    @property
    def size_after(self) -> int | None:
        """The disk's new size in bytes; None if it stays the same."""
        return None

    @property
    def driver_after(self) -> str:
        """QEMU's driver of the first of `files_after`."""
        return self.disk.driver

    @property
    def image(self) -> Path:
        """The guest's image before the operation."""
        if self.disk.image is None:
            raise TypeError(f"a {self.order} of a disk without a file")
        return self.disk.image

    @property
    def new_file(self) -> Path:
        """The place of an image that the operation makes: beside the guest's."""
        return self.image.with_name(f"{self.image.name}.{self.order.kind.name.replace(':', '-')}")

    def prepare(self) -> None:  # noqa: B027 - most operations need nothing beforehand
        """Makes what the operation needs to be there before it is ordered."""

    def start(self) -> None:  # noqa: B027 - most operations have nothing to do before the end
        """Begins a job that copies while the guest writes."""

    @property
    def copied(self) -> int | None:
        """The bytes that its job has copied so far; None if it copies nothing."""
        return None

    def ready(self) -> bool:
        """True when `finish` would not wait for the copying. Raises OperationError if it failed."""
        return True

    def undo(self) -> None:  # noqa: B027 - most operations leave nothing in QEMU
        """Gives the guest's device back what it had, while the disk is plugged."""

    @property
    def left_nodes(self) -> tuple[str, ...]:
        """Block nodes that can only be closed when the disk is unplugged, the highest first."""
        return ()

    @property
    def left_files(self) -> tuple[Path, ...]:
        """Files that the operation itself creates beside the guest's image."""
        return ()

    @abstractmethod
    def finish(self) -> None:
        """Waits for the job, and makes the guest use the new images. Raises OperationError."""


TooLarge = Callable[["DiskOperation", int, int], Impossible | None]
"""(operation, bytes of the disk, bytes of the load's file on it) -> why it has no room there."""

Run = Callable[["DiskOperation", OpenDisk, DiskAccess], RunningOperation]


class Judging(Value):
    """What the judge of power cuts reads after an operation.

    `formats` are those of images; all formats if it is empty. `unread` says what it does not read
    of others, such as `the size of a {} image is not read`. `control` is a sound path on which the
    judge itself is tried.
    """

    formats: tuple[ImageFormat, ...] = ()
    unread: str = ""
    control: str = "ext4/raw/none"


class OperationKind(Value, eq=False):
    """The row of one operation.

    `summary` says what is done, for help texts. `refusal` is why a path's disk cannot be changed in
    this way, as what follows the path's name.
    """

    name: str
    summary: str
    run: Run
    refusal: Callable[[DiskPath], Impossible | None] = lambda _path: None
    options: Schema = field(default_factory=dict)
    judging: Judging | None = None
    """None if no power cut is judged in its middle."""
    relief: ReliefOf = no_setting
    """What makes the operation bearable for a guest."""
    by_platform: Mapping[Platform, Mapping[str, OptionValue]] = field(default_factory=dict)
    """The options with which platforms do it unless they are told otherwise; empty: QEMU's own."""
    doubles: bool = False
    """True if the disk then has twice its size."""
    filesystem: str | None = None
    """The file system that the guest has on the disk meanwhile; None: its load works on the disk.
    """
    need: NeedKind | None = None
    """The need of a path that the operation's stall decides."""
    copies: bool = False
    """True if it writes a copy of the disk, whose place the user may choose."""
    keeps_format: bool = False
    """True if the copy has the format of the disk, because the guest goes on with the copy."""
    noun: str = ""
    """What sentences call it; empty: its name."""
    follows: bool = False
    """True if it also copies what the guest writes meanwhile, so that it may never end."""
    too_large: TooLarge = lambda _order, _disk, _load: None
    """Why it has no room on a disk of some size."""
    only_reads: bool = False
    """True if it writes nothing to the guest's disk."""
    keeps_old: bool = False
    """True if a layer keeps what the guest overwrites meanwhile, and so needs room for it."""


class DiskOperation(AsText, Value):
    """An operation with its options, as a user orders it: `backup:workers=1`."""

    kind: OperationKind
    options: tuple[tuple[str, OptionValue], ...] = ()

    def __str__(self) -> str:
        options = [
            f"{name}={self.kind.options[name].format(value)}" for name, value in self.options
        ]
        return ":".join((self.kind.name, *options))

    @property
    def in_words(self) -> str:
        """What sentences call it, such as `backup with fleecing`."""
        return self.kind.noun or self.kind.name

    def option(self, name: str) -> OptionValue | None:
        """The value of an option, or its default."""
        option: OptionType = self.kind.options[name]
        return dict(self.options).get(name, option.default)

    def of_platform(self, platform: Platform) -> DiskOperation:
        """The operation as a platform does it; options that the user wrote stay."""
        options = {**self.kind.by_platform.get(platform, {}), **dict(self.options)}
        return replace(self, options=tuple(sorted(options.items())))

    @property
    def compresses(self) -> bool:
        """True if its copy is compressed."""
        return "compress" in self.kind.options and bool(self.option("compress"))

    def copy_driver(self, driver: str) -> str:
        """QEMU's driver of the copy of a disk that has `driver`."""
        if self.kind.keeps_format:
            return driver
        return "qcow2" if self.compresses else "raw"

    def refusal(self, path: DiskPath) -> Impossible | None:
        """Why a path's disk cannot be changed in this way, as what follows its name."""
        return self.kind.refusal(path)

    def relief(self, path: DiskPath, rate: float | None = None) -> tuple[Relief, ...]:
        """What makes it bearable and it had not yet; `rate` is that of its copying, in bytes a
        second, if it copied anything."""
        return tuple(self.kind.relief(Felt(self, path, rate)))

    def unjudged(self, path: DiskPath) -> Impossible | None:
        """Why no power cut is judged in the middle of it, as what follows the path's name."""
        image, judging = path.image, self.kind.judging
        if judging is None:
            return Impossible(
                f"is not judged during a {self}: the judge of power cuts does not know it",
                "judge the path without --during",
            )
        if image is None:
            return self.refusal(path)
        if image.has_data_file or image.encrypted:
            return Impossible(
                f"is not judged during a {self}: the new image would need a data file or a key",
                "leave out data_file and encrypt",
            )
        if judging.formats and image.format not in judging.formats:
            readable = " or ".join(judging.formats)
            instead = " instead" if len(judging.formats) > 1 else f" instead of {image.format}"
            return Impossible(
                f"is not judged during a {self}: {judging.unread.format(image.format)}",
                f"write {readable}{instead}",
            )
        return self.refusal(path)

    def on(self, disk: OpenDisk, access: DiskAccess) -> RunningOperation:
        """The operation on an open disk; nothing is done yet."""
        return self.kind.run(self, disk, access)

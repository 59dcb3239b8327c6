"""An operation on a running guest's disk: its row of facts, and the operation while it runs.

An operation knows neither loads nor verdicts. Who measures what a guest feels and who cuts the
power in the middle use the same rows. The commands are QMP's (qapi/block-core.json), as libvirt and
Proxmox VE send them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vdisklab.as_text import AsText
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import OptionType, OptionValue, Schema
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import ImageFormat


class Monitor(Protocol):
    """QEMU's monitor, as far as operations use it."""

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The `return` of a command. Raises GuestError."""

    def expecting(
        self, event: str, matches: Callable[[Mapping[str, Any]], bool]
    ) -> AbstractContextManager[Callable[[float], None]]:
        """Listens for an event; yields a function that waits so many seconds for it."""


@dataclass(frozen=True, slots=True)
class OpenDisk:
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


@dataclass(frozen=True, slots=True)
class DiskAccess:
    """How an operation reaches a disk: the monitor of its QEMU, and what gives it another size.

    `resize` gets bytes; where a client must connect again afterwards, it does so.
    """

    monitor: Monitor
    resize: Callable[[int], None]


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

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The guest's image once `finish` has returned, and those below, nearest first."""
        return (self.image, *self.disk.backing)

    @property
    def size_after(self) -> int | None:
        """The disk's new size in bytes; None if it stays the same."""
        return None

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

    def start(self) -> None:  # noqa: B027 - most operations have nothing to do before the end
        """Begins a job that copies while the guest writes."""

    @abstractmethod
    def finish(self) -> None:
        """Waits for the job, and makes the guest use the new images. Raises OperationError."""


Run = Callable[["DiskOperation", OpenDisk, DiskAccess], RunningOperation]


@dataclass(frozen=True, slots=True)
class Judging:
    """What the judge of power cuts reads after an operation.

    `formats` are those of images; all formats if it is empty. `unread` says what it does not read
    of others, such as `the size of a {} image is not read`. `control` is a sound path on which the
    judge itself is tried.
    """

    formats: tuple[ImageFormat, ...] = ()
    unread: str = ""
    control: str = "ext4/raw/none"


@dataclass(frozen=True, slots=True, eq=False)
class OperationKind:
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
    doubles: bool = False
    """True if the disk then has twice its size."""


@dataclass(frozen=True, slots=True)
class DiskOperation(AsText):
    """An operation with its options, as a user orders it: `backup:workers=1`."""

    kind: OperationKind
    options: tuple[tuple[str, OptionValue], ...] = ()

    def __str__(self) -> str:
        options = [
            f"{name}={self.kind.options[name].format(value)}" for name, value in self.options
        ]
        return ":".join((self.kind.name, *options))

    def option(self, name: str) -> OptionValue | None:
        """The value of an option, or its default."""
        option: OptionType = self.kind.options[name]
        return dict(self.options).get(name, option.default)

    def refusal(self, path: DiskPath) -> Impossible | None:
        """Why a path's disk cannot be changed in this way, as what follows its name."""
        return self.kind.refusal(path)

    def on(self, disk: OpenDisk, access: DiskAccess) -> RunningOperation:
        """The operation on an open disk; nothing is done yet."""
        return self.kind.run(self, disk, access)

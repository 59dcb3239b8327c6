"""What every form of configuration is given and gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.rules import impossible
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.guest import without_qemu
from vdisklab.units import GIB


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be configured: a path, the file or device that holds it, and the guest's name.

    `source` None stands for a place that suits the form; `size` (bytes) is that of an image that
    has to be made. `domain_type` is libvirt's: `kvm`, or `qemu` for emulation.
    """

    path: DiskPath
    source: str | None = None
    name: str = "guest"
    size: int = 10 * GIB
    domain_type: str = "kvm"

    @property
    def is_block(self) -> bool:
        """True when the guest gets a block device, with or without a format in it."""
        layers = self.path.layers
        return bool(layers) and not layers[-1].kind.is_directory

    @property
    def driver(self) -> str:
        """QEMU's name of the image format."""
        return "raw" if self.path.image is None else self.path.image.format.value

    def place(self, directory: str) -> str:
        """The source, or one in a directory; a block device stands in /dev."""
        if self.source is not None:
            return self.source
        return f"/dev/vg/{self.name}" if self.is_block else f"{directory}/{self.name}.{self.driver}"


@dataclass(frozen=True, slots=True)
class Gap:
    """One option that a form cannot express: what was asked, and what one gets instead."""

    option: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option} cannot be said here: {self.instead}"


@dataclass(frozen=True, slots=True)
class Exported:
    """A configuration, with what it could not express; `text` says that as comments, too."""

    text: str
    gaps: tuple[Gap, ...] = ()


Exporter = Callable[[Wish], Exported]
"""Raises PlanError when the form has nothing that comes near."""


class NotExpressibleError(PlanError):
    """A form that lacks a cache mode, a bus or a format: anything else would be another path."""

    def __init__(self, form: str, what: str, instead: str) -> None:
        super().__init__(f"{form} has no {what}", hint=instead)


def check(path: DiskPath) -> None:
    """Refuses what is no guest's disk. Raises PlanError."""
    if path.on_host:
        raise PlanError(
            f"{path} has no guest, so there is nothing to configure",
            hint="name a path that gives a disk to a guest, such as ext4/qcow2/none",
        )
    if path.image is not None and path.image.format is ImageFormat.NULL:
        raise PlanError(
            f"{path} stores nothing: it is a ceiling to measure against",
            hint="name a path with a real image, such as raw/none",
        )
    reason = impossible(path)
    if reason is not None:
        raise PlanError(f"{path}: {reason.reason}", hint=reason.instead)


def for_any_qemu(path: DiskPath) -> tuple[DiskPath, tuple[Gap, ...]]:
    """The path without the QEMU that it names, which no configuration of a guest decides."""
    if path.on_host or path.attachment.qemu is None:
        return path, ()
    gap = Gap(f"qemu={path.attachment.qemu}", "the guest runs under the QEMU that is installed")
    return without_qemu(path), (gap,)

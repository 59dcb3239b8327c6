"""What is asked of a platform: a disk path as a configuration of a guest."""

from __future__ import annotations

from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.architecture import GUEST, Architecture
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.named_target import names_device, parse_target
from vdisklab.storage.server_url import Url, url_of
from vdisklab.units import GIB
from vdisklab.value import Value

DOMAIN_TYPES = ("kvm", "qemu")
WHOLE_DEVICE = "/dev/sdX"
"""Stands for a whole device that nobody named."""


class ExportRequest(Value):
    """A disk path to configure, the file or device that holds the disk, and the guest's name.

    With `source` None the platform's default place is used, on the user's `storage` if it is named:
    a target's directory, device or URL. `secret` is the file with its password or key. `size`
    (bytes) is for an image that has to be created. `domain_type` is libvirt's: `kvm`, or `qemu` for
    emulation. `libvirt` is the version of the libvirt that reads the configuration; None is the
    oldest supported one. `guest` is the guest's architecture. No command that creates
    the source is written if it `exists`.
    """

    path: DiskPath
    source: str | None = None
    name: str = "guest"
    size: int = 10 * GIB
    domain_type: str = DOMAIN_TYPES[0]
    libvirt: tuple[int, ...] | None = None
    storage: str | None = None
    secret: Path | None = None
    guest: Architecture = GUEST
    exists: bool = False
    pasted: bool = False
    """True if the text takes the place of a disk in a guest's definition: nothing is attached."""

    @property
    def url(self) -> Url | None:
        """The disk as QEMU's own driver opens it; None for one that the host's kernel opens.

        Raises PlanError for a source that is not a URL of the path's kind.
        """
        if not self.path.opened_by_qemu:
            return None
        kind, place = self.path.layers[0].kind, self.place("")
        target = parse_target(f"{self.path.layers[0].option('at') or f'my{kind}'}={place}")
        if target.kind is not kind:
            example = "" if self.path.target is None else self.path.target.example
            raise PlanError(f"{place} is no {kind} disk", hint=f"write --source {example}")
        return url_of(target, self.secret)

    @property
    def on_device(self) -> bool:
        """True when the guest gets a block device, with or without a format in it."""
        if self.path.opened_by_qemu:
            return False
        whole = not self.path.layers and names_device(self.source or "")
        return whole or backing_below(self.path).ends_on_device(self.path.layers)

    @property
    def machine(self) -> str:
        """QEMU's machine for the guest, without options."""
        return self.guest.machines.get(self.path.attachment.bus, self.guest.default_machine)

    @property
    def cpu(self) -> str | None:
        """QEMU's CPU where its default is of no use: on Arm that has 32 bits (hw/arm/virt.c)."""
        if self.guest.has_bios:
            return None
        return "host" if self.domain_type == DOMAIN_TYPES[0] else self.guest.emulated_cpu

    @property
    def driver(self) -> str:
        """QEMU's name of the image format."""
        return "raw" if self.path.image is None else self.path.image.driver

    def place(self, directory: str) -> str:
        """The source, or a default: a file in the directory, or a block device in /dev."""
        if self.source is not None:
            return self.source
        target, layers = self.path.target, self.path.layers
        if target is not None and len(layers) == 1 and not layers[0].kind.facts.holds_files:
            return self.storage or target.example
        if self.on_device:
            return layers[-1].kind.facts.device.format(self.name) if layers else WHOLE_DEVICE
        if target is not None and target.by_qemu:
            directory = target.example
        storage = self.storage if len(layers) == 1 else None  # else a file system lies on it
        base, mark, query = (storage or directory).partition("?")
        return f"{base.rstrip('/')}/{self.name}.{self.driver}{mark}{query}"

"""The virtual machine that disks are given to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vdisklab.units import GIB


class Accelerator(StrEnum):
    """Who runs the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def is_emulation(self) -> bool:
        """True when numbers are no measure of a KVM guest."""
        return self is Accelerator.TCG


class AcceleratorChoice(StrEnum):
    """What a user asks for; `auto` is KVM if it really runs a guest, else TCG."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"

    @property
    def accelerator(self) -> Accelerator | None:
        """The accelerator that must be used, or None when it is found out by trying."""
        return None if self is AcceleratorChoice.AUTO else Accelerator(self.value)


class Firmware(StrEnum):
    """What boots a guest of the user's own."""

    BIOS = "bios"
    UEFI = "uefi"


class SystemBus(StrEnum):
    """How a guest of the user's own sees the disk that it boots from."""

    VIRTIO = "virtio"
    SATA = "sata"
    NVME = "nvme"


@dataclass(frozen=True, slots=True)
class UserGuest:
    """A guest of the user's own: an image of `format` that is never written to.

    `state` changes when the image does. `boot_seconds` is how long it may take until its agent
    answers, None for the usual. `diskspd` is the program that measures in it if it is Windows.
    """

    image: Path
    format: str
    state: str
    firmware: Firmware = Firmware.BIOS
    bus: SystemBus = SystemBus.VIRTIO
    boot_seconds: float | None = None
    diskspd: Path | None = None

    def as_json(self) -> dict[str, str]:
        """What of it decides what is measured."""
        return {
            "image": str(self.image),
            "image_state": self.state,
            "firmware": self.firmware.value,
            "system_bus": self.bus.value,
        }


@dataclass(frozen=True, slots=True)
class GuestPlan:
    """Size of the guest; `accelerator` None means: KVM if it really runs a guest, else TCG.

    `own` None stands for our own guest, whose kernel is the host's unless `kernel` is given.
    """

    cpus: int = 2
    memory_bytes: int = 1 * GIB
    accelerator: Accelerator | None = None
    kernel: str | None = None
    own: UserGuest | None = None

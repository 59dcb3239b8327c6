"""The virtual machine that disks are given to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class GuestPlan:
    """Size of the guest; `accelerator` None means: KVM if it really runs a guest, else TCG."""

    cpus: int = 2
    memory_bytes: int = 1 * GIB
    accelerator: Accelerator | None = None
    kernel: str | None = None

"""What runs a guest's instructions: KVM or emulation."""

from __future__ import annotations

from enum import StrEnum


class Accelerator(StrEnum):
    """How a guest's instructions are run: KVM or emulation."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def is_emulation(self) -> bool:
        """True when the numbers do not show the speed of a KVM guest."""
        return self is Accelerator.TCG


class AcceleratorChoice(StrEnum):
    """The accelerator that a user requests; `auto` is KVM if it really runs a guest, else TCG."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"

    @property
    def accelerator(self) -> Accelerator | None:
        """The accelerator to use, or None for `auto`, for which a test guest decides."""
        return None if self is AcceleratorChoice.AUTO else Accelerator(self.value)

"""KVM is tried, not believed: /dev/kvm can open and still run no guest."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.plan.guest import Accelerator

TRIAL_SECONDS = 12.0
"""A micro guest under KVM answers in one or two seconds; a hanging one never does."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which accelerator runs the guest, and why it is not KVM when it is not."""

    accelerator: Accelerator
    reason: str


def choose_accelerator(
    try_kvm: Callable[[float], AbstractContextManager[Machine]], device: Path = Path("/dev/kvm")
) -> Verdict:
    """KVM when a guest of ours boots under it within a deadline, else TCG with the reason.

    `try_kvm(seconds)` starts our own guest under KVM. The whole guest is booted because less
    proves nothing: there are hosts on which a boot sector runs under KVM and a kernel does not.
    """
    if not device.exists():
        return Verdict(Accelerator.TCG, f"{device} does not exist")
    if not os.access(device, os.R_OK | os.W_OK):
        return Verdict(Accelerator.TCG, f"{device} cannot be opened by this user")
    try:
        with try_kvm(TRIAL_SECONDS):
            return Verdict(Accelerator.KVM, "a guest booted under KVM")
    except GuestError as error:
        return Verdict(
            Accelerator.TCG,
            f"{device} opens, but a guest did not boot under KVM within {TRIAL_SECONDS:.0f} s "
            f"({error})",
        )

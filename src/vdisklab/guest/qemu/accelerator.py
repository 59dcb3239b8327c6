"""KVM is tried, not believed: /dev/kvm can open and still run no guest."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine
from vdisklab.host.probes.kvm import DEVICE
from vdisklab.plan.guest import Accelerator

TRIAL_SECONDS = 12.0
"""A micro guest under KVM answers in one or two seconds; a hanging one never does."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which accelerator runs the guest, and why it is not KVM when it is not."""

    accelerator: Accelerator
    reason: str


def choose_accelerator(
    try_kvm: Callable[[float], AbstractContextManager[Machine]], device: Path = DEVICE
) -> Verdict:
    """KVM when a guest of ours boots under it within a deadline, else TCG with the reason.

    `try_kvm(seconds)` starts our own guest under KVM. The whole guest is booted because less
    proves nothing: there are hosts on which a boot sector runs under KVM and a kernel does not.
    """
    barred = barred_from(device)
    if barred is not None:
        return Verdict(Accelerator.TCG, barred)
    try:
        with try_kvm(TRIAL_SECONDS):
            return Verdict(Accelerator.KVM, "a guest booted under KVM")
    except GuestError as error:
        return Verdict(
            Accelerator.TCG,
            f"{device} opens, but a guest did not boot under KVM within {TRIAL_SECONDS:.0f} s "
            f"({error})",
        )


def barred_from(device: Path) -> str | None:
    """Why this user cannot even open the device; None when that much works."""
    if not device.exists():
        return f"{device} does not exist"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device} cannot be opened by this user"
    return None


def remembered(file: Path, key: str, decide: Callable[[], Verdict]) -> Verdict:
    """The verdict of an earlier trial with the same key, else a new one, which is written down.

    The key must change with everything that could change the answer: the boot of this machine,
    QEMU, the guest's kernel. A file that cannot be read or written only costs a new trial.
    """
    try:
        known = json.loads(file.read_text())
        if known["key"] == key:
            return Verdict(Accelerator(known["accelerator"]), str(known["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    verdict = decide()
    text = json.dumps(
        {"key": key, "accelerator": verdict.accelerator.value, "reason": verdict.reason}
    )
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return verdict


def trial_key(
    qemu_version: str, image: str, boot_id: Path = _BOOT_ID, device: Path = DEVICE
) -> str:
    """What a verdict holds for: this boot of the machine, this QEMU, this guest image.

    And for users who may open the device, or may not: one who is let into the group `kvm`, or
    loads its module, does not wait for the next boot.
    """
    access = barred_from(device) or "opens"
    return f"{boot_id.read_text().strip()} {qemu_version} {image} {access}"

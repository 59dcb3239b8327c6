"""KVM or emulation.

KVM is used only after a guest has booted under it: on some hosts /dev/kvm opens, and even a boot
sector runs, but a kernel hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import GuestError

DEVICE = Path("/dev/kvm")
TRIAL_SECONDS = 12.0
"""Deadline of the trial. A micro guest under KVM answers within one or two seconds."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class KvmTrial:
    """Whether guests run under KVM (None: not tested), what was tested, and a remedy if known."""

    works: bool | None
    tried: str
    remedy: str | None = None


def device_refused(device: Path = DEVICE) -> KvmTrial | None:
    """Why this user cannot open the KVM device; None if it opens."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return KvmTrial(False, f"{device} does not exist")
    except PermissionError as error:
        return KvmTrial(
            False,
            f"{device} cannot be opened: {error.strerror}",
            remedy="run vdisklab as root, or join the device's group: usermod --append -G kvm USER",
        )
    except OSError as error:
        return KvmTrial(False, f"{device} cannot be opened: {error.strerror}")
    return None


def try_kvm(
    boot: Callable[[float], None], seconds: float = TRIAL_SECONDS, device: Path = DEVICE
) -> KvmTrial:
    """Whether a guest runs under KVM.

    `boot(seconds)` boots the campaign's kernel under KVM and ends the guest. Its GuestError means
    that the guest did not come up within `seconds`; other errors are passed on.
    """
    refused = device_refused(device)
    if refused is not None:
        return refused
    begun = time.monotonic()
    try:
        boot(seconds)
    except GuestError as error:
        return KvmTrial(
            works=False,
            tried=f"{device} opens, but a guest did not boot under KVM within {seconds:.0f} s "
            f"({error})",
        )
    return KvmTrial(True, f"a guest booted under KVM in {time.monotonic() - begun:.1f} s")


def remembered_trial(file: Path, key: str, trial: Callable[[], KvmTrial]) -> KvmTrial:
    """The trial's result stored in `file` under the same key, else the result of a new trial.

    If the file cannot be read or written, the trial is repeated.
    """
    known = earlier_trial(file, key)
    if known is not None:
        return known
    result = trial()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"key": key, "works": result.works, "tried": result.tried}))
    return result


def earlier_trial(file: Path, key: str) -> KvmTrial | None:
    """The trial's result stored in `file` under the same key, or None."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(file.read_text())
        if note["key"] == key and isinstance(note["works"], bool):
            return KvmTrial(note["works"], str(note["tried"]))
    return None


def trial_key(
    qemu_version: str, image: str, boot_id: Path = _BOOT_ID, device: Path = DEVICE
) -> str:
    """Identifies what a trial's result depends on: the host's boot, QEMU, the guest image.

    It includes the access to the device, so a user who joins the group `kvm` or loads the module
    gets a new trial without a reboot.
    """
    refused = device_refused(device)
    access = "opens" if refused is None else refused.tried
    return f"{boot_id.read_text().strip()} {qemu_version} {image} {access}"

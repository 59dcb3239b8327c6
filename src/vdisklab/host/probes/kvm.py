"""Facts about /dev/kvm. Whether guests run under KVM is tried in `guest.accelerator`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEVICE = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class KvmTrial:
    """Whether guests run under KVM (None: not tried), what was tried, and what may mend it."""

    works: bool | None
    tried: str
    mend: str | None = None


def untried(device: Path = DEVICE) -> KvmTrial:
    """What can be said without booting a guest."""
    return device_refused(device) or KvmTrial(
        works=None,
        tried=f"{device} opens; no guest was booted under it",
        mend="`vdisklab run` boots one and says whether it runs",
    )


def device_refused(device: Path = DEVICE) -> KvmTrial | None:
    """Why KVM cannot work for this user: the device is missing or cannot be opened. Else None."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return KvmTrial(False, f"{device} does not exist")
    except PermissionError as error:
        return KvmTrial(
            False,
            f"{device} cannot be opened: {error.strerror}",
            mend="become root, or join its group: usermod --append -G kvm USER",
        )
    except OSError as error:
        return KvmTrial(False, f"{device} cannot be opened: {error.strerror}")
    return None

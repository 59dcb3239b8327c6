"""KVM or emulation.

KVM is used only after a guest has booted under it: on some hosts /dev/kvm opens, and even a boot
sector runs, but a kernel hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import asdict

from vdisklab.errors import GuestError, SilentGuestError
from vdisklab.host.facts import virtualisation_flag, virtualised
from vdisklab.host.machine import SYSTEM
from vdisklab.host.safe_places import make_state_directory, name_of_user, open_file
from vdisklab.host.waiting import patience
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.plan.accelerator import Accelerator
from vdisklab.value import Value

DEVICE = Path("/dev/kvm")
TRIAL_SECONDS = 12.0
"""Deadline of the trial. A micro guest under KVM answers within one or two seconds."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class KvmTrial(Value):
    """Whether guests run under KVM (None: not tested), what was tested, and a remedy if known."""

    works: bool | None
    tried: str
    remedy: str | None = None


def device_refused(device: Path = DEVICE, root: Path = SYSTEM) -> KvmTrial | None:
    """Why this user cannot run guests under KVM, with a remedy; None if its device opens."""
    if is_foreign():
        return KvmTrial(
            False,
            f"guests of {GUEST.name} do not run under the KVM of this host ({platform.machine()})",
            remedy=f"measure on a host of {GUEST.name} for KVM",
        )
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return KvmTrial(False, f"{device} does not exist", _remedy_without_kvm(root))
    except PermissionError as error:
        tried = f"{device} cannot be opened: {error.strerror}"
        if _is_pvm(root):  # no right helps where no guest boots
            return KvmTrial(False, tried, _remedy_for_hang(root))
        join = f"`sudo usermod --append -G kvm {name_of_user(os.geteuid())}`"
        remedy = f"join the device's group, {join}, and log in again; or run vdisklab as root"
        return KvmTrial(False, tried, remedy)
    except OSError as error:
        # A device file without its driver (ENODEV): udev makes the file before the module is there.
        tried = f"{device} cannot be opened: {error.strerror}"
        return KvmTrial(False, tried, _remedy_without_kvm(root))
    return None


def _remedy_without_kvm(root: Path) -> str:
    """The hint for a kernel that offers no KVM."""
    loaded = (root / "sys/module" / name for name in (*GUEST.kvm_modules.values(), "kvm_pvm"))
    if any(module.exists() for module in loaded):
        return "KVM is loaded, but its device is not here: pass it into the container (/dev/kvm)"
    flag = virtualisation_flag(root)
    if flag is not None:
        module = GUEST.kvm_modules[flag]
        return f"load its module: modprobe {module} (`dmesg` says why if it does not load)"
    if virtualised(root):
        return "enable nested virtualisation in the hypervisor that this machine runs under"
    return GUEST.without_kvm


def _remedy_for_hang(root: Path) -> str:
    """The hint for a KVM device that opens, but boots no guest."""
    if _is_pvm(root):
        return (
            "use another host, with AMD-V or VT-x: this host's KVM (module kvm_pvm) boots only "
            "kernels that are built as PVM guests"
        )
    if virtualised(root):
        return (
            "use another machine: the hypervisor that this machine runs under shows nested "
            "virtualisation, but it does not work"
        )
    return "`dmesg` may say why"


def _is_pvm(root: Path) -> bool:
    """True for KVM without hardware: it needs a guest kernel that knows it."""
    return (root / "sys/module/kvm_pvm").exists()


def way_to_kvm(device: Path = DEVICE, root: Path = SYSTEM) -> str | None:
    """The remedy that `doctor` names for guests that do not run under KVM here; None if only a
    trial, which boots a guest, can tell."""
    refused = device_refused(device, root)
    if refused is not None:
        return refused.remedy
    return _remedy_for_hang(root) if _is_pvm(root) else None


def untried(why: str, remedy: str, device: Path = DEVICE, root: Path = SYSTEM) -> KvmTrial:
    """The trial that was not made of a device that opens, with what lets it be made.

    Where KVM boots only PVM guests, the answer is known without it: to root as to a user whom the
    device refuses.
    """
    tried = f"{device} opens; {why}"
    if not _is_pvm(root):
        return KvmTrial(None, tried, remedy)
    return KvmTrial(False, tried, f"{_remedy_for_hang(root)}; {remedy}")


def kvm_error(trial: KvmTrial) -> GuestError:
    """The error for guests that must run under KVM, whose trial failed."""
    without = "leave out --accelerator kvm (with --new for a campaign that began under KVM)"
    return GuestError(
        "KVM was requested, or ran the campaign's earlier guests, but guests do not run under it: "
        f"{trial.tried}",
        hint="; or ".join(filter(None, (trial.remedy, without))),
    )


def require_device(accelerator: Accelerator | None) -> None:
    """Raises GuestError if KVM is requested, and this user or host cannot have it."""
    refused = device_refused() if accelerator is Accelerator.KVM else None
    if refused is not None:
        raise kvm_error(refused)


def try_kvm(
    boot: Callable[[float], None],
    seconds: float = TRIAL_SECONDS,
    device: Path = DEVICE,
    root: Path = SYSTEM,
) -> KvmTrial:
    """Whether a guest runs under KVM.

    `boot(seconds)` boots the campaign's kernel under KVM and ends the guest. A GuestError from it
    means that the guest did not come up within `seconds`, times the patience: then it is tried once
    more, because the machine may have been busy. Other errors are passed on.
    """
    refused = device_refused(device, root)
    if refused is not None:
        return refused
    with contextlib.suppress(GuestError):
        begun = time.monotonic()
        boot(seconds)
        return KvmTrial(True, f"a guest booted under KVM in {time.monotonic() - begun:.1f} s")
    begun = time.monotonic()
    try:
        boot(seconds)
    except GuestError as error:
        waited = f"{time.monotonic() - begun:.1f} s"
        tried = f"{device} opens, but no guest booted under KVM in {waited}: {_reason(error)}"
        return KvmTrial(False, tried, _remedy_for_hang(root))
    return KvmTrial(True, f"a guest booted under KVM in {time.monotonic() - begun:.1f} s")


def _reason(error: GuestError) -> str:
    """What ended the trial, and what QEMU printed last, without its own name.

    An assertion of QEMU's C code follows its reason, and tells a user nothing.
    """
    printed = (line.strip() for line in error.printed)
    lines = [line for line in printed if line and " Assertion " not in line]
    if not lines:
        return str(error)
    last = re.sub(r"^\S*qemu-[\w.-]+: ", "", lines[-1])
    return f"{error}; QEMU printed: {last}" if isinstance(error, SilentGuestError) else last


def remembered_trial(file: Path, key: str, trial: Callable[[], KvmTrial]) -> KvmTrial:
    """The trial's result stored in `file` under the same key, else the result of a new trial.

    If the file cannot be read or written, the trial is repeated.
    """
    earlier = earlier_trial(file, key)
    if earlier is not None:
        return earlier
    result = trial()
    with contextlib.suppress(OSError):
        make_state_directory(file.parent)
        descriptor = open_file(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(descriptor, "w") as stream:
            json.dump({"key": key, "patience": patience(), **asdict(result)}, stream)
    return result


def earlier_trial(file: Path, key: str) -> KvmTrial | None:
    """The trial's result stored in `file` under the same key, or None.

    A failure counts only for the patience that it was tried with, or less: with more, a slow guest
    may answer in time.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(file.read_text())
        if note["key"] != key or not isinstance(note["works"], bool):
            return None
        if note["works"] or patience() <= note.get("patience", 1.0):
            return KvmTrial(note["works"], str(note["tried"]), note["remedy"])
    return None


def trial_key(
    qemu_version: str, image: str, boot_id: Path = _BOOT_ID, device: Path = DEVICE
) -> str:
    """A key of everything that a trial's result depends on: the host's boot, QEMU, the guest image.

    It includes the access to the device, so a user who joins the group `kvm` or loads the module
    gets a new trial without a reboot.
    """
    refused = device_refused(device)
    access = "opens" if refused is None else refused.tried
    return f"{boot_id.read_text().strip()} {qemu_version} {image} {access}"

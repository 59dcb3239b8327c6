"""The virtual machine that disks are given to: accelerator, QEMU, user guest, installed systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from vdisklab.errors import PlanError
from vdisklab.path.architecture import GUEST
from vdisklab.path.options import NAME
from vdisklab.plan.accelerator import Accelerator
from vdisklab.units import GIB, MIB
from vdisklab.value import Value

# The merged-/usr layout without a package that converts an old layout: usrmerge needs all of Perl.
_MERGED = ("usr-is-merged", "usrmerge-")


class Firmware(StrEnum):
    """What boots a user guest."""

    BIOS = "bios"
    UEFI = "uefi"


class SystemBus(StrEnum):
    """How a user guest sees the disk that it boots from."""

    VIRTIO = "virtio"
    SATA = "sata"
    NVME = "nvme"


class UserGuest(Value):
    """A guest that the user brings: an image of `format`, which is never written to.

    `state` changes when the image does. `boot_seconds` limits the time until its agent answers;
    None is the usual limit. `diskspd` is the program that measures in a Windows guest.
    """

    image: Path
    format: str
    state: str
    firmware: Firmware = Firmware.BIOS
    bus: SystemBus = SystemBus.VIRTIO
    boot_seconds: float | None = None
    diskspd: Path | None = None

    def how_to_start(self) -> dict[str, Any]:
        """Settings that a repetition needs, but that do not identify what is measured."""
        settings = {
            "guest_boot": self.boot_seconds, "diskspd": self.diskspd and str(self.diskspd),
        }  # fmt: skip
        return {name: value for name, value in settings.items() if value is not None}

    def as_json(self) -> dict[str, str]:
        """The settings that identify what is measured; `how_to_start` has the others."""
        return {
            "image": str(self.image),
            "image_state": self.state,
            "firmware": self.firmware.value,
            "system_bus": self.bus.value,
        }


class GuestPlan(Value):
    """Size of the guest; `accelerator` None means: KVM if it really runs a guest, else TCG.

    Without a user guest (`user`) it is the micro guest, with the host's kernel unless `kernel`
    names another; it must have the I/O schedulers `schedulers`.
    """

    cpus: int = 2
    memory_bytes: int = 1 * GIB
    accelerator: Accelerator | None = None
    kernel: str | None = None
    user: UserGuest | None = None
    schedulers: frozenset[str] = frozenset()

    @property
    def is_windows(self) -> bool:
        """True if the user gave DISKSPD; before the guest boots, nothing else shows its system."""
        return self.user is not None and self.user.diskspd is not None


USUAL_GUEST = GuestPlan()


class RequestedQemu(Value):
    """A QEMU as the user names it: `BIN` or `NAME=BIN`; without a name its version is the name.

    `binary` is text, as in a shell: with a slash it is a path, without one a name in PATH. A `Path`
    would make `qemu` of `./qemu`.
    """

    name: str | None
    binary: str

    def __str__(self) -> str:
        return self.binary if self.name is None else f"{self.name}={self.binary}"


class Qemu(Value):
    """A QEMU that paths name by `qemu=NAME`; `version` is the full text that it prints."""

    name: str
    binary: Path
    version: str


def parse_qemu(text: str) -> RequestedQemu:
    """The QEMU of one `--qemu`. Raises PlanError for an invalid name or a missing program."""
    name, equals, file = text.partition("=")
    if not equals or "/" in name:
        name, file = "", text
    elif not NAME.fullmatch(name):
        raise PlanError(
            f"{name!r} cannot be the name of a QEMU",
            hint="write NAME=BIN with a name of letters, digits and . + _ -",
        )
    if not file:
        raise PlanError(f"{text!r} names no QEMU", hint=f"write --qemu /path/to/{GUEST.emulator}")
    return RequestedQemu(name or None, file)


def require_distinct(qemus: Sequence[Qemu]) -> None:
    """Raises PlanError when two have the same name, as two builds of one version would."""
    for name, count in Counter(qemu.name for qemu in qemus).items():
        if count > 1:
            raise PlanError(
                f"{count} QEMUs are called {name}",
                hint=f"name them: --qemu {name}-a=BIN --qemu {name}-b=BIN",
            )


class System(Value):
    """An operating system that a measurement installs: distribution packages, as apt names them.

    `first` are unpacked without dpkg; the shell and dpkg among them then install the rest. `room`
    is the disk space in bytes that the installed system needs, `memory` is the memory in bytes that
    the installing machine needs. Both were measured (docs/articles.md) and rounded up.
    """

    name: str
    first: tuple[str, ...]
    rest: tuple[str, ...]
    room: int
    memory: int

    @property
    def serial(self) -> str:
        """Serial number of the read-only disk that carries its packages into a guest."""
        return f"vdisklab-pkg-{self.name}"


SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "short",
            ("base-files", "base-passwd", "coreutils", "dash", "diffutils", "grep", "libc-bin",
             "sed"),
            (),
            192 * MIB,
            256 * MIB,
        ),
        System(
            "base",
            ("?essential", *_MERGED),
            ("?or(?essential,?priority(required),?priority(important))", *_MERGED),
            512 * MIB,
            512 * MIB,
        ),
    )
}  # fmt: skip
"""`short` is the smallest system with a working dpkg, `base` the distribution's base system."""

"""What a QEMU on this host lacks: buses, options, aio modes, and the daemons that serve disks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.qemu.block_nodes import DAEMON, VIRTIOFSD
from vdisklab.guest.qemu.daemons import find_virtiofsd
from vdisklab.guest.qemu.probe import IOTHREADS_SINCE, QCOW2_SINCE, QemuFeatures, probe_qemu
from vdisklab.host.command import Host, install_hint
from vdisklab.host.facts import QEMU
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.segments import Aio, Bus, ImageFormat
from vdisklab.plan.capabilities import Missing, QemuLimits
from vdisklab.plan.guest import Qemu, RequestedQemu, require_distinct
from vdisklab.value import replace

_NEWER = "install a newer QEMU, or name one: --qemu new=BIN and qemu=new in the path"


def limits_of(features: QemuFeatures, qemu: str, mend: str) -> QemuLimits:
    """The buses and aio modes that a QEMU lacks; no aio modes if its schema does not list any."""
    return QemuLimits(
        buses={
            bus: Missing(f"{qemu} has no device {device}", mend)
            for bus in Bus
            if (device := features.lacking(bus)) is not None
        },
        aio={
            mode: Missing(f"{qemu} was built without it", "choose aio=threads")
            for mode in Aio
            if features.aio and mode.value not in features.aio
        },
        options={
            (bus, option): Missing(
                f"{qemu} ({features.number}) has no property {name}{_since(bus, option)}",
                _NEWER,
            )
            for bus in Bus
            if features.lacking(bus) is None
            for option, name in features.lacking_options(bus).items()
        },
        of_formats={
            (ImageFormat.QCOW2, option): Missing(
                f"{qemu} ({features.number}) has no {name} for qcow2"
                + (f"; QEMU {since} has it" if (since := QCOW2_SINCE.get(option)) else ""),
                _NEWER,
            )
            for option, name in features.lacking_of_qcow2().items()
        },
    )


def _since(bus: Bus, option: str) -> str:
    return f"; QEMU {IOTHREADS_SINCE[bus]} has it" if option == "iothreads" else ""


def limits_of_installed(host: Host) -> QemuLimits:
    """The limits of the QEMU that paths use if they name none."""
    missing = missing_program(host, QEMU, "qemu-img")
    if host.which(QEMU) is None:
        return QemuLimits(guest=missing)
    limits = limits_of(probe_qemu(host), "this QEMU", "install a QEMU that has it")
    return replace(with_daemon(host, limits), guest=missing)


def with_daemon(host: Host, limits: QemuLimits) -> QemuLimits:
    """The limits with the buses that a daemon serves, if it is not installed or may not run."""
    missing = missing_program(host, DAEMON)
    served = {bus: missing for bus in Bus if bus.is_served and missing is not None}
    virtiofs = _misread_by_virtiofsd() if is_foreign() else _missing_virtiofsd(host)
    shared = {} if virtiofs is None else {Bus.VIRTIOFS: virtiofs}
    return replace(limits, buses={**limits.buses, **served, **shared})


def _misread_by_virtiofsd() -> Missing:
    """FUSE hands the flags of open(2) over as the guest's kernel numbers them (fuse_open_in in
    linux/fuse.h), and virtiofsd reads its host's numbers: 0x10000 is O_DIRECT on Arm, and
    O_DIRECTORY on x86 (uapi/asm/fcntl.h).
    """
    return Missing(
        f"{VIRTIOFSD} would read the O_DIRECT of a guest of {GUEST.name} as another flag",
        f"choose 9p, or measure on a host of {GUEST.name}",
    )


def _missing_virtiofsd(host: Host) -> Missing | None:
    if os.geteuid() != 0:
        return Missing(f"{VIRTIOFSD} needs root for its sandbox", "run vdisklab as root")
    try:
        find_virtiofsd(host)
    except HostError as error:
        return Missing(error.message, error.hint or f"install {VIRTIOFSD}")
    return None


def missing_program(host: Host, *programs: str) -> Missing | None:
    """The first program that is not installed, with the command that installs all of them."""
    for program in programs:
        if host.which(program) is None:
            return Missing(f"{program} is not installed", install_hint([QEMU, *programs]))
    return None


def find_qemus(
    host: Host, requested: Sequence[RequestedQemu]
) -> tuple[tuple[Qemu, ...], Mapping[str, QemuLimits]]:
    """The requested QEMUs with their names, and the features that each lacks.

    Raises HostError for a program that is not QEMU or too old, PlanError for two with one name.
    """
    qemus: list[Qemu] = []
    capabilities: dict[str, QemuLimits] = {}
    for request in requested:
        # As in a shell, a name without a slash is looked up in PATH alone.
        is_name = "/" not in request.binary
        if is_name and host.which(request.binary) is None and Path(request.binary).is_file():
            named = f"{request.name}=" if request.name else ""
            raise HostError(
                f"{request.binary} is not in PATH; a file in the current directory needs its path",
                hint=f"write --qemu {named}./{request.binary}",
            )
        features = probe_qemu(host, request.binary)
        binary = host.which(request.binary) or Path(request.binary)
        qemu = Qemu(request.name or features.number, binary.absolute(), features.version)
        qemus.append(qemu)
        limits = limits_of(features, f"QEMU {qemu.name}", "choose another bus")
        limits = with_daemon(host, limits)
        capabilities[qemu.name] = replace(limits, guest=missing_program(host, "qemu-img"))
    require_distinct(qemus)
    return tuple(qemus), capabilities

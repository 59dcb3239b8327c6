"""What this host can build and serve, found by trying each stack that was asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.guest.qemu.probe import probe_qemu
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.host.mounts import lies_in_memory
from vdisklab.host.probes import try_io_uring
from vdisklab.host.programs import QEMU
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.disk_path import DiskPath, Layer
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Aio, Bus, ImageFormat
from vdisklab.plan.capabilities import Capabilities, Missing, QemuCapabilities
from vdisklab.plan.guest import Qemu, RequestedQemu, require_distinct
from vdisklab.progress import Progress, Step
from vdisklab.storage.device import require_usable
from vdisklab.storage.direct import serves_direct_io
from vdisklab.storage.site import Site, Target, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

_TRIAL_CAPACITY = 32 * MIB
_DEVICES = {
    Bus.VIRTIO: ("virtio-blk-pci",),
    Bus.SCSI: ("virtio-scsi-pci", "scsi-hd"),
    Bus.IDE: ("ide-hd",),
    Bus.SATA: ("ide-hd", "ich9-ahci"),
    Bus.NVME: ("nvme",),
    Bus.USB: ("qemu-xhci", "usb-storage"),
}
_INSTALL_QEMU = "apt-get install qemu-system-x86 qemu-utils"

NO_QEMUS: Mapping[str, QemuCapabilities] = {}
"""Only the installed one."""


def survey(
    host: Host,
    ledger: Ledger,
    directory: Path,
    paths: Iterable[DiskPath],
    progress: Progress,
    *,
    backing: BackingDevices = WORK_DIRECTORY,
    qemus: Mapping[str, QemuCapabilities] = NO_QEMUS,
) -> Capabilities:
    """What of these paths cannot be had here. Each stack is built once, small and thin, on
    slices of the work directory; the devices of `ground` are only looked at. `qemus` are those
    that `find_qemus` found.

    Without root no layer can be built, and only the work directory itself is tried. Raises
    HostError when the work directory cannot be used at all, DirtyHostError when a trial cannot be
    taken down again.
    """
    wanted = tuple(paths)
    direct: dict[str, bool | None] = {}
    stacks: dict[str, Missing] = {}
    with open_site(host, ledger, directory) as site:
        stored = [path for path in wanted if path.has_storage and not impossible(path, backing)]
        if backing.devices:
            require_usable(host, backing)
        for number, stack in enumerate(dict.fromkeys(path.layers for path in stored)):
            spelled = "/".join(map(str, stack))
            bottom = "the device as it is" if backing.devices else "the work directory"
            progress(Step(f"trying {spelled or bottom}"))
            direct[spelled] = _try_stack(site, stack, f"trial{number}", stacks, backing)
    guests = tuple(path for path in wanted if not path.on_host)
    installed = tuple(path for path in guests if path.attachment.qemu is None)
    return Capabilities(
        formats=_missing_formats(host, guests),
        buses=_missing_buses(host, installed),
        aio=_missing_aio(guests),
        guest=_missing_guest(host) if installed else None,
        direct_io=direct,
        stacks=stacks,
        qemus=qemus,
        on_tmpfs=not backing.devices and lies_in_memory(directory),
    )


def find_qemus(
    host: Host, asked: Sequence[RequestedQemu]
) -> tuple[tuple[Qemu, ...], Mapping[str, QemuCapabilities]]:
    """The QEMUs that were asked for, under their names, and what each cannot do.

    Raises HostError for a program that is no QEMU or too old, PlanError for two of one name.
    """
    if not asked:
        return (), NO_QEMUS
    devices = tuple(dict.fromkeys(device for each in _DEVICES.values() for device in each))
    qemus: list[Qemu] = []
    able: dict[str, QemuCapabilities] = {}
    for each in asked:
        found = probe_qemu(host, each.binary, devices)
        binary = host.which(str(each.binary)) or each.binary
        qemu = Qemu(each.name or found.number, binary.absolute(), found.version)
        qemus.append(qemu)
        able[qemu.name] = QemuCapabilities(
            buses={
                bus: Missing(f"QEMU {qemu.name} has no device {device}", "choose another bus")
                for bus, needed in _DEVICES.items()
                for device in needed
                if device in found.lacking
            },
            aio={
                mode: Missing(f"QEMU {qemu.name} was built without it", "choose aio=threads")
                for mode in Aio
                if mode.value not in found.aio
            },
            guest=_missing_images(host),
        )
    require_distinct(qemus)
    return tuple(qemus), able


def _try_stack(
    site: Site,
    layers: tuple[Layer, ...],
    name: str,
    missing: dict[str, Missing],
    backing: BackingDevices,
) -> bool | None:
    spelled = "/".join(map(str, layers))
    if layers and os.geteuid() != 0:
        missing[spelled] = Missing("it takes root to build it", "run vdisklab as root")
        return None
    if not layers and backing.devices:
        return serves_direct_io(Target(backing.devices[0], is_block=True))
    # on slices: the user's devices are not touched
    trial = BackingDevices(disks=backing.disks_for(layers), arc_bytes=backing.arc_bytes)
    try:
        with build_stack(
            site, layers, _TRIAL_CAPACITY, name, backing=trial, allocate=False
        ) as target:
            return serves_direct_io(target)
    except DirtyHostError:
        raise  # not a stack that cannot be had: something of it is still there
    except VdisklabError as error:
        if not layers:
            raise
        missing[spelled] = Missing(str(error), error.hint or "leave it out")
        return None


def _missing_guest(host: Host) -> Missing | None:
    if host.which(QEMU) is None:
        return Missing(f"{QEMU} is not installed", _INSTALL_QEMU)
    return _missing_images(host)


def _missing_images(host: Host) -> Missing | None:
    if host.which("qemu-img") is None:
        return Missing("qemu-img is not installed", _INSTALL_QEMU)
    return None


def _missing_formats(host: Host, paths: tuple[DiskPath, ...]) -> dict[ImageFormat, Missing]:
    wanted = {path.image.format for path in paths if path.image is not None}
    wanted.discard(ImageFormat.NULL)
    if not wanted or host.which("qemu-img") is None:
        return {}
    text = host.run("qemu-img", "--help", allowed=(0, 1)).stdout
    listed = re.search(r"^Supported formats:(.*)$", text, re.MULTILINE)
    known = set(listed[1].split()) if listed else set()
    return {
        form: Missing(f"qemu-img does not make {form}", "choose raw or qcow2")
        for form in wanted
        if known and form.value not in known
    }


def _missing_buses(host: Host, paths: tuple[DiskPath, ...]) -> dict[Bus, Missing]:
    wanted = {path.attachment.bus for path in paths}
    if not wanted or host.which(QEMU) is None:
        return {}
    text = host.run(QEMU, "-device", "help").stdout
    known = set(re.findall(r'^name "([^"]+)"', text, re.MULTILINE))
    return {
        bus: Missing(f"this QEMU has no device {device}", "install a QEMU that has it")
        for bus in wanted
        for device in _DEVICES[bus]
        if device not in known
    }


def _missing_aio(paths: tuple[DiskPath, ...]) -> dict[Aio, Missing]:
    if all(path.attachment.aio is not Aio.IO_URING for path in paths):
        return {}
    reason = try_io_uring()
    if reason is None:
        return {}
    return {Aio.IO_URING: Missing(reason, "choose aio=threads or aio=native")}

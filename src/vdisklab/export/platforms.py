"""The platforms for exported disk paths: each is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.export import incus, kubevirt, libvirt, libvirt_disk, proxmox, qemu
from vdisklab.export.configuration import Configuration, Exporter, ExportRequest, Gap
from vdisklab.export.shares import export_share
from vdisklab.path.segments import BUS_OPTIONS
from vdisklab.plan.guest import IN_THE_GUEST, without_options, without_qemu

DOMAIN_TYPES = ("kvm", "qemu")


class Platform(StrEnum):
    """The platform that runs the guest."""

    LIBVIRT = "libvirt"
    LIBVIRT_DISK = "libvirt-disk"
    QEMU = "qemu"
    PROXMOX = "proxmox"
    KUBEVIRT = "kubevirt"
    INCUS = "incus"


EXPORTERS: Mapping[Platform, Exporter] = {
    Platform.LIBVIRT: libvirt.export,
    Platform.LIBVIRT_DISK: libvirt_disk.export,
    Platform.QEMU: qemu.export,
    Platform.PROXMOX: proxmox.export,
    Platform.KUBEVIRT: kubevirt.export,
    Platform.INCUS: incus.export,
}


def configure(request: ExportRequest, platform: Platform) -> Configuration:
    """The configuration of a disk with a user's options.

    A QEMU named in the path and what is set inside the guest become gaps, because guests'
    configurations cannot say them. Raises PlanError for texts and sizes that the platform would
    refuse, and for paths that it cannot express.
    """
    _require_plain_texts(request)
    _require_disk(request, platform)
    attachment, shares_directory = request.path.attachment, request.path.shares_directory
    schema = BUS_OPTIONS[attachment.bus]
    gaps = tuple(
        Gap(f"{option}={schema[option].format(value)}", instead)
        for option, instead in _NOT_CONFIGURED.items()
        # The comments of a share say how the guest mounts it.
        if (value := attachment.option(option)) is not None
        and not (shares_directory and option in IN_THE_GUEST)
    )
    if shares_directory:
        request = replace(request, path=without_qemu(request.path))
        configuration = export_share(request, platform)
    else:
        request = replace(request, path=without_options(request.path, _NOT_CONFIGURED))
        configuration = EXPORTERS[platform](request)
    return replace(configuration, gaps=(*gaps, *configuration.gaps))


_NOT_CONFIGURED = {
    "qemu": "the guest runs under the QEMU that is installed",
    "guests": "give each guest a disk of its own like this one",
    **dict.fromkeys(IN_THE_GUEST, "set it inside the guest"),
    "cgroup_iops": "set IOReadIOPSMax and IOWriteIOPSMax of QEMU's systemd unit",
    "cgroup_bps": "set IOReadBandwidthMax and IOWriteBandwidthMax of QEMU's systemd unit",
}


def _require_plain_texts(request: ExportRequest) -> None:
    """Refuses control characters, which XML and line-based files cannot hold."""
    for text in (request.source or "", request.name):
        if not text.isprintable():
            raise PlanError(
                f"{text!r} has control characters, which no configuration may contain",
                hint="rename it",
            )
    if not request.name:
        raise PlanError("the guest needs a name", hint="--name web1")


def _require_disk(request: ExportRequest, platform: Platform) -> None:
    source = request.source
    is_libvirt = platform in (Platform.LIBVIRT, Platform.LIBVIRT_DISK)
    if source == "" or (is_libvirt and not (source or "/").startswith("/")):
        raise PlanError(
            f"{source!r} is not a source of a disk",
            hint="give an absolute path: --source /srv/images/web1.qcow2",
        )
    if request.size <= 0:
        raise PlanError("a disk cannot have size 0", hint="--size 10G")
    if "/" in request.name:
        raise PlanError(f"{request.name!r} cannot be the name of a guest", hint="--name web1")
    if request.domain_type not in DOMAIN_TYPES:
        raise PlanError(f"unknown domain type {request.domain_type!r}", hint="write kvm or qemu")

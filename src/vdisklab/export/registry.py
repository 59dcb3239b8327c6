"""The forms of configuration: one file and one line each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from vdisklab.export import incus, kubevirt, libvirt, proxmox, qemu
from vdisklab.export.form import Exporter


class Form(StrEnum):
    """Who shall run the guest."""

    LIBVIRT = "libvirt"
    QEMU = "qemu"
    PROXMOX = "proxmox"
    KUBEVIRT = "kubevirt"
    INCUS = "incus"


EXPORTERS: Mapping[Form, Exporter] = {
    Form.LIBVIRT: libvirt.export,
    Form.QEMU: qemu.export,
    Form.PROXMOX: proxmox.export,
    Form.KUBEVIRT: kubevirt.export,
    Form.INCUS: incus.export,
}

"""Disks that a guest's own machine does not have, or that its firmware and kernel may not find.

That hangs on the guest's architecture and not on the host that reads the configuration. Guests of
x86 find disks on every bus. Guests of Arm have the machine `virt`:

* IDE: there is no controller and none can be added. QEMU: "machine type does not support if=ide",
  "No 'IDE' bus found"; libvirt: "IDE controllers are unsupported for this QEMU binary or machine
  type" (qemu_validate.c).
* SATA: an AHCI controller can be added where QEMU was built with it; Red Hat's was not ("SATA is
  not supported with this QEMU binary", OpenNebula/one#7438). edk2's firmware for arm64 has no
  driver for it (tianocore/edk2#11415), so a guest stops in the UEFI shell
  (kubernetes/minikube#18239).
* SCSI: the firmware has a driver for virtio-scsi only, and many kernels have none for lsi53c895a
  (utmapp/UTM#7712; Debian's has). libvirt before 11.6 adds that controller if the domain names none
  (its NEWS; tests/qemuxmlconfdata/aarch64-virt-default-models).
* KubeVirt: "Arm64 not support this disk bus type, please use virtio or scsi" (validateDiskBus in
  pkg/virt-api/webhooks/arm64.go).
"""

from __future__ import annotations

from collections.abc import Mapping

from vdisklab.path.architecture import AARCH64, architecture_of
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Bus
from vdisklab.value import Value

_FOUND_CONTROLLERS = ("virtio-scsi", "virtio-transitional", "virtio-non-transitional")
"""How names of controllers begin that guests of Arm find."""

_KUBEVIRT_BUSES = (Bus.VIRTIO, Bus.SCSI)

_VIRTIO_SCSI: Mapping[Platform, str] = {
    Platform.LIBVIRT: '<controller type="scsi" model="virtio-scsi"/>',
    Platform.QEMU: "-device virtio-scsi-pci",
    Platform.PROXMOX: "scsihw: virtio-scsi-single",
    Platform.OPENSTACK: "hw_scsi_model=virtio-scsi",
}
"""How platforms name a controller that the guest finds."""


class NoSuchBus(Value):
    """The guest does not start with the disk: why, and what to write instead."""

    reason: str
    instead: str


class MaybeUnseen(Value):
    """The guest starts, and may not see the disk: what has no driver for it, and the remedy."""

    what: str
    remedy: str


def verdict_on(
    architecture: str | None, platform: Platform, bus: Bus | None, controller: str
) -> NoSuchBus | MaybeUnseen | None:
    """What keeps a guest of this architecture from the disk; None if nothing is known to.

    `controller` is the model of a SCSI disk's controller, empty if it has none of its own.
    """
    arm = architecture is not None and architecture_of(architecture) is AARCH64
    if not arm or (bus is not None and bus.shares_directory):
        return None
    if platform is Platform.KUBEVIRT:
        return _on_kubevirt(bus)
    if bus is Bus.IDE:
        return NoSuchBus(
            f"a guest of {AARCH64.name} has no IDE controller (its machine is virt)",
            "use virtio, or scsi with virtio-scsi",
        )
    return _unseen(platform, bus, controller)


def _on_kubevirt(bus: Bus | None) -> NoSuchBus | None:
    if bus is None or bus in _KUBEVIRT_BUSES:
        return None
    return NoSuchBus(
        f"KubeVirt refuses the bus {bus} on {AARCH64.aliases[0]}", "write bus: virtio or scsi"
    )


def _unseen(platform: Platform, bus: Bus | None, controller: str) -> MaybeUnseen | None:
    if bus is Bus.SATA:
        return MaybeUnseen(
            "it is on SATA, for which its UEFI firmware has no driver, so it does not boot from "
            "it, and Red Hat's QEMU has no such controller",
            "Use virtio, or scsi with virtio-scsi",
        )
    if controller and not controller.startswith(_FOUND_CONTROLLERS):
        name = _VIRTIO_SCSI.get(platform, "virtio-scsi")
        return MaybeUnseen(
            f"it is on the SCSI controller {controller}, for which its UEFI firmware and many "
            "kernels have no driver",
            f"Name virtio-scsi: {name}",
        )
    return None

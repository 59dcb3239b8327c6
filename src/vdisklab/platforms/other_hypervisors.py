"""Guests of hypervisors that are no QEMU: recognised, and refused in one sentence."""

from __future__ import annotations

import re

from vdisklab.errors import PlanError
from vdisklab.platforms.reading import GuestText

_OTHERS = (
    ("VMware", r'^[ \t]*(?:virtualHW\.version|(?:scsi|sata|nvme|ide)[0-9:]+\.fileName)\s*=\s*"'),
    ("VirtualBox", r"^[ \t]*<VirtualBox\b|^[ \t]*VBoxManage\s+(?:createvm|storageattach)\b"),
    ("VMware or VirtualBox (OVF)", r"^[ \t]*<(?:ovf:)?Envelope\b"),
    ("Hyper-V", r"^[ \t]*(?:New-VM|(?:Add|Set)-VMHardDiskDrive|New-VHD)\s+-"),
    ("bhyve", r"^[ \t]*(?:sudo )?bhyve\s+-|^[ \t]*disk0_(?:type|name)\s*=\s*\""),
    (
        "cloud-hypervisor",
        r"^[^#\n]*\bcloud-hypervisor\b[^\n]*\s--(?:kernel|firmware|disk|cpus|api-socket)\b"
        r"|\A\s*\{(?=[\s\S]*\"payload\"\s*:)(?=[\s\S]*\"disks\"\s*:)",
    ),
    (
        "Firecracker",
        r"\"path_on_host\"\s*:|^[^#\n]*\bfirecracker\b[^\n]*\s--(?:api-sock|config-file)\b",
    ),
    ("crosvm", r"^[ \t]*(?:sudo )?crosvm\s+run\b"),
    ("kvmtool", r"^[ \t]*(?:sudo )?(?:lkvm|vm)\s+run\s+-"),
    ("Xen", r"^[ \t]*disk\s*=\s*\[\s*['\"](?:phy|file|tap|qcow2|format=|/dev/)"),
)  # fmt: skip
_ROWS = tuple((name, re.compile(pattern, re.MULTILINE)) for name, pattern in _OTHERS)
"""Words of .vmx, .vbox, .ovf, PowerShell's Hyper-V module, bhyve(8) and vm-bhyve, xl.cfg(5); of
cloud-hypervisor's command line and its vm.create (docs/api.md), and of Firecracker's drives
(docs/getting-started.md)."""


def refuse_other_hypervisors(text: GuestText) -> None:
    """Raises PlanError for another hypervisor's guest."""
    head = text.text[: 1 << 20]
    for name, pattern in _ROWS:
        if pattern.search(head):
            raise PlanError(
                f"{text.origin} is a guest of {name}, and vdisklab knows the disks of QEMU",
                hint="to see what KVM would give it: `vdisklab run libvirt proxmox raw/none`",
            )

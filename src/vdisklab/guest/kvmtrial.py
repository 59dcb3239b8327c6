"""KVM tried as far as it can be without a download, for those who only ask."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from vdisklab.errors import VdisklabError
from vdisklab.guest.factory import QEMU, Surroundings, boot_files, choose_verdict
from vdisklab.guest.image.kernel import is_kernel_at_hand
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.qemu.accelerator import Verdict
from vdisklab.guest.qemu.argv import GuestConfig
from vdisklab.host.probes.kvm import KvmTrial, try_kvm
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.plan.qemu import Qemu

_BUSES = frozenset({Bus.VIRTIO})


def try_kvm_with_guest(around: Surroundings) -> KvmTrial:
    """The boot sector, then our own guest, as a campaign does; both share what they found.

    Where no kernel is at hand the boot sector's answer stands, and says that it is no more.
    """
    sector = try_kvm(around.host)
    if not sector.works:
        return sector
    if not is_kernel_at_hand(around.cache, _BUSES):
        return replace(sector, tried=f"{sector.tried}; no kernel is at hand yet to boot under it")
    try:
        with tempfile.TemporaryDirectory(prefix="vdisklab-kvm-") as directory:
            verdict = _boot_our_guest(around, Path(directory))
    except VdisklabError as error:
        return replace(sector, tried=f"{sector.tried}; no kernel could be tried: {error}")
    if verdict.accelerator is Accelerator.KVM:
        return KvmTrial(True, verdict.reason)
    return KvmTrial(False, f"{sector.tried}, but no kernel boots: {verdict.reason}")


def _boot_our_guest(around: Surroundings, directory: Path) -> Verdict:
    guest, boot = GuestPlan(), boot_files(around.host, around.cache, _BUSES)
    marker = f"vdisklab-{around.ledger.run_id}-kvm"

    def start(_qemu: Qemu | None, seconds: float) -> AbstractContextManager[Machine]:
        machine = Bus.VIRTIO.machine
        config = GuestConfig(QEMU, marker, machine, Accelerator.KVM, guest, boot)
        return start_machine(config, around.ledger, directory, timeout=seconds)

    return choose_verdict(around, guest, (None,), lambda: boot, start)

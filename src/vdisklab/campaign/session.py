"""Everything that a campaign needs around its cells, opened in order and closed in reverse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.cell import Bench
from vdisklab.campaign.guests import GuestPool, StartGuest
from vdisklab.campaign.survey import QEMU
from vdisklab.campaign.workshop import open_workshop
from vdisklab.guest.accelerator import Verdict, choose_accelerator, remembered, trial_key
from vdisklab.guest.argv import BootFiles, GuestConfig
from vdisklab.guest.blockdev import Disk
from vdisklab.guest.image import build_guest_image
from vdisklab.guest.kernel import find_kernel
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.plan.segments import Bus
from vdisklab.progress import Note, Progress, Step
from vdisklab.storage.site import Site, open_site


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the edge hands in: the host, its ledger, where caches are, who listens."""

    host: Host
    ledger: Ledger
    cache: Path
    progress: Progress


@contextmanager
def open_bench(around: Surroundings, plan: CampaignPlan) -> Iterator[Bench]:
    """A bench with every stack built, every image filled and the guest ready to boot."""
    with open_site(around.host, around.ledger, plan.directory) as site:
        accelerator, start = prepare_guests(around, plan, site)
        with (
            open_workshop(site, plan, around.progress) as workshop,
            GuestPool(start, around.progress) as guests,
        ):
            yield Bench(plan, workshop, guests, accelerator, around.progress)


def prepare_guests(
    around: Surroundings, plan: CampaignPlan, site: Site
) -> tuple[Accelerator | None, StartGuest]:
    """The accelerator that runs our guest here, and what starts one; None without guests."""
    buses = guest_buses(plan)
    if not buses:
        return None, _no_guest
    around.progress(Step("preparing the guest's kernel and image"))
    boot = boot_files(around.host, around.cache, buses, plan.guest.kernel)
    names = (f"vdisklab-{around.ledger.run_id}-{number}" for number in itertools.count(1))
    usb = Bus.USB in buses

    def start(
        accelerator: Accelerator,
        machine: str,
        disks: tuple[Disk, ...] = (),
        timeout: float | None = None,
    ) -> AbstractContextManager[Machine]:
        config = GuestConfig(QEMU, next(names), machine, accelerator, plan.guest, boot, usb, disks)
        return start_machine(config, around.ledger, site.directory, timeout=timeout)

    verdict = _choose(
        around,
        plan.guest,
        boot,
        lambda seconds: start(Accelerator.KVM, Bus.VIRTIO.machine, timeout=seconds),
    )
    if verdict.accelerator.is_emulation:
        around.progress(Note(f"under emulation (TCG): {verdict.reason}"))
    return verdict.accelerator, lambda machine, disks: start(verdict.accelerator, machine, disks)


def guest_buses(plan: CampaignPlan) -> frozenset[Bus]:
    """The buses that the plan's guests need drivers for; empty without guests."""
    return frozenset(cell.path.attachment.bus for cell in plan.cells if not cell.path.on_host)


def boot_files(
    host: Host, cache: Path, buses: frozenset[Bus], kernel_asked: str | None = None
) -> BootFiles:
    """Kernel and image of the micro guest with drivers for these buses, made if not cached."""
    kernel = find_kernel(host, cache, buses, wanted=kernel_asked)
    image = build_guest_image(host, cache, kernel)
    return BootFiles(image.kernel, image.initrd, image.root, image.append)


def _choose(
    around: Surroundings,
    guest: GuestPlan,
    boot: BootFiles,
    try_kvm: Callable[[float], AbstractContextManager[Machine]],
) -> Verdict:
    if guest.accelerator is not None:
        return Verdict(guest.accelerator, "it was asked for")

    def decide() -> Verdict:
        around.progress(Step("trying whether a guest runs under KVM"))
        return choose_accelerator(try_kvm)

    version = around.host.run(QEMU, "--version").stdout.splitlines()[0]
    key = trial_key(version, f"{boot.kernel} {boot.root}")
    return remembered(around.cache / "accelerator.json", key, decide)


def _no_guest(_machine: str, _disks: tuple[Disk, ...]) -> AbstractContextManager[Machine]:
    raise AssertionError("a campaign without guests started one")

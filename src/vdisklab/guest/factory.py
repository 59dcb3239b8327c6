"""What it takes to start guests: a kernel, an image, an accelerator that really works."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from vdisklab.errors import GuestError
from vdisklab.guest.image.build import GuestImage, build_guest_image
from vdisklab.guest.image.kernel import find_kernel
from vdisklab.guest.machine import Machine, start_machine
from vdisklab.guest.pool import StartGuest
from vdisklab.guest.qemu.accelerator import Verdict, choose_accelerator, remembered, trial_key
from vdisklab.guest.qemu.argv import BootFiles, CarriedDisk, GuestConfig, OwnBoot
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.system.base import UnfitGuestError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.plan.qemu import Qemu
from vdisklab.progress import Note, Progress, Step

QEMU = "qemu-system-x86_64"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the edge hands in: the host, its ledger, where caches are, who listens."""

    host: Host
    ledger: Ledger
    cache: Path
    progress: Progress


OwnBoots = Callable[[str], AbstractContextManager[OwnBoot]]
"""(a name that no other guest has) -> what one guest of the user's own boots, as a block."""


def prepare_guests(
    around: Surroundings,
    guest: GuestPlan,
    buses: frozenset[Bus],
    directory: Path,
    *,
    carried: tuple[CarriedDisk, ...] = (),
    qemus: Sequence[Qemu | None] = (None,),
    own_boots: OwnBoots | None = None,
) -> tuple[Accelerator, StartGuest]:
    """The accelerator that runs the guests here, and what starts one with drivers for `buses`.

    The guests are ours, or with `own_boots` the user's. Each runs under one of `qemus`, and has
    the disks `carried`. QEMU's console and errors are written below `directory`.
    """
    micro = cache(partial(_micro_guest, around, guest, buses))
    if own_boots is None:
        micro()
    names = (f"vdisklab-{around.ledger.run_id}-{number}" for number in itertools.count(1))
    by_name = {None if qemu is None else qemu.name: qemu for qemu in qemus}

    def start(
        accelerator: Accelerator,
        machine: str,
        boot: BootFiles | OwnBoot,
        disks: tuple[Disk, ...] = (),
        *,
        qemu: Qemu | None = None,
        timeout: float | None = None,
    ) -> AbstractContextManager[Machine]:
        config = GuestConfig(
            binary_of(qemu), next(names), machine, accelerator, guest, boot,
            usb=Bus.USB in buses, cold_disks=disks, carried=carried,
            version=None if qemu is None else qemu.version,
        )  # fmt: skip
        return start_machine(config, around.ledger, directory, timeout=timeout)

    def try_kvm(qemu: Qemu | None, seconds: float) -> AbstractContextManager[Machine]:
        return start(Accelerator.KVM, Bus.VIRTIO.machine, micro(), qemu=qemu, timeout=seconds)

    verdict = choose_verdict(around, guest, qemus, micro, try_kvm)
    if verdict.accelerator.is_emulation:
        around.progress(Note(f"under emulation (TCG): {verdict.reason}"))
    if own_boots is None:
        return verdict.accelerator, lambda machine, disks, name: start(
            verdict.accelerator, machine, micro(), disks, qemu=by_name[name]
        )
    boots = own_boots

    @contextmanager
    def start_own(machine: str, disks: tuple[Disk, ...], name: str | None) -> Iterator[Machine]:
        with boots(f"system-{secrets.token_hex(4)}") as boot:
            opened = start(verdict.accelerator, machine, boot, disks, qemu=by_name[name])
            with _answering(opened, guest) as running:
                yield running

    return verdict.accelerator, start_own


@contextmanager
def _answering(opened: AbstractContextManager[Machine], guest: GuestPlan) -> Iterator[Machine]:
    """The guest, or an UnfitGuestError when it does not come up: a second try would not, either."""
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(opened)
        except UnfitGuestError:
            raise
        except GuestError as error:
            own = guest.own
            what = "its image" if own is None else f"{own.image} under {own.firmware.upper()}"
            unfit = UnfitGuestError(
                f"the guest of {what} does not come up: {error}",
                hint="does it boot so, and start the QEMU guest agent? --guest-firmware and "
                "--guest-bus say how, --guest-boot how long it may take",
            )
            for note in getattr(error, "__notes__", ()):
                unfit.add_note(note)
            raise unfit from error
        yield machine


def binary_of(qemu: Qemu | None) -> str:
    """The program of a QEMU; None is the installed one."""
    return QEMU if qemu is None else str(qemu.binary)


def _micro_guest(around: Surroundings, guest: GuestPlan, buses: frozenset[Bus]) -> BootFiles:
    around.progress(Step("preparing the guest's kernel and image"))
    return boot_files(around.host, around.cache, buses, guest.kernel)


def boot_files(
    host: Host, cache: Path, buses: frozenset[Bus], kernel_asked: str | None = None
) -> BootFiles:
    """Kernel and image of the micro guest with drivers for these buses, made if not cached."""
    kernel = find_kernel(host, cache, buses, wanted=kernel_asked)
    return files_of(build_guest_image(host, cache, kernel))


def files_of(image: GuestImage) -> BootFiles:
    """What QEMU takes of a built image."""
    return BootFiles(image.kernel, image.initrd, image.root, image.append)


def choose_verdict(
    around: Surroundings,
    guest: GuestPlan,
    qemus: Sequence[Qemu | None],
    micro: Callable[[], BootFiles],
    try_kvm: Callable[[Qemu | None, float], AbstractContextManager[Machine]],
) -> Verdict:
    """KVM if each QEMU runs our own guest under it: one accelerator serves all cells."""
    if guest.accelerator is not None:
        return Verdict(guest.accelerator, "it was asked for")
    verdict: Verdict | None = None
    for qemu in qemus:

        def decide(qemu: Qemu | None = qemu) -> Verdict:
            around.progress(Step("trying whether a guest runs under KVM"))
            return choose_accelerator(partial(try_kvm, qemu))

        version = around.host.run(binary_of(qemu), "--version").stdout.splitlines()[0]
        boot = micro()
        key = trial_key(version, f"{boot.kernel} {boot.root}")
        name = "accelerator" if qemu is None else f"accelerator-{qemu.name}"
        verdict = remembered(around.cache / f"{name}.json", key, decide)
        if verdict.accelerator.is_emulation:
            break
    if verdict is None:
        raise AssertionError("there is no QEMU to run a guest")
    return verdict

"""Arguments of QEMU: the very ones that were measured with."""

from __future__ import annotations

import shlex

from vdisklab.export.form import Exported, Wish, check
from vdisklab.export.preparation import commented, preparation
from vdisklab.guest.qemu.block_nodes import Disk, cold_arguments
from vdisklab.path.segments import Bus

SERIAL = "disk0"
DIRECTORY = "/var/lib/libvirt/images"


def disk_of(wish: Wish, place: str) -> Disk:
    """The disk as the guest's room describes it."""
    return Disk(
        SERIAL, wish.size, place, wish.is_block, wish.driver, wish.path.cache, wish.path.attachment
    )


def arguments(wish: Wish, place: str) -> tuple[str, ...]:
    """The disk's own arguments, with the controller that a USB disk needs."""
    controller = ("-device", "qemu-xhci,id=xhci") if wish.path.attachment.bus is Bus.USB else ()
    return (*controller, *cold_arguments(disk_of(wish, place)))


def export(wish: Wish) -> Exported:
    """A command line that can be pasted; more of your own arguments may follow it."""
    check(wish.path)
    place = wish.place(DIRECTORY)
    accelerator = "kvm" if wish.domain_type == "kvm" else "tcg"
    first = ("qemu-system-x86_64", "-machine", wish.path.attachment.bus.machine,
             "-accel", accelerator, "-m", "1024", "-smp", "2")  # fmt: skip
    rest = arguments(wish, place)
    pairs = [shlex.join(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    command = " \\\n  ".join([shlex.join(first), *pairs])
    return Exported(f"{commented(preparation(wish, place), ())}{command}\n")

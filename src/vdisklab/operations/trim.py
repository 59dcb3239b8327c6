"""A trim: the guest gives back the space of deleted files, beside its load."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab.errors import OperationError
from vdisklab.operations.operation import DiskOperation, OperationKind, RunningOperation
from vdisklab.operations.relief import EVERYWHERE, LIBVIRT, PROXMOX, QEMU, Felt, Relief, qmp
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.options import Size
from vdisklab.path.rules import Impossible
from vdisklab.units import format_size

_MIB = 1 << 20
_SHARE = 4
"""The deleted file is this part of the disk unless the user says otherwise."""
# By the shell: the micro guest's fstrim is its shell's own. Random bytes: zeros may become a hole.
_DELETE = """
fstrim "$0" || exit
said=$(dd if=/dev/urandom of="$0/deleted" bs=1M count="$1" conv=fsync 2>&1) ||
{ echo "$said" | head -n 1 >&2; exit 1; }
sync && rm "$0/deleted" && sync
"""
_ROOM = 5
"""The file system's own tables and journal take this part of the disk, at most."""
_TRIM = 'fstrim -v "$0"'
# util-linux says "128 MiB (134217728 bytes) trimmed", busybox "134217728 bytes trimmed".
_TRIMMED = re.compile(r"\b([0-9]{1,18}) bytes\)? trimmed")


class Trim(RunningOperation):
    """fstrim in the guest, after a file was written and deleted."""

    _trimmed: int | None = None

    @property
    def copied(self) -> int | None:
        """The bytes that fstrim gave back."""
        return self._trimmed

    def prepare(self) -> None:
        """Writes a file of random bytes and deletes it; what was free before is trimmed first."""
        mebibytes = str(max(1, _deleted(self.order, self.disk.size) // _MIB))
        self.access.in_guest("sh", "-c", _DELETE, self.access.mount_point, mebibytes)

    def finish(self) -> None:
        """Trims. Raises OperationError if nothing was."""
        said = self.access.in_guest("sh", "-c", _TRIM, self.access.mount_point)
        found = _TRIMMED.search(said)
        if found is None or not int(found[1]):
            raise OperationError(
                "fstrim gave back nothing",
                hint="the guest's disk may take no discards: write discard=unmap on its bus",
            )
        self._trimmed = int(found[1])


def _deleted(order: DiskOperation, disk: int) -> int:
    """The bytes of the file that is deleted on a disk of so many bytes."""
    wanted = order.option("size")
    return disk // _SHARE if wanted is None else int(wanted)


def _too_large(order: DiskOperation, disk: int, load: int) -> Impossible | None:
    """Why the deleted file has no room beside the load's file; None if it has."""
    size, room = _deleted(order, disk), (disk - disk // _ROOM - load) // _MIB * _MIB
    if size <= room:
        return None
    return Impossible(
        f"the guest would delete a file of {format_size(size)}, and its disk of "
        f"{format_size(disk)} has room for {format_size(room)} beside the load",
        "choose a larger --size, or leave out trim's size=: it is then a quarter of the disk",
    )


def _refusal(path: DiskPath) -> Impossible | None:
    if path.attachment.option("discard") != "unmap":
        return Impossible("does not pass the guest's discards on", "write discard=unmap on its bus")
    return None


def _relief(_felt: Felt) -> Iterator[Relief]:
    """Once a week at night instead of each time, and only in pieces that are worth it."""
    yield Relief(f"in a Linux guest on {EVERYWHERE}", "systemctl enable --now fstrim.timer")
    yield Relief(LIBVIRT, f"virsh domfstrim DOMAIN --minimum {_MIB}")
    yield Relief(PROXMOX, reason="`qm guest cmd VMID fstrim` takes no smallest size")
    yield Relief(f"{QEMU}'s guest agent", qmp("guest-fstrim", {"minimum": _MIB}))


TRIM = OperationKind(
    "trim",
    "the guest trims the space of a deleted file (fstrim)",
    Trim,
    _refusal,
    options={"size": Size(_MIB, 1 << 50, power_of_two=False)},
    relief=_relief,
    filesystem="ext4",
    too_large=_too_large,
)

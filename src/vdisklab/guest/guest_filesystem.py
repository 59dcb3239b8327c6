"""A file system on a measured disk, made and mounted inside the guest while a context is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine

MOUNT_POINT = "/mnt/vdisklab"

_MKFS_SECONDS = 900.0
_MOUNT_SECONDS = 300.0

# As on the host (storage.filesystem): no discards, which would undo the image's allocation, and no
# initialisation that the kernel would finish later, during a measurement.
_EXT = ("-q", "-F", "-E", "lazy_itable_init=0,nodiscard")
_MKFS: dict[str, tuple[str, ...]] = {
    "ext2": ("mkfs.ext2", *_EXT),
    "ext3": ("mkfs.ext3", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def make_commands(device: str, kind: str) -> tuple[tuple[str, ...], ...]:
    """The commands that make and mount the file system. Raises KeyError for an unknown kind."""
    return (
        (*_MKFS[kind], device),
        ("mkdir", "-p", MOUNT_POINT),
        ("mount", "-t", kind, device, MOUNT_POINT),
    )


@dataclass(frozen=True, slots=True)
class MountedInGuest:
    """A mounted file system of the guest with `free` bytes of space."""

    machine: Machine
    device: str
    kind: str
    free: int
    mount_point: str = MOUNT_POINT

    def empty_cache(self) -> None:
        """Empties the guest's page cache of its pages by mounting it again."""
        agent = self.machine.agent
        agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)
        mount = ("mount", "-t", self.kind, self.device, MOUNT_POINT)
        agent.run(mount, timeout=_MOUNT_SECONDS)
        _require_mounted(self.machine, self.device, self.kind)


@contextmanager
def guest_filesystem(machine: Machine, device: str, kind: str) -> Iterator[MountedInGuest]:
    """The new file system, mounted at MOUNT_POINT.

    Raises WorkloadError when mkfs, mount or umount fails, GuestError when it is not mounted
    although mount succeeded. After any error it stays mounted: that guest is not used again, and
    a second error while unmounting would hide the first.
    """
    for command in make_commands(device, kind):
        machine.agent.run(command, timeout=_MKFS_SECONDS)
    _require_mounted(machine, device, kind)
    yield MountedInGuest(machine, device, kind, _free(machine))
    machine.agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)


def _require_mounted(machine: Machine, device: str, kind: str) -> None:
    table = machine.agent.run(("cat", "/proc/mounts"), timeout=60).stdout
    for line in table.splitlines():
        source, point, seen, *_ = line.split()
        if point == MOUNT_POINT and source == device:
            if seen != kind:
                raise GuestError(
                    f"{device} was mounted as {seen} instead of {kind}",
                    hint="the guest's mount chose another driver: measure with the micro guest",
                )
            return
    raise GuestError(
        f"{device} is not mounted in the guest although mount succeeded",
        hint="the machine may be too busy: try when it is quiet; in your own guest an automounter "
        "may have unmounted it",
    )


def _free(machine: Machine) -> int:
    output = machine.agent.run(("stat", "-f", "-c", "%a %S", MOUNT_POINT), timeout=60).stdout
    try:
        blocks, size = (int(word) for word in output.split())
    except ValueError as error:
        raise GuestError(
            f"the guest's `stat -f` printed {output.strip()!r}",
            hint="measure with the micro guest",
        ) from error
    return blocks * size

"""A new file system on the measured disk, mounted in the guest while the context is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import GuestError
from vdisklab.guest.machine import Machine

MOUNT_POINT = "/mnt/vdisklab"

_MKFS_SECONDS = 900.0
_MOUNT_SECONDS = 300.0

# As on the host (storage.filesystem): no discards, because they would undo the image's allocation,
# and no lazy initialisation, because it would run during a measurement.
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
        """Removes its pages from the guest's page cache by remounting it."""
        agent = self.machine.agent
        agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)
        mount = ("mount", "-t", self.kind, self.device, MOUNT_POINT)
        agent.run(mount, timeout=_MOUNT_SECONDS)
        _require_mounted(self.machine, self.device, self.kind)


@contextmanager
def guest_filesystem(machine: Machine, device: str, kind: str) -> Iterator[MountedInGuest]:
    """The new file system, mounted at MOUNT_POINT.

    Raises WorkloadError when mkfs, mount or umount fails, GuestError when it is not mounted
    although mount succeeded. After an error it stays mounted: the guest is not used again, and an
    error of umount would hide the first one.
    """
    for command in make_commands(device, kind):
        machine.agent.run(command, timeout=_MKFS_SECONDS)
    _require_mounted(machine, device, kind)
    yield MountedInGuest(machine, device, kind, _free(machine))
    machine.agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)


def _require_mounted(machine: Machine, device: str, kind: str) -> None:
    table = machine.agent.run(("cat", "/proc/mounts"), timeout=60).stdout
    for line in table.splitlines():
        source, point, mounted_kind, *_ = line.split()
        if point == MOUNT_POINT and source == device:
            if mounted_kind != kind:
                raise GuestError(
                    f"{device} was mounted as {mounted_kind} instead of {kind}",
                    hint="the guest's mount command used another driver: measure with the micro "
                    "guest",
                )
            return
    raise GuestError(
        f"{device} is not mounted in the guest although mount succeeded",
        hint="the machine may be too busy: try again when it is idle; in a user guest an "
        "automounter may have unmounted it",
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

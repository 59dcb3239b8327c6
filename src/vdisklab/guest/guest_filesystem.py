"""A new file system on the measured disk, mounted in the guest while the context is open.

A host directory (virtiofs, 9p) is mounted in the same way, by its tag and as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import mount_command
from vdisklab.path.segments import Bus
from vdisklab.results.model import Check

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
_SHARES = frozenset(bus.value for bus in Bus if bus.shares_directory)


def make_commands(
    device: str, kind: str, options: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], ...]:
    """The commands that make and mount the file system. Raises KeyError for an unknown kind."""
    return (
        *(() if kind in _SHARES else ((*_MKFS[kind], device),)),
        ("mkdir", "-p", MOUNT_POINT),
        mount_command(device, kind, options, MOUNT_POINT),
    )


@dataclass(frozen=True, slots=True)
class MountedInGuest:
    """A mounted file system of the guest with `free` bytes of space."""

    machine: Machine
    device: str
    kind: str
    options: tuple[str, ...]
    seen_options: str
    free: int
    mount_point: str = MOUNT_POINT

    @property
    def checks(self) -> tuple[Check, ...]:
        """The file system and its mount options, as the guest's kernel shows them."""
        return (
            Check("guest.filesystem", self.kind, self.kind),
            Check("guest.mount", None, self.seen_options),
        )

    def empty_cache(self) -> None:
        """Drops the file system's pages from the guest's page cache, by mounting it again."""
        agent = self.machine.agent
        agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)
        command = mount_command(self.device, self.kind, self.options, MOUNT_POINT)
        agent.run(command, timeout=_MOUNT_SECONDS)
        _require_mounted(self.machine, self.device, self.kind, self.options)


@contextmanager
def guest_filesystem(
    machine: Machine, device: str, kind: str, options: tuple[str, ...] = ()
) -> Iterator[MountedInGuest]:
    """The new file system, mounted at MOUNT_POINT.

    Raises WorkloadError when mkfs, mount or umount fails, GuestError when it is not mounted
    although mount succeeded. After an error it stays mounted: the guest is not used again, and an
    error of umount would hide the first one.
    """
    try:
        for command in make_commands(device, kind, options):
            machine.agent.run(command, timeout=_MKFS_SECONDS)
    except WorkloadError as error:
        if "unknown filesystem type" not in error.message:
            raise
        raise WorkloadError(
            f"the guest's kernel has no driver for {kind}",
            hint="start a kernel that has it in the guest (Debian's cloud kernel has no 9p), or "
            "measure in the micro guest: leave out --guest",
        ) from error
    seen = _require_mounted(machine, device, kind, options)
    yield MountedInGuest(machine, device, kind, options, seen, _free(machine))
    machine.agent.run(("umount", MOUNT_POINT), timeout=_MOUNT_SECONDS)


def _require_mounted(machine: Machine, device: str, kind: str, options: tuple[str, ...]) -> str:
    """The mount options that the guest's kernel shows.

    Raises GuestError if the file system or one of the requested options is not there.
    """
    table = machine.agent.run(("cat", "/proc/mounts"), timeout=60).stdout
    for line in table.splitlines():
        source, point, mounted_kind, seen, *_ = line.split()
        if point == MOUNT_POINT and source == device:
            if mounted_kind != kind:
                raise GuestError(
                    f"{device} was mounted as {mounted_kind} instead of {kind}",
                    hint="the guest's mount command used another driver: measure with the micro "
                    "guest",
                )
            _require_options(kind, options, seen)
            return seen
    raise GuestError(
        f"{device} is not mounted in the guest although mount succeeded",
        hint="the machine may be too busy: try again when it is idle; in a user guest an "
        "automounter may have unmounted it",
    )


def _require_options(kind: str, options: tuple[str, ...], seen: str) -> None:
    """The kernel may show a value with more detail: compress=zstd as compress=zstd:3.

    9p shows `cache=VALUE` as VALUE alone (fs/9p/v9fs.c, v9fs_show_options).
    """
    words = seen.split(",")
    shown = {*words, *(word.partition(":")[0] for word in words)}
    for option in options:
        value = option.removeprefix("cache=") if kind == Bus.P9 else option
        if not {option, value} & shown:
            raise GuestError(
                f"{kind} was mounted without the requested option {option}: {seen}",
                hint="write the option as the guest's /proc/mounts shows it, or leave it out if it "
                "is the default",
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

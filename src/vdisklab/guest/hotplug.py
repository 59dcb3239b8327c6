"""Gives a running guest its disk (plugged or served), sets the disk's queue, and plugs ports.

A new file system on the measured disk, mounted in the guest while the context is open.

A host directory (virtiofs, 9p) is mounted in the same way, by its tag and as it is.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vdisklab.errors import GuestError, VdisklabError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu import block_nodes, daemons, read_back
from vdisklab.guest.qemu.block_nodes import mount_command
from vdisklab.guest.qemu.qmp import socket_of
from vdisklab.guest.systems import Family, GuestDisk
from vdisklab.host.ledger import Ledger
from vdisklab.host.waiting import patience
from vdisklab.path.segments import Bus
from vdisklab.results.model import Check
from vdisklab.value import Value, replace

_UNPLUG_SECONDS = 30.0
_CONNECT_SECONDS = 10.0


_SECONDS = 60.0
MOUNT_POINT = "/mnt/vdisklab"
_MKFS_SECONDS = 900.0
_MOUNT_SECONDS = 300.0
# As on the host (storage.filesystem): no discards, because they would undo the image's allocation,
# and no lazy initialisation, because it would run during a measurement. Zeroes are written
# (e2fsprogs, unix_zeroout): of a write-zeroes request the image's file system makes unwritten
# extents, and qcow2 zero clusters, so the journal's first round would cost further writes below.
_EXT_OPTIONS = "lazy_itable_init=0,nodiscard"
_WRITTEN = ("env", "UNIX_IO_NOZEROOUT=1")

_MKFS: dict[str, tuple[str, ...]] = {
    "ext2": (*_WRITTEN, "mkfs.ext2", "-q", "-F", "-E", _EXT_OPTIONS),
    "ext3": (*_WRITTEN, "mkfs.ext3", "-q", "-F", "-E", f"{_EXT_OPTIONS},lazy_journal_init=0"),
    "ext4": (*_WRITTEN, "mkfs.ext4", "-q", "-F", "-E", f"{_EXT_OPTIONS},lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    # Before version 6.7 its sectors are as large as a page of the guest's, and direct transfers are
    # of whole sectors.
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K", "--sectorsize", "4096"),
}

_SHARES = frozenset(bus.value for bus in Bus if bus.shares_directory)


@contextmanager
def attached_disk(machine: Machine, disk: block_nodes.Disk) -> Iterator[GuestDisk]:
    """Plugs a disk into a running guest, and unplugs it at the end.

    Raises GuestError. After an error the disk stays plugged: the guest is not used again, and an
    error of the unplug would hide the first one.
    """
    port = block_nodes.port_for(disk)
    begin = time.monotonic()
    for command in block_nodes.attach_commands(disk, port):
        machine.monitor.perform(command)
    found = machine.find_disk(disk.guest_serial)
    yield replace(found, plug_seconds=time.monotonic() - begin)
    for command in block_nodes.detach_commands(disk, port):
        if command.execute == "device_del":
            _unplug(machine, command.arguments["id"])
        else:
            machine.monitor.perform(command)


def _unplug(machine: Machine, device: str) -> None:
    """Removes a device and waits for QEMU's event, since the command only starts the removal."""
    with machine.monitor.expecting(
        "DEVICE_DELETED", lambda data: data.get("device") == device
    ) as wait:
        machine.monitor.perform(block_nodes.QmpCommand("device_del", {"id": device}))
        wait(_UNPLUG_SECONDS)


def port_commands(name: str) -> tuple[block_nodes.QmpCommand, block_nodes.QmpCommand]:
    """The QMP commands that plug a port of that name; on the host it is a socket."""
    address = {"type": "unix", "data": {"path": name}}
    backend = {"type": "socket", "data": {"addr": address, "server": True, "wait": False}}
    return (
        block_nodes.QmpCommand("chardev-add", {"id": name, "backend": backend}),
        block_nodes.QmpCommand(
            "device_add",
            {"driver": "virtserialport", "id": f"{name}-port", "chardev": name, "name": name},
        ),
    )


@contextmanager
def virtio_serial(machine: Machine, name: str) -> Iterator[socket.socket]:
    """Plugs a port and yields the host's socket; the guest finds the port by `name`. Both are
    removed.

    `name` must be unique on this host. After an error the port stays, because the guest is not used
    again. Raises GuestError.
    """
    for command in port_commands(name):
        machine.monitor.perform(command)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as stream:
        stream.settimeout(_CONNECT_SECONDS * patience())
        try:
            stream.connect(socket_of(machine.pid, name))
        except OSError as error:
            raise GuestError(
                f"the guest's serial port {name} cannot be opened: {error}",
                hint="the machine may be too busy: try again when it is idle",
            ) from error
        yield stream
    _unplug(machine, f"{name}-port")
    machine.monitor.perform(block_nodes.QmpCommand("chardev-remove", {"id": name}))


@contextmanager
def served(
    ledger: Ledger, directory: Path, disk: block_nodes.Disk
) -> Iterator[read_back.ServingDaemon | None]:
    """The daemon with the disk open; None for a disk that QEMU opens itself.

    If the daemon ends before the context does, an error of the body says so.
    """
    if not disk.attachment.bus.is_served:
        yield None
        return
    with daemons.start_storage_daemon(ledger, directory, disk.serial) as daemon:
        at_start = read_back.read_daemon(daemon)
        try:
            with daemon.export(disk):
                yield read_back.ServingDaemon(daemon, at_start)
        except VdisklabError as error:
            if daemon.alive():
                raise
            raise daemons.ended(block_nodes.DAEMON) from error


def with_scheduler(machine: Machine, disk: block_nodes.Disk, guest_disk: GuestDisk) -> GuestDisk:
    """The disk's facts after its I/O scheduler was set, if the path names one.

    Raises GuestError if the guest's kernel does not have it.
    """
    wanted = disk.attachment.guest_scheduler
    if wanted is None:
        return guest_disk
    if machine.system.family is Family.WINDOWS:
        raise GuestError("a Windows guest has no I/O schedulers", hint="leave out guest_scheduler")
    name = guest_disk.facts.get("queues_of", guest_disk.device.removeprefix("/dev/"))
    setting = f"/sys/block/{name}/queue/scheduler"
    try:
        machine.agent.run(("sh", "-c", f"echo {wanted} > {setting}"), timeout=_SECONDS)
    except WorkloadError as error:
        available = machine.agent.run(("cat", setting), timeout=_SECONDS).stdout.strip()
        raise GuestError(
            f"the guest's kernel does not have the I/O scheduler {wanted}: it has {available}",
            hint="choose one of these",
        ) from error
    return machine.find_disk(disk.guest_serial)


def make_commands(
    device: str, kind: str, options: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], ...]:
    """The commands that make and mount the file system. Raises KeyError for an unknown kind."""
    return (
        *(() if kind in _SHARES else ((*_MKFS[kind], device),)),
        ("mkdir", "-p", MOUNT_POINT),
        mount_command(device, kind, options, MOUNT_POINT),
    )


class MountedInGuest(Value):
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
    features = seen.split(",")
    shown = {*features, *(word.partition(":")[0] for word in features)}
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
            f"the guest's `stat -f` printed {output.strip()!r}", hint="measure with the micro guest"
        ) from error
    return blocks * size

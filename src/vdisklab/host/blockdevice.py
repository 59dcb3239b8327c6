"""Block devices: their users and signatures, and the device below a directory."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.machine import SYSTEM, read_text
from vdisklab.host.mounts import IN_MEMORY, Mount, mount_of, without_flushes
from vdisklab.path.memory_names import memory_by_name
from vdisklab.value import Value

_SECTOR = 512  # sysfs counts sectors of 512 bytes, whatever the device's sector size is
_NAME_ONE = "name one such as /dev/sdb; `lsblk` lists them"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Loop devices may be stacked, but never this deep.
_DEEPEST = 16


_TRANSPORTS = (
    ("/session", "iscsi"), ("/rport-", "fc"), ("/end_device-", "sas"), ("/ata", "ata"),
    ("/usb", "usb"), ("/virtio", "virtio"), ("/block/rbd", "rbd"), ("/block/nbd", "nbd"),
    ("/block/drbd", "drbd"), ("/block/loop", "loop"), ("/block/zram", "memory"),
)  # fmt: skip
"""Parts of a device's place in sysfs, by the transport class of the kernel that made them."""


class Signature(Value):
    """What libblkid finds on a device: a file system, a RAID member, a partition table."""

    kind: str
    label: str | None

    def __str__(self) -> str:
        return f"{self.kind} {self.label!r}" if self.label else self.kind


class BlockDevice(Value):
    """A block device: its path, and its major and minor number."""

    path: Path
    number: tuple[int, int]

    @property
    def sysfs(self) -> Path:
        """Its directory in sysfs."""
        return Path(f"/sys/dev/block/{self.number[0]}:{self.number[1]}").resolve()

    @property
    def size(self) -> int:
        """The size in bytes."""
        return int(read_text(self.sysfs / "size") or 0) * _SECTOR

    @property
    def read_only(self) -> bool:
        """True when the kernel refuses writes."""
        return read_text(self.sysfs / "ro") == "1"

    @property
    def whole(self) -> Path:
        """The sysfs directory of the whole disk, also for a partition."""
        return self.sysfs.parent if (self.sysfs / "partition").exists() else self.sysfs

    def related(self) -> Iterator[tuple[str, str]]:
        """Names and numbers (`major:minor`) of the device and of its partitions."""
        for node in (self.sysfs, *(file.parent for file in self.sysfs.glob("*/partition"))):
            yield node.name, read_text(node / "dev") or ""

    @property
    def numbers(self) -> set[int]:
        """The numbers of the device and of its partitions, in the form of st_rdev."""
        return {os.makedev(*map(int, number.split(":"))) for _, number in self.related() if number}


def open_device(path: Path) -> BlockDevice:
    """The device at a path. Raises HostError if the path is not one."""
    try:
        status = path.stat()
    except OSError as error:
        raise HostError(f"{path} cannot be used: {error.strerror}", hint=_NAME_ONE) from error
    if not stat.S_ISBLK(status.st_mode):
        raise HostError(f"{path} is not a block device", hint=_NAME_ONE)
    return BlockDevice(path, (os.major(status.st_rdev), os.minor(status.st_rdev)))


def usage(device: BlockDevice) -> str | None:
    """A description of what uses a device: a mount, swap, another device, a process; else None."""
    related = dict(device.related())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[2] in related.values():
            return f"it is mounted on {fields[4]}"
    swaps = (read_text(Path("/proc/swaps")) or "").splitlines()[1:]
    if {Path(line.split()[0]).name for line in swaps} & related.keys():
        return "it is swap space in use"
    for name in related:
        holders = sorted(path.name for path in Path(f"/sys/class/block/{name}/holders").glob("*"))
        if holders:
            return f"{', '.join(holders)} use{'s' if len(holders) == 1 else ''} it"
    return _loop_above(device) or _exclusive_user(device) or _opener(device)


def _loop_above(device: BlockDevice) -> str | None:
    """A loop device on top of the device; the kernel does not list loop devices as holders."""
    numbers = device.numbers
    for file in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            below = Path(read_text(file) or "").stat()
        except OSError:
            continue  # its file is deleted, or in another mount namespace
        if stat.S_ISBLK(below.st_mode) and below.st_rdev in numbers:
            return f"{file.parents[1].name} uses it"
    return None


def _exclusive_user(device: BlockDevice) -> str | None:
    """The reason why the kernel refuses O_EXCL (open(2)): something else has claimed the device."""
    try:
        os.close(os.open(device.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return "the kernel says that it is in use"
        raise HostError(
            f"{device.path} cannot be opened: {error.strerror}",
            hint="check that the device is still there (`lsblk`), that you are root, and that "
            "nothing has it open (`lsof`)",
        ) from error
    return None


def _opener(device: BlockDevice) -> str | None:
    """A process that has the device open without claiming it, as virtual machines do."""
    for process in Path("/proc").glob("[0-9]*"):
        if _has_open(process, device.numbers):
            name = read_text(process / "comm") or "a process"
            if "udev" not in name:  # udev reads a changed device for a moment
                return f"{name} ({process.name}) has it open"
    return None


def _has_open(process: Path, numbers: Collection[int]) -> bool:
    """True if a process has one of the devices open; False if it has ended or is another's."""
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                status = link.stat()
                if stat.S_ISBLK(status.st_mode) and status.st_rdev in numbers:
                    return True
    return False


def signatures(host: Host, path: Path) -> tuple[Signature, ...]:
    """The signatures that libblkid finds on a device, including partition tables."""
    text = host.run("wipefs", "--no-act", "--json", path).stdout
    rows = json.loads(text)["signatures"] if text.strip() else []
    return tuple(dict.fromkeys(Signature(str(row["type"]), row.get("label")) for row in rows))


def identity(device: BlockDevice) -> dict[str, str]:
    """Properties that identify this device; without a serial number only until the next reboot."""
    whole = device.whole
    places = (whole / "wwid", whole / "device/wwid", whole / "device/serial", whole / "serial")
    serial = next((text for place in places if (text := read_text(place))), "")
    return {
        "number": f"{device.number[0]}:{device.number[1]}",
        "size": str(device.size),
        "serial": serial,
        "backing": read_text(device.sysfs / "loop/backing_file") or "",
        "boot": read_text(_BOOT) or "",
    }


def is_same(device: BlockDevice, recorded: Mapping[str, str]) -> bool:
    """Whether a device is the one whose `identity` was recorded.

    Device names and numbers change at reboot; then the serial number decides.
    """
    now = identity(device)
    same = all(now[key] == recorded.get(key) for key in ("size", "serial", "backing"))
    if now["boot"] == recorded.get("boot"):
        return same and now["number"] == recorded.get("number")
    return same and bool(now["serial"])


def record_devices(paths: Iterable[Path]) -> str:
    """Devices and their identities as text, for the ledger."""
    return json.dumps([{"path": str(path), **identity(open_device(path))} for path in paths])


def recorded_devices(text: str) -> tuple[Path, ...]:
    """The devices of `record_devices` that are still there, and still the same."""
    rows = [(Path(row["path"]), row) for row in json.loads(text)]
    return tuple(
        path for path, row in rows if path.is_block_device() and is_same(open_device(path), row)
    )


class StackedDevice(Value):
    """A whole device and the devices below it; unknown facts are None.

    `file` is the file of a loop device.
    """

    name: str
    kind: str | None
    model: str | None
    rotational: bool | None
    write_cache: str | None
    fua: bool | None = None
    below: tuple[StackedDevice, ...] = ()
    file: Path | None = None

    def all(self) -> Iterator[StackedDevice]:
        """This device, and all devices below it."""
        yield self
        for device in self.below:
            yield from device.all()

    def leaves(self) -> Iterator[StackedDevice]:
        """The devices at the bottom, whose counters show the real transfers."""
        if not self.below:
            yield self
        for device in self.below:
            yield from device.leaves()

    def describe(self) -> str:
        """`vda virtio, non-rotational, write back`; a stacked device names those below it."""
        head = " ".join(part for part in (self.name, self.kind, self.model) if part)
        if self.below:
            return f"{head} over {'; '.join(device.describe() for device in self.below)}"
        facts = [head]
        if self.rotational is not None:
            facts.append("rotational" if self.rotational else "non-rotational")
        if self.write_cache is not None:
            facts.append(self.write_cache)
        return ", ".join(facts)


def lost_in(device: StackedDevice) -> str | None:
    """Why a device keeps nothing in a power cut, as a clause; None for one that is not memory."""
    for each in device.all():
        if memory_by_name(f"/dev/{each.name}"):
            return f"{each.name} is memory"
        mount = None if each.file is None else mount_of(each.file)
        if mount is not None and mount.filesystem in IN_MEMORY:
            return f"{each.name} is a file on {mount.filesystem}, which is memory"
    return None


def without_flushes_in(device: StackedDevice) -> str | None:
    """Why a device passes no flushes on, as a clause; None if all devices below it do.

    A loop device that was told `write through` gets no flush from the kernel (block/blk-flush.c).
    """
    for each in device.all():
        if each.file is None:
            continue
        if each.write_cache == "write through":
            return f"{each.name} claims to have no write cache, so no flush reaches its file"
        if reason := without_flushes(mount_of(each.file)):
            return f"{each.name} is a file: {reason}"
    return None


def medium_of(directory: Path, root: Path = SYSTEM) -> str | None:
    """A description of the device that a directory's data is on; None if it is unknown.

    A file system without a block device is named by its type and source, such as `tmpfs`.
    """
    device = device_of(directory, root)
    if device is not None:
        return device.describe()
    mount = _mount_of(directory, root)
    if mount is None or mount.filesystem == "overlay":
        return None
    if mount.source in ("none", mount.filesystem):
        return mount.filesystem
    return f"{mount.filesystem} {mount.source}"


def describe_device(path: Path, root: Path = SYSTEM) -> str | None:
    """A description of a block device; None if it is unknown."""
    device = stacked_device(path, root)
    return None if device is None else device.describe()


def device_facts(path: Path, root: Path = SYSTEM) -> dict[str, str]:
    """How a block device is reached and what it says of its write cache, as sysfs shows it.

    `device.transport`, `device.write_cache` (what the kernel flushes for), `device.cache_type`
    (what a SCSI disk itself claims), `device.max_sectors_kb` (the largest request),
    `device.server` (host and port of an iSCSI session or an NVMe controller over a network).
    """
    return _facts_of((root / "sys/dev/block" / _number(path.stat().st_rdev)).resolve())


def _facts_of(node: Path) -> dict[str, str]:
    claims = sorted(node.glob("device/scsi_disk/*/cache_type"))
    seen = {
        "transport": _transport(node),
        "write_cache": read_text(node / "queue/write_cache"),
        "cache_type": read_text(claims[0]) if claims else None,
        "max_sectors_kb": read_text(node / "queue/max_sectors_kb"),
        "server": _server(node),
    }
    return {f"device.{name}": value for name, value in seen.items() if value}


def _transport(node: Path) -> str:
    """How a device is reached; `unknown` rather than a guess."""
    fabric = _of_controller(node, "transport")  # tcp, rdma, fc, pcie
    if fabric:
        return f"nvme-{fabric}"
    if (read_text(node / "dm/uuid") or "").startswith("mpath-"):
        below = sorted(_transport(slave.resolve()) for slave in (node / "slaves").glob("*"))
        return f"multipath over {len(below)} {'/'.join(dict.fromkeys(below))}"
    return next((name for part, name in _TRANSPORTS if part in str(node)), "unknown")


def _of_controller(node: Path, name: str) -> str | None:
    """An attribute of a namespace's NVMe controller; of several, as of native multipath, the first.

    Then the namespace's parent is their subsystem (drivers/nvme/host/multipath.c).
    """
    controllers = (node / "device", *sorted(node.glob("device/nvme[0-9]*")))
    return next(
        (text for controller in controllers if (text := read_text(controller / name))), None
    )


def _server(node: Path) -> str | None:
    settings = dict(
        word.partition("=")[::2] for word in (_of_controller(node, "address") or "").split(",")
    )
    if "trsvcid" in settings:
        return f"{settings['traddr']}:{settings['trsvcid']}"
    session = next((parent for parent in node.parents if parent.name.startswith("session")), node)
    for connection in sorted(session.glob("connection*/iscsi_connection/*")):
        address, port = (
            read_text(connection / f"persistent_{part}") for part in ("address", "port")
        )
        return f"{address}:{port}"
    return None


def stacked_device(path: Path, root: Path = SYSTEM) -> StackedDevice | None:
    """A block device with those below it; None if it is unknown."""
    return _device(_number(path.stat().st_rdev), root, 0)


def device_of(directory: Path, root: Path = SYSTEM, depth: int = 0) -> StackedDevice | None:
    """The block device below a directory; None for memory, network file systems and ZFS."""
    device = _device(_number(directory.stat().st_dev), root, depth)
    if device is not None:
        return device
    # btrfs and overlayfs report device numbers of their own; their mounts name the device.
    mount = _mount_of(directory, root)
    if mount is None or depth >= _DEEPEST:
        return None
    upper = next((Path(o[9:]) for o in mount.options if o.startswith("upperdir=")), None)
    if upper is not None and upper.is_dir() and upper != directory:
        return device_of(upper, root, depth + 1)
    if mount.source.startswith("/dev/"):
        number = read_text(root / "sys/class/block" / Path(mount.source).resolve().name / "dev")
        return _device(number, root, depth) if number else None
    return None


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _mount_of(directory: Path, root: Path) -> Mount | None:
    table = root / "proc/self/mountinfo"
    return mount_of(directory, table) if table.exists() else None


def _device(number: str, root: Path, depth: int) -> StackedDevice | None:
    link = root / "sys/dev/block" / number
    if not link.exists() or depth > _DEEPEST:
        return None
    node = link.resolve()
    if (node / "partition").exists():
        node = node.parent
    rotational, fua = read_text(node / "queue/rotational"), read_text(node / "queue/fua")
    return StackedDevice(
        name=node.name,
        kind=_kind(node),
        model=read_text(node / "device/model"),
        rotational=None if rotational is None else rotational == "1",
        write_cache=read_text(node / "queue/write_cache"),
        fua=None if fua is None else fua == "1",
        below=tuple(_below(node, root, depth)),
        file=_file_of_loop(node),
    )


def _file_of_loop(node: Path) -> Path | None:
    """The file of a loop device, if this mount namespace has it."""
    backing = read_text(node / "loop/backing_file")
    # The kernel appends " (deleted)" to the name of a deleted file.
    return Path(backing) if backing is not None and Path(backing).exists() else None


def _below(node: Path, root: Path, depth: int) -> Iterator[StackedDevice]:
    slaves = node / "slaves"
    for slave in sorted(slaves.iterdir()) if slaves.is_dir() else []:
        number = read_text(slave / "dev")
        device = _device(number, root, depth + 1) if number else None
        if device is not None:
            yield device
    backing = _file_of_loop(node)
    if backing is not None:
        device = device_of(backing.parent, root, depth + 1)
        if device is not None:
            yield device


def _kind(node: Path) -> str | None:
    """`virtio`, `scsi`, `nvme` or `loop`; for md its level and for a mapper its name, in ()."""
    name = read_text(node / "dm/name") or read_text(node / "md/level")
    if name is not None:
        return f"({name})"
    subsystem = node / "device/subsystem"
    return subsystem.resolve().name if subsystem.exists() else None

"""One block device as the kernel and libblkid show it: who uses it, and what is written on it."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.kernelfile import read_text

_SECTOR = 512  # sysfs counts sectors of 512 bytes whatever the device's own size is
_NAME_ONE = "name one such as /dev/sdb; `lsblk` lists them"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Signature:
    """Something that libblkid knows, found on a device: a file system, a member, a table."""

    kind: str
    label: str | None

    def __str__(self) -> str:
        return f"{self.kind} {self.label!r}" if self.label else self.kind


@dataclass(frozen=True, slots=True)
class Device:
    """A block device by the number that the kernel knows it by."""

    path: Path
    number: tuple[int, int]

    @property
    def sysfs(self) -> Path:
        """Its directory in sysfs."""
        return Path(f"/sys/dev/block/{self.number[0]}:{self.number[1]}").resolve()

    @property
    def size(self) -> int:
        """Bytes."""
        return int(read_text(self.sysfs / "size") or 0) * _SECTOR

    @property
    def read_only(self) -> bool:
        """True when the kernel refuses writes."""
        return read_text(self.sysfs / "ro") == "1"

    @property
    def whole(self) -> Path:
        """The directory in sysfs of the disk that it is, or is a partition of."""
        return self.sysfs.parent if (self.sysfs / "partition").exists() else self.sysfs

    def related(self) -> Iterator[tuple[str, str]]:
        """Names and numbers (`major:minor`) of itself and, for a disk, of its partitions."""
        for place in (self.sysfs, *self.sysfs.glob("*/partition")):
            node = place.parent if place.name == "partition" else place
            yield node.name, read_text(node / "dev") or ""


def open_device(path: Path) -> Device:
    """The device at a path. Raises HostError for what is no block device."""
    try:
        found = path.stat()
    except OSError as error:
        raise HostError(f"{path} cannot be used: {error.strerror}", hint=_NAME_ONE) from error
    if not stat.S_ISBLK(found.st_mode):
        raise HostError(f"{path} is not a block device", hint=_NAME_ONE)
    return Device(path, (os.major(found.st_rdev), os.minor(found.st_rdev)))


def usage(device: Device) -> str | None:
    """Who uses a device, in words, or None: mounts, swap, holders, exclusive and other openers."""
    related = dict(device.related())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[2] in related.values():
            return f"it is mounted on {fields[4]}"
    swaps = {Path(line.split()[0]).name for line in _lines(Path("/proc/swaps"))[1:]}
    if swaps & related.keys():
        return "it is swap space in use"
    for name in related:
        held = sorted(path.name for path in Path(f"/sys/class/block/{name}/holders").glob("*"))
        if held:
            return f"{', '.join(held)} stands on it"
    return _loop_above(device) or _exclusive_user(device) or _opener(device)


def _loop_above(device: Device) -> str | None:
    """A loop device over it: the kernel neither claims the device below nor lists a holder."""
    numbers = _numbers(device)
    for file in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            below = Path(read_text(file) or "").stat()
        except OSError:
            continue  # its file was deleted, or is in another mount namespace
        if stat.S_ISBLK(below.st_mode) and below.st_rdev in numbers:
            return f"{file.parents[1].name} stands on it"
    return None


def _numbers(device: Device) -> set[int]:
    """The device numbers of itself and of its partitions, as st_rdev shows them."""
    return {os.makedev(*map(int, number.split(":"))) for _, number in device.related() if number}


def _exclusive_user(device: Device) -> str | None:
    """The kernel grants O_EXCL on a block device only when nobody has claimed it (open(2))."""
    try:
        os.close(os.open(device.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return "the kernel says that it is in use"
        raise HostError(
            f"{device.path} cannot be opened: {error.strerror}",
            hint="see that the device is still there (`lsblk`), that you are root, and that "
            "nothing holds it (`lsof`)",
        ) from error
    return None


def _opener(device: Device) -> str | None:
    """A process that has it open: virtual machines open disks without claiming them."""
    numbers = _numbers(device)
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found = link.stat()
        except OSError:
            continue  # it ended, or is not ours to look into
        if stat.S_ISBLK(found.st_mode) and found.st_rdev in numbers:
            process = link.parent.parent
            name = read_text(process / "comm") or "a process"
            if "udev" not in name:  # it only looks, and is gone in a moment
                return f"{name} ({process.name}) has it open"
    return None


def signatures(host: Host, path: Path) -> tuple[Signature, ...]:
    """What libblkid finds on a device, partition tables included."""
    text = host.run("wipefs", "--no-act", "--json", path).stdout
    found = json.loads(text)["signatures"] if text.strip() else []
    kinds = dict.fromkeys(Signature(str(each["type"]), each.get("label")) for each in found)
    return tuple(kinds)


def identity(device: Device) -> dict[str, str]:
    """What tells this device from others, also after a boot if it has a number of its own."""
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


def is_same(device: Device, noted: Mapping[str, str]) -> bool:
    """Whether a device is the one whose `identity` was noted.

    Names and numbers are given anew at each boot; then only a serial number tells.
    """
    now = identity(device)
    same = all(now[key] == noted.get(key) for key in ("size", "serial", "backing"))
    if now["boot"] == noted.get("boot"):
        return same and now["number"] == noted.get("number")
    return same and bool(now["serial"])


def _lines(path: Path) -> list[str]:
    return (read_text(path) or "").splitlines()


def note(paths: Iterable[Path]) -> str:
    """Devices with their identities as text, for a ledger."""
    return json.dumps([{"path": str(path), **identity(open_device(path))} for path in paths])


def noted(text: str) -> tuple[Path, ...]:
    """The noted devices that are still there, and still the same."""
    found: list[Path] = []
    for each in json.loads(text):
        path = Path(each["path"])
        if path.is_block_device() and is_same(open_device(path), each):
            found.append(path)
    return tuple(found)

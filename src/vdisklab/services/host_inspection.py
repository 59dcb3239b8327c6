"""What this machine can measure: each piece looked for, or better tried, and what it costs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.accelerator import DEVICE, KvmTrial, device_refused
from vdisklab.host.blockdevice import device_of, medium_of
from vdisklab.host.command import Host
from vdisklab.host.facts import SYSTEM, available_memory, memory_bytes, program_version, virtualised
from vdisklab.host.probes import KernelParts, try_io_uring, try_o_direct
from vdisklab.host.programs import QEMU
from vdisklab.units import GIB, format_bytes


class State(StrEnum):
    """How far a piece is there."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece: what was seen, what its lack costs, and the command that mends it.

    `essential` marks what the main job (a guest, a disk, a measurement) cannot do without.
    """

    topic: str
    state: State
    seen: str
    costs: str | None = None
    mend: str | None = None
    essential: bool = False


def untried(device: Path = DEVICE) -> KvmTrial:
    """What can be said without booting a guest."""
    return device_refused(device) or KvmTrial(
        works=None,
        tried=f"{device} opens; no guest was booted under it",
        remedy="`vdisklab run` boots one and says whether it runs",
    )


@dataclass(frozen=True, slots=True)
class Inspection:
    """Where to look: the door to the host, the work directory, and the roots of fakes in tests."""

    host: Host
    directory: Path
    root: Path = SYSTEM
    kvm: Callable[[], KvmTrial] = untried
    euid: int | None = None

    @property
    def parts(self) -> KernelParts:
        """What the kernel has."""
        return KernelParts(self.root)


def examine(inspection: Inspection) -> Iterator[Finding]:
    """All findings, as they come; the slow ones (KVM) take seconds."""
    for probe in _PROBES:
        yield from probe(inspection)


def can_do_main_job(findings: tuple[Finding, ...]) -> bool:
    """True when nothing that the main job needs is missing."""
    return not any(each.essential and each.state is State.MISSING for each in findings)


def _kvm(at: Inspection) -> Iterator[Finding]:
    trial = at.kvm()
    if trial.works:
        yield Finding("KVM", State.OK, trial.tried)
        return
    if trial.works is None:
        costs = "whether guests run under KVM or under emulation is not known yet"
        yield Finding("KVM", State.LIMITED, trial.tried, costs, trial.remedy)
        return
    if virtualised(at.root):
        mend = "enable nested virtualisation in the hypervisor that this machine runs under"
    else:
        mend = "modprobe -a kvm_intel kvm_amd; otherwise enable VT-x or AMD-V in the firmware"
    yield Finding(
        "KVM",
        State.LIMITED,
        trial.tried,
        "guests run under emulation: good for comparing host-side choices, no measure of KVM",
        trial.remedy or mend,
    )


def _qemu(at: Inspection) -> Iterator[Finding]:
    version = program_version(at.host, QEMU, r"version (.+)")
    if version is None:
        yield _lacks("QEMU", f"{QEMU} is not installed", "any guest", "qemu-system-x86")
    else:
        yield Finding("QEMU", State.OK, version, essential=True)
        yield from _qemu_features(at.host)
    version = program_version(at.host, "qemu-img", r"version (.+)")
    if version is None:
        yield _lacks("qemu-img", "not installed", "every image that is made", "qemu-utils")
        return
    yield Finding("qemu-img", State.OK, version, essential=True)
    yield from _image_formats(at.host)


# What each list of QEMU's own help must name, and which part of a disk path needs it.
_MACHINES = {"pc": "bus ide", "q35": "all buses but ide"}
_DEVICES = {
    "virtio-blk-pci": "bus virtio",
    "virtio-scsi-pci": "bus scsi",
    "scsi-hd": "bus scsi",
    "ide-hd": "buses ide and sata",
    "nvme": "bus nvme",
    "qemu-xhci": "bus usb",
    "usb-storage": "bus usb",
    "virtio-serial-pci": "the guest agent's channel",
}
_FORMATS = ("raw", "qcow2", "vmdk", "vdi", "vhdx", "qed", "null-co")


def _qemu_features(host: Host) -> Iterator[Finding]:
    yield _names("QEMU machines", _said(host, QEMU, "-machine", "help"), _MACHINES, essential=True)
    devices = _said(host, QEMU, "-device", "help")
    yield _names("QEMU devices", devices, _DEVICES)
    if "virtio-blk-pci" not in devices:
        yield _lacks("QEMU virtio-blk", "not in this QEMU", "the usual bus", "qemu-system-x86")


def _image_formats(host: Host) -> Iterator[Finding]:
    said = _said(host, "qemu-img", "--help")
    supported = said.partition("Supported formats:")[2]
    yield _names("image formats", supported, {name: f"format {name}" for name in _FORMATS})


def _names(topic: str, text: str, wanted: dict[str, str], *, essential: bool = False) -> Finding:
    """Which of `wanted` stand in `text` as whole words; what those that do not are for."""
    listed = set(re.findall(r"[\w.+-]+", text))
    lacking = [name for name in wanted if name not in listed]
    if not lacking:
        return Finding(topic, State.OK, ", ".join(wanted), essential=essential)
    lost = ", ".join(dict.fromkeys(wanted[name] for name in lacking))
    return Finding(
        topic,
        State.LIMITED if len(lacking) < len(wanted) else State.MISSING,
        f"lacks {', '.join(lacking)}",
        f"cannot be measured: {lost}",
        f"{_INSTALL} qemu-system-x86 qemu-utils qemu-block-extra",
        essential,
    )


def _io_uring(at: Inspection) -> Iterator[Finding]:
    refused = try_io_uring()
    if refused is not None:
        mend = "sysctl kernel.io_uring_disabled=0 (and allow it in the container's seccomp filter)"
        yield Finding("io_uring", State.MISSING, refused, "cannot be measured: aio=io_uring", mend)
        return
    yield Finding("io_uring", State.OK, "a ring was set up")
    if at.host.which("qemu-img") is not None:
        yield _qemu_io_uring(at.host)


def _qemu_io_uring(host: Host) -> Finding:
    """Reads one block through QEMU's own io_uring code, which it may be built without."""
    with tempfile.NamedTemporaryFile(prefix="vdisklab-") as file:
        file.truncate(1 << 20)
        argv = ("qemu-img", "bench", "-i", "io_uring", "-f", "raw", "-c", "1", "-t", "writeback")
        try:
            host.run(*argv, file.name, timeout=10)
        except HostError as error:
            costs = "cannot be measured: aio=io_uring in guests"
            mend = f"{_INSTALL} qemu-system-x86 qemu-utils"
            return Finding("QEMU io_uring", State.MISSING, str(error), costs, mend)
    return Finding("QEMU io_uring", State.OK, "qemu-img read a block through it")


def _fio(at: Inspection) -> Iterator[Finding]:
    version = program_version(at.host, "fio", r"fio-(\S+)")
    if version is None:
        yield _lacks("fio", "not installed", "every number of the profile", "fio")
        return
    yield Finding("fio", State.OK, version, essential=True)
    engines = {"psync": "synchronous workloads", "libaio": "queue depths", "io_uring": "io_uring"}
    yield _names("fio engines", _said(at.host, "fio", "--enghelp"), engines)


# Programs beside QEMU and fio: the package that has them, and what they are for.
_GUEST_PROGRAMS = {
    "busybox": ("busybox-static", "the micro guest"),
    "qemu-ga": ("qemu-guest-agent", "the micro guest"),
    "mke2fs": ("e2fsprogs", "the micro guest"),
}
_MEASURING_PROGRAMS = {
    "bonnie++": ("bonnie++", "bonnie++ workloads"),
    "sysbench": ("sysbench", "sysbench workloads"),
    "sqlite3": ("sqlite3", "database workloads"),
}


def _programs(at: Inspection) -> Iterator[Finding]:
    yield _has_programs(at.host, "guest programs", _GUEST_PROGRAMS, essential=True)
    yield _has_programs(at.host, "other measuring programs", _MEASURING_PROGRAMS)


def _has_programs(
    host: Host, topic: str, wanted: dict[str, tuple[str, str]], *, essential: bool = False
) -> Finding:
    lacking = [program for program in wanted if host.which(program) is None]
    if not lacking:
        return Finding(topic, State.OK, ", ".join(wanted), essential=essential)
    packages = " ".join(wanted[program][0] for program in lacking)
    lost = ", ".join(dict.fromkeys(wanted[program][1] for program in lacking))
    return Finding(
        topic,
        State.MISSING if essential or len(lacking) == len(wanted) else State.LIMITED,
        f"not installed: {', '.join(lacking)}",
        f"cannot be done: {lost}",
        f"{_INSTALL} {packages}",
        essential,
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    """A host layer: the kernel part (as file system or as driver and module), its programs."""

    name: str
    programs: tuple[str, ...]
    package: str
    filesystem: str | None = None
    driver: tuple[str, str] | None = None
    kernel_mend: str = "boot a distribution's kernel that has it"


_LAYERS = (
    _Layer("ext4", ("mkfs.ext4",), "e2fsprogs", filesystem="ext4"),
    _Layer("xfs", ("mkfs.xfs",), "xfsprogs", filesystem="xfs"),
    _Layer("btrfs", ("mkfs.btrfs",), "btrfs-progs", filesystem="btrfs"),
    _Layer("tmpfs", ("mount",), "mount", filesystem="tmpfs"),
    _Layer("loop", ("losetup",), "util-linux", driver=("loop", "loop")),
    _Layer("lvm", ("lvm",), "lvm2", driver=("device-mapper", "dm_mod")),
    _Layer("md", ("mdadm",), "mdadm", driver=("md", "md_mod")),
    _Layer(
        "zfs",
        ("zpool", "zfs"),
        "zfsutils-linux",
        filesystem="zfs",
        kernel_mend="build its module (apt-get install zfs-dkms, from Debian's contrib)",
    ),
)


def _layers(at: Inspection) -> Iterator[Finding]:
    for layer in _LAYERS:
        yield _layer(at, layer)


def _layer(at: Inspection, layer: _Layer) -> Finding:
    """A layer needs both its kernel part and its programs; each lack is mended otherwise."""
    lacking = [program for program in layer.programs if at.host.which(program) is None]
    if layer.filesystem is not None:
        in_kernel = at.parts.has_filesystem(layer.filesystem)
    else:
        in_kernel = layer.driver is not None and at.parts.has_driver(*layer.driver)
    if in_kernel and not lacking:
        return Finding(f"layer {layer.name}", State.OK, "kernel and programs")
    if layer.filesystem == "zfs" and not lacking and _pools_are_listed(at.host):
        return Finding(
            "layer zfs",
            State.LIMITED,
            "not in this kernel; zfs-fuse answers",
            "cannot be measured: layer zvol; limits on ZFS's cache",
            layer.kernel_mend,
        )
    seen = [] if in_kernel else ["not in this kernel"]
    seen += [f"not installed: {', '.join(lacking)}"] if lacking else []
    mend = f"{_INSTALL} {layer.package}" if lacking else None
    if not in_kernel:
        mend = ", then ".join(part for part in (layer.kernel_mend, mend) if part)
    lost = "every file system of its own" if layer.name == "loop" else f"layer {layer.name}"
    return Finding(
        f"layer {layer.name}", State.MISSING, "; ".join(seen), f"cannot be measured: {lost}", mend
    )


def _pools_are_listed(host: Host) -> bool:
    """Whether some ZFS answers; outside the kernel that is zfs-fuse."""
    try:
        host.run("zpool", "list", "-H", "-o", "name", timeout=10)
    except HostError:
        return False
    return True


def _devices(at: Inspection) -> Iterator[Finding]:
    wanted = {
        "loop-control": ("loop devices", "file systems of its own", "modprobe loop"),
        "fuse": ("FUSE", "the power cut's logged disk", "modprobe fuse"),
    }
    for name, (topic, lost, mend) in wanted.items():
        try:
            os.close(os.open(at.root / "dev" / name, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            # a driver that is there needs no loading, only a right
            remedy = "sudo vdisklab …" if isinstance(error, PermissionError) else mend
            seen = f"/dev/{name}: {error.strerror}"
            yield Finding(topic, State.MISSING, seen, f"cannot be measured: {lost}", remedy)
        else:
            yield Finding(topic, State.OK, f"/dev/{name} opens")


def _power_cut(at: Inspection) -> Iterator[Finding]:
    """The programs of the power cut, and device-mapper's own log of writes, by choice."""
    lost = "cannot be judged: power cuts (`vdisklab powercut`)"
    daemon = "qemu-storage-daemon"
    version = program_version(at.host, daemon, r"version (.+)")
    if version is None:
        seen = "not installed"
        yield Finding(daemon, State.MISSING, seen, lost, f"{_INSTALL} qemu-system-common")
    else:
        yield Finding(daemon, State.OK, version)
    if at.parts.has_module("dm_log_writes"):
        yield Finding("dm log-writes", State.OK, "powercut --logged-by dm-log-writes")
    else:
        yield Finding(
            "dm log-writes",
            State.LIMITED,
            "not in this kernel",
            "cannot be chosen: powercut --logged-by dm-log-writes; FUSE does the same",
            "boot a distribution's kernel that has it",
        )


def _directory(at: Inspection) -> Iterator[Finding]:
    """The work directory: written to, written to directly, its room and what is below it."""
    try:
        with tempfile.NamedTemporaryFile(dir=at.directory, prefix=".vdisklab-"):
            room = os.statvfs(at.directory)
    except OSError as error:
        seen = f"{at.directory}: {error.strerror}"
        mend = "name a directory that can be written with --dir"
        yield Finding("work directory", State.MISSING, seen, "everything", mend, essential=True)
        return
    yield Finding("work directory", State.OK, f"{at.directory} can be written", essential=True)
    yield _o_direct(at.directory)
    yield _room(room.f_bavail * room.f_frsize)
    yield _medium(at)


def _o_direct(directory: Path) -> Finding:
    refused = try_o_direct(directory)
    if refused is None:
        return Finding("O_DIRECT", State.OK, "a block was written and read back")
    costs = "cannot be measured here: cache none and directsync, aio=native"
    return Finding("O_DIRECT", State.MISSING, refused, costs, "name another directory with --dir")


_ROOM_WANTED = 4 * GIB
_MEMORY_WANTED = 2 * GIB


def _room(free: int) -> Finding:
    seen = f"{format_bytes(free)} free"
    if free >= _ROOM_WANTED:
        return Finding("free space", State.OK, seen)
    costs = f"images must stay smaller than {format_bytes(free)}"
    mend = "choose --size accordingly, or another directory with --dir"
    return Finding("free space", State.LIMITED, seen, costs, mend)


def _medium(at: Inspection) -> Finding:
    """The device below: its write cache decides what a flush costs."""
    seen = medium_of(at.directory, at.root)
    device = device_of(at.directory, at.root)
    if device is None or any(leaf.write_cache is None for leaf in device.leaves()):
        costs = "whether a flush reaches a medium is not known, nor what moved on the device"
        return Finding("medium", State.LIMITED, seen or "unknown", costs, "use a local disk")
    return Finding("medium", State.OK, device.describe())


def _memory(at: Inspection) -> Iterator[Finding]:
    total, free = memory_bytes(at.root), available_memory(at.root)
    seen = f"{format_bytes(total)}, {format_bytes(free)} available"
    if free >= _MEMORY_WANTED:
        yield Finding("memory", State.OK, seen)
        return
    costs = "the guest and the page cache compete; warm cells may not stay warm"
    yield Finding("memory", State.LIMITED, seen, costs, "stop other programs")


def _root(at: Inspection) -> Iterator[Finding]:
    euid = os.geteuid() if at.euid is None else at.euid
    if euid == 0:
        yield Finding("root", State.OK, "yes")
        return
    costs = "cannot be measured: host layers (ext4, xfs, …), cold page cache of the whole host"
    yield Finding("root", State.LIMITED, f"no (user {euid})", costs, "sudo vdisklab …")


_INSTALL = "apt-get install --no-install-recommends"


def _lacks(topic: str, seen: str, lost: str, package: str) -> Finding:
    costs = f"cannot be done: {lost}"
    return Finding(topic, State.MISSING, seen, costs, f"{_INSTALL} {package}", essential=True)


def _said(host: Host, *argv: str) -> str:
    """What a program prints about itself; nothing when it fails, so that all is found lacking."""
    try:
        return host.run(*argv, timeout=20).stdout
    except HostError:
        return ""


_PROBES: tuple[Callable[[Inspection], Iterator[Finding]], ...] = (
    _kvm,
    _qemu,
    _fio,
    _programs,
    _io_uring,
    _directory,
    _layers,
    _devices,
    _power_cut,
    _memory,
    _root,
)

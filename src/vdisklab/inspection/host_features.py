"""Inspects what this machine can measure: probes each feature, with the cost of its absence."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from vdisklab.errors import HostError
from vdisklab.guest.accelerator import KvmTrial, device_refused, untried
from vdisklab.guest.factory import try_kvm_without_download
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.qemu import probe
from vdisklab.host import facts, machine
from vdisklab.host.blockdevice import device_of, medium_of
from vdisklab.host.command import PROGRAMS, Host, install_hint, layer_programs
from vdisklab.host.ledger import leftovers_sentence, open_ledger
from vdisklab.host.mounts import free_bytes, mount_of, without_flushes
from vdisklab.host.pagecache import KernelParts, try_device, try_io_uring, try_o_direct
from vdisklab.host.state_directory import cache_directory
from vdisklab.path.architecture import GUEST, HOST, OTHER_HOSTS, unknown_host
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, KernelPart, LayerKind
from vdisklab.progress import Progress
from vdisklab.storage.site import open_site
from vdisklab.storage.zfs import require_zfs
from vdisklab.units import GIB, format_bytes
from vdisklab.value import Value

_ROOM_WANTED = 4 * GIB
_MEMORY_WANTED = 2 * GIB
_OTHER_KERNEL = "boot a distribution kernel that has it"


_LOOP = KernelPart(driver=("loop", "loop"))
_LAYERS = (("loop", _LOOP), *((k.value, k.facts.kernel) for k in LayerKind if k.facts.kernel))
"""The kernel features that each layer needs; `loop` is below all layers on image files."""

_SAME = {LayerKind.ZVOL: LayerKind.ZFS, LayerKind.LVMTHIN: LayerKind.LVM}
"""Layers that need the kernel part and the programs of another."""


class Availability(StrEnum):
    """Whether a feature is available."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


class HostFinding(Value):
    """One feature: its observed state, the cost of its absence, and the remedy.

    Without an `essential` feature, no guest's disk can be measured.
    """

    topic: str
    state: Availability
    observed: str
    costs: Annotated[str | None, "what is not possible without it"] = None
    mend: Annotated[str | None, "the command that fixes it"] = None
    essential: Annotated[bool, "true when nothing can be measured without it"] = False


class Inspection(Value):
    """The inspected host.

    `kvm` runs the KVM trial; `root` is the directory with /proc, /sys and /dev.
    """

    host: Host
    directory: Path
    kvm: Callable[[], KvmTrial]
    root: Path = machine.SYSTEM

    @property
    def parts(self) -> KernelParts:
        """The drivers of the kernel."""
        return KernelParts(self.root)


def inspect_host(host: Host, directory: Path, progress: Progress) -> tuple[HostFinding, ...]:
    """All findings for a work directory. Boots a guest under KVM when a kernel is at hand."""
    return tuple(examine(Inspection(host, directory, lambda: _try_kvm(host, progress))))


def examine(inspection: Inspection) -> Iterator[HostFinding]:
    """All findings in display order."""
    features = _features(inspection.host)
    if HOST is None:
        sentence = unknown_host(platform.machine())
        yield _missing("machine", sentence, "cannot be measured", OTHER_HOSTS, essential=True)
    yield _kvm(inspection)
    names = (f"Linux {facts.kernel_release(inspection.root)}", facts.distribution(inspection.root))
    yield _ok("kernel", ", ".join(filter(None, names)))
    yield from _qemu(inspection.host, features)
    yield from _fio(inspection.host)
    yield from _programs(inspection.host)
    yield from _io_uring(features)
    yield from _directory(inspection)
    yield from _layers(inspection)
    yield from _devices(inspection)
    yield from _power_cut(inspection)
    yield _memory(inspection)
    yield _rights(inspection)
    yield from _left_behind()


def _left_behind() -> Iterator[HostFinding]:
    left = leftovers_sentence()
    if left is not None:
        found, _, mend = left.partition(": ")
        costs = (
            "space, and devices that are in use; guests and programs that still run load the host"
        )
        yield _limited("killed runs", found, costs, mend)


def _ok(topic: str, observed: str, *, essential: bool = False) -> HostFinding:
    return HostFinding(topic, Availability.OK, observed, essential=essential)


def _limited(topic: str, observed: str, costs: str, mend: str | None) -> HostFinding:
    return HostFinding(topic, Availability.LIMITED, observed, costs, mend)


def _missing(
    topic: str, observed: str, costs: str, mend: str | None, *, essential: bool = False
) -> HostFinding:
    return HostFinding(topic, Availability.MISSING, observed, costs, mend, essential)


def _try_kvm(host: Host, progress: Progress) -> KvmTrial:
    """The same KVM trial as in a campaign; skipped without a kernel or a writable directory."""
    try:
        temporary = Path(tempfile.gettempdir())
        with open_ledger() as ledger, open_site(host, ledger, temporary) as site:
            context = GuestContext(host, ledger, cache_directory(), progress)
            return try_kvm_without_download(context, site.directory)
    except HostError as error:
        remedy = f"{error}: {error.hint}" if error.hint else str(error)
        return device_refused() or untried("no guest was booted under it", remedy)


def _kvm(inspection: Inspection) -> HostFinding:
    trial = inspection.kvm()
    if trial.works and machine.is_emulated(inspection.root):
        costs = "this host is emulated: its numbers prove that code works under KVM, and no speed"
        return _limited("KVM", trial.tried, costs, "measure on a machine that is not emulated")
    if trial.works:
        return _ok("KVM", trial.tried)
    if trial.works is None:
        costs = "it is unknown whether guests run under KVM or under emulation"
    else:
        costs = (
            "guests run under emulation: good for comparing host-side choices, not for the speed "
            "of a KVM guest"
        )
    return _limited("KVM", trial.tried, costs, trial.remedy)


def _qemu(host: Host, features: probe.QemuFeatures | HostFinding) -> Iterator[HostFinding]:
    if isinstance(features, HostFinding):
        yield features
    else:
        yield _ok("QEMU", features.version, essential=True)
        yield _listed(
            "QEMU machines", _machine_purposes(), features.machines, facts.QEMU, essential=True
        )
        yield _listed("QEMU devices", _device_purposes(), features.devices, facts.QEMU)
        if features.lacking(Bus.VIRTIO):
            costs = "cannot be measured: bus virtio, the default"
            yield _missing(
                "QEMU virtio-blk",
                "not in this QEMU",
                costs,
                install_hint([facts.QEMU]),
                essential=True,
            )
    version = facts.program_version(host, "qemu-img", r"version (.+)")
    if version is None:
        yield _no_program("qemu-img", essential=True)
        return
    yield _ok("qemu-img", version, essential=True)
    formats = {form.value: f"format {form}" for form in ImageFormat if form is not ImageFormat.NULL}
    formats["null-co"] = "format null"
    yield _listed("image formats", formats, probe.image_formats(host), "qemu-img")


def _features(host: Host) -> probe.QemuFeatures | HostFinding:
    """The features of the installed QEMU, or the finding that it does not run."""
    if host.which(facts.QEMU) is None:
        return _no_program(facts.QEMU, topic="QEMU", essential=True)
    try:
        return probe.probe_qemu(host)
    except HostError as error:
        costs = f"cannot be done: {PROGRAMS[facts.QEMU].purpose}"
        return _missing("QEMU", str(error), costs, install_hint([facts.QEMU]), essential=True)


def _machine_purposes() -> dict[str, str]:
    """The buses of each QEMU machine, such as `all buses but ide`."""
    buses: dict[str, list[str]] = {}
    for bus, qemu_machine in GUEST.machines.items():
        buses.setdefault(qemu_machine, []).append(bus)
    purposes = {}
    for qemu_machine, names in buses.items():
        others = [bus for bus in GUEST.machines if bus not in names]
        if not others:
            purposes[qemu_machine] = "all buses"
        elif len(others) < len(names):
            purposes[qemu_machine] = f"all buses but {' and '.join(others)}"
        else:
            purposes[qemu_machine] = _named_buses(names)
    return purposes


def _named_buses(names: Sequence[str]) -> str:
    return f"{'bus' if len(names) == 1 else 'buses'} {' and '.join(names)}"


def _device_purposes() -> dict[str, str]:
    """The purpose of each QEMU device, such as `buses ide and sata`."""
    buses: dict[str, list[str]] = {}
    for bus, devices in probe.BUS_DEVICES.items():
        for device in devices:
            buses.setdefault(device, []).append(bus.value)
    purposes = {device: _named_buses(names) for device, names in buses.items()}
    return {**purposes, probe.AGENT_CHANNEL: "the guest agent's channel"}


def _listed(
    topic: str,
    wanted: Mapping[str, str],
    available: Collection[str],
    program: str,
    *,
    essential: bool = False,
) -> HostFinding:
    """Checks which names in `wanted` (name: purpose) a program supports."""
    lacking = [name for name in wanted if name not in available]
    if not lacking:
        return _ok(topic, ", ".join(wanted), essential=essential)
    purposes = ", ".join(dict.fromkeys(wanted[name] for name in lacking))
    state = Availability.LIMITED if len(lacking) < len(wanted) else Availability.MISSING
    observed, costs = f"lacks {', '.join(lacking)}", f"cannot be measured: {purposes}"
    return HostFinding(topic, state, observed, costs, install_hint([program]), essential)


def _no_program(program: str, *, topic: str | None = None, essential: bool = False) -> HostFinding:
    costs = f"cannot be done: {PROGRAMS[program].purpose}"
    observed = f"{program} is not installed"
    return _missing(topic or program, observed, costs, install_hint([program]), essential=essential)


def _fio(host: Host) -> Iterator[HostFinding]:
    version = facts.program_version(host, "fio", r"fio-(\S+)")
    if version is None:
        yield _no_program("fio", essential=True)
        return
    yield _ok("fio", version, essential=True)
    engines = {"psync": "synchronous workloads", "libaio": "queue depths", "io_uring": "io_uring"}
    try:
        listed = host.run("fio", "--enghelp", timeout=20).stdout.split()
    except HostError:
        listed = []
    yield _listed("fio engines", engines, listed, "fio")


def _programs(host: Host) -> Iterator[HostFinding]:
    guest, measuring = ("busybox", "qemu-ga", "mke2fs"), ("bonnie++", "sysbench", "sqlite3")
    yield _has_programs(host, "guest programs", guest, essential=True)
    yield _has_programs(host, "other measuring programs", measuring)
    yield _has_programs(host, "databases", ("postgres", "mariadbd", "db_bench"))


def _has_programs(
    host: Host, topic: str, programs: Sequence[str], *, essential: bool = False
) -> HostFinding:
    lacking = [program for program in programs if host.which(program) is None]
    if not lacking:
        return _ok(topic, ", ".join(programs), essential=essential)
    purposes = ", ".join(dict.fromkeys(PROGRAMS[program].purpose for program in lacking))
    all_lacking = essential or len(lacking) == len(programs)
    return HostFinding(
        topic,
        Availability.MISSING if all_lacking else Availability.LIMITED,
        f"not installed: {', '.join(lacking)}",
        f"cannot be done: {purposes}",
        install_hint(lacking),
        essential,
    )


def _io_uring(features: probe.QemuFeatures | HostFinding) -> Iterator[HostFinding]:
    refused = try_io_uring()
    if refused is None:
        yield _ok("io_uring", "a ring was set up")
    else:
        mend = "sysctl kernel.io_uring_disabled=0, and allow it in the container's seccomp filter"
        yield _missing("io_uring", refused, "cannot be measured: aio=io_uring", mend)
    if isinstance(features, HostFinding):
        return
    if "io_uring" in features.aio:
        yield _ok("QEMU io_uring", "QEMU was built with it")
    else:
        costs = "cannot be measured: aio=io_uring in guests"
        yield _missing("QEMU io_uring", "not in this QEMU", costs, install_hint([facts.QEMU]))


def cannot_build(host: Host, kind: LayerKind) -> str | None:
    """A clause that names what a host lacks for a layer; None if kernel, programs and rights are
    there.

    Nothing is built, so building it may fail nevertheless.
    """
    return "building it needs root" if os.geteuid() != 0 else lacks_layer(host, kind)


def lacks_layer(host: Host, kind: LayerKind) -> str | None:
    """What a host lacks for a layer, as a clause, whatever the rights of the process; None if its
    kernel and programs are there."""
    like = _SAME.get(kind, kind)
    if like.facts.kernel is None:
        return None
    found = _layer(host, KernelParts(machine.SYSTEM), like.value, like.facts.kernel)
    limited = found.state is Availability.LIMITED and kind is not LayerKind.ZVOL
    return None if limited or found.state is Availability.OK else found.observed


def _layers(inspection: Inspection) -> Iterator[HostFinding]:
    """Each layer, and which of them wait for a right of this process only."""
    lacking = facts.missing_right(inspection.root)
    for name, part in _LAYERS:
        found = _layer(inspection.host, inspection.parts, name, part)
        if lacking is not None and found.state is Availability.OK:
            right, way = lacking
            lost = "all layers on image files" if name == "loop" else found.topic
            observed = f"{found.observed}; building it needs {right}"
            found = _limited(found.topic, observed, f"cannot be measured: {lost}", way)
        yield found


def _layer(host: Host, parts: KernelParts, name: str, part: KernelPart) -> HostFinding:
    """Checks a layer's kernel support and programs."""
    topic, mend_kernel = f"layer {name}", part.mend or _OTHER_KERNEL
    programs = ("losetup",) if name == "loop" else layer_programs(name)
    lacking = [program for program in programs if host.which(program) is None]
    if part.filesystem is not None:
        in_kernel = parts.has_filesystem(part.filesystem)
    else:
        in_kernel = parts.has_driver(*(part.driver or ("", "")))
    if in_kernel and not lacking:
        return _ok(topic, "kernel and programs")
    if part.filesystem == "zfs" and not lacking and _zfs_answers(host, parts):
        observed = "not in this kernel; zfs-fuse is running"
        costs = "cannot be measured: layer zvol; limits on ZFS's cache"
        return _limited(topic, observed, costs, mend_kernel)
    reasons = [] if in_kernel else ["not in this kernel"]
    mend = [] if in_kernel else [mend_kernel]
    if lacking:
        reasons.append(f"not installed: {', '.join(lacking)}")
        mend.append(install_hint(lacking))
    lost = "all layers on image files" if name == "loop" else topic
    return _missing(topic, "; ".join(reasons), f"cannot be measured: {lost}", ", then ".join(mend))


def _zfs_answers(host: Host, parts: KernelParts) -> bool:
    """True if ZFS answers, which is zfs-fuse if the kernel has no ZFS; its socket is root's, so
    its process counts as an answer for all others."""
    if parts.has_process("zfs-fuse"):
        return True
    try:
        require_zfs(host)
    except HostError:
        return False
    return True


def _devices(inspection: Inspection) -> Iterator[HostFinding]:
    for name, topic, lost in (
        ("loop-control", "loop devices", "all layers on image files"),
        ("fuse", "FUSE", "the logged disk of power cuts"),
    ):
        error = try_device(name, inspection.root)
        if error is None:
            yield _ok(topic, f"/dev/{name} opens")
            continue
        if isinstance(error, PermissionError):  # loading a driver does not help against that
            mend = "run vdisklab as root"
        elif inspection.parts.has_misc_device(name):
            mend = f"its driver is loaded: pass /dev/{name} into the container (--privileged does)"
        else:
            mend = f"modprobe {name.removesuffix('-control')}"
        observed = f"/dev/{name}: {error.strerror}"
        yield _missing(topic, observed, f"cannot be measured: {lost}", mend)


def _power_cut(inspection: Inspection) -> Iterator[HostFinding]:
    daemon = "qemu-storage-daemon"
    version = facts.program_version(inspection.host, daemon, r"version (.+)")
    yield _no_program(daemon) if version is None else _ok(daemon, version)


def _directory(inspection: Inspection) -> Iterator[HostFinding]:
    """The work directory: whether it is writable, O_DIRECT, free space and the device below."""
    topic = "work directory"
    try:
        with tempfile.TemporaryFile(dir=inspection.directory):
            free = free_bytes(inspection.directory)
    except OSError as error:
        observed, mend = (
            f"{inspection.directory}: {error.strerror}",
            "name a writable directory with --dir",
        )
        yield _missing(topic, observed, "nothing can be measured in it", mend, essential=True)
        return
    yield _ok(topic, f"{inspection.directory} can be written", essential=True)
    refused = try_o_direct(inspection.directory)
    if refused is None:
        yield _ok("O_DIRECT", "a block was written and read back")
    else:
        modes = CacheMode.choices(lambda mode: mode.direct, last="and")
        costs = f"cannot be measured here: cache {modes}; aio=native"
        yield _missing("O_DIRECT", refused, costs, "name another directory with --dir")
    observed = f"{format_bytes(free)} free"
    if free >= _ROOM_WANTED:
        yield _ok("free space", observed)
    else:
        costs = f"images must stay smaller than {format_bytes(free)}"
        mend = "choose --size accordingly, or another directory with --dir"
        yield _limited("free space", observed, costs, mend)
    yield _medium(inspection)
    table = inspection.root / "proc/self/mountinfo"
    mount = mount_of(inspection.directory, table) if table.exists() else None
    reason = without_flushes(mount, inspection.root)
    if reason is not None:
        costs = "what a guest flushes may be lost in a power cut, and flushes look fast"
        mend = "mount it with barriers, or name another directory with --dir"
        yield _limited("flushes", reason, costs, mend)


def _medium(inspection: Inspection) -> HostFinding:
    """The device below the work directory; its write cache decides what a flush costs."""
    observed = medium_of(inspection.directory, inspection.root) or "unknown"
    device = device_of(inspection.directory, inspection.root)
    if device is None or any(leaf.write_cache is None for leaf in device.leaves()):
        costs = "it is unknown whether a flush reaches the medium, and what the device transferred"
        return _limited("medium", observed, costs, "use a local disk")
    return _ok("medium", observed)


def _memory(inspection: Inspection) -> HostFinding:
    total, free = facts.memory_bytes(inspection.root), facts.available_memory(inspection.root)
    observed = f"{format_bytes(total)}, {format_bytes(free)} available"
    if free >= _MEMORY_WANTED:
        return _ok("memory", observed)
    costs = "the guest and the page cache compete; warm cells may not stay warm"
    return _limited("memory", observed, costs, "stop other programs")


def _rights(inspection: Inspection) -> HostFinding:
    lacking = facts.missing_right(inspection.root)
    if lacking is None:
        return _ok("root", "yes")
    right, way = lacking
    costs = "cannot be measured: host layers (ext4, xfs, …), power cuts, density"
    if right == "root":
        costs += ", cold page cache of the whole host"
        return _limited("root", f"no (user {os.geteuid()})", costs, way)
    return _limited("root", f"yes, but without {right}", costs, way)

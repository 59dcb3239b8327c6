"""Facts about this machine that influence the numbers measured on it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vdisklab.errors import HostError
from vdisklab.host.machine import SYSTEM, cpu_field, is_emulated, page_size, read_text
from vdisklab.path.architecture import GUEST
from vdisklab.results.model import OWN_FACTS, ZFS_FUSE, Check, HostFacts
from vdisklab.units import whole_number
from vdisklab.value import Value, replace

if TYPE_CHECKING:
    from vdisklab.host.command import Host

QEMU = GUEST.emulator
"""The installed QEMU's name."""


_RECORDED = ("scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb")


def collect_facts(host: Host, root: Path = SYSTEM) -> HostFacts:
    """The facts of this machine as they are now, with the versions of its programs.

    Asking three programs takes about half a second; `machine_facts` asks none.
    """
    facts = machine_facts(host, root)
    qemu_img = program_version(host, "qemu-img", r"version (.+)")
    more = {} if qemu_img is None else {"qemu_img": qemu_img}
    return replace(
        facts, qemu=qemu_version(host), fio=fio_version(host), more={**facts.more, **more}
    )


def machine_facts(host: Host, root: Path = SYSTEM) -> HostFacts:
    """The facts of this machine without the versions of QEMU, qemu-img and fio. Raises HostError
    for a line of the administrator's own facts that is none.
    """
    return HostFacts(
        hostname=read_text(root / "proc/sys/kernel/hostname") or platform.node(),
        machine_id=machine_id(root),
        kernel=kernel_release(root),
        cpu=cpu_field(root, "model name") or _cpu_by_lscpu(host) or platform.machine(),
        cpus=_cpus(root) or os.cpu_count() or 1,
        memory_bytes=memory_bytes(root),
        qemu=None,
        fio=None,
        more=dict(_more(host, root)),
    )


def _cpu_by_lscpu(host: Host) -> str | None:
    """The CPU's name where the kernel knows its number only, as on Arm; None without lscpu."""
    if host.which("lscpu") is None:
        return None
    lines = host.run("lscpu", timeout=10, allowed=range(256)).stdout.splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("Model name:"))
    return next((name for name in names if name not in ("", "-")), None)


def kernel_release(root: Path = SYSTEM) -> str:
    """The running kernel's release, as `uname -r` prints it."""
    return read_text(root / "proc/sys/kernel/osrelease") or platform.release()


def qemu_version(host: Host) -> str | None:
    """The installed QEMU's version and package; None if it does not run."""
    return program_version(host, QEMU, r"version (.+)")


def fio_version(host: Host) -> str | None:
    """The installed fio's version; None if it does not run."""
    return program_version(host, "fio", r"fio-(\S+)")


def program_version(host: Host, program: str, pattern: str) -> str | None:
    """Group 1 of `pattern` in the output of `program --version`; None if it does not run."""
    if host.which(program) is None:
        return None
    try:
        output = host.run(program, "--version", timeout=10).stdout
    except HostError:
        return None
    match = re.search(pattern, output)
    return match[1].strip() if match else None


def missing_right(root: Path = SYSTEM) -> tuple[str, str] | None:
    """The right that this process lacks to mount and to attach devices, and the way to it.

    root in a container often has no CAP_SYS_ADMIN (bit 21 in linux/capability.h).
    """
    if os.geteuid() != 0:
        return "root", "run vdisklab as root"
    rights = re.search(r"^CapEff:\s*(\w+)$", read_text(root / "proc/self/status") or "", re.M)
    if rights is None or int(rights[1], 16) & 1 << 21:
        return None
    return "CAP_SYS_ADMIN", "run vdisklab outside the container, or in one with --privileged"


def memory_bytes(root: Path = SYSTEM, field: str = "MemTotal") -> int:
    """A field of /proc/meminfo in bytes; 0 when it is not there."""
    match = re.search(
        rf"^{field}:\s+(\d+) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE
    )
    return int(match[1]) * 1024 if match else 0


def available_memory(root: Path = SYSTEM) -> int:
    """Bytes of memory that this process may still use; 0 if the kernel does not report it.

    That is MemAvailable, or less if a limit of this process's control groups leaves less. In a
    container, a process that exceeds the group's limit is killed, however much memory the machine
    has.
    """
    return min((memory_bytes(root, "MemAvailable"), *_left_in_groups(root)))


class _GroupFiles(Value):
    """File names of one version of control groups; `reclaimable` is a field of memory.stat."""

    limit: str
    usage: str
    reclaimable: str


_V1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def _left_in_groups(root: Path) -> Iterator[int]:
    """Bytes free below each memory limit (cgroups(7); /proc/self/cgroup: ID:CONTROLLERS:PATH)."""
    top = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield from _left_in_group(top / "memory", path, _V1)
        elif number == "0":
            yield from _left_in_group(top, path, _V2)


def _left_in_group(top: Path, path: str, files: _GroupFiles) -> Iterator[int]:
    """Bytes that the limits of a group and of its parents leave."""
    group = PurePosixPath(path.lstrip("/"))
    for parent in (group, *group.parents):
        limit, usage = (_number(top / parent / name) for name in (files.limit, files.usage))
        if limit is not None and usage is not None:
            yield max(0, limit - usage + _reclaimable(top / parent, files))


def _number(file: Path) -> int | None:
    """The number in a file; None without a file, or when it says `max`."""
    return whole_number(read_text(file) or "")


def _reclaimable(group: Path, files: _GroupFiles) -> int:
    for line in (read_text(group / "memory.stat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == files.reclaimable:
            return whole_number(count) or 0
    return 0


def virtualised(root: Path = SYSTEM) -> str | None:
    """The hypervisor that this machine runs under, or None on bare metal.

    The CPU flag `hypervisor` says that there is one, on Arm the device tree or QEMU's name as the
    maker; the DMI tables may name it.
    """
    maker = read_text(root / "sys/class/dmi/id/sys_vendor")
    tree = read_text(root / "proc/device-tree/compatible") or ""
    shown = "hypervisor" in (cpu_field(root, "flags") or "").split()
    if not shown and maker != "QEMU" and "linux,dummy-virt" not in tree:
        return None
    product = read_text(root / "sys/class/dmi/id/product_name")
    return " ".join(part for part in (maker, product) if part) or "yes"


def _more(host: Host, root: Path) -> Iterator[tuple[str, str]]:
    """Further facts, and the administrator's own; unknown ones are left out. Raises HostError."""
    cpu0 = root / "sys/devices/system/cpu"
    facts = {
        "architecture": platform.machine(),
        "distribution": distribution(root),
        "governor": read_text(cpu0 / "cpu0/cpufreq/scaling_governor"),
        "smt": read_text(cpu0 / "smt/control"),
        "mitigations": _mitigations(root),
        "virtualised": virtualised(root),
        "emulated": "by QEMU (TCG)" if is_emulated(root) else None,
        "numa_nodes": str(_numa_nodes(root)) if _numa_nodes(root) else None,
        "page_size": str(page_size()),
        "transparent_hugepages": _chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        "microcode": cpu_field(root, "microcode"),
        "cpu_flags_virtualisation": virtualisation_flag(root),
        "swap_bytes": str(memory_bytes(root, "SwapTotal")),
        # Both have programs of the same names, so a system has one of them.
        "zfs": read_text(root / "sys/module/zfs/version")
        or (None if host.which(ZFS_FUSE) is None else ZFS_FUSE),
    }
    for name, value in facts.items():
        if value is not None:
            yield name, value
    for line in (read_text(root / OWN_FACTS.lstrip("/")) or "").splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if name.startswith("#") or not line.strip():
            continue
        if not equals or not value or not name.isidentifier() or name in facts:
            raise HostError(
                f"{OWN_FACTS}: {line!r} is not a fact about this host",
                hint="write lines such as rack=A3, with a name that vdisklab does not use itself",
            )
        yield name, value


def machine_id(root: Path = SYSTEM) -> str:
    """An identity that survives reboots; machine-id(5) asks not to disclose the file's content."""
    raw = read_text(root / "etc/machine-id") or read_text(root / "sys/class/dmi/id/product_uuid")
    # Minimal images have an empty machine-id; then only the host name is left.
    raw = raw or read_text(root / "proc/sys/kernel/hostname") or platform.node()
    return hashlib.sha256(f"vdisklab {raw}".encode()).hexdigest()[:16]


def _cpus(root: Path) -> int:
    return len(re.findall(r"^processor\s*:", read_text(root / "proc/cpuinfo") or "", re.MULTILINE))


def virtualisation_flag(root: Path = SYSTEM) -> str | None:
    """The CPU flag that KVM needs, `vmx` or `svm`; None if the CPU shows neither."""
    flags = (cpu_field(root, "flags") or "").split()
    return next((flag for flag in GUEST.kvm_modules if flag in flags), None)


def _mitigations(root: Path) -> str | None:
    """`9 mitigated, 2 vulnerable (mds, taa)`, from the kernel's list of CPU vulnerabilities."""
    directory = root / "sys/devices/system/cpu/vulnerabilities"
    mitigated, vulnerable = 0, []
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        state = read_text(path) or ""
        if state.startswith("Vulnerable"):
            vulnerable.append(path.name)
        elif state.startswith("Mitigation"):
            mitigated += 1
    if not directory.is_dir():
        return None
    names = f" ({', '.join(vulnerable)})" if vulnerable else ""
    return f"{mitigated} mitigated, {len(vulnerable)} vulnerable{names}"


def _numa_nodes(root: Path) -> int:
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*")))


def distribution(root: Path) -> str | None:
    """The name of the installed system; None if /etc/os-release names none."""
    match = re.search(r'^PRETTY_NAME="?(.*?)"?$', read_text(root / "etc/os-release") or "", re.M)
    return match[1] if match else None


def _chosen(path: Path) -> str | None:
    """The selected word of a sysfs file such as `always [madvise] never`."""
    match = re.search(r"\[(\S+)\]", read_text(path) or "")
    return match[1] if match else None


def host_queue_checks(
    numbers: Sequence[tuple[int, int]], devices: Path = Path("/sys/dev/block")
) -> tuple[Check, ...]:
    """The settings of these devices' queues; values that differ between them are joined by `/`.

    A setting that the kernel does not show is left out.
    """
    found = [devices / f"{major}:{minor}" for major, minor in numbers]
    # A partition has the queue of its disk (Documentation/ABI, sysfs-block).
    places = [node if (node / "queue").exists() else node.resolve().parent for node in found]
    return tuple(_checks([place / "queue" for place in places]))


def _checks(queues: Sequence[Path]) -> Iterator[Check]:
    for name in _RECORDED:
        values = dict.fromkeys(
            value for queue in queues if (value := _chosen(queue / name) or read_text(queue / name))
        )
        if values:
            yield Check(f"host.{name}", None, "/".join(values))

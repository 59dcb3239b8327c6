"""What this machine is, as far as it decides numbers."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.kernelfile import read_text
from vdisklab.host.medium import SYSTEM, medium_of
from vdisklab.results.model import HostFacts

__all__ = ["collect_facts", "medium_of", "program_version"]

QEMU = f"qemu-system-{platform.machine()}"


def collect_facts(host: Host, root: Path = SYSTEM) -> HostFacts:
    """The facts of this machine, read anew; `root` is where /proc, /sys and /etc are found."""
    cpus = _cpus(root)
    return HostFacts(
        hostname=read_text(root / "proc/sys/kernel/hostname") or platform.node(),
        machine_id=_machine_id(root),
        kernel=read_text(root / "proc/sys/kernel/osrelease") or platform.release(),
        cpu=_cpu_field(root, "model name") or platform.machine(),
        cpus=cpus or os.cpu_count() or 1,
        memory_bytes=memory_bytes(root),
        qemu=program_version(host, QEMU, r"version (.+)"),
        fio=program_version(host, "fio", r"fio-(\S+)"),
        more=dict(_more(host, root)),
    )


def program_version(host: Host, program: str, pattern: str) -> str | None:
    """What `program --version` says, cut out by `pattern`; None when it is missing or broken."""
    if host.which(program) is None:
        return None
    try:
        said = host.run(program, "--version", timeout=10).stdout
    except HostError:
        return None
    match = re.search(pattern, said)
    return match[1].strip() if match else None


def memory_bytes(root: Path = SYSTEM, field: str = "MemTotal") -> int:
    """A field of /proc/meminfo in bytes; 0 when the kernel does not say."""
    match = re.search(
        rf"^{field}:\s+(\d+) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE
    )
    return int(match[1]) * 1024 if match else 0


def virtualised(root: Path = SYSTEM) -> str | None:
    """How this machine is itself a guest, as far as it can tell, or None when it is not.

    The processor's `hypervisor` flag says that; who made it is in the DMI tables, if anywhere.
    """
    if "hypervisor" not in (_cpu_field(root, "flags") or "").split():
        return None
    maker = read_text(root / "sys/class/dmi/id/sys_vendor")
    product = read_text(root / "sys/class/dmi/id/product_name")
    return " ".join(part for part in (maker, product) if part) or "yes"


def _more(host: Host, root: Path) -> Iterator[tuple[str, str]]:
    """What else is known; nothing is written down for what is not."""
    cpu0 = root / "sys/devices/system/cpu"
    known = {
        "architecture": platform.machine(),
        "distribution": _distribution(root),
        "governor": read_text(cpu0 / "cpu0/cpufreq/scaling_governor"),
        "smt": read_text(cpu0 / "smt/control"),
        "mitigations": _mitigations(root),
        "virtualised": virtualised(root),
        "numa_nodes": str(_numa_nodes(root)) if _numa_nodes(root) else None,
        "transparent_hugepages": _chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        "microcode": _cpu_field(root, "microcode"),
        "cpu_flags_virtualisation": _virtualisation_flag(root),
        "swap_bytes": str(memory_bytes(root, "SwapTotal")),
        "qemu_img": program_version(host, "qemu-img", r"version (.+)"),
    }
    for name, value in known.items():
        if value is not None:
            yield name, value


def _machine_id(root: Path) -> str:
    """An identity that stays over boots; machine-id(5) asks not to pass the raw one on."""
    raw = read_text(root / "etc/machine-id") or read_text(root / "sys/class/dmi/id/product_uuid")
    # Minimal images have an empty machine-id; the name is then the best that there is.
    raw = raw or read_text(root / "proc/sys/kernel/hostname") or platform.node()
    return hashlib.sha256(f"vdisklab {raw}".encode()).hexdigest()[:16]


def _cpus(root: Path) -> int:
    return len(re.findall(r"^processor\s*:", read_text(root / "proc/cpuinfo") or "", re.MULTILINE))


def _cpu_field(root: Path, name: str) -> str | None:
    """A field of the first processor: machines with unlike ones are not our market."""
    text = read_text(root / "proc/cpuinfo") or ""
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def _virtualisation_flag(root: Path) -> str | None:
    flags = (_cpu_field(root, "flags") or "").split()
    return next((flag for flag in ("vmx", "svm") if flag in flags), None)


def _mitigations(root: Path) -> str | None:
    """`9 mitigated, 2 vulnerable (mds, taa)`, from what the kernel says of each weakness."""
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


def _distribution(root: Path) -> str | None:
    match = re.search(r'^PRETTY_NAME="?(.*?)"?$', read_text(root / "etc/os-release") or "", re.M)
    return match[1] if match else None


def _chosen(path: Path) -> str | None:
    """The bracketed word of a sysfs choice: `always [madvise] never`."""
    match = re.search(r"\[(\w+)\]", read_text(path) or "")
    return match[1] if match else None

"""The host's programs for the guest, with the libraries they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.image.elf import MAGIC, without_libraries
from vdisklab.host.command import Host


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the guest gets if the host has it; `package` is the one to install."""

    name: str
    package: str
    required: bool = False
    version: tuple[str, ...] = ("--version",)
    early: bool = False
    """Needed for the guest's first answers, so it is in memory from the start."""


PROGRAMS = (
    Program("busybox", "busybox", required=True, version=(), early=True),
    Program("qemu-ga", "qemu-guest-agent", required=True, early=True),
    Program("fio", "fio", required=True, early=True),
    Program("bonnie++", "bonnie++", version=("-?",)),
    Program("sysbench", "sysbench"),
    Program("dd", "coreutils"),
    Program("dpkg-deb", "dpkg"),
    Program("tar", "tar"),
    Program("sqlite3", "sqlite3"),
    Program("perl", "perl-base"),
    Program("mkfs.ext2", "e2fsprogs", version=("-V",)),
    Program("mkfs.ext3", "e2fsprogs", version=("-V",)),
    Program("mkfs.ext4", "e2fsprogs", version=("-V",)),
    Program("mkfs.xfs", "xfsprogs", version=("-V",)),
    Program("mkfs.btrfs", "btrfs-progs"),
    Program("hdparm", "hdparm", version=("-V",)),
    Program("blkid", "util-linux"),
)
"""What a guest of ours has, in this order."""

# What the engines for disks need: libaio, and zlib, libm, libnuma, libc for fio itself. Debian's
# fio also links the engines for Ceph, Gluster, RDMA, NBD and persistent memory: 60 libraries,
# 80 MB, bound at each start (90 ms on a host, 0.85 s under emulation).
_FIO_LIBRARIES = ("ld-linux", "libc.", "libm.", "libz.", "libaio.", "libnuma.", "libpthread.",
                  "libdl.", "librt.", "liburing.")  # fmt: skip

_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")
_LIBRARY = re.compile(r"^\s+(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s+(\S+) => not found", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """A program on this host: where it was found, and the file that this is in the end."""

    program: Program
    path: Path
    real: Path


def find_programs(host: Host, programs: Sequence[Program]) -> list[Found]:
    """Those of `programs` that are installed.

    Raises HostError for a required one that is not, with the package to install.
    """
    found = []
    for program in programs:
        path = host.which(program.name)
        if path is not None:
            found.append(Found(program, path, path.resolve()))
        elif program.required:
            raise HostError(
                f"{program.name} is not installed, and a guest needs it",
                hint=f"apt-get install {program.package}",
            )
    return found


def version(host: Host, found: Found) -> str:
    """The version that a program says it has, or "unknown"."""
    every_status = range(-64, 256)
    said = host.run(found.path, *found.program.version, allowed=every_status, timeout=20)
    match = _VERSION.search(said.stdout) or _VERSION.search(said.stderr)
    return match[0] if match else "unknown"


def libraries(host: Host, files: Iterable[Path]) -> list[Path]:
    """All shared libraries that these programs load, the dynamic loader included.

    Raises HostError when one of them is not installed.
    """
    programs = [path for path in files if _is_elf(path)]
    if not programs:
        return []
    # ldd ends with 1 when one of them is linked statically, as busybox is.
    said = host.run("ldd", *programs, allowed=(0, 1)).stdout
    missing = _MISSING.findall(said)
    if missing:
        raise HostError(f"these libraries are not installed: {', '.join(sorted(set(missing)))}")
    return sorted({Path(match[1]) for match in _LIBRARY.findall(said)})


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def slim_fio(host: Host, fio: Path, into: Path) -> Path:
    """The host's fio without the libraries of its engines for remote storage, or fio as it is.

    Its own code is the same; only what the dynamic loader does at start is less. A slim one is
    used only if it works here: it says the same version and runs a job.
    """
    slim = into / "fio"
    try:
        content = fio.read_bytes()
        slim.write_bytes(without_libraries(content, lambda name: name.startswith(_FIO_LIBRARIES)))
        slim.chmod(0o755)
        if host.run(slim, "--version").stdout != host.run(fio, "--version").stdout:
            return fio
        host.run(slim, "--name=try", "--ioengine=null", "--size=64k", "--output-format=json+")
    except HostError:
        return fio
    return slim

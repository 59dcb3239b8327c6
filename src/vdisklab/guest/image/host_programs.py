"""The host's programs for the guest, with the libraries they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.programs import install_hint


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the guest gets if the host has it.

    An `early` program is in the RAM file system: the agent needs it before the disk is mounted.
    """

    name: str
    required: bool = False
    version: tuple[str, ...] = ("--version",)
    early: bool = False


PROGRAMS = (
    Program("busybox", required=True, version=(), early=True),
    Program("qemu-ga", required=True, early=True),
    # Debian's fio loads 60 libraries: too large to be in memory.
    Program("fio", required=True),
    Program("bonnie++", version=("-?",)),
    Program("sysbench"),
    Program("dd"),
    Program("dpkg-deb"),
    Program("tar"),
    Program("sqlite3"),
    Program("perl"),
    Program("mkfs.ext2", version=("-V",)),
    Program("mkfs.ext3", version=("-V",)),
    Program("mkfs.ext4", version=("-V",)),
    Program("mkfs.xfs", version=("-V",)),
    Program("mkfs.btrfs"),
    Program("hdparm", version=("-V",)),
    Program("blkid"),
)
"""The programs of the micro guest."""

_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")
_LIBRARY = re.compile(r"^\s+(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s+(\S+) => not found", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class InstalledProgram:
    """A program of this host: the path it was found at, and the file behind all links."""

    program: Program
    path: Path
    real: Path


def find_programs(host: Host, programs: Sequence[Program]) -> list[InstalledProgram]:
    """Those of `programs` that are installed. Raises HostError when a required one is missing."""
    installed = []
    for program in programs:
        path = host.which(program.name)
        if path is not None:
            installed.append(InstalledProgram(program, path, path.resolve()))
        elif program.required:
            raise HostError(
                f"{program.name} is not installed, but the guest needs it",
                hint=install_hint([program.name]),
            )
    return installed


def version(host: Host, installed: InstalledProgram) -> str:
    """The version that a program prints, or "unknown"."""
    every_status = range(-64, 256)
    words = installed.program.version
    output = host.run(installed.path, *words, allowed=every_status, timeout=20)
    match = _VERSION.search(output.stdout) or _VERSION.search(output.stderr)
    return match[0] if match else "unknown"


def libraries(host: Host, files: Iterable[Path]) -> list[Path]:
    """All shared libraries that these programs load, and the dynamic loader.

    Raises HostError when one of them is not installed.
    """
    programs = [path for path in files if _is_elf(path)]
    if not programs:
        return []
    # ldd exits with 1 when one of them is linked statically, as busybox is.
    output = host.run("ldd", *programs, allowed=(0, 1)).stdout
    missing = _MISSING.findall(output)
    if missing:
        raise HostError(f"these libraries are not installed: {', '.join(sorted(set(missing)))}")
    return sorted({Path(match[1]) for match in _LIBRARY.findall(output)})


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"

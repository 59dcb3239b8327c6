"""The host's programs for the guest, with the libraries they load; fio gets fewer of them.

Debian's fio links Ceph, Gluster, RDMA, NBD and persistent memory: 60 libraries, 80 MB, loaded and
bound at each start. That costs 90 ms on a host and 0.6 to 0.8 s under emulation, for every
measurement; see docs/decisions/0010-plain-files-in-the-guest.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    Program("fio", required=True, early=True),
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


if TYPE_CHECKING:
    from lief import ELF

# What the engines for disks need.
_LIBRARIES = ("ld-linux", "libc.", "libm.", "libz.", "libaio.", "libnuma.", "libpthread.",
              "libdl.", "librt.", "liburing.")  # fmt: skip


def slim_fio(host: Host, fio: Path, into: Path) -> Path:
    """A copy of fio in `into` without these libraries, or `fio` itself if no copy works here.

    The code is unchanged. A copy works if it prints the same version and runs a job.
    """
    slim = into / "fio"
    try:
        write_without_libraries(fio, slim, lambda name: name.startswith(_LIBRARIES))
        if host.run(slim, "--version").stdout != host.run(fio, "--version").stdout:
            return fio
        host.run(slim, "--name=try", "--ioengine=null", "--size=64k", "--output-format=json+")
    except HostError:
        return fio
    return slim


def write_without_libraries(program: Path, copy: Path, keep: Callable[[str], bool]) -> None:
    """Writes a copy of a program that loads only the libraries whose names pass `keep`.

    Symbols are bound at first use (no BIND_NOW, no RELRO), so a missing symbol is an error only
    when it is used. The needed versions of a dropped library go too, because the dynamic loader
    asserts that each file in their table is loaded (glibc, elf/dl-version.c). Raises HostError if
    the program is not a dynamically linked ELF file.
    """
    from lief import ELF, logging  # noqa: PLC0415 - takes 0.2 s, and only building a guest needs it

    logging.disable()  # it prints its complaints; None says the same
    elf = ELF.parse(program)
    if elf is None or not elf.has_interpreter:
        raise HostError(f"{program} is not a dynamically linked ELF file")
    for library in [str(name) for name in elf.libraries]:
        if not keep(library):
            elf.remove_library(library)
    for needed in [str(versions.name) for versions in elf.symbols_version_requirement]:
        if not keep(needed):
            elf.remove_version_requirement(needed)
    _bind_lazily(elf)
    elf.write(str(copy))
    copy.chmod(0o755)


def _bind_lazily(elf: ELF.Binary) -> None:
    """Removes the flags that make the loader look for every symbol at the start."""
    from lief import ELF  # noqa: PLC0415 - as above

    tags, flags = ELF.DynamicEntry.TAG, ELF.DynamicEntryFlags.FLAG
    if elf.has(tags.BIND_NOW):
        elf.remove(tags.BIND_NOW)
    for tag, flag in [(tags.FLAGS, flags.BIND_NOW), (tags.FLAGS_1, flags.NOW)]:
        entry = elf.get(tag)
        if isinstance(entry, ELF.DynamicEntryFlags):
            entry.remove(flag)
    for segment in elf.segments:
        if segment.type == ELF.Segment.TYPE.GNU_RELRO:
            segment.type = ELF.Segment.TYPE.PT_NULL_

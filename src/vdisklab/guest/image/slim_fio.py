"""fio without the libraries of its engines for remote storage.

Debian's fio links Ceph, Gluster, RDMA, NBD and persistent memory: 60 libraries, 80 MB, loaded and
bound at each start. That costs 90 ms on a host and 0.6 to 0.8 s under emulation, for every
measurement; see docs/decisions/0010-plain-files-in-the-guest.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vdisklab.errors import HostError
from vdisklab.host.command import Host

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

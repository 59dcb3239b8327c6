"""fio without the libraries of its engines for remote storage.

Debian's fio links Ceph, Gluster, RDMA, NBD and persistent memory: 60 libraries, 80 MB, loaded and
bound at each start. That costs 90 ms on a host and 0.6 to 0.8 s under emulation, for every
measurement; see docs/decisions/0010-plain-files-in-the-guest.md. `patchelf --remove-needed` cannot
do it: fio is linked with BIND_NOW, and the dynamic loader requires each file in the table of needed
versions to be loaded (glibc, elf/dl-version.c).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host

# What the engines for disks need.
_LIBRARIES = ("ld-linux", "libc.", "libm.", "libz.", "libaio.", "libnuma.", "libpthread.",
              "libdl.", "librt.", "liburing.")  # fmt: skip

# elf(5), and "Symbol Versioning" in the LSB.
_PT_NULL, _PT_LOAD, _PT_DYNAMIC, _PT_GNU_RELRO = 0, 1, 2, 0x6474E552
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_BIND_NOW, _DT_FLAGS = 0, 1, 5, 24, 30
_DT_FLAGS_1, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFE
_DT_IGNORED = 0x6000FFFF  # no loader knows this tag (from the range for operating systems)
_NOW = {_DT_FLAGS: 0x8, _DT_FLAGS_1: 0x1}


def slim_fio(host: Host, fio: Path, into: Path) -> Path:
    """A copy of fio in `into` without these libraries, or `fio` itself if no copy works here.

    The code is unchanged. A copy works if it prints the same version and runs a job.
    """
    slim = into / "fio"
    try:
        slim.write_bytes(without_libraries(fio.read_bytes(), lambda n: n.startswith(_LIBRARIES)))
        slim.chmod(0o755)
        if host.run(slim, "--version").stdout != host.run(fio, "--version").stdout:
            return fio
        host.run(slim, "--name=try", "--ioengine=null", "--size=64k", "--output-format=json+")
    except HostError:
        return fio
    return slim


def without_libraries(program: bytes, keep: Callable[[str], bool]) -> bytes:
    """The program's bytes, changed to load only the libraries whose names pass `keep`.

    Symbols are bound at first use (no BIND_NOW, no RELRO), so a missing symbol is an error only
    when it is used. Raises HostError if it is not a dynamic 64-bit little-endian ELF file.
    """
    elf = _Elf(program)
    for at in elf.entries(_DT_NEEDED):
        if not keep(elf.string(elf.number(at + 8))):
            elf.put(at, _DT_IGNORED)
    for at in elf.entries(_DT_BIND_NOW):
        elf.put(at, _DT_IGNORED)
    for tag, bit in _NOW.items():
        for at in elf.entries(tag):
            elf.put(at + 8, elf.number(at + 8) & ~bit)
    for header in elf.relro:
        struct.pack_into("<I", elf.data, header, _PT_NULL)
    for at in elf.entries(_DT_VERNEED):
        _unlink_versions(elf, elf.offset(elf.number(at + 8)), keep)
    return bytes(elf.data)


class _Elf:
    """The bytes of a program, and the offsets of its segments and of its dynamic section's
    entries."""

    def __init__(self, program: bytes) -> None:
        self.data = bytearray(program)
        self.relro: list[int] = []
        self._loads: list[tuple[int, int, int]] = []
        self._entries: list[tuple[int, int]] = []
        if program[:6] != b"\x7fELF\x02\x01":
            raise HostError("not a 64-bit little-endian ELF file")
        size, count = struct.unpack_from("<HH", program, 54)
        for header in [self.number(32) + size * index for index in range(count)]:
            kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", program, header)
            if kind == _PT_GNU_RELRO:
                self.relro.append(header)
            elif kind == _PT_LOAD:
                self._loads.append((offset, address, length))
            elif kind == _PT_DYNAMIC:
                places = range(offset, offset + length, 16)
                self._entries = [(self.number(place), place) for place in places]
        if not self._entries:
            raise HostError("not a dynamically linked program")
        (strings,) = self.entries(_DT_STRTAB)
        self._strings = self.offset(self.number(strings + 8))

    def entries(self, tag: int) -> list[int]:
        """The offsets of the dynamic section's entries with this tag."""
        return [place for known, place in self._entries if known == tag]

    def number(self, at: int) -> int:
        """The 64-bit number at this offset."""
        return int.from_bytes(self.data[at : at + 8], "little")

    def put(self, at: int, number: int) -> None:
        """Writes a 64-bit number at this offset."""
        self.data[at : at + 8] = number.to_bytes(8, "little")

    def string(self, at: int) -> str:
        """The string at this offset in the string table."""
        start = self._strings + at
        return self.data[start : self.data.index(0, start)].decode()

    def offset(self, address: int) -> int:
        """The offset in the file of an address in memory."""
        for offset, start, size in self._loads:
            if start <= address < start + size:
                return offset + address - start
        raise HostError(f"address {address:#x} is in no segment of the program")


def _unlink_versions(elf: _Elf, first: int, keep: Callable[[str], bool]) -> None:
    """Removes the dropped libraries from the linked list of needed versions.

    A record (Elf64_Verneed) holds: version and count, the file's name, the distance to its
    versions, the distance to the next record. The loader starts at the first record, so the first
    kept one is copied to that place.
    """
    kept_records: list[tuple[int, int, int, int]] = []
    at, step = first, 1
    while step:
        head, file, versions, step = struct.unpack_from("<IIII", elf.data, at)
        if keep(elf.string(file)):
            kept_records.append((at, head, file, at + versions))
        at += step
    if not kept_records:
        raise HostError("the program needs no versioned library")
    places = [first, *(at for at, *_ in kept_records[1:])]
    steps = [after - place for place, after in pairwise(places)]
    for place, step, (_, head, file, versions) in zip(
        places, [*steps, 0], kept_records, strict=True
    ):
        struct.pack_into("<IIII", elf.data, place, head, file, versions - place, step)

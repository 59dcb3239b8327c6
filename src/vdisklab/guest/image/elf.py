"""Reads and trims ELF files: kernel modules, the kernel itself, programs for the guest.

Only little-endian 64-bit files: the guests are x86-64. Layouts are those of elf(5) and of the
ELF gABI; version tables are described in the LSB, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vdisklab.errors import HostError

MAGIC = b"\x7fELF\x02\x01"

_PT_NULL, _PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_RELRO = 0, 1, 2, 4, 0x6474E552
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_BIND_NOW, _DT_FLAGS = 0, 1, 5, 24, 30
_DT_FLAGS_1, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF
# A tag in the range for operating systems that no loader knows, so it is skipped.
_DT_IGNORED = 0x6000FFFF
_DF_BIND_NOW, _DF_1_NOW = 0x8, 0x1

# include/xen/interface/elfnote.h: where a PVH loader (QEMU's -kernel) enters the kernel.
_XEN_ELFNOTE_PHYS32_ENTRY = 18

_SIGNATURE_MARK = b"~Module signature appended~\n"


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header; `header` is where it stands in the file."""

    header: int
    kind: int
    offset: int
    address: int
    size: int


def segments(data: bytes | bytearray) -> Iterator[Segment]:
    """The program headers. Raises HostError when it is no 64-bit little-endian ELF file."""
    if data[: len(MAGIC)] != MAGIC:
        raise HostError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for header in range(table, table + size * count, size):
        kind, _flags, offset, address, _physical, length = struct.unpack_from(
            "<IIQQQQ", data, header
        )
        yield Segment(header, kind, offset, address, length)


def has_pvh_entry(data: bytes) -> bool:
    """True when QEMU can boot this kernel as it is: it carries the note of CONFIG_PVH."""
    return any(
        name == b"Xen\0" and kind == _XEN_ELFNOTE_PHYS32_ENTRY
        for segment in segments(data)
        if segment.kind == _PT_NOTE
        for name, kind in _notes(data[segment.offset : segment.offset + segment.size])
    )


def _notes(data: bytes) -> Iterator[tuple[bytes, int]]:
    position = 0
    while position + 12 <= len(data):
        name, description, kind = struct.unpack_from("<III", data, position)
        yield data[position + 12 : position + 12 + name], kind
        position += 12 + (name + 3 & ~3) + (description + 3 & ~3)


def module_info(data: bytes) -> dict[str, list[str]]:
    """What a kernel module says of itself (`depends`, `alias`, `softdep`…), by key."""
    info: dict[str, list[str]] = {}
    for field in _section(data, b".modinfo").split(b"\0"):
        key, equals, value = field.decode(errors="replace").partition("=")
        if equals:
            info.setdefault(key, []).append(value)
    return info


def without_type_information(module: bytes) -> bytes:
    """A kernel module whose BTF, which is for tracing, the guest's kernel does not see.

    For the first module with a `.BTF` section the kernel parses the types of the whole kernel
    (kernel/bpf/btf.c, btf_parse_module): an eighth of a second under emulation. Only the
    section's name changes, so that all offsets stay.
    """
    data = bytearray(module)
    for label, _offset, _length in _sections(module):
        if _string(data, label).startswith(".BTF"):
            data[label + 1 : label + 4] = b"XTF"
    return bytes(data)


def _section(data: bytes, name: bytes) -> bytes:
    for label, offset, length in _sections(data):
        if data[label : label + len(name) + 1] == name + b"\0":
            return data[offset : offset + length]
    return b""


def _sections(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Where each section's name stands in the file, where its content, and how long that is."""
    if data[: len(MAGIC)] != MAGIC:
        raise HostError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * i) for i in range(count)]
    for label, _kind, _flags, _address, offset, length in headers:
        yield headers[names][4] + label, offset, length


def without_signature(module: bytes) -> bytes:
    """A kernel module without its signature, so that the guest need not hash it.

    struct module_signature (include/linux/module_signature.h) stands before the mark and ends
    in the big-endian length of the signature before it.
    """
    if not module.endswith(_SIGNATURE_MARK):
        return module
    end = len(module) - len(_SIGNATURE_MARK) - 12
    (length,) = struct.unpack_from(">I", module, end + 8)
    return module[: end - length]


def without_libraries(program: bytes, keep: Callable[[str], bool]) -> bytes:
    """A program that loads only the libraries it needs by name for which `keep` is true.

    Calls are bound when first made (no BIND_NOW, no RELRO), so a call into a library that is
    gone ends the program, and one that is never made costs nothing. What the dynamic loader
    would look up in the libraries left out is removed too: it asserts that each file in the
    table of needed versions is loaded (glibc, elf/dl-version.c).

    Raises HostError when it is no dynamic 64-bit ELF file.
    """
    data = bytearray(program)
    found = list(segments(data))
    dynamic = next((s for s in found if s.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        raise HostError("not a dynamically linked program")
    for segment in found:
        if segment.kind == _PT_GNU_RELRO:
            # Read-only after start would forbid the loader to bind a call later.
            struct.pack_into("<I", data, segment.header, _PT_NULL)
    _trim_dynamic(data, found, dynamic, keep)
    return bytes(data)


def _trim_dynamic(
    data: bytearray, found: list[Segment], dynamic: Segment, keep: Callable[[str], bool]
) -> None:
    entries: dict[int, tuple[int, int]] = {}
    needed: list[tuple[int, int]] = []
    for at in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == _DT_NULL:
            break
        entries[tag] = (at, value)
        if tag == _DT_NEEDED:
            needed.append((at, value))
    strings = _file_offset(found, entries[_DT_STRTAB][1])
    for at, value in needed:
        if not keep(_string(data, strings + value)):
            struct.pack_into("<Q", data, at, _DT_IGNORED)
    for tag, bit in ((_DT_FLAGS, _DF_BIND_NOW), (_DT_FLAGS_1, _DF_1_NOW)):
        if tag in entries:
            at, value = entries[tag]
            struct.pack_into("<Q", data, at + 8, value & ~bit)
    if _DT_BIND_NOW in entries:
        struct.pack_into("<Q", data, entries[_DT_BIND_NOW][0], _DT_IGNORED)
    if _DT_VERNEED in entries:
        _trim_versions(data, found, entries, strings, keep)


def _trim_versions(
    data: bytearray,
    found: list[Segment],
    entries: dict[int, tuple[int, int]],
    strings: int,
    keep: Callable[[str], bool],
) -> None:
    """Moves each record of a file to keep into the place of the next free one.

    A record (Elf64_Verneed, 16 bytes) points to its own versions and to the next record by
    distances from itself, so both are rewritten.
    """
    places = []
    records = []
    place = _file_offset(found, entries[_DT_VERNEED][1])
    for _ in range(entries[_DT_VERNEEDNUM][1]):
        version, count, file, first, step = struct.unpack_from("<HHIII", data, place)
        places.append(place)
        if keep(_string(data, strings + file)):
            records.append((version, count, file, place + first))
        place += step
    for index, (version, count, file, first) in enumerate(records):
        at = places[index]
        step = places[index + 1] - at if index + 1 < len(records) else 0
        # Distances are unsigned, and versions lie behind their own record: never before ours.
        struct.pack_into("<HHIII", data, at, version, count, file, first - at, step)
    at, _ = entries[_DT_VERNEEDNUM]
    struct.pack_into("<Q", data, at + 8, len(records))


def _file_offset(found: list[Segment], address: int) -> int:
    for segment in found:
        if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
            return segment.offset + address - segment.address
    raise HostError(f"address {address:#x} is in no segment of the program")


def _string(data: bytes | bytearray, at: int) -> str:
    return data[at : data.index(0, at)].decode(errors="replace")

"""Kernel modules: which ones a bus needs, where they are, and what they depend on.

`modules.dep` is not used: an unpacked kernel package has none, and the host may lack kmod. Each
module names its dependencies in its own `.modinfo`.
"""

from __future__ import annotations

import ctypes
import lzma
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.programs import not_installed
from vdisklab.path.segments import Bus

AGENT_MODULES = ("virtio_pci", "virtio_console")
"""Modules for the guest agent's port."""

ROOT_MODULES = ("virtio_blk", "ext4")
"""For the image of programs, a read-only ext4 file system on a virtio disk."""

BUS_MODULES: Mapping[Bus, tuple[str, ...]] = {
    Bus.VIRTIO: ("virtio_blk",),
    Bus.SCSI: ("virtio_scsi", "sd_mod"),
    Bus.IDE: ("ata_piix", "sd_mod"),
    Bus.SATA: ("ahci", "sd_mod"),
    Bus.NVME: ("nvme",),
    Bus.USB: ("xhci_pci", "usb_storage", "uas", "sd_mod"),
    Bus.VHOSTUSER: ("virtio_blk",),
    Bus.VIRTIOFS: ("virtiofs",),
    Bus.P9: ("9pnet_virtio", "9p"),
}
"""Modules for a disk on each bus, and for a shared directory, whose mount loads them."""

SCHEDULER_MODULES = {"mq-deadline": "mq_deadline", "kyber": "kyber_iosched", "bfq": "bfq"}
"""The module of each I/O scheduler that a path can name; `none` needs none."""

OPTIONAL_MODULES = (
    "xfs", "btrfs", "ext2", "loop", "virtio_rng", *SCHEDULER_MODULES.values(),
)  # fmt: skip
"""File systems and schedulers for the measured disk; included if the kernel has them."""


def needed_modules(buses: Iterable[Bus], schedulers: Iterable[str] = ()) -> list[str]:
    """What a guest needs for its agent, its programs, and disks on these buses."""
    of_buses = (name for bus in buses for name in BUS_MODULES[bus])
    of_schedulers = (SCHEDULER_MODULES[name] for name in schedulers if name in SCHEDULER_MODULES)
    return sorted({*AGENT_MODULES, *ROOT_MODULES, *of_buses, *of_schedulers})


# A module that looks up a checksum by name at run time (crypto_alloc_shash) has no symbol
# dependency on it; `softdep` names the checksum by an alias.
_CHECKSUMS = {
    "crc32c": ("crc32c_generic", "crc32c_intel"),
    "crct10dif": ("crct10dif_generic",),
    "blake2b_256": ("blake2b_generic",),
    "sha256": ("sha256_generic",),
    "xxhash64": ("xxhash_generic",),
}

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")
# Limit for unpacking. xfs and btrfs, the largest modules, are smaller even with debugging data.
_LARGEST = 64 << 20

_ELF = b"\x7fELF"
# The strings of the section .modinfo (MODULE_INFO in include/linux/moduleparam.h).
_MODINFO = re.compile(rb"(?<![ -~])(depends|softdep|alias)=([^\0]*)\0")


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its file, and the names of the modules it depends on."""

    name: str
    path: Path
    needs: tuple[str, ...]
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class ModuleTree:
    """The modules of one kernel: the directory `lib/modules/RELEASE`."""

    directory: Path

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Every module's file by its name, written with underscores."""
        files = {}
        for path in self.directory.glob("kernel/**/*.ko*"):
            name, _, suffix = path.name.partition(".")
            if f".{suffix}" in _SUFFIXES:
                files[_normal(name)] = path
        return files

    @cached_property
    def builtin(self) -> frozenset[str]:
        """Names of the modules that are built into the kernel."""
        try:
            lines = (self.directory / "modules.builtin").read_text().split()
        except OSError:
            return frozenset()
        return frozenset(_normal(Path(line).name.partition(".")[0]) for line in lines)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that this kernel has neither built in nor as a module."""
        return [n for n in names if _normal(n) not in self.builtin and _normal(n) not in self.files]

    def closure(self, names: Iterable[str]) -> list[Module]:
        """The modules `names` with their dependencies, in an order in which they can be loaded.

        Built-in and unknown names are left out.
        """
        done: dict[str, Module] = {}

        def visit(name: str) -> None:
            path = self.files.get(name)
            if path is None or name in done:
                return
            module = _read(name, path)
            for need in module.needs:
                visit(need)
            done[name] = module

        for name in names:
            visit(_normal(name))
        return list(done.values())


def module_content(path: Path) -> bytes:
    """A module, unpacked. Raises HostError when the file is damaged."""
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".gz":
                return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, _LARGEST)
            case ".zst":
                return _unpack_zstd(data)
            case _:
                return data
    except (lzma.LZMAError, zlib.error, ValueError) as error:
        raise HostError(f"the kernel module {path} is damaged: {error}") from error


def _unpack_zstd(packed: bytes) -> bytes:
    """Unpacks one zstd frame. Raises ValueError if it is damaged or larger than _LARGEST."""
    # Debian's apt and dpkg depend on this library, so it is always there.
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise not_installed("libzstd.so.1") from error
    size = ctypes.c_size_t
    library.ZSTD_decompress.restype = size
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, size, ctypes.c_char_p, size]
    buffer = ctypes.create_string_buffer(_LARGEST)
    length = library.ZSTD_decompress(buffer, _LARGEST, packed, len(packed))
    if library.ZSTD_isError(size(length)):
        raise ValueError("zstd cannot unpack it")
    return buffer.raw[:length]


def _read(name: str, path: Path) -> Module:
    data = module_content(path)
    if not data.startswith(_ELF):
        raise HostError(f"the kernel module {path} is damaged: not an ELF file")
    info: dict[str, list[str]] = {"depends": [], "softdep": [], "alias": []}
    for key, value in _MODINFO.findall(data):
        info[key.decode()].append(value.decode(errors="replace"))
    needs = [_normal(need) for need in ",".join(info["depends"]).split(",") if need]
    for rule in info["softdep"]:
        kind, _, targets = rule.partition(":")
        if kind == "pre":
            aliases = (_normal(target.removeprefix("crypto-")) for target in targets.split())
            needs += [soft for alias in aliases for soft in _CHECKSUMS.get(alias, ())]
    return Module(name, path, tuple(needs), tuple(info["alias"]))


def _normal(name: str) -> str:
    # The kernel treats `virtio-rng.ko` and `virtio_rng` as the same module.
    return name.replace("-", "_")

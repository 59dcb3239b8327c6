"""Kernel modules: which a bus needs, where they are, what they need in turn.

The index of `depmod` is not used: an unpacked package has none, and the host may lack kmod.
Each module names what it depends on in its own `.modinfo`.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.image.bootpayload import zstd
from vdisklab.guest.image.elf import module_info
from vdisklab.path.segments import Bus

AGENT_MODULES = ("virtio_pci", "virtio_console")
"""Without these there is no word from the guest."""

ROOT_MODULES = ("virtio_blk", "ext4")
"""For the image of programs, a read-only ext4 file system on a virtio disk."""

BUS_MODULES: Mapping[Bus, tuple[str, ...]] = {
    Bus.VIRTIO: ("virtio_blk",),
    Bus.SCSI: ("virtio_scsi", "sd_mod"),
    Bus.IDE: ("ata_piix", "sd_mod"),
    Bus.SATA: ("ahci", "sd_mod"),
    Bus.NVME: ("nvme",),
    Bus.USB: ("xhci_pci", "usb_storage", "uas", "sd_mod"),
}
"""What a disk on each bus needs in the guest."""

OPTIONAL_MODULES = ("xfs", "btrfs", "ext2", "loop", "virtio_rng")
"""For file systems on the measured disk; taken when the kernel has them."""

# What asks for a checksum by name at run time (crypto_alloc_shash) does not depend on its module by
# symbol, but says so in `softdep`, by an alias.
_CHECKSUMS = {
    "crc32c": ("crc32c_generic", "crc32c_intel"),
    "crct10dif": ("crct10dif_generic",),
    "blake2b_256": ("blake2b_generic",),
    "sha256": ("sha256_generic",),
    "xxhash64": ("xxhash_generic",),
}

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")
# No module of ours is larger, xfs and btrfs with debugging data included.
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its file, and the modules it needs, each by its normal name."""

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
        """Every module's file by normal name."""
        found = {}
        for path in self.directory.glob("kernel/**/*.ko*"):
            name, _, suffix = path.name.partition(".")
            if f".{suffix}" in _SUFFIXES:
                found[_normal(name)] = path
        return found

    @cached_property
    def builtin(self) -> frozenset[str]:
        """Names of what is part of the kernel itself."""
        try:
            lines = (self.directory / "modules.builtin").read_text().split()
        except OSError:
            return frozenset()
        return frozenset(_normal(Path(line).name.partition(".")[0]) for line in lines)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that this kernel has neither built in nor as a module."""
        return [n for n in names if _normal(n) not in self.builtin and _normal(n) not in self.files]

    def closure(self, names: Iterable[str]) -> list[Module]:
        """The modules for `names` and all they need, in an order they can be loaded in.

        Built-in and unknown names give nothing.
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
    """A module as the kernel wants it, whatever it is packed with on disk."""
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".gz":
                return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, _LARGEST)
            case ".zst":
                return zstd(data, _LARGEST)
            case _:
                return data
    except (lzma.LZMAError, zlib.error) as error:
        raise HostError(f"the kernel module {path} is damaged: {error}") from error


def _read(name: str, path: Path) -> Module:
    try:
        info = module_info(module_content(path))
    except (struct.error, IndexError) as error:
        raise HostError(f"the kernel module {path} is damaged: {error}") from error
    needs = [_normal(need) for need in ",".join(info.get("depends", [])).split(",") if need]
    for rule in info.get("softdep", []):
        kind, _, targets = rule.partition(":")
        if kind == "pre":
            aliases = (_normal(target.removeprefix("crypto-")) for target in targets.split())
            needs += [soft for alias in aliases for soft in _CHECKSUMS.get(alias, ())]
    return Module(name, path, tuple(needs), tuple(info.get("alias", [])))


def _normal(name: str) -> str:
    # The kernel takes `virtio-rng.ko` and `virtio_rng` for the same module.
    return name.replace("-", "_")

"""Small made-up kernels and modules, with the parts that the code under test reads."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

RELEASE = "6.1.0-9-cloud-amd64"


def module(*, depends: str = "", **info: str) -> bytes:
    """An ELF file with these strings in it, as a kernel module has them in .modinfo."""
    fields = {"depends": depends, **info}
    text = b"\0".join(f"{key}={value}".encode() for key, value in fields.items())
    return b"\x7fELF\x02\x01 code \xff" + text + b"\0 debugging data"


def signed(content: bytes) -> bytes:
    """A module with a signature of 100 bytes."""
    trailer = bytes(8) + struct.pack(">I", 100)
    return content + b"s" * 100 + trailer + b"~Module signature appended~\n"


def bzimage(code: bytes = b"kernel code", release: str = RELEASE, *, packed: bytes = b"") -> bytes:
    """A bzImage (boot protocol 2.15) with this code, and then a packed kernel; one setup sector."""
    image = bytearray(1024)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, 0x020F)
    struct.pack_into("<H", image, 0x20E, 0x100)
    struct.pack_into("<II", image, 0x248, len(code), len(packed))
    version = release.encode() + b" (builder@example) #1 SMP\0"
    image[0x300 : 0x300 + len(version)] = version
    return bytes(image) + code + packed + b"more code"


def vmlinux(*notes: tuple[bytes, int], content: bytes = b"all of the kernel" * 500) -> bytes:
    """An ELF program with notes, each by its owner and its number, and four bytes each."""
    parts = [
        struct.pack("<III", len(owner), 4, number) + owner.ljust(-(-len(owner) // 4) * 4, b"\0")
        + b"\x50\x08\0\x01"
        for owner, number in notes
    ]  # fmt: skip
    table = b"".join(parts)
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x20, 64)
    struct.pack_into("<HH", header, 0x36, 56, 2)
    place = 64 + 2 * 56
    load = struct.pack("<IIQQQQQQ", 1, 5, place, 0, 0, len(content), len(content), 4096)
    note = struct.pack("<IIQQQQQQ", 4, 4, place + len(content), 0, 0, len(table), len(table), 4)
    return bytes(header) + load + note + content + table


PVH_ENTRY = (b"Xen\0", 18)
"""The note of a kernel with CONFIG_PVH that names its entry."""


def lz4(data: bytes) -> bytes:
    """As `lz4 -l` packs it, in blocks of 8 MB."""
    library = ctypes.CDLL("liblz4.so.1")
    packed = b"\x02\x21\x4c\x18"
    for start in range(0, len(data), 8 << 20):
        block = data[start : start + (8 << 20)]
        room = ctypes.create_string_buffer(len(block) + len(block) // 255 + 16)
        size = library.LZ4_compress_default(block, room, len(block), len(room))
        packed += struct.pack("<I", size) + room.raw[:size]
    return packed


def zstd(data: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(data) * 2 + 64)
    size = library.ZSTD_compress(
        room, ctypes.c_size_t(len(room)), data, ctypes.c_size_t(len(data)), 3
    )
    return room.raw[:size]


CLOUD_MODULES = {
    "virtio": "", "virtio_ring": "", "virtio_pci": "virtio,virtio_ring", "virtio_blk": "virtio",
    "virtio_console": "virtio", "virtio_scsi": "virtio,scsi_mod", "sd_mod": "scsi_mod",
    "scsi_mod": "", "ata_piix": "scsi_mod", "fuse": "", "virtiofs": "fuse,virtio",
}  # fmt: skip
BUILT_IN = "kernel/fs/ext4/ext4.ko\nkernel/drivers/nvme/host/nvme.ko\n"


def write_kernel(root: Path, *, release: str = RELEASE, full: bool = False) -> Path:
    """`boot/vmlinuz-RELEASE` and `lib/modules/RELEASE` below `root`, with one module too many."""
    image = root / f"boot/vmlinuz-{release}"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(bzimage(release=release))
    modules = root / "lib/modules" / release
    (modules / "kernel/drivers").mkdir(parents=True, exist_ok=True)
    (modules / "modules.builtin").write_text(BUILT_IN)
    names = {**CLOUD_MODULES, "sound": ""}
    if full:
        names |= dict.fromkeys(("ahci", "xhci-pci", "usb-storage", "uas"), "scsi_mod")
        names |= {"9pnet": "", "9pnet_virtio": "9pnet", "9p": "9pnet"}
    for name, depends in names.items():
        (modules / f"kernel/drivers/{name}.ko").write_bytes(signed(module(depends=depends)))
    return image

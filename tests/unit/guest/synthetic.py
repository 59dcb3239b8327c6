"""Small made-up kernels, modules and programs, as far as our readers look into them."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

RELEASE = "6.1.0-9-cloud-amd64"


def elf_with_sections(sections: dict[str, bytes]) -> bytes:
    """A 64-bit ELF file of nothing but sections."""
    names = b"\0"
    body = b""
    headers = [bytes(64)]
    for name, content in {**sections, ".shstrtab": b""}.items():
        label = len(names)
        names += name.encode() + b"\0"
        offset = 64 + len(body)
        held = names if name == ".shstrtab" else content
        headers.append(struct.pack("<IIQQQQIIQQ", label, 1, 0, 0, offset, len(held), 0, 0, 1, 0))
        body += held
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(headers),
        len(headers) - 1,
    )  # fmt: skip
    return head + body + b"".join(headers)


def module(*, depends: str = "", **info: str) -> bytes:
    """A kernel module that says this of itself."""
    fields = {"depends": depends, **info}
    text = b"\0".join(f"{key}={value}".encode() for key, value in fields.items())
    return elf_with_sections({".modinfo": text + b"\0", ".BTF": b"types"})


def signed(content: bytes) -> bytes:
    """A module with a signature of 100 bytes."""
    trailer = bytes(8) + struct.pack(">I", 100)
    return content + b"s" * 100 + trailer + b"~Module signature appended~\n"


def kernel_elf(*, pvh: bool = True) -> bytes:
    """A kernel as it is unpacked, with or without the note that QEMU looks for."""
    kind = 18 if pvh else 6
    note = struct.pack("<III", 4, 8, kind) + b"Xen\0" + bytes(8)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4)
    return head + segment + note + b"kernel code " * 1000


def bzimage(payload: bytes, release: str = RELEASE) -> bytes:
    """A bzImage (boot protocol 2.15) around `payload`; one setup sector."""
    image = bytearray(1024)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, 0x020F)
    struct.pack_into("<H", image, 0x20E, 0x100)
    version = release.encode() + b" (builder@example) #1 SMP\0"
    image[0x300 : 0x300 + len(version)] = version
    struct.pack_into("<II", image, 0x248, 16, len(payload))
    return bytes(image) + b"\x90" * 16 + payload


def lz4_legacy(data: bytes) -> bytes:
    library = ctypes.CDLL("liblz4.so.1")
    room = ctypes.create_string_buffer(len(data) * 2 + 64)
    size = library.LZ4_compress_default(data, room, len(data), len(room))
    packed = room.raw[:size]
    return b"\x02\x21\x4c\x18" + struct.pack("<I", size) + packed + struct.pack("<I", len(data))


def zstd_payload(data: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(data) * 2 + 64)
    size = library.ZSTD_compress(
        room, ctypes.c_size_t(len(room)), data, ctypes.c_size_t(len(data)), 3
    )
    return room.raw[:size] + struct.pack("<I", len(data))


CLOUD_MODULES = {
    "virtio": "", "virtio_ring": "", "virtio_pci": "virtio,virtio_ring", "virtio_blk": "virtio",
    "virtio_console": "virtio", "virtio_scsi": "virtio,scsi_mod", "sd_mod": "scsi_mod",
    "scsi_mod": "", "ata_piix": "scsi_mod",
}  # fmt: skip
BUILT_IN = "kernel/fs/ext4/ext4.ko\nkernel/drivers/nvme/host/nvme.ko\n"


def write_kernel(root: Path, *, release: str = RELEASE, full: bool = False) -> Path:
    """`boot/vmlinuz-RELEASE` and `lib/modules/RELEASE` below `root`, with one module too many."""
    image = root / f"boot/vmlinuz-{release}"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(bzimage(kernel_elf(), release))
    (image.parent / f"config-{release}").write_text("# CONFIG_MODULE_SIG_FORCE is not set\n")
    modules = root / "lib/modules" / release
    (modules / "kernel/drivers").mkdir(parents=True, exist_ok=True)
    (modules / "modules.builtin").write_text(BUILT_IN)
    names = {**CLOUD_MODULES, "sound": ""}
    if full:
        names |= dict.fromkeys(("ahci", "xhci-pci", "usb-storage", "uas"), "scsi_mod")
    for name, depends in names.items():
        (modules / f"kernel/drivers/{name}.ko").write_bytes(signed(module(depends=depends)))
    return image

"""The kernel inside a bzImage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct

import pytest

from tests.unit.guest.synthetic import RELEASE, bzimage, kernel_elf, lz4_legacy, zstd_payload
from vdisklab.errors import HostError
from vdisklab.guest.image.bootpayload import kernel_release, payload, zstd

ELF = kernel_elf()
SIZE = struct.pack("<I", len(ELF))
PACKED = {
    "none": ELF,
    "gzip": gzip.compress(ELF),
    "xz": lzma.compress(ELF, check=lzma.CHECK_CRC32) + SIZE,
    "bzip2": bz2.compress(ELF) + SIZE,
    "lz4": lz4_legacy(ELF),
    "zstd": zstd_payload(ELF),
}


@pytest.mark.parametrize("packer", PACKED)
def test_every_compressor_is_undone(packer: str) -> None:
    assert payload(bzimage(PACKED[packer])) == ELF


@pytest.mark.parametrize("packer", ["gzip", "xz", "bzip2", "lz4", "zstd"])
def test_damage_is_an_error_of_ours(packer: str) -> None:
    broken = bytearray(PACKED[packer])
    broken[20 : len(broken) - 8] = b"\xaa" * (len(broken) - 28)
    with pytest.raises(HostError, match=r"unpacked|damaged"):
        payload(bzimage(bytes(broken)))


def test_a_cut_image_is_told() -> None:
    with pytest.raises(HostError, match="cut short"):
        payload(bzimage(PACKED["gzip"])[:-10])


def test_an_unknown_compressor_is_named() -> None:
    with pytest.raises(HostError, match="6c7a6f21"):
        payload(bzimage(b"lzo!" + bytes(100)))


def test_the_release_is_in_the_header() -> None:
    assert kernel_release(bzimage(b"")) == RELEASE


@pytest.mark.parametrize("image", [b"", b"\x7fELF" + bytes(4000), bytes(600)])
def test_other_files_are_no_kernel(image: bytes) -> None:
    with pytest.raises(HostError, match="bzImage"):
        kernel_release(image)
    with pytest.raises(HostError, match="bzImage"):
        payload(image)


def test_zstd_refuses_more_than_it_was_told_to_expect() -> None:
    with pytest.raises(HostError, match="damaged"):
        zstd(PACKED["zstd"][:-4], 10)

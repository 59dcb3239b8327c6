"""What kernels and modules are packed with, unpacked."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable

import pytest

from tests.unit.guest.synthetic import lz4, zstd
from vdisklab.guest.image import packed
from vdisklab.guest.image.packed import unpack

CONTENT = bytes(range(256)) * 40_000  # more than a block of LZ4
SIZE = len(CONTENT).to_bytes(4, "little")

KINDS = pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, lz4, zstd])


@KINDS
def test_what_is_packed_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    assert unpack(pack(CONTENT)) == CONTENT


@KINDS
def test_a_kernels_length_behind_it_is_ignored(pack: Callable[[bytes], bytes]) -> None:
    assert unpack(pack(CONTENT) + SIZE) == CONTENT


@KINDS
def test_damage_is_told(pack: Callable[[bytes], bytes]) -> None:
    whole = pack(CONTENT)
    for damaged in (whole[:-40], whole[:40]):
        with pytest.raises(ValueError, match=r"^\w"):
            unpack(damaged)


@KINDS
def test_more_than_the_limit_is_refused(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "LARGEST", len(CONTENT))
    assert unpack(pack(CONTENT)) == CONTENT
    with pytest.raises(ValueError, match=r"^\w"):
        unpack(pack(CONTENT + b"."))


def test_another_format_is_refused() -> None:
    for content in (b"", b"BZh9", b"\x7fELF"):
        with pytest.raises(ValueError, match="no known way"):
            unpack(content)

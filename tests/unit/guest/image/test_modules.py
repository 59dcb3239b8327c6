"""Which modules there are and what they need."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from tests.unit.guest.synthetic import module, write_kernel, zstd
from vdisklab.errors import HostError
from vdisklab.guest.image.kernel import ModuleTree, module_content


@pytest.fixture
def tree(tmp_path: Path) -> ModuleTree:
    folder = tmp_path / "kernel/fs"
    folder.mkdir(parents=True)
    (tmp_path / "modules.builtin").write_text("kernel/drivers/nvme/host/nvme-core.ko\n")
    (folder / "xfs.ko").write_bytes(module(depends="libcrc32c"))
    (folder / "libcrc32c.ko.xz").write_bytes(lzma.compress(module(softdep="pre: crypto-crc32c")))
    (folder / "crc32c-intel.ko.gz").write_bytes(gzip.compress(module()))
    (folder / "jbd2.ko.zst").write_bytes(zstd(module(depends="crc32c_intel")))
    (folder / "a.ko").write_bytes(module(depends="b"))
    (folder / "b.ko").write_bytes(module(depends="a"))
    return ModuleTree(tmp_path)


def test_what_a_module_needs_comes_before_it(tree: ModuleTree) -> None:
    assert [m.name for m in tree.closure(["xfs"])] == ["crc32c_intel", "libcrc32c", "xfs"]


@pytest.mark.parametrize("name", ["xfs", "libcrc32c", "crc32c_intel", "jbd2"])
def test_every_compressor_is_undone(tree: ModuleTree, name: str) -> None:
    assert module_content(tree.files[name]).startswith(b"\x7fELF")


def test_only_strings_of_modinfo_count(tmp_path: Path) -> None:
    (tmp_path / "kernel").mkdir()
    text = module(depends="b", parm="x:text with depends=c in it")
    (tmp_path / "kernel/a.ko").write_bytes(text)
    for name in "bc":
        (tmp_path / f"kernel/{name}.ko").write_bytes(module())
    assert [m.name for m in ModuleTree(tmp_path).closure(["a"])] == ["b", "a"]


def test_hyphen_and_underscore_are_the_same(tree: ModuleTree) -> None:
    assert [m.name for m in tree.closure(["crc32c-intel"])] == ["crc32c_intel"]
    assert tree.lacking(["nvme_core", "crc32c_intel", "libcrc32c", "ahci"]) == ["ahci"]


def test_built_in_and_unknown_names_give_nothing(tree: ModuleTree) -> None:
    assert tree.closure(["nvme_core", "nonesuch"]) == []


def test_a_damaged_module_is_named(tree: ModuleTree, tmp_path: Path) -> None:
    damaged = (("c.ko.xz", b"no xz"), ("d.ko", b"#!/bin/sh\n"), ("e.ko.zst", zstd(module())[:-9]))
    for name, content in damaged:
        path = tmp_path / "kernel/fs" / name
        path.write_bytes(content)
        with pytest.raises(HostError, match=name):
            ModuleTree(tmp_path).closure([name[0]])


def test_a_plain_module_is_read_as_it_is(tmp_path: Path) -> None:
    write_kernel(tmp_path)
    (path,) = tmp_path.glob("lib/modules/*/kernel/drivers/virtio.ko")
    assert module_content(path) == path.read_bytes()

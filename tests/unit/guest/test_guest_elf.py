"""Kernel modules and programs, read and trimmed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.guest.synthetic import elf_with_sections, kernel_elf, module, signed
from vdisklab.errors import HostError
from vdisklab.guest.image.elf import (
    has_pvh_entry,
    module_info,
    without_libraries,
    without_signature,
    without_type_information,
)


def test_a_module_says_what_it_needs() -> None:
    info = module_info(module(depends="virtio,virtio_ring", softdep="pre: crc32c"))
    assert info == {"depends": ["virtio,virtio_ring"], "softdep": ["pre: crc32c"]}


def test_a_file_without_module_information_says_nothing() -> None:
    assert module_info(elf_with_sections({".text": b"x"})) == {}


def test_what_is_no_elf_file_is_refused() -> None:
    for reader in (module_info, has_pvh_entry):
        with pytest.raises(HostError, match="ELF"):
            reader(b"#!/bin/sh\n")


def test_a_signature_is_cut_off() -> None:
    plain = module(depends="virtio")
    assert without_signature(signed(plain)) == plain
    assert without_signature(plain) == plain


def test_type_information_is_hidden_and_nothing_else_moves() -> None:
    plain = module(depends="virtio")
    hidden = without_type_information(plain)
    assert b".BTF\0" not in hidden
    assert hidden == plain.replace(b".BTF\0", b".XTF\0")
    assert module_info(hidden) == module_info(plain)


def test_pvh_is_told_by_its_note() -> None:
    assert has_pvh_entry(kernel_elf())
    assert not has_pvh_entry(kernel_elf(pvh=False))


def dynamic(path: Path) -> str:
    return subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout


def test_a_program_runs_without_a_library_that_it_does_not_call(tmp_path: Path) -> None:
    fio = shutil.which("fio")
    assert fio, "fio is not installed"
    slim = tmp_path / "fio"
    content = Path(fio).read_bytes()
    slim.write_bytes(
        without_libraries(content, lambda name: not name.startswith(("librbd", "librados")))
    )
    slim.chmod(0o755)
    assert "librbd" in dynamic(Path(fio))
    assert "librbd" not in dynamic(slim)
    said = subprocess.run([slim, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("fio-")
    assert said.stderr == ""


def test_a_program_that_keeps_all_is_bound_when_called(tmp_path: Path) -> None:
    env = shutil.which("env")
    assert env
    copy = tmp_path / "env"
    copy.write_bytes(without_libraries(Path(env).read_bytes(), lambda name: True))
    copy.chmod(0o755)
    assert subprocess.run([copy, "A=1"], env={}, capture_output=True, check=True).stdout == b"A=1\n"


def test_a_static_program_has_no_libraries_to_leave_out() -> None:
    with pytest.raises(HostError, match="dynamic"):
        without_libraries(kernel_elf(), lambda name: True)

"""fio without the libraries that it does not use here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.guest.image.host_programs import slim_fio, write_without_libraries
from vdisklab.host.command import LocalHost


@pytest.fixture
def fio() -> Path:
    path = shutil.which("fio")
    assert path, "fio is not installed"
    return Path(path).resolve()


def linked(path: Path) -> str:
    return subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout


def test_fio_runs_write_without_libraries_that_it_does_not_use(fio: Path, tmp_path: Path) -> None:
    slim = slim_fio(LocalHost(), fio, tmp_path)
    assert slim == tmp_path / "fio"
    assert "librbd" in linked(fio)
    assert "librbd" not in linked(slim)
    assert "libaio" in linked(slim)
    done = subprocess.run([slim, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("fio-")
    assert done.stderr == ""


def test_a_fio_that_fails_without_them_is_taken_as_it_is(fio: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert slim_fio(LocalHost(), script, tmp_path) == script


@pytest.mark.parametrize("first", [True, False])
def test_the_first_needed_version_may_be_left_out(fio: Path, tmp_path: Path, first: bool) -> None:
    """Debian's fio names libaio first."""
    slim = tmp_path / "fio"
    write_without_libraries(
        fio,
        slim,
        lambda name: (
            name.startswith(("libc.", "libm.", "libz.", "libnuma."))
            or (first and name.startswith("libaio."))
        ),
    )
    done = subprocess.run([slim, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout[:4], done.stderr) == ("fio-", "")


def test_a_program_that_keeps_all_still_runs(tmp_path: Path) -> None:
    env = shutil.which("env")
    assert env
    copy = tmp_path / "env"
    write_without_libraries(Path(env), copy, lambda _name: True)
    assert subprocess.run([copy, "A=1"], env={}, capture_output=True, check=True).stdout == b"A=1\n"


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01" + bytes(100), b"#!/bin/sh\n", b""])
def test_a_file_that_is_not_a_dynamic_program_is_refused(tmp_path: Path, content: bytes) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    with pytest.raises(HostError, match="not a dynamically linked ELF file"):
        write_without_libraries(program, tmp_path / "copy", lambda _name: True)


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="not a dynamically linked"):
        write_without_libraries(Path("/sbin/ldconfig"), tmp_path / "copy", lambda _name: True)

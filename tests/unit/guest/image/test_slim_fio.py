"""fio without the libraries that it does not use here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.guest.image.slim_fio import slim_fio, without_libraries
from vdisklab.host.command import LocalHost


@pytest.fixture
def fio() -> Path:
    path = shutil.which("fio")
    assert path, "fio is not installed"
    return Path(path).resolve()


def linked(path: Path) -> str:
    return subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout


def test_fio_runs_without_libraries_that_it_does_not_use(fio: Path, tmp_path: Path) -> None:
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
    slim.write_bytes(
        without_libraries(
            fio.read_bytes(),
            lambda name: (
                name.startswith(("libc.", "libm.", "libz.", "libnuma."))
                or (first and name.startswith("libaio."))
            ),
        )
    )
    slim.chmod(0o755)
    done = subprocess.run([slim, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout[:4], done.stderr) == ("fio-", "")


def test_a_program_that_keeps_all_still_runs(tmp_path: Path) -> None:
    env = shutil.which("env")
    assert env
    copy = tmp_path / "env"
    copy.write_bytes(without_libraries(Path(env).read_bytes(), lambda _name: True))
    copy.chmod(0o755)
    assert subprocess.run([copy, "A=1"], env={}, capture_output=True, check=True).stdout == b"A=1\n"


def test_a_static_program_has_no_libraries_to_leave_out() -> None:
    with pytest.raises(HostError, match="dynamic"):
        without_libraries(b"\x7fELF\x02\x01" + bytes(100), lambda _name: True)


def test_a_script_is_no_program() -> None:
    with pytest.raises(HostError, match="ELF"):
        without_libraries(b"#!/bin/sh\n", lambda _name: True)

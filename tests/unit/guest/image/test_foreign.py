"""Programs of another architecture: found below a directory, and their libraries without ldd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.guest.image.content import SERVERS, find_programs
from vdisklab.guest.image.elf import needed_libraries
from vdisklab.guest.image.foreign import ForeignSystem, _name_and_version
from vdisklab.host.command import LocalHost

PROGRAM = Path("/usr/bin/find").resolve()


def loaded(program: Path) -> list[Path]:
    """The libraries that ldd names."""
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(match) for match in re.findall(r"(/\S+) \(0x", output)]


@pytest.fixture
def system(tmp_path: Path) -> ForeignSystem:
    """This host's find with its libraries, as if they came from packages."""
    for file in (PROGRAM, *loaded(PROGRAM)):
        target = tmp_path / str(file).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.resolve(), target)
    (tmp_path / "usr/sbin").mkdir()
    (tmp_path / "usr/sbin/seek").symlink_to(PROGRAM)  # absolute: it begins at the root
    return ForeignSystem(tmp_path, {"fio": "3.33-3"})


def test_the_libraries_are_those_that_ldd_names() -> None:
    names = needed_libraries(PROGRAM)
    found = {path.name for path in loaded(PROGRAM)} | {str(path) for path in loaded(PROGRAM)}
    assert "libc.so.6" in names
    assert set(names) <= found
    assert needed_libraries(Path("/etc/passwd")) == []


def test_all_libraries_are_found_below_the_root(system: ForeignSystem) -> None:
    found = system.libraries([system.root / str(PROGRAM).lstrip("/")])
    assert {path.name for path in found} == {path.name for path in loaded(PROGRAM)}
    assert all(path.is_relative_to(system.root) for path in found)


def test_a_link_does_not_lead_out_of_the_root(system: ForeignSystem) -> None:
    seek = system.which("seek")
    assert seek == system.root / "usr/sbin/seek"
    assert system.real(seek) == system.root / str(PROGRAM).lstrip("/")
    assert system.which("no-such-program") is None


def test_a_missing_library_is_named(system: ForeignSystem) -> None:
    (library,) = system.root.rglob("libc.so.6")
    library.unlink()
    with pytest.raises(HostError, match=r"no package has the library libc\.so\.6, which find"):
        system.libraries([system.root / str(PROGRAM).lstrip("/")])


def test_the_version_is_that_of_the_package(system: ForeignSystem) -> None:
    assert system.version("fio") == "3.33-3"
    assert system.version("bonnie++") == "unknown"
    name = "qemu-guest-agent_1%3a7.2+dfsg-7+deb12u18_arm64.deb"
    assert _name_and_version(name) == ("qemu-guest-agent", "7.2+dfsg-7+deb12u18")


def test_the_programs_of_postgresql_are_not_debians_scripts(system: ForeignSystem) -> None:
    """/usr/bin/pgbench is a script in Perl, whose modules the guest lacks."""
    programs = system.root / "usr/lib/postgresql/15/bin"
    programs.mkdir(parents=True)
    for name in ("postgres", "pgbench", "psql", "pg_ctl"):
        (programs / name).touch()
        (system.root / "usr/bin" / name).touch()
    (system.root / "usr/bin/postgres").unlink()
    found = {item.program.name: item.real for item in find_programs(LocalHost(), SERVERS, system)}
    assert found["pgbench"] == programs / "pgbench"
    assert found["pg_ctl"] == programs / "pg_ctl"

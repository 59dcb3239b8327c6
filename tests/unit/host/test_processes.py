"""A process counts by the file that it runs and by its user, not by what it calls itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.unit.made_processes import hold, make_process
from vdisklab.host.processes import Process, Stranger, callers, processes_of

QEMU = re.compile(r"qemu-system-\w+")
ME = frozenset({os.geteuid()})


def test_the_programs_file_counts_not_its_name(tmp_path: Path) -> None:
    make_process(tmp_path, 9, ["qemu-system-x86_64", "-S"], runs="/usr/bin/qemu-system-x86_64")
    make_process(tmp_path, 10, ["renamed", "-S"], runs="/usr/bin/qemu-system-x86_64 (deleted)")
    make_process(tmp_path, 11, ["qemu-system-x86_64"], runs="/usr/bin/dash")
    make_process(tmp_path, 12, ["sleep", "qemu-system-x86_64"], runs="/usr/bin/sleep")
    found = list(processes_of(QEMU, ME, tmp_path))
    assert found == [
        Process(tmp_path / "9", "qemu-system-x86_64", os.geteuid(), ("-S",)),
        Process(tmp_path / "10", "qemu-system-x86_64", os.geteuid(), ("-S",)),
        Stranger("11", "is /usr/bin/dash"),
    ]


def test_another_users_process_is_named_with_its_user(tmp_path: Path) -> None:
    make_process(tmp_path, 7, ["/usr/bin/qemu-system-x86_64"], user=65534)
    make_process(tmp_path, 8, ["/usr/bin/qemu-system-x86_64"], user=4_000_000_000)
    assert list(map(str, processes_of(QEMU, ME, tmp_path))) == [
        "process 7 (belongs to nobody)",
        "process 8 (belongs to user 4000000000)",
    ]


def test_all_its_users_count(tmp_path: Path) -> None:
    """A program with the set-user-ID bit is root's, and its arguments are anybody's."""
    process = make_process(tmp_path, 7, ["qemu-system-x86_64"], runs="/usr/bin/sudo")
    (process / "status").write_text("Uid:\t65534\t0\t0\t0\n")
    (found,) = processes_of(QEMU, frozenset({0}), tmp_path)
    assert str(found) == "process 7 (belongs to nobody)"


@pytest.mark.parametrize("broken", ["", "Uid:\tx\n", "Uid:\t٣\t٣\t٣\t٣\n"])
def test_a_process_that_ends_meanwhile_is_none(tmp_path: Path, broken: str) -> None:
    process = make_process(tmp_path, 7, ["/usr/bin/qemu-system-x86_64"])
    (process / "status").write_text(broken)
    make_process(tmp_path, 8, ["qemu-system-x86_64"])
    (tmp_path / "8/exe").unlink()
    (tmp_path / "9").mkdir()
    assert list(processes_of(QEMU, ME, tmp_path)) == []


def test_files_that_it_may_not_read_are_not_its_open_files(tmp_path: Path) -> None:
    process = make_process(tmp_path, 7, ["/usr/bin/qemu-system-x86_64"])
    files = [tmp_path / name for name in ("read", "both", "written", "looked-at")]
    for file, flags in zip(files, (os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_PATH), strict=True):
        file.touch()
        hold(process, file, flags)
    hold(process, tmp_path)
    hold(process, Path("/dev/null"))
    (found,) = processes_of(QEMU, ME, tmp_path)
    assert isinstance(found, Process)
    assert found.open_files() == {(file.stat().st_dev, file.stat().st_ino) for file in files[:2]}


@pytest.mark.parametrize("word", ["", "x", "-1", "²", "9" * 400])
def test_a_callers_number_that_is_none_is_ignored(
    monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("SUDO_UID", word)
    assert callers() == {os.geteuid()}

"""The watch over leftovers sees what it is there for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import IMPOSSIBLE_HERE, Leftovers, in_ci, look_around
from vdisklab.host.ledger import open_ledger

EMPTY = Leftovers()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, False), ({"CI": "true"}, True), ({"VDISKLAB_CI": "1"}, True), ({"CI": "false"}, False)],
)
def test_ci_is_told_by_the_environment(environment: dict[str, str], expected: bool) -> None:
    assert in_ci(environment) is expected


def test_a_ledger_with_entries_is_seen(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger, ledger.entry("file", "/x"):
        left = look_around(tmp_path, (tmp_path,)).beyond(EMPTY)
    assert left == [f"ledgers: {ledger.path}"]
    assert look_around(tmp_path, (tmp_path,)) == EMPTY


def test_a_process_that_outlives_its_test_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "qemu-fake"
    program.write_text("#!/bin/sh\necho started; read _\n")
    program.chmod(0o755)
    with subprocess.Popen(
        [program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "VDISKLAB_STATE": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        left = look_around(tmp_path, (tmp_path,)).beyond(EMPTY)
        process.communicate(b"\n")
    assert left == [f"processes: qemu-fake ({process.pid})"]


GUEST_TEST = """
import pytest
@pytest.mark.guest
def test_guest(): pass
"""
LEAKING_TEST = """
from pathlib import Path
from vdisklab.host.state_directory import state_directory
def test_leaking():
    (state_directory() / "ledger").mkdir(parents=True)
    (state_directory() / "ledger/0.jsonl").touch()
"""


RUNTIME_TEST = """
from pathlib import Path
def test_leaking():
    Path("runtime").mkdir()
    Path("runtime/socket").touch()
"""


def run_suite(tmp_path: Path, test: str, **environment: str) -> str:
    """The outcome of a suite with our conftest and one test, on a machine without programs."""
    suite = tmp_path / "suite"
    suite.mkdir()
    shutil.copy(Path(__file__).parent / "conftest.py", suite)
    (suite / "test_it.py").write_text(test)
    # PATH alone must not be enough to hide programs: conftest adds the administrators' own.
    conftest = (suite / "conftest.py").read_text().replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    (suite / "conftest.py").write_text(conftest.replace("/run/vdisklab", "runtime"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-rA",
            "-p",
            "no:cacheprovider",
            "--basetemp=tmp",
            ".",
        ],
        cwd=suite,
        env={"PATH": str(suite), "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_what_is_missing_is_skipped_at_home_and_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "ci").mkdir()
    assert "1 skipped" in run_suite(tmp_path / "home", GUEST_TEST)
    said = run_suite(tmp_path / "ci", GUEST_TEST, CI="true")
    assert "continuous integration lacks qemu-system-x86_64" in said
    assert "1 error" in said


SKIPPED_TESTS = """
import pytest
from conftest import IMPOSSIBLE_HERE
@pytest.mark.skipif(True, reason="no such program")
def test_program(): pass
@pytest.mark.parametrize("reason", IMPOSSIBLE_HERE)
def test_kernel(reason): pytest.skip(reason)
@pytest.mark.xfail
def test_wrong(): assert False
"""


def test_a_skip_fails_in_ci_unless_it_is_impossible_there(tmp_path: Path) -> None:
    for place in ("home", "ci"):
        (tmp_path / place).mkdir()
    impossible = len(IMPOSSIBLE_HERE)
    home = run_suite(tmp_path / "home", SKIPPED_TESTS)
    assert f"{impossible + 1} skipped, 1 xfailed" in home
    said = run_suite(tmp_path / "ci", SKIPPED_TESTS, CI="true")
    assert "continuous integration skips nothing: Skipped: no such program" in said
    assert f"{impossible} skipped, 1 xfailed, 1 error" in said


def test_a_suite_that_leaves_something_fails(tmp_path: Path) -> None:
    assert "the tests left behind: ledgers: " in run_suite(tmp_path, LEAKING_TEST)


def test_a_suite_that_leaves_a_socket_fails(tmp_path: Path) -> None:
    assert "the tests left behind: runtime" in run_suite(tmp_path, RUNTIME_TEST, CI="true")


@pytest.mark.host
def test_loop_devices_and_mounts_are_seen(tmp_path: Path) -> None:
    image, point = tmp_path / "image", tmp_path / "mnt"
    image.touch()
    os.truncate(image, 16 << 20)
    point.mkdir()
    argv = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, point], check=True)
        left = look_around(tmp_path, (tmp_path,)).beyond(EMPTY)
        subprocess.run(["umount", point], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert left == [f"loops: {device} on {image}", f"mounts: {point}"]

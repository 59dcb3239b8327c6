"""The watch over leftovers sees what it is there for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Leftovers, in_ci, look_around

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
        left = look_around(tmp_path, (tmp_path,), alone=False).beyond(EMPTY)
    assert left == [f"ledgers: {ledger.path}"]
    assert look_around(tmp_path, (tmp_path,), alone=False) == EMPTY


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
        left = look_around(tmp_path, (tmp_path,), alone=False).beyond(EMPTY)
        process.communicate(b"\n")
    assert left == [f"processes: qemu-fake ({process.pid})"]


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
        left = look_around(tmp_path, (tmp_path,), alone=False).beyond(EMPTY)
        subprocess.run(["umount", point], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert left == [f"loops: {device} on {image}", f"mounts: {point}"]

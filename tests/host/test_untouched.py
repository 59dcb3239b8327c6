"""What a run does to the disks and guests that are there already: nothing."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.host


def call(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def strangers_disks(directory: Path) -> Iterator[tuple[Path, Path]]:
    """An idle loop device with a file system, and one that is mounted; the two images."""
    images = (directory / "idle.img", directory / "mounted.img")
    loops = []
    mounted = directory / "mounted"
    mounted.mkdir()
    try:
        for image in images:
            with image.open("wb") as file:
                file.truncate(16 << 20)
            call("mkfs.ext4", "-q", image)
            loops.append(call("losetup", "--find", "--show", image).strip())
        call("mount", loops[1], mounted)
        (mounted / "theirs").write_text("keep me")
        yield images
    finally:
        subprocess.run(["umount", mounted], check=False)
        for loop in loops:
            subprocess.run(["losetup", "--detach", loop], check=False)


@contextmanager
def strangers_guest(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a guest."""
    program = directory / "qemu-system-x86_64"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def surroundings() -> tuple[str, ...]:
    """Mounts, loop devices, block devices and swap of this machine."""
    return (
        Path("/proc/mounts").read_text(),
        call("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"),
        Path("/proc/partitions").read_text(),
        Path("/proc/swaps").read_text(),
    )


def test_a_run_leaves_disks_guests_and_files_alone(tmp_path: Path) -> None:
    lab = Lab(tmp_path, tmp_path / "state")
    lab.prepare()
    (lab.work / "guest.qcow2").write_bytes(b"somebody's image")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with strangers_disks(theirs) as (idle, mounted), strangers_guest(theirs) as guest:
        call("sync")
        before = digest(idle)
        places = [line for text in surroundings() for line in text.splitlines()]
        status, printed = lab.run("{,ext4/,xfs/}host")
        assert status == 0, printed
        assert "there is nothing to remove" in lab.call("clean")[1]
        after = [line for text in surroundings() for line in text.splitlines()]
        # Other tests on this machine come and go, so only what names this test's place counts.
        ours = [line for line in places if str(tmp_path) in line]
        assert [line for line in after if str(tmp_path) in line] == ours
        assert len(ours) == 3  # one mount, two loop devices
        assert digest(idle) == before
        assert (theirs / "mounted" / "theirs").read_text() == "keep me"
        assert mounted.stat().st_size == 16 << 20
        assert guest.poll() is None
    assert [path.name for path in lab.work.iterdir()] == ["guest.qcow2"]
    assert (lab.work / "guest.qcow2").read_bytes() == b"somebody's image"

"""What a program and its descendants do, from the kernel's files and of real programs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from vdisklab.host.processtree import Activity, children_storage_bytes, tree_activity

# As Linux 6.18 shows it.
IO = """rchar: {}
wchar: {}
syscr: 10
syscw: 20
read_bytes: {}
write_bytes: {}
cancelled_write_bytes: 7
"""
STAT = "{} (a (name) of) {} {} 25622 25622 0 -1 4194304 99 0 0 0 0 0 0 0 20 0 1 0 3 2 1\n"


def process(
    table: Path, pid: int, parent: int, *, states: str = "S", children: str | None = None
) -> None:
    home = table / str(pid)
    for number, state in enumerate(states):
        task = home / "task" / str(pid + number)
        task.mkdir(parents=True)
        (task / "stat").write_text(STAT.format(pid + number, state, parent))
        if children is not None:
            (task / "children").write_text(children if number == 0 else "")
    (home / "stat").write_text(STAT.format(pid, states[0], parent))
    (home / "io").write_text(IO.format(1000, 2000, 4096, 8192))


@pytest.mark.parametrize("listed", [True, False])
def test_a_tree_is_added_up(listed: bool, tmp_path: Path) -> None:
    """With the kernel's list of children (Debian's has one), and without."""
    process(tmp_path, 100, 1, children="200 300 " if listed else None)
    process(tmp_path, 200, 100, states="SSD", children="" if listed else None)
    process(tmp_path, 300, 100, children="400 " if listed else None)
    process(tmp_path, 400, 300, children="" if listed else None)
    process(tmp_path, 999, 1, states="D", children="" if listed else None)
    (tmp_path / "self").mkdir()
    one = 4096 + 8192
    progress = one + 3000 + 30
    assert tree_activity(100, tmp_path) == Activity(4 * one, 4 * progress, waits=True)
    assert tree_activity(300, tmp_path) == Activity(2 * one, 2 * progress, waits=False)


def test_a_process_that_is_gone_and_one_that_is_another_users(tmp_path: Path) -> None:
    assert tree_activity(100, tmp_path) is None
    process(tmp_path, 100, 1, children="200 ")
    process(tmp_path, 200, 100, children="")
    (tmp_path / "200" / "io").unlink()
    seen = tree_activity(100, tmp_path)
    assert seen is not None
    assert seen.storage_bytes == 4096 + 8192
    (tmp_path / "100" / "io").unlink()
    assert tree_activity(100, tmp_path) is None


def test_a_real_program_and_its_child(tmp_path: Path) -> None:
    """Written by the child's child; what it did is its parent's when it has ended."""
    script = f"head -c 300000 /dev/zero > {tmp_path}/file; echo done; read line"
    with subprocess.Popen(
        ["sh", "-c", f"sh -c '{script}'; true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"done\n"
        seen = tree_activity(shell.pid)
        assert seen is not None
        assert seen.progress >= 600000, "read and written by a program that has ended"
        assert not seen.waits
        shell.stdin.close()
        deadline = time.monotonic() + 10
        shell.wait(max(0.1, deadline - time.monotonic()))
    assert tree_activity(shell.pid) is None


def test_what_children_moved_stays_when_they_are_gone(tmp_path: Path) -> None:
    before = children_storage_bytes()
    size = 1 << 20
    command = ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=64k", "count=16", "conv=fsync"]
    subprocess.run(command, check=True, capture_output=True)
    moved = children_storage_bytes() - before
    on_disk = tmp_path.stat().st_dev in _devices()
    assert moved >= size if on_disk else moved >= 0


def _devices() -> set[int]:
    return {
        os.makedev(int(line.split()[0]), int(line.split()[1]))
        for line in Path("/proc/diskstats").read_text().splitlines()
    }

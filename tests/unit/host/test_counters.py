"""Counters of the kernel: read from its tables, added up, and never made up."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.host.counters import (
    Activity,
    children_storage_bytes,
    device_below,
    discarded_bytes,
    process_cpu_seconds,
    read_device,
    read_devices,
    steal_seconds,
    tree_activity,
)
from vdisklab.results.model import IoCounters

TABLE = Path(__file__).parents[2] / "data" / "kernel" / "diskstats-linux-6.18.txt"


def test_a_line_in_bytes() -> None:
    assert read_device((254, 0), TABLE) == IoCounters(
        read_bytes=629548511 * 512,
        write_bytes=1055172360 * 512,
        read_operations=7189755,
        write_operations=8220408,
        flush_operations=750632,
        read_seconds=2385.043,
        write_seconds=3907.039,
        flush_seconds=33.523,
    )


def test_discards_are_counted_apart_and_missing_where_the_kernel_does_not() -> None:
    columns = next(line for line in TABLE.read_text().splitlines() if " vda " in line).split()
    assert discarded_bytes([(254, 0)], TABLE) == int(columns[16]) * 512 > 0
    assert discarded_bytes([(254, 0), (254, 9)], TABLE) is None
    assert discarded_bytes([], TABLE) is None


def test_a_kernel_before_4_18_counts_no_discards(tmp_path: Path) -> None:
    old = tmp_path / "diskstats"
    old.write_text("   8       0 sda 1 2 3 4 5 6 7 8 0 10 11\n")
    assert discarded_bytes([(8, 0)], old) is None


def test_a_device_that_is_not_in_the_table() -> None:
    assert read_device((254, 9), TABLE) is None


def test_a_kernel_that_shows_no_table(tmp_path: Path) -> None:
    """As where /proc is mounted with subset=pid."""
    assert read_device((254, 0), tmp_path / "diskstats") is None
    assert steal_seconds(tmp_path / "stat") is None


def test_several_devices_are_added_up() -> None:
    first, other = read_device((254, 0), TABLE), read_device((7, 0), TABLE)
    assert first is not None
    assert other is not None
    assert read_devices([(254, 0), (7, 0)], TABLE) == IoCounters(
        first.read_bytes + other.read_bytes,
        first.write_bytes + other.write_bytes,
        first.read_operations + other.read_operations,
        first.write_operations + other.write_operations,
        750632 + 194198,
        *(one_second + more for one_second, more in zip(_times(first), _times(other), strict=True)),
    )


def _times(counted: IoCounters) -> tuple[float, float, float]:
    assert counted.read_seconds is not None
    assert counted.write_seconds is not None
    assert counted.flush_seconds is not None
    return counted.read_seconds, counted.write_seconds, counted.flush_seconds


def test_one_unknown_device_makes_the_sum_unknown() -> None:
    assert read_devices([(254, 0), (254, 9)], TABLE) is None
    assert read_devices([], TABLE) is None


@pytest.mark.parametrize("fields", [11, 15], ids=["Linux 4.17", "Linux 4.18"])
def test_a_device_that_counts_no_flushes_makes_their_sum_unknown(
    fields: int, tmp_path: Path
) -> None:
    """Flushes came with Linux 5.5 (Documentation/admin-guide/iostats.rst)."""
    shorter = []
    for line in TABLE.read_text().splitlines():
        columns = line.split()
        shorter.append(" ".join(columns[: 3 + fields] if "vda" in columns else columns))
    table = tmp_path / "diskstats"
    table.write_text("\n".join(shorter))
    seen = read_devices([(254, 0), (7, 0)], table)
    assert seen is not None
    assert seen.flush_operations is None
    assert seen.write_bytes == (1055172360 + 146339585) * 512


counts = st.integers(0, 2**63)
counters = st.builds(IoCounters, counts, counts, counts, counts, st.none() | counts)


@settings(max_examples=40, deadline=None)
@given(counters, counters)
def test_counters_that_only_grow_never_give_less_than_nothing(
    before: IoCounters, more: IoCounters
) -> None:
    flushes = None
    if before.flush_operations is not None and more.flush_operations is not None:
        flushes = before.flush_operations + more.flush_operations
    after = IoCounters(
        before.read_bytes + more.read_bytes,
        before.write_bytes + more.write_bytes,
        before.read_operations + more.read_operations,
        before.write_operations + more.write_operations,
        flushes,
    )
    moved = after.since(before)
    expected = more.flush_operations if flushes is not None else None
    assert moved.flush_operations == expected
    assert min(moved.read_bytes, moved.write_bytes, moved.read_operations) >= 0
    assert (moved.read_bytes, moved.write_operations) == (more.read_bytes, more.write_operations)


@settings(max_examples=40, deadline=None)
@given(counters, counters)
def test_flushes_that_one_reading_lacks_stay_unknown(first: IoCounters, other: IoCounters) -> None:
    both_known = first.flush_operations is not None and other.flush_operations is not None
    assert (first.since(other).flush_operations is not None) is both_known


def test_what_has_no_device_below_is_told() -> None:
    assert device_below(Path("/proc")) is None


def test_a_process_whose_name_holds_a_bracket(tmp_path: Path) -> None:
    """proc(5): the name stands in brackets in /proc/PID/stat, whatever it holds."""
    program = tmp_path / "a) S (b"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            used = process_cpu_seconds(process.pid)
        finally:
            process.kill()
    assert used is not None
    assert 0 <= used < 5


def test_own_time_grows() -> None:
    before = process_cpu_seconds(os.getpid())
    while os.times().user + os.times().system < (before or 0) + 0.05:
        sum(range(10_000))
    after = process_cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after > before


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
    only = 4096 + 8192
    progress = only + 3000 + 30
    assert tree_activity(100, tmp_path) == Activity(4 * only, 4 * progress, waits=True)
    assert tree_activity(300, tmp_path) == Activity(2 * only, 2 * progress, waits=False)


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


def test_an_nvme_namespace_below_native_multipath_counts_by_its_paths(tmp_path: Path) -> None:
    """Recorded in the lab: Debian's kernel 6.1, nvmet over TCP."""
    table = tmp_path / "diskstats"
    table.write_text(
        " 259       0 nvme0c0n1 699 1 158640 8704 60 4077 36992 4262 0 8368 13139 0 0 0 0 8 171\n"
        " 259       1 nvme0n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 259       2 nvme1n1 5 0 40 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 259       3 nvme2n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    head, other, idle = (read_device((259, number), table) for number in (1, 2, 3))
    assert head is not None
    assert (head.read_operations, head.write_bytes, head.flush_operations) == (699, 18939904, 8)
    assert other is not None
    assert other.read_operations == 5
    assert idle is not None
    assert idle.read_operations == 0

"""Counters of the kernel: read from its tables, added up, and never made up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.host.counters import (
    DeviceCounters,
    device_below,
    process_cpu_seconds,
    read_device,
    read_devices,
    steal_seconds,
)

TABLE = Path(__file__).parents[2] / "data" / "kernel" / "diskstats-linux-6.18.txt"


def test_a_line_in_bytes() -> None:
    assert read_device((254, 0), TABLE) == DeviceCounters(
        read_bytes=629548511 * 512,
        write_bytes=1055172360 * 512,
        read_operations=7189755,
        write_operations=8220408,
        flush_operations=750632,
    )


def test_a_device_that_is_not_in_the_table() -> None:
    assert read_device((254, 9), TABLE) is None


def test_a_kernel_that_shows_no_table(tmp_path: Path) -> None:
    """As where /proc is mounted with subset=pid."""
    assert read_device((254, 0), tmp_path / "diskstats") is None
    assert steal_seconds(tmp_path / "stat") is None


def test_several_devices_are_added_up() -> None:
    one, other = read_device((254, 0), TABLE), read_device((7, 0), TABLE)
    assert one is not None
    assert other is not None
    assert read_devices([(254, 0), (7, 0)], TABLE) == DeviceCounters(
        one.read_bytes + other.read_bytes,
        one.write_bytes + other.write_bytes,
        one.read_operations + other.read_operations,
        one.write_operations + other.write_operations,
        750632 + 194198,
    )


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
        words = line.split()
        shorter.append(" ".join(words[: 3 + fields] if "vda" in words else words))
    table = tmp_path / "diskstats"
    table.write_text("\n".join(shorter))
    seen = read_devices([(254, 0), (7, 0)], table)
    assert seen is not None
    assert seen.flush_operations is None
    assert seen.write_bytes == (1055172360 + 146339585) * 512


counts = st.integers(0, 2**63)
counters = st.builds(DeviceCounters, counts, counts, counts, counts, st.none() | counts)


@settings(max_examples=40, deadline=None)
@given(counters, counters)
def test_counters_that_only_grow_never_give_less_than_nothing(
    before: DeviceCounters, more: DeviceCounters
) -> None:
    flushes = None
    if before.flush_operations is not None and more.flush_operations is not None:
        flushes = before.flush_operations + more.flush_operations
    after = DeviceCounters(
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
def test_flushes_that_one_reading_lacks_stay_unknown(
    one: DeviceCounters, other: DeviceCounters
) -> None:
    known = one.flush_operations is not None and other.flush_operations is not None
    assert (one.since(other).flush_operations is not None) is known


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

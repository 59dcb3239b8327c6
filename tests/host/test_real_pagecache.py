"""The page cache of files and devices, and the kernel's counters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host import pagecache
from vdisklab.host.command import LocalHost
from vdisklab.host.counters import (
    children_cpu_seconds,
    device_below,
    process_cpu_seconds,
    read_device,
    steal_seconds,
)
from vdisklab.host.ledger import open_ledger
from vdisklab.host.pagecache import evict, residency, warm
from vdisklab.storage.device import loop_device
from vdisklab.storage.site import open_site
from vdisklab.units import MIB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(os.urandom(4 * MIB))
    return made


@pytest.mark.host
@pytest.mark.parametrize("by", ["cachestat", "mincore"])
def test_a_file_is_evicted_and_warmed(file: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "mincore":
        monkeypatch.setattr(pagecache, "_SYS_CACHESTAT", 0x7FFF)  # no such call: ENOSYS
    evict(file)
    assert residency(file) == 0.0
    warm(file)
    assert residency(file) == 1.0
    evict(file)
    with file.open("rb") as part:
        os.posix_fadvise(part.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        part.read(MIB)
    assert 0.2 < residency(file) < 0.5


@pytest.mark.host
def test_a_block_device_is_evicted_and_warmed(tmp_path: Path) -> None:
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        loop_device(site, "l", 8 * MIB) as target,
        target.path.open("rb"),  # the kernel drops a device's pages when the last one closes it
    ):
        warm(target.path)
        assert residency(target.path) == 1.0
        evict(target.path)
        assert residency(target.path) < 0.02


def test_an_empty_file_has_no_pages(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert residency(tmp_path / "empty") == 0.0


@pytest.mark.parametrize("look", [evict, warm, residency])
def test_a_missing_file_is_a_sentence(look: object, tmp_path: Path) -> None:
    assert callable(look)
    with pytest.raises(HostError, match="No such file"):
        look(tmp_path / "gone")


@pytest.mark.host
def test_a_device_counts_what_is_written_through_it(tmp_path: Path) -> None:
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        loop_device(site, "l", 8 * MIB) as target,
    ):
        number = device_below(target.path)
        assert number is not None
        before = read_device(number)
        with target.path.open("wb") as device:
            device.write(os.urandom(2 * MIB))
            device.flush()
            os.fsync(device.fileno())
        after = read_device(number)
        assert before is not None
        assert after is not None
        moved = after.since(before)
        assert moved.write_bytes == 2 * MIB
        assert moved.write_operations > 0
        assert moved.read_bytes < MIB


def test_a_device_that_is_not_listed_is_unknown() -> None:
    assert read_device((4095, 12345)) is None


def test_old_kernels_count_no_flushes(tmp_path: Path) -> None:
    """Linux 4.18: eleven fields; flushes came with 5.5 (Documentation/admin-guide/iostats.rst)."""
    table = tmp_path / "diskstats"
    table.write_text("   8       0 sda 10 1 80 5 20 2 160 9 0 7 14\n")
    seen = read_device((8, 0), table)
    assert seen is not None
    assert (seen.read_bytes, seen.write_bytes) == (80 * 512, 160 * 512)
    assert seen.flush_operations is None


def test_cpu_time_of_processes() -> None:
    before = process_cpu_seconds(os.getpid())
    assert before is not None
    children = children_cpu_seconds()
    subprocess.run(["python3", "-c", "sum(range(3_000_000))"], check=True)
    assert children_cpu_seconds() > children
    assert process_cpu_seconds(1 << 22) is None


def test_steal_time_is_unknown_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    table = tmp_path / "stat"
    table.write_text("cpu  1 2 3 4 5 6 7 200 0 0\n")
    assert steal_seconds(table) == 200 / os.sysconf("SC_CLK_TCK")
    table.write_text("cpu  1 2 3 4\n")
    assert steal_seconds(table) is None

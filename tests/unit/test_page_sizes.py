"""Every place that depends on the size of a page, at the three sizes that arm64 kernels have.

x86 has 4 KiB. arm64 kernels are built for 4 KiB (Debian, Ubuntu), 16 KiB (Asahi, Debian's -16k) or
64 KiB (RHEL's kernel-64k).
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.powercut.test_rebuild import SIZE, brute_force, events, spoil, written
from vdisklab.errors import PlanError
from vdisklab.host.direct_alignment import (
    DirectAlignment,
    alignment_in,
    block_for,
    direct_alignment,
    direct_block,
)
from vdisklab.host.machine import page_size
from vdisklab.host.pagecache import cached_share
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.powercut import rebuild
from vdisklab.powercut.crash_states import CrashState, epochs_between
from vdisklab.storage.disk_server import init_reply
from vdisklab.storage.filesystem import btrfs_sector, mkfs_command
from vdisklab.storage.returned import BLOCKS, sampled
from vdisklab.storage.write_log import LogWriter, is_hole
from vdisklab.storage.zram import unique_size
from vdisklab.units import MIB
from vdisklab.workload import fiojob

PAGES = (4096, 16384, 65536)
WITHOUT_ANSWER = bytes(256)


@pytest.fixture(params=PAGES, ids=["4k", "16k", "64k"])
def page(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


def statx(memory: int, offset: int) -> bytes:
    """A `struct statx` that says how direct transfers are aligned."""
    answer = bytearray(256)
    struct.pack_into("=I", answer, 0, 0x2000)
    struct.pack_into("=II", answer, 152, memory, offset)
    return bytes(answer)


class TestPageCache:
    def test_a_file_in_the_cache_is_there_whole(self, page: int) -> None:
        assert cached_share(4 * MIB // page, 4 * MIB, page) == 1.0
        assert cached_share(2 * MIB // page, 4 * MIB, page) == 0.5

    def test_the_last_page_may_be_half_empty(self, page: int) -> None:
        assert cached_share(1, page + 1, page) == 0.5
        assert cached_share(3, page + 1, page) == 1.0, "read ahead beyond the end"


class TestDirectTransfers:
    def test_a_file_system_with_sectors_of_a_page(self, page: int) -> None:
        said = alignment_in(statx(512, page))
        assert said == DirectAlignment(512, page)
        assert block_for(said, 4096) == page

    def test_without_an_answer_a_page_is_enough(self, page: int) -> None:
        assert alignment_in(WITHOUT_ANSWER) is None
        assert block_for(None, page) == page

    def test_most_need_a_sector_whatever_the_page(self, page: int) -> None:
        assert block_for(DirectAlignment(4, 512), page) == 4096

    def test_without_direct_transfers_any_block_will_do(self, page: int) -> None:
        assert block_for(DirectAlignment(0, 0), page) == 4096

    def test_this_kernel_says_what_works_here(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(bytes(MIB))
        descriptor = os.open(file, os.O_RDONLY)
        block = direct_block(descriptor, page_size())
        assert block >= max(4096, (direct_alignment(descriptor) or DirectAlignment(0, 0)).block)
        os.close(descriptor)

    def test_samples_are_whole_blocks(self, page: int) -> None:
        offsets = sampled(64 * MIB, page)
        assert len(offsets) == len(set(offsets)) == BLOCKS
        assert all(offset % page == 0 and offset + page <= 64 * MIB for offset in offsets)
        assert sampled(page - 1, page) == ()


class TestLayers:
    def test_a_zram_device_has_the_size_that_was_asked_for(self, page: int) -> None:
        """The kernel rounds up to pages, and `clean` knows the device by its size."""
        for size in (MIB, MIB + 1, 3 * page - 1):
            exact = unique_size(size, page, 7)
            assert exact % page == 0
            assert size + 7 * page <= exact < size + 8 * page

    @pytest.mark.parametrize(
        ("supported", "sectors"),
        [
            (None, (None, None, None)),
            ("4096 {page}", (None, 4096, 4096)),
            ("{page}", (None, 16384, 65536)),
        ],
        ids=["unknown", "smaller than a page", "a page only"],
    )
    def test_btrfs_sectors(
        self, page: int, supported: str | None, sectors: tuple[int | None, ...]
    ) -> None:
        said = None if supported is None else supported.format(page=page)
        sector = btrfs_sector(page, said)
        assert sector == sectors[PAGES.index(page)]
        command = mkfs_command(Layer(LayerKind.BTRFS), Path("/dev/x"), "label", sector=sector)
        asked = [] if sector is None else ["--sectorsize", str(sector)]
        assert command == ("mkfs.btrfs", "-q", "-K", "-L", "label", *asked, "/dev/x")

    def test_other_file_systems_have_blocks_that_every_kernel_mounts(self, page: int) -> None:
        """mkfs.ext4 and mkfs.xfs make blocks of 4 KiB or less, whatever the page."""
        for kind in (LayerKind.EXT4, LayerKind.XFS):
            command = mkfs_command(Layer(kind), Path("/dev/x"), "label", sector=page)
            assert str(page) not in command


class TestLoggedDisk:
    def test_a_request_may_have_a_mebibyte(self, page: int) -> None:
        body = memoryview(struct.pack("<IIII", 7, 38, 131072, 1 << 22))
        *_, pages, _, _ = struct.unpack("<IIIIHHIIHHI28x", init_reply(body, page))
        assert pages * page == MIB

    def test_zeros_are_a_hole_in_the_log(self, page: int, tmp_path: Path) -> None:
        """In a file in memory, whose holes are whole pages. Here pages are made larger by zeros
        that are written."""
        path = tmp_path / "log"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        offset, length = 512 * 3, MIB
        os.pwrite(descriptor, b"header".ljust(page, b"\0"), 0)
        end = (offset + length) // page * page
        os.pwrite(descriptor, bytes(page), end)
        assert is_hole(descriptor, offset + 512, length - 512, page)
        os.pwrite(descriptor, b"x", end + 1)
        assert not is_hole(descriptor, offset + 512, length - 512, page)
        os.close(descriptor)

    def test_less_than_a_page_is_data(self, page: int, tmp_path: Path) -> None:
        descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
        LogWriter(descriptor).zero(0, page)
        assert not is_hole(descriptor, 1024, page, page)
        os.close(descriptor)


@given(found=events, data=st.data())
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_crash_states_in_memory_with_large_pages(
    page: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    found: list[tuple[str, tuple[int, int], int]],
    data: st.DataObject,
) -> None:
    """The kernel says of whole pages that they hold data, and each has several compared parts."""
    said = rebuild.stored_ranges

    def whole_pages(descriptor: int) -> Iterator[tuple[int, int]]:
        for begin, end in said(descriptor):
            yield begin // page * page, min(-(-end // page) * page, SIZE)

    directory = tmp_path_factory.mktemp("states")
    log = written(directory / "log", found)
    content = (directory / "log").read_bytes()
    epochs = epochs_between(log.entries, 0, len(log.entries))
    with monkeypatch.context() as large, rebuild.open_rebuilder(directory, log, SIZE) as rebuilder:
        large.setattr(rebuild, "stored_ranges", whole_pages)
        for _ in range(3):
            epoch = data.draw(st.sampled_from(epochs))
            kept = data.draw(st.integers(0, epoch.all))
            state = rebuilder.build(epoch, CrashState(epoch.number, kept))
            chosen = [index for bit, index in enumerate(epoch.changes) if kept >> bit & 1]
            assert state.read_bytes() == brute_force(log, content, epoch.base, chosen)
            spoil(state, data)


def test_no_job_maps_files() -> None:
    """fio's engine mmap needs offsets and blocks of whole pages; vdisklab takes no such job."""
    with pytest.raises(PlanError, match="mmap"):
        fiojob.groups("[a]\nioengine=mmap\nrw=read\nsize=1M\n", "the job file")


REPLAYER = Path(__file__).parents[2] / "src/vdisklab/workload/programs/replay.c"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_replayers_buffers(page: int, tmp_path: Path) -> None:
    """On a host with another page size it transfers from and to aligned memory all the same."""
    program, plan, disk = tmp_path / "replay", tmp_path / "plan", tmp_path / "disk"
    host = tmp_path / "host.c"  # its function precedes the C library's
    host.write_text(f"int getpagesize(void) {{ return {page}; }}\n")
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, REPLAYER, host], check=True)
    requests = [(number * 65536, 0, 0, 65536, number, number, 0, number % 2) for number in range(8)]
    head = b"VDLPLAN2" + struct.pack("<QQQQ", len(requests), 65536, 1, 1000)
    plan.write_bytes(head + b"".join(struct.pack("<QIIIIIII", *each) for each in requests))
    disk.write_bytes(bytes(MIB))
    done = subprocess.run(
        [program, "fast", plan, disk, "30"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert "\nrequests 8\ndone 8\nrefused 0\n" in done
    assert disk.read_bytes()[65536:131072].count(0) < 65536

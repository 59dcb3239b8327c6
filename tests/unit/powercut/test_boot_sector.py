"""The boot sector's bytes and command line; that it writes is shown where QEMU runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.plan.accelerator import Accelerator
from vdisklab.powercut.client_guests import BootSectorDisk, boot_argv, boot_sector
from vdisklab.powercut.sectors import make_sectors

DISK = Disk(
    "run1",
    8 << 20,
    {"driver": "file", "filename": "/m/disk.raw"},
    "raw",
    CacheMode.NONE,
    Attachment(Bus.IDE),
)


def test_it_is_a_boot_sector() -> None:
    sector = boot_sector()
    assert len(sector) == 512
    assert sector.endswith(b"\x55\xaa")
    assert sector[0x50:0x5A] == bytes.fromhex("be0081 b280 b80043 cd13"), "INT 13h, AH = 43h"


def test_the_disk_has_the_paths_cache_mode() -> None:
    argv = boot_argv(Path("/b"), 7, DISK)
    assert argv[argv.index("-accel") + 1] == "tcg"
    under_kvm = boot_argv(Path("/b"), 7, DISK, Accelerator.KVM)
    assert under_kvm[under_kvm.index("-accel") + 1] == "kvm"
    text = " ".join(argv)
    assert "socket,id=line,fd=7" in text
    assert '"driver": "ide-hd"' in text
    assert '"cache": {"direct": true, "no-flush": false}' in text


def test_a_write_sends_the_record_that_fills_the_sector() -> None:
    near, far = socket.socketpair()
    with near, far:
        disk = BootSectorDisk(near)
        assert disk.write(5, 1, 9, fua=False) == 1
        sent = far.recv(100)
        assert sent[:8] == (5).to_bytes(8, "little")
        assert sent[8:] * 16 == make_sectors(5, 1, 9)
        far.send(b"K")
        assert disk.await_one() == 1
        disk.write(6, 1, 10, fua=False)
        far.send(b"E")
        with pytest.raises(GuestError, match="the BIOS could not write"):
            disk.await_one()


def test_a_qemu_that_ends_is_told_from_one_that_is_slow() -> None:
    near, far = socket.socketpair()
    with near:
        disk = BootSectorDisk(near)
        far.close()
        with pytest.raises(GuestError, match="the BIOS was lost"):
            disk.await_one()
        with pytest.raises(GuestError, match="the BIOS was lost: Broken pipe"):
            disk.write(0, 1, 2, fua=False)


def test_what_the_bios_cannot_do_is_refused() -> None:
    near, far = socket.socketpair()
    with near, far:
        disk = BootSectorDisk(near)
        with pytest.raises(PlanError, match="one sector at a time"):
            disk.write(0, 8, 2, fua=False)
        with pytest.raises(PlanError, match="never flushes"):
            disk.flush()

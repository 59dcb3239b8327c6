"""The client in a guest: what is sent to it, and its program on a file in place of a disk."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import struct
import subprocess
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from vdisklab.errors import GuestError, PlanError
from vdisklab.guest.agent import CompletedInGuest
from vdisklab.guest.hotplug import port_commands
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames, Disk
from vdisklab.path.architecture import SYSTEM_CALLS
from vdisklab.path.disk_path import Attachment
from vdisklab.path.power_cut_words import ClientKind, DriverSetting
from vdisklab.path.segments import Bus, CacheMode
from vdisklab.plan.accelerator import Accelerator
from vdisklab.powercut.client import Load
from vdisklab.powercut.client_guests import Guests, apply_setting
from vdisklab.powercut.guest_clients import (
    GuestClientDisk,
    GuestProgram,
    RequestKind,
    guest_script,
    writer_request,
)
from vdisklab.powercut.sectors import make_sectors, read_versions
from vdisklab.units import SECTOR
from vdisklab.value import replace

RUN1 = Disk("run1", 1, {"driver": "file", "filename": "/x"}, "raw", CacheMode.NONE, Attachment())


class Guest:
    """A machine whose agent says what a program left, and whose disk QEMU lists."""

    def __init__(self, said: str = "", errors: str = "", *, write_cache: bool = True) -> None:
        self.agent = self
        self._ended = (said, errors)
        self._write_cache = write_cache

    def run(self, argv: tuple[str, ...], **_more: object) -> CompletedInGuest:
        return CompletedInGuest(argv, 0, *self._ended, 0.0)

    def finish(self, _pid: int, argv: tuple[str, ...], **_more: object) -> CompletedInGuest:
        return CompletedInGuest(argv, 2, *self._ended, 0.0)

    def query(self, _command: str) -> list[object]:
        path = f"/machine/peripheral/{AttachedNames('run1').device}/virtio-backend"
        cache = {"writeback": self._write_cache, "direct": True, "no-flush": False}
        return [{"qdev": path, "inserted": {"drv": "raw", "cache": cache}}]


def machine(**said: object) -> Machine:
    return cast(Machine, Guest(**said))  # type: ignore[arg-type]


class TestRequests:
    def test_a_flush_is_a_head_and_nothing_more(self) -> None:
        assert struct.unpack("<IIIIQ", writer_request(7, RequestKind.FLUSH)) == (7, 3, 0, 0, 0)

    def test_a_write_carries_the_record_that_fills_each_sector(self) -> None:
        sent = writer_request(9, RequestKind.WRITE_FUA, first=1000, count=3, version=5)
        assert struct.unpack("<IIIIQ", sent[:24]) == (9, 2, 3, 0, 1000)
        records = [sent[index : index + 32] for index in range(24, len(sent), 32)]
        assert b"".join(record * 16 for record in records) == make_sectors(1000, 3, 5)

    def test_answers_come_in_any_order_and_errors_are_told(self) -> None:
        near, far = socket.socketpair()
        with near, far:
            disk = GuestClientDisk(GuestProgram(machine(), near, 1, "the client", "port"), {})
            first, second = disk.write(0, 1, 2, fua=False), disk.flush()
            judge_questions = struct.pack("<IIII", second, 0, first, 28)
            far.sendall(judge_questions[:5])
            far.sendall(judge_questions[5:])
            assert disk.await_one() == second
            with pytest.raises(GuestError, match=r"No space left on device \(ENOSPC\)"):
                disk.await_one()

    def test_a_program_that_ended_says_why(self) -> None:
        near, far = socket.socketpair()
        with near:
            disk = GuestClientDisk(
                GuestProgram(
                    machine(errors="/dev/vda: No such file\n"), near, 1, "the client", "port"
                ),
                {},
            )
            far.close()
            with pytest.raises(GuestError, match="/dev/vda: No such file"):
                disk.await_hello()


def test_a_port_is_a_socket_of_its_own_name() -> None:
    backend, device = port_commands("vdisklab-1-run1")
    address = backend.arguments["backend"]["data"]["addr"]["data"]
    assert address == {"path": "vdisklab-1-run1"}
    assert device.arguments["chardev"] == backend.arguments["id"]
    assert device.arguments["name"] == "vdisklab-1-run1"


@contextmanager
def writer(disk: Path, workers: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The guest's program on this machine: a terminal for its port, a file for its disk."""
    near, far = os.openpty()
    tty.setraw(near)
    tty.setraw(far)
    process = subprocess.Popen(
        [
            "perl",
            "-e",
            guest_script("writer.pl"),
            os.ttyname(far),
            str(disk),
            str(workers),
            str(SYSTEM_CALLS[platform.machine()].fdatasync),
            str(SYSTEM_CALLS[platform.machine()].o_direct),
        ],
        stderr=subprocess.PIPE,
    )
    try:
        yield near, process
    finally:
        process.kill()
        process.communicate()
        os.close(far)
        os.close(near)


def hear(line: int) -> tuple[int, int]:
    said = b""
    while len(said) < 8:
        said += os.read(line, 8 - len(said))
    number, status = struct.unpack("<II", said)
    return number, status


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
@pytest.mark.parametrize("workers", [1, 3])
def test_the_guests_program_writes_sectors_that_say_what_they_are(
    workers: int, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    with writer(disk, workers) as (line, process):
        assert hear(line) == (0, 0)
        os.write(line, writer_request(1, RequestKind.WRITE, 0, 8, 2))
        os.write(line, writer_request(2, RequestKind.WRITE_FUA, 1024, 64, 3))
        os.write(line, writer_request(3, RequestKind.FLUSH))
        assert sorted(hear(line) for _ in range(3)) == [(1, 0), (2, 0), (3, 0)]
        os.write(line, writer_request(0, RequestKind.QUIT))
        _, errors = process.communicate(timeout=10)
        assert (process.returncode, errors) == (0, b"")
    content = np.fromfile(disk, dtype=np.uint8)
    numbers = np.arange(len(content) // SECTOR, dtype=np.int64)
    found = read_versions(content, numbers)
    assert found[:8].tolist() == [2] * 8
    assert found[1024:1088].tolist() == [3] * 64
    assert not found[8:1024].any()
    assert not found[1088:].any()


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
def test_the_guests_program_reads_back_what_the_disk_holds(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(make_sectors(0, 256, 7))
    with writer(disk, 1) as (line, _):
        assert hear(line) == (0, 0)
        for number, (first, count) in enumerate([(0, 1), (40, 128), (255, 1), (256, 1)], start=1):
            os.write(line, writer_request(number, RequestKind.READ, first, count))
            status = errno.EIO if first == 256 else 0
            assert hear(line) == (number, status), "there is no sector 256"
            content = b""
            while not status and len(content) < count * SECTOR:
                content += os.read(line, count * SECTOR - len(content))
            assert content == (b"" if status else make_sectors(first, count, 7))


class TestDriverSettings:
    def test_what_was_read_back_is_told(self) -> None:
        guest = machine(said="guest.queue.write_cache=write back\nguest.queue.fua=0\n")
        observed = apply_setting(guest, RUN1, "/dev/vda", DriverSetting.AS_FOUND)
        assert observed == {
            "guest.queue.write_cache": "write back",
            "guest.queue.fua": "0",
            "qemu.write_cache": "on",
        }

    def test_a_setting_that_did_not_take_is_no_setting(self) -> None:
        guest = machine(said="guest.queue.write_cache=write back\n")
        with pytest.raises(GuestError, match="write_cache is write back"):
            apply_setting(guest, RUN1, "/dev/vda", DriverSetting.QUEUE)
        with pytest.raises(GuestError, match=r"guest\.ata\.write_cache is missing"):
            apply_setting(guest, RUN1, "/dev/sda", DriverSetting.HDPARM)

    def test_a_bus_has_only_its_own(self) -> None:
        have = {s: {b for b in Bus if b in s.buses} for s in DriverSetting}
        assert have[DriverSetting.HDPARM] == {Bus.IDE, Bus.SATA}
        assert have[DriverSetting.CACHE_TYPE] == set(Bus) - {Bus.NVME}
        assert have[DriverSetting.QUEUE] == have[DriverSetting.AS_FOUND] == set(Bus)
        disk = replace(RUN1, attachment=Attachment(Bus.NVME))
        nothing: Any = None
        guests = Guests(nothing, nothing, Accelerator.TCG, nothing, Path())
        with (
            pytest.raises(PlanError, match="nvme disk has no setting `hdparm`"),
            guests.open(disk, Load(ClientKind.NEVER), DriverSetting.HDPARM),
        ):
            pass

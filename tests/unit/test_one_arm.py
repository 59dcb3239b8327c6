"""The disk on which the replay is proved: one request after another, in stated times."""

from __future__ import annotations

import struct
import time

import pytest

from tests.unit.pages import bench

ARM = bench("one_arm.py")
READ, WRITE, FSYNC = 15, 16, 20


def move(offset: int, length: int, data: bytes = b"") -> memoryview:
    return memoryview(struct.pack("<QQIIQII", 0, offset, length, 0, 0, 0, 0) + data)


def test_requests_wait_for_those_that_came_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    disk = ARM["Disk"](1 << 20, {READ: 8, WRITE: 10, FSYNC: 40}, 1000)
    written = disk.answer(WRITE, move(4096, 2000, b"x" * 2000))
    assert written == (pytest.approx(100.012), 0, struct.pack("<II", 2000, 0))
    clock[0] = 100.001
    flushed = disk.answer(FSYNC, memoryview(b""))
    assert flushed == (pytest.approx(100.052), 0, b""), "40 ms after the write's end"
    clock[0] = 101.0
    read = disk.answer(READ, move(6000, 1000))
    assert read == (pytest.approx(101.009), 0, b"x" * 96 + bytes(904)), "an idle arm begins at once"


def test_what_the_disk_does_not_know_is_said_at_once() -> None:
    lookup = 1
    disk = ARM["Disk"](1 << 20, {}, 1)
    assert disk.answer(lookup, memoryview(b"")) == (0.0, 38, b""), "ENOSYS"

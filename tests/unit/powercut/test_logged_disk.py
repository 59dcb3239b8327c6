"""device-mapper's log of writes: its command lines, and positions that are marks."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.powercut.test_trace import TRACE
from vdisklab.errors import HostError
from vdisklab.host.command import Completed
from vdisklab.powercut.logged_disk import (
    MarkTail,
    dm_table,
    mark_positions,
    require_log_writes,
    resolve_marks,
)
from vdisklab.powercut.write_log import Flag, LogError, mark_text, read_log

SECTOR = 4096
"""The kernel writes its log in sectors of the logged disk, which may be of 4 KiB."""


class Dmsetup:
    """A host with dmsetup, which lists these targets."""

    def __init__(self, targets: str = "", *, installed: bool = True) -> None:
        self.targets, self.installed = targets, installed
        self.ran: list[tuple[str, ...]] = []

    def which(self, program: str) -> Path | None:
        return Path("/sbin", program) if self.installed and program == "dmsetup" else None

    def run(self, *argv: object, **_options: object) -> Completed:
        self.ran.append(tuple(map(str, argv)))
        return Completed(self.ran[-1], 0, self.targets, "")


def header(first: int, sectors: int, flags: Flag, text: bytes = b"") -> bytes:
    """struct log_write_entry of drivers/md/dm-log-writes.c; a mark's text stands behind it."""
    return (struct.pack("<QQQQ", first, sectors, flags, len(text)) + text).ljust(SECTOR, b"\0")


def kernel_log(path: Path, *marks: int) -> Path:
    """As the kernel writes it: marks among writes, a flush with data, the end's own mark."""
    parts = [
        header(0, 1, Flag(0)), b"a" * SECTOR,
        *(header(0, 0, Flag.MARK, f"vdisklab-{number}".encode()) for number in marks),
        header(8, 1, Flag.FLUSH | Flag.FUA | Flag.METADATA), b"b" * SECTOR,
        header(16, 2, Flag.DISCARD),
        header(0, 0, Flag.MARK, b"dm-log-writes-end"),
    ]  # fmt: skip
    count = 4 + len(marks)
    head = struct.pack("<QQQI", 0x6A736677736872, 1, count, SECTOR).ljust(SECTOR, b"\0")
    path.write_bytes(head + b"".join(parts))
    return path


def test_the_kernels_log_is_read_with_its_marks(tmp_path: Path) -> None:
    log = read_log(kernel_log(tmp_path / "log", 0, 1))
    assert [mark_text(log, each) for each in log.entries] == [
        None, "vdisklab-0", "vdisklab-1", None, None, "dm-log-writes-end",
    ]  # fmt: skip
    assert (log.entries[3].offset, log.entries[3].length) == (8 * SECTOR, SECTOR)
    assert log.entries[3].flushes
    assert [each.changes_disk for each in log.entries] == [True, False, False, True, True, False]
    assert mark_positions(log) == {0: 1, 1: 2}


def test_marks_become_places(tmp_path: Path) -> None:
    log = read_log(kernel_log(tmp_path / "log", *range(1, 8)))
    found = resolve_marks(TRACE, log)
    assert (found.begin, found.end) == (1, 7)
    assert found.writes == TRACE.writes
    assert found.flushes == TRACE.flushes
    with pytest.raises(LogError, match="lacks the mark vdisklab-9"):
        resolve_marks(replace(TRACE, end=9), log)


def test_a_position_is_a_mark() -> None:
    host = Dmsetup()
    tail = MarkTail(host, "vdl_1")
    assert [tail.position(), tail.position()] == [0, 1]
    assert host.ran[1] == ("dmsetup", "message", "vdl_1", "0", "mark", "vdisklab-1")
    assert (
        dm_table(1 << 20, "/dev/loop1", "/dev/loop2") == "0 2048 log-writes /dev/loop1 /dev/loop2"
    )


def test_a_kernel_without_the_target_is_said() -> None:
    found = require_log_writes(Dmsetup("linear   v1.4.0\nlog-writes  v1.1.0\n"))
    assert found == "log-writes v1.1.0"
    with pytest.raises(HostError, match="has no target log-writes"):
        require_log_writes(Dmsetup("linear   v1.4.0\nlog-userspace v1.3.0\n"))
    with pytest.raises(HostError, match="dmsetup is not installed"):
        require_log_writes(Dmsetup(installed=False))


def test_the_server_does_not_load_numpy() -> None:
    """It locks all its memory, and with numpy that was 136 MiB instead of 20."""
    code = "import sys, vdisklab.powercut.disk_server; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"

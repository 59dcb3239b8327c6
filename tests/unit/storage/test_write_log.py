"""dm-log-writes' format: what is written is read; what is damaged is said to be."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.storage import write_log as log
from vdisklab.storage.write_log import Flag, LogError, LogTail, LogWriter, read_log

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "zero", "discard", "flush"]),
        st.integers(0, 1000),
        st.integers(1, 16),
    ),
    max_size=12,
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def write(writer: LogWriter, what: str, sector: int, sectors: int) -> None:
    if what == "write":
        writer.write(sector * 512, bytes([sector % 255 + 1]) * sectors * 512)
    elif what == "flush":
        writer.flush()
    else:
        getattr(writer, what)(sector * 512, sectors * 512)


@given(OPERATIONS)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    writer, tail = LogWriter(descriptor), LogTail(descriptor)
    for number, operation in enumerate(operations):
        assert tail.position() == number
        write(writer, *operation)
    entries = read_log(path).entries
    assert len(entries) == len(operations)
    for entry, (what, sector, sectors) in zip(entries, operations, strict=True):
        assert entry.flushes == (what == "flush")
        assert (Flag.DISCARD in entry.flags) == (what == "discard")
        assert entry.changes_disk == (what != "flush")
        if what != "flush":
            assert (entry.offset, entry.length) == (sector * 512, sectors * 512)
        if what in ("write", "zero"):
            expected = bytes([sector % 255 + 1 if what == "write" else 0]) * sectors * 512
            assert os.pread(descriptor, entry.length, entry.data_at) == expected
    os.close(descriptor)


def test_the_header_is_the_kernels(tmp_path: Path, file: int) -> None:
    writer = LogWriter(file)
    writer.write(4096, b"x" * 1024)
    writer.flush()
    raw = (tmp_path / "log").read_bytes()
    assert raw[:8] == b"rhswfsj\0", "WRITE_LOG_MAGIC of drivers/md/dm-log-writes.c"
    assert struct.unpack_from("<QQQI", raw) == (0x6A736677736872, 1, 2, 512)
    assert struct.unpack_from("<QQQQ", raw, 512) == (8, 2, 0, 0)
    assert struct.unpack_from("<QQQQ", raw, 512 + 512 + 1024) == (0, 0, 1, 0)


def test_what_there_was_no_room_for_is_not_in_the_log(
    tmp_path: Path, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it would else be read as the zeros of an entry that is logged after it."""
    writer = LogWriter(file)
    writer.write(0, b"a" * 512)

    def cut_short(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
        os.pwrite(descriptor, b"".join(parts)[:-512], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(log, "write_whole", cut_short)
        with pytest.raises(OSError, match="No space left"):
            writer.write(4096, b"b" * 16384)
    writer.zero(8192, 1 << 18)
    writer.write(0, b"c" * 512)
    found = read_log(tmp_path / "log").entries
    assert [(each.offset, each.length, each.zeroes) for each in found] == [
        (0, 512, False), (8192, 1 << 18, True), (0, 512, False),
    ]  # fmt: skip


def test_a_mark_takes_one_sector(tmp_path: Path, file: int) -> None:
    writer = LogWriter(file)
    writer.flush()
    writer.flush()
    os.pwrite(file, struct.pack("<QQQQ", 0, 0, Flag.MARK, 4) + b"name", 512)
    assert [entry.flags for entry in read_log(tmp_path / "log").entries] == [Flag.MARK, Flag.FLUSH]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "too short"),
        (b"QFI\xfb" * 128, "not a log of writes"),
        (struct.pack("<QQQI", 0x6A736677736872, 7, 0, 512), "version"),
        (struct.pack("<QQQI", 0x6A736677736872, 1, 0, 500), "sector size"),
        (struct.pack("<QQQI", 0x6A736677736872, 1, 3, 512).ljust(512, b"\0"), "after 0 of 3"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(LogError, match=sentence):
        read_log(path)


def test_a_log_cut_short_or_scribbled_on_is_refused(tmp_path: Path, file: int) -> None:
    writer = LogWriter(file)
    writer.write(0, b"x" * 4096)
    os.ftruncate(file, 2048)
    with pytest.raises(LogError, match="in the data of entry 0"):
        read_log(tmp_path / "log")
    os.ftruncate(file, 8192)
    os.pwrite(file, b"\xff" * 32, 512)
    with pytest.raises(LogError, match=r"entry 0 .* is damaged"):
        read_log(tmp_path / "log")

"""States of a disk against a brute-force reading of the log, whatever was done to them between."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import MemoryFullError
from vdisklab.host.syscalls import punch_hole
from vdisklab.powercut import rebuild as memory
from vdisklab.powercut.crash_states import CrashState, epochs_between
from vdisklab.powercut.rebuild import open_rebuilder
from vdisklab.storage.write_log import Flag, Log, LogWriter, read_log

SIZE = 64 * 4096
SECTORS = SIZE // 512

spans = st.tuples(st.integers(0, SECTORS - 1), st.integers(1, 40)).map(
    lambda pair: (pair[0] * 512, min(pair[1], SECTORS - pair[0]) * 512)
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("write"), spans, st.integers(1, 255)),
        st.tuples(st.just("zero"), spans, st.just(0)),
        st.tuples(st.just("discard"), spans, st.just(0)),
        st.just(("flush", (0, 0), 0)),
    ),
    max_size=24,
)


def written(path: Path, found: list[tuple[str, tuple[int, int], int]]) -> Log:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    writer = LogWriter(descriptor)
    for kind, (offset, length), fill in found:
        match kind:
            case "write":
                writer.write(offset, bytes([fill]) * length)
            case "zero":
                writer.zero(offset, length)
            case "discard":
                writer.discard(offset, length)
            case _:
                writer.flush()
    os.close(descriptor)
    return read_log(path)


def brute_force(log: Log, content: bytes, base: int, chosen: list[int]) -> bytes:
    disk = bytearray(SIZE)
    for index in [*range(base), *chosen]:
        entry = log.entries[index]
        if not entry.changes_disk:
            continue
        data = content[entry.data_at : entry.data_at + entry.length]
        empty = Flag.DISCARD in entry.flags
        disk[entry.offset : entry.offset + entry.length] = bytes(entry.length) if empty else data
    return bytes(disk)


@settings(max_examples=60, deadline=None)
@given(found=events, data=st.data())
def test_each_state_is_what_the_log_says(
    found: list[tuple[str, tuple[int, int], int]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as made:
        directory = Path(made)
        log = written(directory / "log", found)
        content = (directory / "log").read_bytes()
        epochs = epochs_between(log.entries, 0, len(log.entries))
        with open_rebuilder(directory, log, SIZE) as rebuilder:
            for _ in range(4):
                epoch = data.draw(st.sampled_from(epochs))
                kept = data.draw(st.integers(0, epoch.all))
                state = rebuilder.build(epoch, CrashState(epoch.number, kept))
                chosen = [index for bit, index in enumerate(epoch.changes) if kept >> bit & 1]
                assert state.read_bytes() == brute_force(log, content, epoch.base, chosen)
                spoil(state, data)


def spoil(state: Path, data: st.DataObject) -> None:
    """What a journal's recovery and a guest do to a state: writes, and discards."""
    with state.open("r+b") as opened:
        for offset, length in data.draw(st.lists(spans, max_size=5)):
            if data.draw(st.booleans()):
                opened.seek(offset)
                opened.write(b"X" * length)
            else:
                opened.flush()
                punch_hole(opened.fileno(), offset, length)


def test_a_disk_that_is_full_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path / "log", [("write", (0, 512), 7)])
    epochs = epochs_between(log.entries, 0, len(log.entries))
    with open_rebuilder(tmp_path, log, SIZE) as rebuilder:
        monkeypatch.setattr(memory, "free_bytes", lambda _directory: 1 << 20)
        with pytest.raises(MemoryFullError, match="no room in memory for another state"):
            rebuilder.build(epochs[0], CrashState(0, 1))
        with pytest.raises(MemoryFullError, match="no room in memory for another state"):
            rebuilder.require_room()
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_room_is_asked_for_all_who_build_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One could else take the last of it from another, and give it back before that one looks."""
    log = written(tmp_path / "log", [("write", (0, 512), 7)])
    (epoch,) = epochs_between(log.entries, 0, len(log.entries))
    monkeypatch.setattr(memory, "free_bytes", lambda _directory: 200 << 20)
    with open_rebuilder(tmp_path, log, SIZE, sharers=2) as rebuilder:
        rebuilder.build(epoch, CrashState(0, 1))
    with (
        open_rebuilder(tmp_path, log, SIZE, sharers=3) as rebuilder,
        pytest.raises(MemoryFullError, match="no room in memory"),
    ):
        rebuilder.build(epoch, CrashState(0, 1))

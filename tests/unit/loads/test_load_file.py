"""Load files: what goes in comes out, and no damaged or hostile file does harm."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loads.loads import load, loads
from vdisklab.errors import LoadError
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import LARGEST_FILE, decode, encode, read_load
from vdisklab.value import replace

COLUMNS = ("due_us", "kind", "forced", "offset", "length", "service_us")


def signed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def small() -> RecordedLoad:
    return load((0, IoKind.WRITE, 4096, 8192, 90, True), (70, IoKind.FLUSH, 0, 0, 900))


@given(loads())
def test_a_load_comes_back_as_it_was_written(made: RecordedLoad) -> None:
    back = decode(encode(made), "x.load")
    assert back.source == made.source
    for name in COLUMNS:
        assert getattr(back, name).tolist() == getattr(made, name).tolist()


def test_the_source_comes_back_whole() -> None:
    made = small()
    told = replace(
        made.source,
        recorded_at=datetime(2026, 11, 28, 19, 3, tzinfo=UTC),
        disk_bytes=1 << 30,
        bus="virtio",
        qemu="7.2.9",
        lost=0,
    )
    assert decode(encode(replace(made, source=told)), "x.load").source == told


@pytest.mark.parametrize(
    ("count", "most"), [(200_000, 6.7), pytest.param(1_000_000, 6.0, marks=pytest.mark.nightly)]
)
def test_requests_at_random_places_take_six_bytes_each(count: int, most: float) -> None:
    """10 million of them 60 MB: the limit for a file that people send. Places are the worst case:
    every 4 KiB block of a terabyte is as likely as any other. Fewer requests take more each."""
    chance = np.random.default_rng(1)
    made = RecordedLoad(
        replace(small().source, span_us=3600 * 10**6),
        due_us=np.cumsum(chance.exponential(1000, count)).astype(np.int64),
        kind=(chance.random(count) < 0.5).astype(np.uint8),
        forced=np.zeros(count, np.bool_),
        offset=chance.integers(0, 250_000_000, count) * 4096,
        length=chance.choice([1, 2, 4, 8, 16], count) * 4096,
        service_us=chance.lognormal(5, 1, count).astype(np.int64),
    )
    content = encode(made)
    assert len(content) < most * count
    back = decode(content, "x.load")
    assert (back.offset == made.offset).all()
    unit = back.source.resolution_us
    assert unit <= 8
    assert (back.due_us == made.due_us // unit * unit).all()


def test_a_client_s_think_times_make_a_file_shorter() -> None:
    """One request at a time: it begins so long after the end of the one before."""
    chance, count = np.random.default_rng(1), 100_000
    service = chance.lognormal(7, 1, count).astype(np.int64)
    made = RecordedLoad(
        replace(small().source, span_us=3600 * 10**6),
        due_us=np.concatenate(([0], np.cumsum(service + 20)[:-1])),
        kind=np.zeros(count, np.uint8),
        forced=np.zeros(count, np.bool_),
        offset=np.zeros(count, np.int64),
        length=np.full(count, 4096),
        service_us=service,
    )
    content = encode(made)
    assert b'"coding":"after"' in content
    assert len(content) < 2 * count
    assert (decode(content, "x.load").due_us == made.due_us).all()


@given(loads(), st.sampled_from([2, 4, 8]))
def test_coarser_times_keep_what_ended_before(made: RecordedLoad, unit: int) -> None:
    coarse = made.coarser(unit)
    ends, coarse_ends = made.due_us + made.service_us, coarse.due_us + coarse.service_us
    had_ended = (ends[:, None] <= made.due_us) & made.is_timed[:, None]
    assert (coarse_ends[:, None] <= coarse.due_us)[had_ended].all()
    assert (coarse.is_timed == made.is_timed).all()


@given(st.data())
def test_a_changed_byte_or_end_is_noticed(data: st.DataObject) -> None:
    content = bytearray(encode(small()))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LoadError):
        decode(bytes(content), "x.load")


@given(st.data())
def test_a_file_with_a_right_checksum_and_wrong_content_ends_with_one_sentence(
    data: st.DataObject,
) -> None:
    content = bytearray(encode(small())[:-32])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(LoadError):
        decode(signed(bytes(content)), "x.load")


def test_a_bomb_is_not_unpacked() -> None:
    made = encode(small())
    header = json.loads(made.split(b"\n")[1])
    bomb = lzma.compress(bytes(100 << 20), preset=0)
    for column in header["columns"]:
        column["planes"] = [len(bomb)]
    content = b"vdisklab-load/2\n" + json.dumps(header).encode() + b"\n" + bomb * 5
    with pytest.raises(LoadError, match="is damaged: a column is not as long"):
        decode(signed(content), "x.load")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "x.load is not a load file"),
        (b"PK\x03\x04", "x.load is not a load file"),
        (b"vdisklab-load/9\n{}",
         "x.load has the format vdisklab-load/9, and this vdisklab reads vdisklab-load/2"),
        (b"vdisklab-load/2\n{}\n", "x.load is damaged: its checksum is wrong"),
        (signed(b"vdisklab-load/2\n{}\n"), "x.load is damaged: in its header source is missing"),
        (signed(b"vdisklab-load/2\n" + b"[" * 60000 + b"\n"), None),
        (signed(b"vdisklab-load/2\n" + b" " * 70000 + b"\n"),
         "x.load is damaged: its header does not end"),
    ],
)  # fmt: skip
def test_what_is_no_load_file_is_named(content: bytes, said: str | None) -> None:
    with pytest.raises(LoadError) as refused:
        decode(content, "x.load")
    assert said in (None, refused.value.message)


def test_files_that_are_none_are_refused_before_they_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(LARGEST_FILE + 1)
    for name, said in {
        "pipe": "is not a file",
        "huge": "bytes, and a load file at most",
        "gone": "cannot be read: No such file or directory",
    }.items():
        with pytest.raises(LoadError, match=said):
            read_load(tmp_path / name)


def test_a_file_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "x.load").write_bytes(encode(small()))
    assert len(read_load(tmp_path / "x.load")) == 2

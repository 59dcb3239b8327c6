"""A write never counts as durable too early, in whatever order answers come."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.errors import PowercutError
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.client import (
    Load,
    Trace,
    Write,
    run_client,
    trace_from_json,
    trace_to_json,
    write_extents,
)
from vdisklab.powercut.sectors import Extent
from vdisklab.storage.write_log import LogTail

SECTORS = 4096


@dataclass
class Disk:
    """A disk whose log grows as requests complete, in a random order; knows when each did."""

    rng: random.Random
    log: int = 0
    requests: dict[int, tuple[str, int]] = field(default_factory=dict)
    write_extents: dict[int, Extent] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)
    flushed: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    number: int = 0
    observed: Mapping[str, str] = field(default_factory=dict)

    def position(self) -> int:
        return self.log

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        del fua
        place = Extent(first, count)
        assert not any(
            place.overlaps(self.write_extents[v]) for k, v in self.requests.values() if k == "w"
        )
        self.number += 1
        self.requests[self.number] = ("w", version)
        self.write_extents[version] = place
        return self.number

    def flush(self) -> int:
        self.number += 1
        self.requests[self.number] = ("f", 0)
        self.flushed.append((self.number, frozenset(self.completed)))
        return self.number

    def await_one(self) -> int:
        request = self.rng.choice(sorted(self.requests))
        kind, version = self.requests.pop(request)
        self.log += 1 + self.rng.randrange(2)  # somebody else writes, too
        if kind == "w":
            self.completed[version] = self.log
        return request


@dataclass
class Growth:
    """A disk that doubles in mid-run, for which its client must be idle."""

    disk: Disk
    added_sectors: int = SECTORS

    def start(self) -> None:
        """Nothing: it takes no time."""

    def finish(self) -> None:
        assert not self.disk.requests


def test_a_client_writes_to_both_halves_of_a_disk_that_has_grown() -> None:
    disk = Disk(random.Random(1))  # noqa: S311 - reproducible
    load = Load(ClientKind.FLUSHES, writes=24, depth=4)
    run = run_client(disk, cast("LogTail", disk), load, SECTORS, Growth(disk))
    new_half = [write.first >= SECTORS for write in run.writes]
    assert new_half == [False] * 16 + [True, False] * 4
    assert all(write.first + write.count <= 2 * SECTORS for write in run.writes)


@given(st.sampled_from(ClientKind), st.integers(1, 8), st.integers(1, 6), st.integers(0, 10**6))
def test_no_write_is_durable_too_early(kind: ClientKind, depth: int, every: int, seed: int) -> None:
    disk = Disk(random.Random(seed))  # noqa: S311 - reproducible
    load = Load(kind, writes=24, flush_every=every, depth=depth, seed=seed)
    writes = run_client(disk, cast("LogTail", disk), load, SECTORS).writes
    assert [write.version for write in writes] == list(range(2, 26))
    for write in writes:
        assert write.acked is not None
        assert write.submitted <= disk.completed[write.version] <= write.acked
        if kind is ClientKind.FLUSHES:
            if write.durable_at is not None:
                assert write.durable_at > write.acked, "a flush came after the acknowledgement"
                assert any(write.version in covered for _, covered in disk.flushed)
        else:
            assert write.durable_at == write.acked


def test_with_one_request_in_flight_every_flush_makes_all_before_durable() -> None:
    disk = Disk(random.Random(1))  # noqa: S311 - reproducible
    writes = run_client(
        disk, cast("LogTail", disk), Load(ClientKind.FLUSHES, writes=10), SECTORS
    ).writes
    assert [write.durable_at is not None for write in writes] == [True] * 8 + [False] * 2


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_places_are_on_the_disk(seed: int, sectors: int) -> None:
    for place in write_extents(Load(ClientKind.NEVER, seed=seed), sectors):
        assert place.first >= 0
        assert place.count >= 1
        assert place.first + place.count <= sectors


TRACE = Trace(
    "ext4/raw/none", ClientKind.FUA, "nbd", "ext4", ("nobarrier",), "disk.raw", "raw",
    8 << 20, 64 << 20, True, 10, 20, (Write(2, 0, 8, 10, 12, 12), Write(3, 8, 8, 12)), {"a": "b"},
)  # fmt: skip


def test_a_trace_is_read_back() -> None:
    assert trace_from_json(trace_to_json(TRACE)) == TRACE
    assert TRACE.acknowledged == 1


WHOLE = trace_to_json(TRACE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        b"\xff\xfe",
        WHOLE[:-40],
        WHOLE.replace('"fua"', '"x"'),
        WHOLE.replace('"begin": ', '"begin": "x", "was": '),
        WHOLE.replace('"image": "', '"image": "/'),
        WHOLE.replace('"image": "', '"image": "../'),
        WHOLE.replace('"first": ', '"first": -'),
        WHOLE.replace('"disk_size": ', '"disk_size": -'),
    ],
)
def test_a_damaged_or_foreign_trace_is_refused(text: str | bytes) -> None:
    assert text != WHOLE
    with pytest.raises(PowercutError, match="the recording is damaged") as told:
        trace_from_json(text)
    assert "\n" not in str(told.value)

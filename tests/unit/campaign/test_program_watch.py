"""A program of the host second by second, from counts that its kernel might show."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.campaign.watches import (
    ProgramPoint,
    ProgramWatch,
    longest_stall_of,
    program_series,
    shows_waiting,
    worst_second_of,
)
from vdisklab.errors import HostError, ServerGoneError
from vdisklab.host import mounts
from vdisklab.host.counters import Activity
from vdisklab.host.mounts import Mount
from vdisklab.progress import Event, Throughput


def looks(*seen: tuple[float, int, int, bool]) -> list[ProgramPoint]:
    return [
        ProgramPoint(moment, Activity(size, progress, waits))
        for moment, size, progress, waits in seen
    ]


def stall(*seen: tuple[float, int, int, bool]) -> float:
    series = program_series(looks(*seen), 0.0, (seen[-1][0], 0), shows_waiting=True)
    (found,) = longest_stall_of(series)
    return found.value


def test_a_wait_in_which_nothing_comes_is_a_stall() -> None:
    waiting = [(0.2 + tick / 5, 100, 400, True) for tick in range(6)]
    assert stall((0.0, 0, 0, False), *waiting, (1.4, 200, 500, False)) == pytest.approx(1.0)


def test_rest_and_work_are_no_stalls() -> None:
    resting = [(tick / 5, 100, 400, False) for tick in range(10)]
    assert stall(*resting) == 0.0
    working = [(tick / 5, tick, tick, True) for tick in range(10)]
    assert stall(*working) == 0.0
    cached = [(tick / 5, 100, tick, True) for tick in range(10)]
    assert stall(*cached) == 0.0, "it got something, if not from the disk"
    short = [(tick / 5, 100, 400, True) for tick in range(3)]
    assert stall(*short, (0.6, 101, 401, False)) == 0.0


def test_what_was_moved_after_the_last_look_is_counted() -> None:
    seen = looks((0.0, 0, 0, False), (0.2, 300, 300, False))
    series = program_series(seen, 0.0, (0.3, 1000), shows_waiting=True)
    assert series.moved[-1] == (0.3, 1000)
    assert [sample.value for sample in worst_second_of(series)] == [pytest.approx(1000 / 0.3)]


def test_counts_that_change_hands_are_not_lost_and_not_taken_back() -> None:
    seen = looks((0.1, 500, 9, False), (0.3, 100, 9, False), (0.5, 600, 9, False))
    moved = program_series(seen, 0.0, (0.6, 0), shows_waiting=True).moved
    assert [size for _, size in moved] == [0, 500, 500, 600, 600]


def test_what_cannot_be_seen_is_not_said() -> None:
    seen = looks((0.0, 0, 0, False), (1.5, 900, 900, False))
    hidden = program_series(seen, 0.0, (2.0, 900), shows_waiting=False)
    assert hidden.stalls is None
    unreadable = [ProgramPoint(0.0, None), ProgramPoint(0.2, None)]
    assert program_series(unreadable, 0.0, (0.3, 0), shows_waiting=True).stalls is None


class Kernel:
    """A clock, a program and what its kernel says of it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.size = 0
        self.ended = 5000

    def look(self, pid: int) -> Activity:
        assert pid == 7
        return Activity(self.size, self.size, waits=False)

    def run(self, seconds: float) -> None:
        self.now += seconds
        self.size += round(seconds * 1000)


@pytest.mark.parametrize("answers", [True, False])
def test_the_server_of_files_that_stand_still_is_asked(answers: bool) -> None:
    """A program on a hard mount whose server is gone waits for ever."""
    kernel, asked = Kernel(), list[float]()

    def unanswered() -> HostError | None:
        asked.append(kernel.now)
        return None if answers else HostError("/mnt/nas does not answer", hint="start its server")

    watch = ProgramWatch(
        lambda _: None, unanswered, activity_of=kernel.look, clock=lambda: kernel.now
    )
    watch.begin()
    for _ in range(10):
        kernel.run(2.0)
        watch(7)
    assert asked == []
    with nullcontext() if answers else pytest.raises(ServerGoneError, match="/mnt/nas"):
        for _ in range(10):
            kernel.now += 2
            watch(7)
    assert asked == [128.0, 138.0][: 2 if answers else 1]


def test_of_a_program_that_moved_no_byte_yet_no_throughput_is_told() -> None:
    """It may read the page cache, which the kernel does not count."""
    kernel, told = Kernel(), list[Event]()
    watch = ProgramWatch(told.append, activity_of=kernel.look, clock=lambda: kernel.now)
    watch.begin()
    for moves in (0, 0, 4096, 0):
        kernel.now += 1
        kernel.size += moves
        watch(7)
    assert told == [Throughput(4096.0, None), Throughput(0.0, None)]


def test_a_watch_follows_one_measurement_after_the_other() -> None:
    kernel, told = Kernel(), list[Event]()
    watch = ProgramWatch(
        told.append,
        activity_of=kernel.look,
        ended_bytes=lambda: kernel.ended,
        clock=lambda: kernel.now,
    )
    for _ in range(2):
        kernel.size = 0
        watch.begin()
        for _ in range(10):
            watch(7)
            kernel.run(0.2)
        kernel.run(0.1)
        kernel.ended += kernel.size
        series = watch.end()
        assert [sample.value for sample in worst_second_of(series)] == [pytest.approx(1000)]
        assert series.moved[0][1] == 0
        assert series.moved[-1][1] == 2100
    assert {type(each) for each in told} == {Throughput}
    assert len(told) == 18
    assert all(isinstance(each, Throughput) and each.operations_per_second is None for each in told)


@pytest.mark.parametrize(("filesystem", "shown"), [("fuse.sshfs", False), ("ext4", True)])
def test_fuse_shows_no_waiting(
    filesystem: str, shown: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mount = Mount(tmp_path, filesystem, "x", frozenset())
    monkeypatch.setattr(mounts, "read_mounts", lambda *_: (mount,))
    assert shows_waiting(tmp_path) is shown


@given(
    st.lists(
        st.tuples(st.floats(0.01, 2), st.integers(0, 9), st.integers(0, 9), st.booleans()),
        max_size=30,
    ),
    st.integers(0, 100),
)
def test_a_stall_is_never_longer_than_the_run(
    steps: list[tuple[float, int, int, bool]], total: int
) -> None:
    moment, size, progress = 0.0, 0, 0
    seen: list[ProgramPoint] = []
    for seconds, more, calls, waits in steps:
        moment, size, progress = moment + seconds, size + more, progress + calls
        seen.append(ProgramPoint(moment, Activity(size, progress, waits)))
    series = program_series(seen, 0.0, (moment + 0.1, total), shows_waiting=True)
    (found,) = longest_stall_of(series)
    assert 0 <= found.value <= moment
    sizes = [moved for _, moved in series.moved]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= max(total, size)

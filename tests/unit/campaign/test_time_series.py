"""Seconds and stalls of what was seen from outside, and what of it is filled in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.campaign.watches import (
    TimeSeries,
    longest_stall_of,
    with_time_series,
    worst_second_of,
)
from vdisklab.results.model import Direction, Sample
from vdisklab.workload.program import ProgramResult


def steady(seconds: float, *, rate: int = 1000, begin: float = 10.0) -> TimeSeries:
    """Looks ten times a second, each of which sees more."""
    ticks = round(seconds * 10)
    moved = [(begin + tick / 10, tick * rate // 10) for tick in range(ticks + 1)]
    busy = [(first[0], other[0]) for first, other in itertools.pairwise(moved)]
    return TimeSeries(tuple(moved), tuple(busy), ())


def worst(series: TimeSeries) -> float | None:
    found = worst_second_of(series)
    return found[0].value if found else None


NOTHING = TimeSeries((), (), None)


def test_what_the_program_says_itself_stays() -> None:
    measured = ProgramResult((Sample("worst_second", Direction.WRITE, 7.0),), None, None)
    outcome = with_time_series(measured, steady(3))
    assert [(s.metric, s.value) for s in outcome.samples] == [
        ("worst_second", 7.0), ("longest_stall", 0.0),
    ]  # fmt: skip
    assert outcome.series[0].direction is Direction.NONE
    assert with_time_series(measured, NOTHING) == measured


def test_a_program_that_is_done_within_a_second_has_its_bandwidth() -> None:
    """Seen from outside it took longer: it had to be started, and its end to be seen."""
    moves = (Sample("bandwidth", Direction.READ, 5e6), Sample("bandwidth", Direction.WRITE, 4e6))
    outcome = with_time_series(ProgramResult(moves, None, 0.4), steady(0.7))
    assert [(s.direction, s.value) for s in outcome.samples if s.metric == "worst_second"] == [
        (Direction.READ, 5e6), (Direction.WRITE, 4e6),
    ]  # fmt: skip
    longer = with_time_series(ProgramResult(moves, None, 1.4), steady(1.7))
    assert [s.value for s in longer.samples if s.metric == "worst_second"] == [pytest.approx(1000)]


def test_a_course_shorter_than_a_second_counts_whole() -> None:
    assert worst(steady(0.5)) == pytest.approx(1000)
    assert worst(steady(1.9)) == pytest.approx(1000)


def test_a_second_is_not_made_of_less() -> None:
    """Of a run that asked the disk for something for a moment only, as a guest that boots."""
    short = steady(0.5, begin=11.0)
    series = TimeSeries(((10.0, 0), *short.moved, (15.0, 500)), short.busy, ())
    assert worst(series) is None
    assert worst_second_of(series, short=True)[0].value == pytest.approx(1000)


def test_a_run_of_one_second_is_one_of_a_second() -> None:
    """sysbench says 1.0004 s, and reports no second of so short a run."""
    moves = (Sample("bandwidth", Direction.READ, 4e9),)
    outcome = with_time_series(ProgramResult(moves, None, 1.0004), steady(1.3))
    assert [s.value for s in outcome.samples if s.metric == "worst_second"] == [4e9]
    assert outcome.series == (), "no whole second of it was seen from outside"


def test_seconds_begin_with_the_first_completion() -> None:
    """A program that reads itself for a while has not asked this disk for anything."""
    late = steady(1.2, begin=10.7)
    series = TimeSeries(((10.0, 0), *late.moved, (12.3, 1200)), late.busy, ())
    assert worst(series) == pytest.approx(1000)


def test_a_pause_too_short_to_be_seen_elsewhere_is_none() -> None:
    first, other = steady(0.5), steady(0.5, begin=10.65)
    after = tuple((moment, size + 500) for moment, size in other.moved)
    assert worst(
        TimeSeries((*first.moved, *after), (*first.busy, *other.busy), ())
    ) == pytest.approx(1000, rel=0.2)
    later = tuple((moment + 0.2, size) for moment, size in after)
    busy = tuple((begin + 0.2, end + 0.2) for begin, end in other.busy)
    assert worst(TimeSeries((*first.moved, *later), (*first.busy, *busy), ())) is None


def test_a_stall_is_the_disks_time_and_makes_a_second_bad() -> None:
    first, other = steady(1.0), steady(1.0, begin=13.0)
    after = tuple((moment, size + 1000) for moment, size in other.moved)
    series = TimeSeries((*first.moved, *after), (*first.busy, *other.busy), ((11.0, 13.0),))
    assert worst(series) == 0.0
    assert longest_stall_of(series) == (Sample("longest_stall", Direction.NONE, 2.0),)


def test_without_stalls_nothing_is_said() -> None:
    seen = steady(5)
    unknown = TimeSeries(seen.moved, seen.busy, None)
    assert worst_second_of(unknown) == longest_stall_of(unknown) == ()
    idle = TimeSeries(((0.0, 0), (5.0, 0)), (), ())
    assert worst_second_of(idle) == ()
    assert longest_stall_of(idle) == (Sample("longest_stall", Direction.NONE, 0.0),)
    assert longest_stall_of(NOTHING) == worst_second_of(NOTHING) == ()


@given(st.lists(st.tuples(st.floats(0.001, 3), st.integers(0, 10**6)), min_size=1, max_size=40))
def test_the_worst_second_lies_between_nothing_and_the_fastest(
    steps: list[tuple[float, int]],
) -> None:
    moved, busy = [(5.0, 7)], []
    for seconds, size in steps:
        moment, before = moved[-1]
        moved.append((moment + seconds, before + size))
        if size:
            busy.append((moment, moment + seconds))
    found = worst(TimeSeries(tuple(moved), tuple(busy), ()))
    assert found is None or 0 <= found <= max(size / seconds for seconds, size in steps) * 1.001

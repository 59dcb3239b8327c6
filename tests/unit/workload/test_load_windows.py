"""Windows of an open load: what is known of made-up requests is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction
from vdisklab.workload.load_windows import (
    LoadWindow,
    default_rate,
    latencies_over_time,
    longest_stall,
    require_served,
    samples_in,
)
from vdisklab.workload.open_load import GuestRequests, LoggedRequest

READ, WRITE = Direction.READ, Direction.WRITE


def requests(*pairs: tuple[float, float | None], end: float = 10.0) -> GuestRequests:
    """Requests that were due and took so long; None for one that was never completed."""
    made = tuple(
        LoggedRequest(due, took, (READ, WRITE)[number % 2], 4096)
        for number, (due, took) in enumerate(pairs)
    )
    return GuestRequests(0.0, end, True, made)


def steady(*, held: tuple[float, float] = (0.0, 0.0)) -> GuestRequests:
    """A request each 0.1 s that takes 1 ms, but none is answered while the disk is held."""
    begin, end = held
    pairs = []
    for number in range(100):
        due = number / 10
        pairs.append((due, 0.001 + (end - due if begin <= due < end else 0.0)))
    return requests(*pairs)


def value(samples: object, metric: str, direction: Direction = Direction.NONE) -> float:
    assert isinstance(samples, tuple)
    (found,) = (
        sample.value
        for sample in samples
        if (sample.metric, sample.direction) == (metric, direction)
    )
    return float(found)


def test_a_stall_is_in_the_window_in_which_it_began() -> None:
    run = steady(held=(4.0, 6.0))
    assert longest_stall(run, LoadWindow(0, 3)) == pytest.approx(0.001)
    assert longest_stall(run, LoadWindow(3, 5)) == pytest.approx(2.0, rel=0.01)
    assert longest_stall(run, LoadWindow(5, 10)) == pytest.approx(0.001)


def test_a_window_in_which_nothing_was_served_is_no_measure_of_what_is_usual() -> None:
    run = steady(held=(4.0, 6.0))
    require_served(run, LoadWindow(0, 3), "before the operation")
    with pytest.raises(WorkloadError, match="no request was served before the operation: the disk"):
        require_served(run, LoadWindow(4.05, 5.9), "before the operation")


def test_latencies_count_from_when_a_request_was_due() -> None:
    samples = samples_in(steady(held=(4.0, 6.0)), LoadWindow(3, 7))
    assert value(samples, "latency_max") == pytest.approx(2.001)
    assert value(samples, "latency_p99") == pytest.approx(2.001)
    assert value(samples, "latency_p50") == pytest.approx(0.001)
    assert value(samples, "iops") == pytest.approx(10, rel=0.03)
    before = samples_in(steady(held=(4.0, 6.0)), LoadWindow(0, 3))
    assert value(before, "latency_p99", READ) == pytest.approx(0.001)


def test_a_request_that_was_never_completed_has_waited_until_the_end() -> None:
    run = requests((1.0, 0.001), (2.0, None))
    samples = samples_in(run, LoadWindow(0, 5))
    assert value(samples, "latency_max") == 8.0
    assert value(samples, "longest_stall") == 8.0


def test_nothing_is_said_of_a_window_without_requests() -> None:
    with pytest.raises(WorkloadError, match=r"no request was due in 2\.0 s"):
        samples_in(requests((1.0, 0.1)), LoadWindow(5, 7))


def test_idle_time_is_no_stall() -> None:
    assert longest_stall(requests((1.0, 0.5), (8.0, 0.25)), LoadWindow(0, 10)) == 0.5


def test_the_latencies_over_time_show_where_it_was_held() -> None:
    series = latencies_over_time(steady(held=(4.0, 6.0)))
    assert len(series.values) == 40
    assert max(series.values) == pytest.approx(2.001)
    assert series.values[16] == max(series.values)
    assert series.values[0] == pytest.approx(0.001)


def test_the_usual_rate_is_a_third_of_what_was_shown() -> None:
    rates = [default_rate(shown, emulated=False) for shown in (900, 1, 10**6)]
    assert rates == [300, 20, 2000]
    assert default_rate(10**6, emulated=True) == 100


@given(
    st.lists(
        st.tuples(st.floats(0, 9, allow_subnormal=False), st.floats(0, 5) | st.none()), min_size=1
    )
)
def test_a_stall_is_never_longer_than_the_longest_wait(
    pairs: list[tuple[float, float | None]],
) -> None:
    run = requests(*pairs, end=20.0)
    longest = max(20.0 - due if took is None else took for due, took in pairs)
    assert 0 <= longest_stall(run, LoadWindow(0, 20)) <= longest + 1e-9

"""When fio's requests were due, computed from its seed and compared with what fio 3.33 logged."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import Direction
from vdisklab.workload.fio import Fio
from vdisklab.workload.open_load import (
    GroupStart,
    GuestRequests,
    LoggedRequest,
    arrivals,
    common_window,
    read_requests,
    shifted,
    thread_rates,
    window_numbers,
)
from vdisklab.workload.program import Subject, Timing

SEED, RATE, SECONDS = 987654321, 43, 3.0
LOGS = [recorded(f"fio-3.33-poisson_lat.{number}.log") for number in range(1, 9)]
SUBJECT = Subject("/dev/vdb", 64 << 20, is_device=True, memory=128 << 20)


def a_plan(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("m", "fio", settings)


@given(st.integers(1, 1_000_000))
def test_the_threads_make_the_whole_rate(rate: int) -> None:
    rates = thread_rates(rate)
    assert sum(rates) == rate
    assert max(rates) - min(rates) <= 1
    assert min(rates) > 0
    assert len(rates) <= 64


def test_arrivals_have_the_rate() -> None:
    moments = list(islice(arrivals(1, 1, Direction.READ, 10), 5000))
    assert moments[0] == 0
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(500, rel=0.05)
    assert moments != list(islice(arrivals(1, 2, Direction.READ, 10), 5000))


class TestRecordedRun:
    """8 threads, 43 writes a second, for 3 s on an idle disk."""

    def test_every_request_was_started_when_it_was_due(self) -> None:
        requests = read_requests(LOGS, RATE, SECONDS, SEED)
        assert len(requests.requests) == 127
        assert all(request.latency is not None for request in requests.requests)
        assert requests.end - requests.start == pytest.approx(SECONDS, abs=0.05)
        latencies = sorted(request.latency or 0 for request in requests.requests)
        assert latencies[63] < 0.002

    @pytest.mark.parametrize("seed", [*range(1, 20), SEED + 1])
    def test_another_seed_is_noticed(self, seed: int) -> None:
        with pytest.raises(WorkloadError, match=r"when they were due, and completed \d+ a second"):
            read_requests(LOGS, RATE, SECONDS, seed)

    def test_a_stall_is_charged_to_every_request_that_was_due(self) -> None:
        # Coordinated omission: each thread stops for a second, and fio's own numbers show one slow
        # request for each thread, however many were due in that second.
        stalled, late = [], 0
        for log in LOGS:
            lines = [[int(word) for word in line.split(",")] for line in log.splitlines()]
            begin = lines[0][0] + 1000
            free = 0.0
            for line in lines:
                due = line[0] - line[1] / 1e6
                start = max(due, free)
                took = line[1] / 1e6
                if start <= begin < start + 60 or begin <= start < begin + 1000:
                    took += begin + 1000 - max(start, begin)
                late += start > due + 2
                free = start + took
                line[0], line[1] = round(free), round(took * 1e6)
            stalled.append("\n".join(",".join(map(str, line)) for line in lines))
        honest = read_requests(stalled, RATE, SECONDS, SEED)
        closed = read_requests(stalled, None, SECONDS, SEED)
        assert late > 10
        slow = [
            sum((request.latency or 0) > 0.1 for request in requests.requests)
            for requests in (honest, closed)
        ]
        assert slow[0] > 2 * slow[1]

    @pytest.mark.parametrize("damaged", ["", "x, 1, 1, 4096, 0", "1, 2", "1, 2, 9, 4096, 0"])
    def test_a_damaged_log_is_refused(self, damaged: str) -> None:
        with pytest.raises(WorkloadError):
            read_requests([damaged, *LOGS[1:]], RATE, SECONDS, SEED)

    def test_what_was_never_started_was_offered(self) -> None:
        halves = ["\n".join(log.splitlines()[:8]) for log in LOGS]
        requests = read_requests(halves, RATE, SECONDS, SEED)
        numbers = window_numbers([requests], common_window([requests], 2.0))
        assert numbers.offered is not None
        assert numbers.served < 0.9 * numbers.offered
        assert numbers.percentile(0.99) > 0.5


def some(start: float, latencies: list[float], *, seconds: float = 10.0) -> GuestRequests:
    """A guest that ran from `start`, and had a request each second."""
    requests = tuple(
        LoggedRequest(start + number, latency, Direction.WRITE, 4096)
        for number, latency in enumerate(latencies)
    )
    return GuestRequests(start, start + seconds, True, requests)


class TestWindow:
    def test_only_the_seconds_in_which_all_ran_count(self) -> None:
        first, second = some(100.0, [0.1] * 10), some(101.5, [0.2] * 10)
        window = common_window([first, second], 8.0)
        assert (window.begin, window.end) == (102.0, 110.0)
        assert window_numbers([first], window).offered == 8
        assert common_window([first, second], 10.0).seconds == pytest.approx(8.5)

    def test_clocks_are_brought_together(self) -> None:
        guest = shifted(some(100.0, [0.1]), 40.0)
        assert (guest.start, guest.end, guest.requests[0].due) == (60.0, 70.0, 60.0)

    def test_percentiles_of_all_are_of_all_requests(self) -> None:
        fast, slow = some(0.0, [0.001] * 10), some(0.0, [0.001] * 5 + [1.0] * 5)
        window = common_window([fast, slow], 10.0)
        assert window_numbers([fast, slow], window).percentile(0.75) == 0.001
        assert window_numbers([fast, slow], window).percentile(0.76) == 1.0

    def test_a_guest_without_a_request_fails(self) -> None:
        with pytest.raises(WorkloadError, match="completed no request"):
            window_numbers([some(0.0, [])], common_window([some(0.0, [])], 5.0))


class TestScript:
    def test_an_open_load(self) -> None:
        plan = a_plan(rw="randwrite", bs="4k", rate_iops=43)
        script = Fio().group_script(plan, SUBJECT, Timing(10, 2), GroupStart(1.5, 7))
        command = " ".join(script.command)
        assert "--rate_iops=6 --numjobs=3 --name=m --rate_iops=5 --numjobs=5" in command
        assert "--randseed=7 --rate_process=poisson" in command
        assert "--startdelay=1500ms --runtime=12000ms" in command
        assert len(script.collect) == 8
        assert script.expected == 13.5

    def test_an_open_load_whose_writes_are_durable_when_they_are_answered(self) -> None:
        plan = a_plan(rw="randwrite", bs="4k", rate_iops=43, sync="dsync")
        script = Fio().group_script(plan, SUBJECT, Timing(10, 2), GroupStart(1.5, 7))
        assert "--sync=dsync" in script.command
        with pytest.raises(PlanError, match="fsync does not apply") as error:
            Fio().group_script(
                a_plan(rw="randwrite", bs="4k", rate_iops=43, fsync=1),
                SUBJECT, Timing(10, 2), GroupStart(1.5, 7),
            )  # fmt: skip
        assert "dsync" in str(error.value.hint)

    def test_a_closed_load(self) -> None:
        plan = a_plan(rw="randread", bs="4k", iodepth=8, numjobs=2)
        script = Fio().group_script(plan, SUBJECT, Timing(10, 2), GroupStart(1.0, 7))
        assert "--iodepth=8" in script.command
        assert len(script.collect) == 2
        assert not any(word.startswith("--rate") for word in script.command)

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"rw": "read", "bs": "4k", "rate_iops": 10}, "reads or writes at random"),
            ({"rw": "randread", "bs": "4k", "rate_iops": 10, "iodepth": 8}, "iodepth does not"),
            ({"rw": "randread", "bs": "4k", "rate_iops": 0}, "should be at least 1"),
            ({"rw": "read", "bs": "4k", "time_based": False}, "does not run for a given time"),
        ],
    )
    def test_what_cannot_be(self, settings: dict[str, Setting], sentence: str) -> None:
        with pytest.raises(PlanError, match=sentence):
            Fio().group_script(a_plan(**settings), SUBJECT, Timing(1, 0), GroupStart(1, 1))

    def test_an_open_load_needs_a_group(self) -> None:
        with pytest.raises(PlanError, match="open load") as error:
            Fio().script(a_plan(rw="randread", bs="4k", rate_iops=9), SUBJECT, Timing(1, 0))
        assert error.value.hint is not None
        assert "--guests 1" in error.value.hint

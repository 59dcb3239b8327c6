"""The seconds in which all guests of a group ran, and the numbers of each guest and of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, IoCounters, Sample
from vdisklab.workload.open_load import GuestRequests, LoggedRequest


@dataclass(frozen=True, slots=True)
class CommonWindow:
    """A time in which all guests ran; it ends when the first guest ended."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long all guests ran; not above zero if they never ran at once."""
        return self.end - self.begin


def common_window(guests: Sequence[GuestRequests], runtime: float) -> CommonWindow:
    """The last `runtime` seconds in which all guests ran; less if they ran together for less."""
    end = min(guest.end for guest in guests)
    return CommonWindow(max(end - runtime, *(guest.start for guest in guests)), end)


def shifted(guest: GuestRequests, offset: float) -> GuestRequests:
    """The same requests on a clock that is `offset` seconds behind."""
    requests = tuple(
        LoggedRequest(one.due - offset, one.latency, one.direction, one.size)
        for one in guest.requests
    )
    return GuestRequests(guest.start - offset, guest.end - offset, guest.is_open, requests)


@dataclass(frozen=True, slots=True)
class WindowNumbers:
    """The numbers of one guest, or of all, in a window; see `results.model.Member`."""

    offered: int | None
    served: int
    iops: float
    latencies: tuple[float, ...]
    counted: IoCounters
    samples: tuple[Sample, ...]

    @property
    def mean(self) -> float:
        """The mean latency in seconds."""
        return sum(self.latencies) / len(self.latencies)

    def percentile(self, share: float) -> float:
        """The smallest latency that `share` of the requests did not exceed (nearest rank)."""
        return _percentile(self.latencies, share)


def window_numbers(guests: Sequence[GuestRequests], window: CommonWindow) -> WindowNumbers:
    """The numbers of these guests' requests together: each request counts, no mean of percentiles.

    Latency is of the requests that were due in the window. One that was never started has waited
    until the window's end at least, and counts with that. Raises WorkloadError if none was due.
    """
    is_open = any(guest.is_open for guest in guests)
    due, done = [], []
    for guest in guests:
        for request in guest.requests:
            if window.begin <= request.due < window.end:
                due.append(request)
            if request.latency is not None and (
                window.begin <= request.due + request.latency < window.end
            ):
                done.append(request)
    if not due or not done:
        raise WorkloadError(
            "a guest completed no request while all guests ran", hint="choose a longer --runtime"
        )
    latencies = tuple(sorted(_latency(request, window) for request in due))
    return WindowNumbers(
        offered=len(due) if is_open else None,
        served=sum(request.latency is not None for request in due) if is_open else len(done),
        iops=len(done) / window.seconds,
        latencies=latencies,
        counted=_counted(done),
        samples=tuple(
            sample
            for direction in (Direction.READ, Direction.WRITE)
            for sample in _samples(direction, due, done, window)
        ),
    )


def _latency(request: LoggedRequest, window: CommonWindow) -> float:
    return window.end - request.due if request.latency is None else request.latency


def _counted(done: Sequence[LoggedRequest]) -> IoCounters:
    reads = [request.size for request in done if request.direction is Direction.READ]
    writes = [request.size for request in done if request.direction is Direction.WRITE]
    return IoCounters(sum(reads), sum(writes), len(reads), len(writes))


def _samples(
    direction: Direction,
    due: Sequence[LoggedRequest],
    done: Sequence[LoggedRequest],
    window: CommonWindow,
) -> list[Sample]:
    finished = [request for request in done if request.direction is direction]
    latencies = sorted(_latency(one, window) for one in due if one.direction is direction)
    if not finished or not latencies:
        return []
    values = {
        "bandwidth": sum(request.size for request in finished) / window.seconds,
        "iops": len(finished) / window.seconds,
        "latency_mean": sum(latencies) / len(latencies),
        "latency_p50": _percentile(latencies, 0.5),
        "latency_p99": _percentile(latencies, 0.99),
        "latency_p99.9": _percentile(latencies, 0.999),
        "latency_max": latencies[-1],
    }
    return [Sample(metric, direction, value) for metric, value in values.items()]


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]

"""What a guest felt in a part of its open load: the rate served, latencies, the longest stall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, Sample, Series
from vdisklab.value import Value, replace
from vdisklab.workload.open_load import GuestRequests, LoggedRequest

LEAD_SECONDS = 2.0
"""From the order of a load until its first request is due."""

SERIES_SECONDS = 0.25
"""The interval of the latencies over time."""

_BUSIEST_SHARE = 1 / 3
_LEAST_RATE, _MOST_RATE, _MOST_EMULATED = 20, 2000, 100
_PERCENTILES = {"latency_p50": 0.5, "latency_p99": 0.99}


def default_rate(shown: float, *, emulated: bool) -> int:
    """The rate of an open load that a disk carries easily: a third of the `shown` rate.

    An `emulated` guest's CPUs start no more than about a hundred requests when they are due.
    """
    most = _MOST_EMULATED if emulated else _MOST_RATE
    return max(_LEAST_RATE, min(most, round(shown * _BUSIEST_SHARE)))


class LoadWindow(Value):
    """A part of a run by the clock of its requests, in seconds: `begin` inclusive, `end` not."""

    begin: float
    end: float


def samples_in(requests: GuestRequests, window: LoadWindow) -> tuple[Sample, ...]:
    """The samples of the requests that were due in a window; latencies count from then.

    A request that was never completed has waited at least until the end of the run. The longest
    stall is the longest time in which requests waited and none was completed, of those that began
    in the window: of all requests together, of reads alone and of writes alone, since reads may go
    on while writes wait. Raises WorkloadError if no request was due.
    """
    due = [request for request in requests.requests if window.begin <= request.due < window.end]
    if not due:
        raise WorkloadError(
            f"no request was due in {window.end - window.begin:.1f} s",
            hint="choose a larger --load or a longer --runtime",
        )
    served = _served(requests, window)
    samples = [
        Sample("iops", Direction.NONE, served / (window.end - window.begin)),
        Sample("longest_stall", Direction.NONE, longest_stall(requests, window)),
    ]
    for direction in (Direction.READ, Direction.WRITE):
        alone = replace(
            requests,
            requests=tuple(
                request for request in requests.requests if request.direction is direction
            ),
        )
        if any(window.begin <= request.due < window.end for request in alone.requests):
            stall = longest_stall(alone, window)
            samples.append(Sample("longest_stall", direction, stall))
    for direction in (Direction.NONE, Direction.READ, Direction.WRITE):
        latencies = sorted(
            _latency(request, requests.end)
            for request in due
            if direction in (Direction.NONE, request.direction)
        )
        if latencies:
            samples += [
                Sample(name, direction, _percentile(latencies, share))
                for name, share in _PERCENTILES.items()
            ]
            samples.append(Sample("latency_max", direction, latencies[-1]))
    return tuple(samples)


def require_served(requests: GuestRequests, window: LoadWindow, when: str) -> None:
    """Raises WorkloadError for a window in which no request was completed: nothing can be compared
    with it. `when` is the window in words."""
    if not _served(requests, window):
        raise WorkloadError(
            f"no request was served {when}: the disk completed none in "
            f"{window.end - window.begin:.1f} s, so nothing shows what was usual",
            hint="choose a longer --ramp and --runtime: the disk may have had something else to do",
        )


def _served(requests: GuestRequests, window: LoadWindow) -> int:
    done = (_completed(request) for request in requests.requests)
    return sum(end is not None and window.begin <= end < window.end for end in done)


def longest_stall(requests: GuestRequests, window: LoadWindow) -> float:
    """The longest time in seconds, of those that began in the window, in which requests waited and
    none was completed; 0 if none waited."""
    # a completion ends one stall and, if others wait, begins the next
    completions = sorted(
        end for request in requests.requests if (end := _completed(request)) is not None
    )
    waiting = sorted(
        (request.due, request.due + _latency(request, requests.end))
        for request in requests.requests
    )
    moments = [requests.start, *completions, requests.end]
    longest, place, pending = 0.0, 0, list[tuple[float, float]]()
    for before, after in pairwise(moments):
        while place < len(waiting) and waiting[place][0] < after:
            pending.append(waiting[place])
            place += 1
        pending = [(due, served) for due, served in pending if served > before]
        if not pending:
            continue
        begun = max(before, min(due for due, _ in pending))
        if window.begin <= begun < window.end:
            longest = max(longest, after - begun)
    return longest


def latencies_over_time(requests: GuestRequests) -> Series:
    """The longest latency of the requests due in each interval; 0 where none was due."""
    count = max(1, math.ceil((requests.end - requests.start) / SERIES_SECONDS))
    values = [0.0] * count
    for request in requests.requests:
        place = int((request.due - requests.start) / SERIES_SECONDS)
        if 0 <= place < count:
            values[place] = max(values[place], _latency(request, requests.end))
    return Series("latency_max", Direction.NONE, SERIES_SECONDS, tuple(values))


def _completed(request: LoggedRequest) -> float | None:
    return None if request.latency is None else request.due + request.latency


def _latency(request: LoggedRequest, end: float) -> float:
    return end - request.due if request.latency is None else request.latency


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]

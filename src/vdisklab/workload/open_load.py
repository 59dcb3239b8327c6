"""Open load: when each request of fio was due, and when it was completed.

fio 3.33 has two ways to hold a rate, and both hide waiting. Inline, a job waits until all its
requests are completed before it sleeps (io_u.c, rate_ddir), so what falls due meanwhile starts
late, and its latency counts from that late start: coordinated omission. With
`io_submit_mode=offload` no request is logged (the workers have no log), and with
`rate_process=poisson` it hung on this fio until fio killed it after 300 s.

So latency is counted here. fio's Poisson arrivals are a function of its random numbers: from a seed
that is known, `arrivals` computes the moment at which each request was due (backend.c,
usec_for_io; init.c, setup_random_seeds; lib/rand.c, __rand32). fio logs when each was completed and
how long it took. A request's latency is the time from the moment at which it was due. The log shows
whether the computed moments are right: a thread with nothing to do starts its request at that
moment.

The load is spread over threads that each have one request in flight; the sum of Poisson processes
is one. A request that is due while its thread is busy waits, and the wait counts.

Of a group of guests, only the seconds in which all of them ran count.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import chain, count
from statistics import median

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction, IoCounters, Sample
from vdisklab.value import Value

MOST_RATE = 1_000_000
_MOST_THREADS = 64
_PER_THREAD = 5

_SILENT_THREAD = "a thread of fio completed no request at all"

_RESOLUTION = 0.001  # of the log's times
_BITS = 0xFFFFFFFF
_LONG_BITS = (1 << 64) - 1
_GOLDEN = 0x9E370001
_CRANKS = 6

# The places of its generators of arrivals in fio's list of seeds (fio.h, FIO_RAND_POISSON_OFF and
# FIO_RAND_POISSON2_OFF), the same in 3.0 to 3.42.
_SEED_PLACE = {Direction.READ: 15, Direction.WRITE: 17}
_DIRECTIONS = (Direction.READ, Direction.WRITE)

# Share of the mean time between two requests of a thread.
_NOT_THESE_ARRIVALS = 0.1
_FEWEST_TO_JUDGE = 5


class GroupStart(Value):
    """The start of one guest's program in seconds from now, and the seed of its arrivals."""

    delay: float
    seed: int


class LoggedRequest(Value):
    """One request: `due` by the guest's clock, `latency` from then to its completion, in seconds.

    `latency` is None for a request that was never started, because the run ended.
    """

    due: float
    latency: float | None
    direction: Direction
    size: int


class GuestRequests(Value):
    """All requests of one guest. `start` and `end` are the moments between which it ran, by its
    clock; `is_open` says whether requests were due at times of their own."""

    start: float
    end: float
    is_open: bool
    requests: tuple[LoggedRequest, ...]


def thread_rates(rate: int) -> tuple[int, ...]:
    """The requests per second of each thread, the higher ones first; together they are `rate`."""
    threads = max(1, min(_MOST_THREADS, rate // _PER_THREAD))
    per_thread, rest = divmod(rate, threads)
    return (per_thread + 1,) * rest + (per_thread,) * (threads - rest)


def arrivals(seed: int, thread: int, direction: Direction, rate: int) -> Iterator[float]:
    """The moments at which a thread's requests are due, in seconds from its start.

    `thread` is fio's thread number, from 1. The first request is due at once.
    """
    place = _SEED_PLACE[direction]
    base = seed & _LONG_BITS
    for _ in range(4 + place):
        base = base * _GOLDEN & _LONG_BITS
    microseconds = 0
    yield 0.0
    for number in _tausworthe(base * thread + place & _BITS):
        # C computes in single precision: 1000000 / iops is a whole number there.
        uniform = _single((number + 1.0) / (1 << 32))
        microseconds += int(_single(float(1_000_000 // rate) * _single(-math.log(uniform))))
        yield microseconds / 1e6


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _tausworthe(seed: int) -> Iterator[int]:
    """fio's 32-bit random numbers from a seed (lib/rand.c: there 2^31 is an exclusive or)."""

    def seeded(state: int, least: int) -> int:
        mixed = state * 69069 & _BITS ^ seed
        return (mixed + least if mixed < least else mixed) & _BITS

    first = seeded((2 ^ 31) + (2 ^ 17) + (2 ^ 7), 1)
    second = seeded(first, 7)
    third = seeded(second, 15)
    for number in count():
        first = (first & 0xFFFFFFFE) << 12 & _BITS ^ ((first << 13 & _BITS ^ first) >> 19)
        second = (second & 0xFFFFFFF8) << 4 & _BITS ^ ((second << 2 & _BITS ^ second) >> 25)
        third = (third & 0xFFFFFFF0) << 17 & _BITS ^ ((third << 3 & _BITS ^ third) >> 11)
        if number >= _CRANKS:
            yield first ^ second ^ third


class _LatencyLine(Value):
    """A line of the log: when a request was completed and how long it took, in seconds."""

    completed: float
    took: float
    direction: Direction
    size: int

    @property
    def start(self) -> float:
        return self.completed - self.took


def read_requests(
    logs: Sequence[str], rate: int | None, seconds: float, seed: int
) -> GuestRequests:
    """The requests in fio's latency logs, one for each thread; `rate` None is a closed load.

    Raises WorkloadError if a log is empty, damaged, or contradicts the computed arrivals.
    """
    threads = [_lines(log) for log in logs]
    if not all(threads):
        raise WorkloadError(_SILENT_THREAD, hint="choose a longer --runtime")
    if rate is None:
        start = max(min(line.start for line in lines) for lines in threads)
        requests = [
            LoggedRequest(line.start, line.took, line.direction, line.size)
            for lines in threads
            for line in lines
        ]
        return GuestRequests(start, start + seconds, False, tuple(requests))
    return _paced(threads, thread_rates(rate), seconds, seed)


def read_paced(
    logs: Sequence[str], rates: Sequence[int], seconds: float, seed: int
) -> GuestRequests:
    """The same for threads of these rates, in fio's order.

    Raises WorkloadError if a log is empty, damaged, or contradicts the computed arrivals.
    """
    threads = [_lines(log) for log in logs]
    if not all(threads):
        raise WorkloadError(_SILENT_THREAD, hint="choose a longer --runtime")
    return _paced(threads, rates, seconds, seed)


def _paced(
    threads: Sequence[list[_LatencyLine]], rates: Sequence[int], seconds: float, seed: int
) -> GuestRequests:
    starts: list[float] = []
    late: list[float] = []
    requests = []
    for number, (lines, per_thread) in enumerate(zip(threads, rates, strict=True), 1):
        due = arrivals(seed, number, lines[0].direction, per_thread)
        planned = [next(due) for _ in lines]
        if _is_early(lines, planned):
            lines.pop()
            due = chain((planned.pop(),), due)
        start = min(line.start - moment for line, moment in zip(lines, planned, strict=True))
        late += _late(lines, [start + moment for moment in planned])
        starts.append(start)
        requests += [
            LoggedRequest(
                start + moment,
                line.took + max(0.0, line.start - start - moment - _RESOLUTION),
                line.direction,
                line.size,
            )
            for line, moment in zip(lines, planned, strict=True)
        ]
        for moment in due:
            if moment >= seconds:
                break
            requests.append(LoggedRequest(start + moment, None, lines[0].direction, 0))
    done = sum(request.latency is not None for request in requests) / seconds
    _require_computed(late, max(rates), done)
    return GuestRequests(max(starts), min(starts) + seconds, True, tuple(requests))


def _is_early(lines: Sequence[_LatencyLine], due: Sequence[float]) -> bool:
    """True if the last request was started before it was due.

    When the time is over, fio wakes from its sleep, and may then start the next request at once
    (io_u.c, rate_ddir: the moment may equal the time-out).
    """
    starts = [line.start - moment for line, moment in zip(lines, due, strict=True)]
    return len(starts) > 1 and starts[-1] < min(starts[:-1]) - _RESOLUTION


def _late(lines: Sequence[_LatencyLine], due: Sequence[float]) -> Iterator[float]:
    """The delays with which idle threads started their requests after these were due."""
    for before, line, moment in zip(lines, lines[1:], due[1:], strict=False):
        if moment > before.completed + 2 * _RESOLUTION:
            yield line.start - moment


def _require_computed(late: Sequence[float], rate: int, done: float) -> None:
    """Raises WorkloadError unless threads with nothing to do started requests when due.

    `done` is how many requests a second were completed.
    """
    if len(late) >= _FEWEST_TO_JUDGE and median(late) > _NOT_THESE_ARRIVALS / rate:
        raise WorkloadError(
            "fio did not start its requests when they were due, and completed "
            f"{done:.0f} a second: the guest's CPUs are too busy, or "
            "this fio computes its Poisson arrivals in another way than 3.33 to 3.42",
            hint="measure fewer guests at once or a smaller load, or use the micro guest",
        )


def _lines(log: str) -> list[_LatencyLine]:
    """The lines `milliseconds, nanoseconds, direction, size, ...` of a log, by completion."""
    lines = []
    for text in log.splitlines():
        try:
            moment, took, direction, size = (int(word) for word in text.split(",")[:4])
            line = _LatencyLine(moment / 1000, took / 1e9, _DIRECTIONS[direction], size)
        except (ValueError, IndexError) as error:
            raise WorkloadError(f"a line of fio's latency log is damaged: {text[:80]!r}") from error
        lines.append(line)
    return lines


class CommonWindow(Value):
    """A time in which all guests ran; it ends when the first guest ended."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Seconds in which all guests ran; zero or less if they never ran at once."""
        return self.end - self.begin


def common_window(guests: Sequence[GuestRequests], runtime: float) -> CommonWindow:
    """The last `runtime` seconds in which all guests ran; less if they ran together for less."""
    end = min(guest.end for guest in guests)
    return CommonWindow(max(end - runtime, *(guest.start for guest in guests)), end)


def shifted(guest: GuestRequests, offset: float) -> GuestRequests:
    """The same requests on a clock that is `offset` seconds behind."""
    requests = tuple(
        LoggedRequest(request.due - offset, request.latency, request.direction, request.size)
        for request in guest.requests
    )
    return GuestRequests(guest.start - offset, guest.end - offset, guest.is_open, requests)


class WindowNumbers(Value):
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

    Latency covers the requests that were due in the window. A request that was never started counts
    as if it ended with the window: it has waited at least until then. Raises WorkloadError if none
    was due.
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
    latencies = sorted(
        _latency(request, window) for request in due if request.direction is direction
    )
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

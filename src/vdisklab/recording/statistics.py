"""What QEMU counts of a disk each second, for a guest whose requests cannot be traced."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from vdisklab.errors import GuestError, HostError, RefusedError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.recording.guest_disks import DiskCounts, RecordableDisk, counts_of, stats_of
from vdisklab.recording.guests import GuestMonitor, RunningGuest, open_monitor
from vdisklab.recording.recorder import Wait
from vdisklab.recording.tracing import HISTOGRAM, TRACE, stop_tracing
from vdisklab.value import Value

BOUNDARIES_NS = tuple(1 << bit for bit in range(14, 35))
"""16 µs to 17 s, each twice the one before."""

_EACH_SECONDS = 1.0
_KINDS = {"read": "rd", "write": "wr", "flush": "flush"}


class CountedSecond(Value):
    """What was counted in about a second, which ended so many seconds after the start."""

    at_seconds: float
    counts: DiskCounts


class CountedLatency(Value):
    """How many requests of a kind took less than each boundary, in ns; the last had no boundary."""

    kind: str
    boundaries_ns: tuple[int, ...]
    counts: tuple[int, ...]

    def percentile(self, share: float) -> float | None:
        """The boundary in seconds below which this share of the requests ended; None without any,
        or beyond the last boundary."""
        total = sum(self.counts)
        seen = 0
        for boundary, count in zip(self.boundaries_ns, self.counts, strict=False):
            seen += count
            if total and seen >= share * total:
                return boundary / 1e9
        return None


class DiskStatistics(Value):
    """What QEMU counted; `latencies` is empty if this QEMU keeps no histograms (before 4.0)."""

    seconds: tuple[CountedSecond, ...]
    latencies: tuple[CountedLatency, ...]


def count_disk(
    host: Host, ledger: Ledger, guest: RunningGuest, disk: RecordableDisk, wait: Wait
) -> DiskStatistics:
    """The disk's counters of each second. Raises GuestError if the first cannot be read."""
    begun = time.monotonic()
    looks: list[tuple[float, DiskCounts]] = []
    with _histograms(host, ledger, guest, disk):
        while True:
            with open_monitor(host, guest) as monitor:
                looks.append((time.monotonic() - begun, counts_of(monitor, disk)))
            passed = time.monotonic() - begun
            if passed >= wait.seconds or wait.ended_early() or not guest.is_running:
                break
            time.sleep(min(_EACH_SECONDS, wait.seconds - passed))
        latencies: tuple[CountedLatency, ...] = ()
        with contextlib.suppress(GuestError, HostError), open_monitor(host, guest) as monitor:
            latencies = tuple(_latencies(stats_of(monitor, disk)))
    seconds = (
        CountedSecond(moment, now.since(then)) for (_, then), (moment, now) in pairwise(looks)
    )
    return DiskStatistics(tuple(seconds), latencies)


@contextmanager
def _histograms(
    host: Host, ledger: Ledger, guest: RunningGuest, disk: RecordableDisk
) -> Iterator[None]:
    with ledger.entry(TRACE, guest.name, **guest.detail, **{HISTOGRAM: disk.device}) as entry:
        with contextlib.suppress(RefusedError), open_monitor(host, guest) as monitor:
            set_histogram(monitor, disk.device, BOUNDARIES_NS)
        try:
            yield
        finally:
            stop_tracing(host, entry)


def set_histogram(monitor: GuestMonitor, device: str, boundaries: Sequence[int]) -> None:
    """Starts QEMU's histograms of a disk's latencies anew. Raises RefusedError."""
    monitor.execute("block-latency-histogram-set", {"id": device, "boundaries": list(boundaries)})


def _latencies(stats: Mapping[str, Any]) -> Iterator[CountedLatency]:
    for kind, short in _KINDS.items():
        histogram = stats.get(f"{short}_latency_histogram")
        if isinstance(histogram, dict):
            bounds, bins = histogram.get("boundaries"), histogram.get("bins")
            if isinstance(bounds, list) and isinstance(bins, list) and len(bins) == len(bounds) + 1:
                yield CountedLatency(kind, tuple(map(int, bounds)), tuple(map(int, bins)))

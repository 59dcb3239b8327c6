"""Watches the daemon that serves a guest: qemu-storage-daemon a disk, virtiofsd a directory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from vdisklab.campaign.time_series import TimeSeries
from vdisklab.guest.served_disk import ended
from vdisklab.host.counters import tree_activity
from vdisklab.progress import Progress, Throughput


class DaemonWatch:
    """Follows the process that serves a guest: its traffic with the storage, and its end.

    Without it the guest would wait for its requests without end, so a measurement ends at once.
    """

    def __init__(
        self, program: str, pid: int, alive: Callable[[], bool], progress: Progress
    ) -> None:
        self._program = program
        self._pid = pid
        self._alive = alive
        self._progress = progress
        self._points: list[tuple[float, int]] = []

    def begin(self) -> None:
        """Starts a new series at this moment."""
        self._points = []
        self._sample()

    def __call__(self, process: int | None = None) -> None:
        """Takes another sample. Raises GuestError if the daemon has ended."""
        del process  # the program runs in the guest
        if not self._alive():
            raise ended(self._program)
        self._sample()
        (begin, less), (end, more) = self._points[-2:] if len(self._points) > 1 else ((0, 0),) * 2
        if end > begin:
            self._progress(Throughput((more - less) / (end - begin), None))

    def end(self) -> TimeSeries:
        """The series since `begin`; the daemon has no histogram, so stalls are unknown."""
        self._sample()
        busy = tuple(
            (begin, end)
            for (begin, less), (end, more) in itertools.pairwise(self._points)
            if more > less
        )
        return TimeSeries(tuple(self._points), busy, None)

    def _sample(self) -> None:
        activity = tree_activity(self._pid)
        if activity is not None:
            self._points.append((time.monotonic(), activity.storage_bytes))

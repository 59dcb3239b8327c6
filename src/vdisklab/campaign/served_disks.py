"""A disk that qemu-storage-daemon serves to a guest (vhost-user-blk), while a context is open.

virtiofsd serves directories; both are watched in the same way.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.campaign.time_series import TimeSeries
from vdisklab.errors import GuestError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.plugging import DAEMON
from vdisklab.guest.qemu.read_back import ServingDaemon, read_daemon
from vdisklab.guest.qemu.storage_daemon import start_storage_daemon
from vdisklab.host.counters import tree_activity
from vdisklab.host.ledger import Ledger
from vdisklab.progress import Progress, Throughput


@contextmanager
def served(ledger: Ledger, directory: Path, disk: Disk) -> Iterator[ServingDaemon | None]:
    """The daemon with the disk open; None for a disk that QEMU opens itself.

    If the daemon ends before the context does, an error of the body says so.
    """
    if not disk.attachment.bus.is_served:
        yield None
        return
    with start_storage_daemon(ledger, directory, disk.serial) as daemon:
        at_start = read_daemon(daemon)
        try:
            with daemon.export(disk):
                yield ServingDaemon(daemon, at_start)
        except VdisklabError as error:
            if daemon.alive():
                raise
            raise ended(DAEMON) from error


def ended(program: str) -> GuestError:
    """The error for a daemon that is gone."""
    return GuestError(
        f"{program}, which serves the guest, has ended",
        hint="`dmesg` says whether the kernel killed it because memory ran out",
    )


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

"""The server process of a disk that completes a fixed number of requests a second.

Run as `python -m vdisklab.powercut.recording.rated_disk`; `logged_disk.rated_disk` starts it. One
request is served after the other, each in the same time, whatever its size: so the disk's capacity
is known, and a queue grows as soon as more is asked of it.
"""

from __future__ import annotations

import argparse
import select
import time
from collections import deque
from pathlib import Path

from vdisklab.powercut.recording.disk_server import (
    HONEST,
    DiskServer,
    FuseRequest,
    NoLog,
    Operation,
    serve_file,
)

_SERVED = frozenset({Operation.READ, Operation.WRITE})


class RatedDisk(DiskServer):
    """Answers reads and writes one by one, `rate` in a second; all other requests at once."""

    def __init__(self, device: int, disk: int, size: int, rate: float) -> None:
        super().__init__(device, disk, NoLog(), size, HONEST)
        self._service = 1 / rate
        self._free = 0.0
        self._waiting: deque[tuple[float, FuseRequest]] = deque()

    def serve(self) -> None:
        """Answers the kernel's requests until the file is unmounted."""
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        while self._running:
            poll.poll(self._milliseconds())
            request = self._next()
            if request is not None and request.operation in _SERVED:
                self._free = max(self._free, time.monotonic()) + self._service
                self._waiting.append((self._free, request))
            elif request is not None:
                self._answer(request)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                self._answer(self._waiting.popleft()[1])
            self._complete()

    def _milliseconds(self) -> float | None:
        """How long to wait for a request: until the next one is served."""
        if not self._waiting:
            return None
        return max(0.0, (self._waiting[0][0] - time.monotonic()) * 1000)


def main() -> None:
    """Mounts the file, prints `ready`, serves until it is unmounted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--marker", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("mountpoint", type=Path)
    parser.add_argument("disk", type=Path)
    options = parser.parse_args()
    serve_file(
        options.marker, options.mountpoint, options.disk, options.size,
        lambda device, disk: RatedDisk(device, disk, options.size, options.rate),
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""The settings of the queues of the host's disks, as recorded with every run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vdisklab.results.model import Check

_RECORDED = ("scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb")


def host_queue_checks(
    numbers: Sequence[tuple[int, int]], devices: Path = Path("/sys/dev/block")
) -> tuple[Check, ...]:
    """The settings of these devices' queues; values that differ between them are joined by `/`.

    A setting that the kernel does not show is left out.
    """
    queues = [_queue(devices / f"{major}:{minor}") for major, minor in numbers]
    return tuple(_checks(queues))


def _queue(device: Path) -> Path:
    """The queue of a disk; a partition has that of its disk (Documentation/ABI, sysfs-block)."""
    own = device / "queue"
    return own if own.exists() else device.resolve().parent / "queue"


def _checks(queues: Sequence[Path]) -> Iterator[Check]:
    for name in _RECORDED:
        values = dict.fromkeys(value for queue in queues if (value := _read(queue / name)))
        if values:
            yield Check(f"host.{name}", None, "/".join(values))


def _read(file: Path) -> str | None:
    """A setting; of several words that in brackets, which is the one in use."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else text or None

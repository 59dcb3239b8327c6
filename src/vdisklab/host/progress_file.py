"""What a campaign does at this moment, in a small file that other processes may read.

It lies in memory (/run) and is written at most once a second, whoever reads it. The process that
measures holds a lock on it, so a file without a lock belongs to one that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vdisklab.errors import HostError
from vdisklab.host.safe_places import make_state_directory, open_file
from vdisklab.host.state_directory import state_directory
from vdisklab.progress import (
    CampaignStarted,
    Event,
    MeasurementStarted,
    Moving,
    Progress,
    RunFinished,
    Running,
    RunStarted,
    Step,
    Throughput,
)

CAMPAIGNS_FILE = "VDISKLAB_CAMPAIGNS_FILE"
"""Variable that names the file to which `run` writes the ids of the campaigns it measured."""

KEPT_SECONDS = 60.0
"""The bandwidth of so many last seconds is kept."""
_EVERY_SECONDS = 1.0
_MOST_BYTES = 100_000
_TORN_READS = 3


def live_directories() -> tuple[Path, ...]:
    """Where progress files lie: this user's directory first, then root's."""
    runtime_directory = os.environ.get("XDG_RUNTIME_DIR")
    if os.environ.get("VDISKLAB_STATE"):
        return (state_directory() / "live",)
    roots = Path("/run/vdisklab")
    if os.geteuid() == 0:
        return (roots,)
    try:
        return (
            Path(runtime_directory) / "vdisklab"
            if runtime_directory
            else state_directory() / "live",
            roots,
        )
    except HostError:
        return (roots,)  # without a home, as the user of the unit vdisklab-watch


@contextmanager
def progress_file(then: Progress, directory: Path | None = None) -> Iterator[Progress]:
    """Passes events on, and keeps a file about them while the context is open.

    A file that cannot be written is no error: then nobody can watch this campaign's cells.
    """
    directory = directory or live_directories()[0]
    path = directory / f"{os.getpid()}.json"
    try:
        make_state_directory(directory)
        for file in directory.glob("*.json"):
            if _locked(file) is False:
                file.unlink(missing_ok=True)
        opened = open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
    except (OSError, HostError):
        yield then
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield _Noted(opened, then)
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(opened)


class _Noted:
    """Writes what events say."""

    def __init__(self, opened: int, then: Progress) -> None:
        self._opened, self._then = opened, then
        self._noted: dict[str, Any] = {"process": os.getpid()}
        self._moving: deque[tuple[float, float | None, float | None]] = deque()
        self._moved = 0.0

    def __call__(self, event: Event, /) -> None:
        """Notes one event, and passes it on."""
        self._then(event)
        now = time.time()
        match event:
            case CampaignStarted():
                self._set(campaign=event.campaign, runs=event.runs, at_most=event.at_most)
                self._set(finished=event.finished, began=now, cell="", doing="")
                self._set(seconds_estimated=event.seconds_estimated)
            case RunStarted():
                self._moving.clear()
                self._set(cell=event.cell, round=event.round, rounds=event.rounds, doing="")
                self._set(position=event.position, cells=event.runs, since=now, seconds=None)
            case MeasurementStarted():
                self._moving.append((now, None, None))
                self._set(doing=event.name, since=now, seconds=event.seconds)
            case Step():
                self._moving.append((now, None, None))
                self._set(doing=event.what, since=now, seconds=None)
            case RunFinished():
                self._moving.clear()
                self._set(finished=self._noted.get("finished", 0) + 1, cell="", doing="")
            case Throughput():
                self._moving.append((now, event.bytes_per_second, event.operations_per_second))
                while self._moving[0][0] < now - KEPT_SECONDS:
                    self._moving.popleft()
                if 0 <= now - self._moved < _EVERY_SECONDS:
                    return
                self._moved = now
            case _:
                return
        text = json.dumps({**self._noted, "moving": list(self._moving)}).encode()
        with suppress(OSError):  # a full tmpfs
            os.pwrite(self._opened, text, 0)
            os.ftruncate(self._opened, len(text))

    def _set(self, **changes: object) -> None:
        self._noted |= changes


def running_campaigns() -> tuple[Running, ...]:
    """The campaigns that processes of this host measure, as far as this user may see them."""
    found = []
    for directory in live_directories():
        with suppress(OSError):
            found += [_read(file) for file in sorted(directory.glob("*.json")) if _locked(file)]
    return tuple(progress for progress in found if progress is not None and progress.campaign)


def _locked(file: Path) -> bool | None:
    """True while the process that writes a file lives; None if that cannot be seen."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _read(file: Path) -> Running | None:
    """The file's content; None if it is not what `progress_file` writes."""
    names = set(Running.__struct_fields__)
    for _ in range(_TORN_READS):  # it is being written
        with suppress(OSError, ValueError, TypeError), file.open("rb") as opened:
            stored = json.loads(opened.read(_MOST_BYTES))
            moving = tuple(Moving(*row) for row in stored.pop("moving"))
            return Running(**{key: stored[key] for key in names & stored.keys()}, moving=moving)
    return None

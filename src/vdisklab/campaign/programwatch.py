"""What a program on the host moves meanwhile, as its kernel accounts for it.

Bytes are those that were fetched from a file system's device for the program and those that it made
ready to be written there: what the page cache gives is not among them. A time in which it got
nothing from any system call is a stall if at every look one of its threads was in uninterruptible
sleep, as those are that wait for a disk; a wait for fsync(2) is one, too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdisklab.campaign.time_series import SHORTEST_STALL, Span, TimeSeries
from vdisklab.host.mounts import mount_of
from vdisklab.host.processtree import Activity, children_storage_bytes, tree_activity
from vdisklab.progress import Progress, Throughput


@dataclass(frozen=True, slots=True)
class Look:
    """What a program had done at a moment, in seconds of a clock; None is not known."""

    at: float
    activity: Activity | None


class ProgramWatch:
    """Follows programs of the host with all that they start, and tells the progress what moves.

    `shows_waiting` is False where a program that waits for its file system cannot be told from
    one that rests.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        shows_waiting: bool = True,
        look: Callable[[int], Activity | None] = tree_activity,
        ended_bytes: Callable[[], int] = children_storage_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._shows_waiting = shows_waiting
        self._look = look
        self._ended_bytes = ended_bytes
        self._clock = clock
        self._began = (0.0, 0)
        self._looks: list[Look] = []

    def begin(self) -> None:
        """Forgets what was, and begins at this moment."""
        self._began = (self._clock(), self._ended_bytes())
        self._looks = []

    def __call__(self, process: int | None = None) -> None:
        """Looks once more at the program with this number."""
        if process is None:
            return
        self._looks.append(Look(self._clock(), self._look(process)))
        if len(self._looks) < 2:
            return
        before, now = self._looks[-2:]
        if before.activity is None or now.activity is None or now.at <= before.at:
            return
        size = max(0, now.activity.storage_bytes - before.activity.storage_bytes)
        self._progress(Throughput(size / (now.at - before.at), None))

    def end(self) -> TimeSeries:
        """All that was seen since the beginning; what the program moved in all is known only now
        that it has been waited for."""
        began, ended_before = self._began
        total = self._ended_bytes() - ended_before
        return course_of(
            self._looks, began, (self._clock(), total), shows_waiting=self._shows_waiting
        )


def shows_waiting(directory: Path) -> bool:
    """False for FUSE: who waits for its server sleeps as if for a key to be pressed
    (fs/fuse/dev.c, request_wait_answer)."""
    mount = mount_of(directory)
    return mount is None or not mount.filesystem.startswith("fuse")


def course_of(
    looks: Sequence[Look], began: float, ended: tuple[float, int], *, shows_waiting: bool
) -> TimeSeries:
    """What the looks say of a program that began when it had moved nothing, and ended at a moment
    with so many bytes."""
    moved = [(began, 0)]
    for look in looks:
        # A child's counts are nobody's for the moment in which they change hands.
        size = 0 if look.activity is None else look.activity.storage_bytes
        moved.append((look.at, max(size, moved[-1][1])))
    moved.append((ended[0], max(ended[1], moved[-1][1])))
    busy = tuple((begin, end) for (begin, less), (end, more) in itertools.pairwise(moved)
                 if more > less)  # fmt: skip
    known = shows_waiting and all(look.activity is not None for look in looks)
    return TimeSeries(tuple(moved), busy, tuple(_stalls(looks)) if known else None)


def _stalls(looks: Sequence[Look]) -> list[Span]:
    found = []
    for _, waiting in itertools.groupby(looks, _standing_still):
        same = list(waiting)
        if _waits(same[0]) and same[-1].at - same[0].at >= SHORTEST_STALL:
            found.append((same[0].at, same[-1].at))
    return found


def _waits(look: Look) -> bool:
    return look.activity is not None and look.activity.waits


def _standing_still(look: Look) -> tuple[bool, int]:
    """The same for looks between which nothing happened, and in which it waits or not."""
    return _waits(look), -1 if look.activity is None else look.activity.progress

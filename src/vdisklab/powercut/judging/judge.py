"""Compares what a recovered disk holds with what was promised. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vdisklab.errors import PowercutError
from vdisklab.powercut.judging.verdict import Outcome
from vdisklab.powercut.recording.trace import FILLED, Trace
from vdisklab.powercut.sectors import Numbers, Odd


class FutureVersionError(PowercutError):
    """A state holds what was not yet written when it was cut: an error of ours, not of a disk."""


@dataclass(frozen=True, slots=True)
class Due:
    """For each touched sector: the version that was promised, and the newest that can be there."""

    promised: Numbers
    newest: Numbers


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the sectors of one state; the first of them as the witness."""

    outcome: Outcome
    count: int
    sector: int
    wanted: int
    found: int

    def __str__(self) -> str:
        seen = {Odd.EMPTY: "nothing", Odd.GARBAGE: "garbage", Odd.TORN: "a torn sector"}
        held = seen.get(Odd(self.found)) if self.found <= 0 else f"version {self.found}"
        return (
            f"{self.count} sectors {self.outcome}; sector {self.sector} "
            f"was promised to hold version {self.wanted} and holds {held}"
        )


@dataclass(slots=True)
class Expectation:
    """What each position of a trace's log promises."""

    trace: Trace
    sectors: Numbers = field(init=False)
    _known: dict[int, Due] = field(init=False, default_factory=dict)
    _slices: list[slice] = field(init=False)

    def __post_init__(self) -> None:
        ranges = [np.arange(w.first, w.first + w.count) for w in self.trace.writes]
        self.sectors = np.unique(np.concatenate(ranges)) if ranges else np.zeros(0, np.int64)
        starts = np.searchsorted(self.sectors, [w.first for w in self.trace.writes])
        self._slices = [
            slice(int(start), int(start) + write.count)
            for start, write in zip(starts, self.trace.writes, strict=True)
        ]

    def at(self, position: int) -> Due:
        """What must, and what may, be there after a cut at a position of the log."""
        if position not in self._known:
            self._known[position] = self._work_out(position)
        return self._known[position]

    def _work_out(self, position: int) -> Due:
        start = FILLED if self.trace.filled else int(Odd.EMPTY)
        promised = np.full(len(self.sectors), start, dtype=np.int64)
        newest = promised.copy()
        for write, where in zip(self.trace.writes, self._slices, strict=True):
            if write.submitted <= position:
                newest[where] = write.version
            if write.promised is not None and write.promised <= position:
                np.maximum(promised[where], write.version, out=promised[where])
        return Due(promised, newest)


def judge_state(sectors: Numbers, found: Numbers, due: Due) -> Fault | None:
    """What is wrong, the worst kind first; None when every promise is kept.

    Raises FutureVersionError.
    """
    ahead = found > due.newest
    if ahead.any():
        at = int(np.argmax(ahead))
        raise FutureVersionError(
            f"sector {sectors[at]} holds version {found[at]} before it was written",
            hint="this is a bug in vdisklab; please report it with the recording",
        )
    for outcome, wrong in (
        (Outcome.GARBAGE, found == Odd.GARBAGE),
        (Outcome.TORN, found == Odd.TORN),
        (Outcome.LOST, (found >= 0) & (found < due.promised)),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            return Fault(
                outcome, int(wrong.sum()), int(sectors[at]), int(due.promised[at]), int(found[at])
            )
    return None

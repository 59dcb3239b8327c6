"""Outcomes of power cuts: what the disk must hold and what it holds, by state and by run. No I/O.

The values of `StateOutcome` are stored with verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from vdisklab.errors import PowercutError
from vdisklab.path.durability import CrashStates, FailureModel
from vdisklab.powercut.client import FILLED, Trace
from vdisklab.powercut.sectors import NoVersion, Numbers
from vdisklab.powercut.vocabulary import StateOutcome
from vdisklab.units import SECTOR


class FutureVersionError(PowercutError):
    """A state holds data that were written only after its cut: a bug of vdisklab, not of a disk."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="this is a bug in vdisklab; please report it with the recording"
        )


RecoveredState = tuple[StateOutcome, str]
"""An outcome and its detail."""

KEPT: RecoveredState = (StateOutcome.KEPT, "")


@dataclass(frozen=True, slots=True)
class DueVersions:
    """For each written sector: the oldest and the newest version that it may hold."""

    oldest: Numbers
    newest: Numbers


@dataclass(slots=True)
class Expectation:
    """The versions due in each written sector, by log position."""

    trace: Trace
    sectors: Numbers = field(init=False)
    _known: dict[int, DueVersions] = field(init=False, default_factory=dict)
    _slices: list[slice] = field(init=False)

    def __post_init__(self) -> None:
        ranges = [np.arange(w.first, w.first + w.count) for w in self.trace.writes]
        self.sectors = np.unique(np.concatenate(ranges)) if ranges else np.zeros(0, np.int64)
        starts = np.searchsorted(self.sectors, [w.first for w in self.trace.writes])
        self._slices = [
            slice(int(start), int(start) + write.count)
            for start, write in zip(starts, self.trace.writes, strict=True)
        ]

    def at(self, position: int) -> DueVersions:
        """The oldest and the newest possible versions after a cut at a log position."""
        if position not in self._known:
            self._known[position] = self._work_out(position)
        return self._known[position]

    def _work_out(self, position: int) -> DueVersions:
        oldest = np.full(len(self.sectors), NoVersion.EMPTY, dtype=np.int64)
        if self.trace.filled:  # but not the part by which the disk grew in mid-run
            oldest[: np.searchsorted(self.sectors, self.trace.image_size // SECTOR)] = FILLED
        newest = oldest.copy()
        for write, sectors in zip(self.trace.writes, self._slices, strict=True):
            if write.submitted <= position:
                newest[sectors] = write.version
            if write.durable_at is not None and write.durable_at <= position:
                np.maximum(oldest[sectors], write.version, out=oldest[sectors])
        return DueVersions(oldest, newest)


_NO_VERSION = {
    NoVersion.EMPTY: "nothing", NoVersion.GARBAGE: "garbage", NoVersion.TORN: "a torn sector"
}  # fmt: skip


def judge_sectors(sectors: Numbers, versions: Numbers, due: DueVersions) -> RecoveredState:
    """The worst kind of error, and the first sector with it. Raises FutureVersionError."""
    future = versions > due.newest
    if future.any():
        at = int(np.argmax(future))
        raise FutureVersionError(
            f"sector {sectors[at]} holds version {versions[at]}, which had not been written"
        )
    for outcome, wrong in (
        (StateOutcome.GARBAGE, versions == NoVersion.GARBAGE),
        (StateOutcome.TORN, versions == NoVersion.TORN),
        (StateOutcome.LOST, (versions >= 0) & (versions < due.oldest)),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            held = _NO_VERSION.get(versions[at], f"version {versions[at]}")
            return outcome, (
                f"{wrong.sum()} sectors {outcome}; sector {sectors[at]} must hold version "
                f"{due.oldest[at]} and holds {held}"
            )
    return KEPT


@dataclass(frozen=True, slots=True)
class JudgedState:
    """One judged state. `leaked` counts leaked qcow2 clusters, which are not a loss.

    `repaired` is True if fsck ran; `written_after` if QEMU wrote to the image after the recovery.
    """

    cut: str
    outcome: StateOutcome
    detail: str = ""
    leaked: int = 0
    repaired: bool = False
    written_after: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on one recording, by its judged states in the order of their selection."""

    judged: Sequence[JudgedState]
    model: FailureModel = FailureModel.POWER
    _: KW_ONLY
    possible: int
    exhaustive: bool
    acknowledged: int

    @property
    def states(self) -> int:
        """The number of judged states."""
        return len(self.judged)

    @property
    def counterexample(self) -> JudgedState | None:
        """The first state with a loss."""
        return next((state for state in self.judged if state.outcome.is_loss), None)

    @property
    def survives(self) -> bool | None:
        """True if no acknowledged write was lost; None if none was judged or acknowledged."""
        if self.counterexample is not None:
            return False
        return True if self.states and self.acknowledged else None

    @property
    def losses(self) -> int:
        """The number of states that lost acknowledged writes."""
        return sum(state.outcome.is_loss for state in self.judged)

    @property
    def loss_bound(self) -> float | None:
        """Upper end of the 95 % interval for the share of bad states, by `CrashStates`.

        None after a loss, and if every state was judged, because nothing remains to estimate.
        """
        if self.survives is not True or self.exhaustive:
            return None
        return CrashStates(self.states).most_losing

    @property
    def claim(self) -> str:
        """The conclusion from the verdict, as a sentence."""
        model, (failure, failures) = self.model.survivors, self.model.failure
        if self.survives is None:
            return "no write was acknowledged as durable in this run, so nothing can be said"
        if self.survives is False:
            return (
                f"for this recorded run, {self.losses} of {self.states} {failures} "
                "lose acknowledged writes"
            )
        if self.exhaustive:
            return (
                f"for this recorded run, under the model that {model}, no "
                f"{failure} loses acknowledged writes: all {self.states} states were judged"
            )
        return (
            f"for this recorded run, under the model that {model}, none of {self.states} "
            f"{failures} of {self.possible} possible ones loses acknowledged writes; at most "
            f"{self.loss_bound:.2%} of them do (95 %)"
        )

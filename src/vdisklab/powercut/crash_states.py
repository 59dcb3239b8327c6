"""The possible states of a disk after a power cut, and the choice of those to judge. No I/O.

The model: what completed before the last flush is durable; any subset of what came after it may be.
Between two flushes (an epoch) every cut leaves a subset of the epoch's writes. A subset that is
possible at some moment stays possible until the end of the epoch, when most writes are
acknowledged. So each state is judged once, at the end of its epoch.

In models other than `power`, the disk or the kernel keeps every completed write. Then the possible
states are the prefixes of the log. Each is judged just before the next change, for the same reason.

Outcomes of power cuts: what the disk must hold and what it holds, by state and by run. No I/O.

The values of `StateOutcome` are stored with verdicts.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from vdisklab.errors import PowercutError
from vdisklab.path.durability import CrashStates, FailureModel
from vdisklab.path.power_cut_words import StateOutcome
from vdisklab.powercut.client import FILLED, Trace
from vdisklab.powercut.sectors import NoVersion, Numbers
from vdisklab.storage.write_log import Flag, LogEntry
from vdisklab.units import SECTOR, in_percent
from vdisklab.value import Value, field

TEAR_BYTES = 4096
"""The unit that a disk writes atomically, in bytes."""

_RANDOM_STATES = 32
_TORN_STATES = 4
_SHARES = (0.1, 0.5, 0.9)


_PREFIX = r"@([0-9]{1,18})(?:-([1-9][0-9]{0,17})-([0-9]{1,18}))?"
_CASE = r"([0-9]{1,18})-([0-9a-f]+)(?:-([0-9a-f]+)-([1-9][0-9]{0,17})-([0-9]{1,18}))?"
Windows = Sequence[tuple[int, int]]
"""Log positions between which something happened that deserves more states than the rest."""

RecoveredState = tuple[StateOutcome, str]
"""An outcome and its detail."""

KEPT: RecoveredState = (StateOutcome.KEPT, "")
_NO_VERSION = {
    NoVersion.EMPTY: "nothing", NoVersion.GARBAGE: "garbage", NoVersion.TORN: "a torn sector"
}  # fmt: skip


class Epoch(Value):
    """The log between two flushes, or part of it; `changes` are log indices.

    Entries before `base` are durable, and the cut is just before entry `end`. `durable` are the
    bits of changes with FUA, which cannot be lost.
    """

    number: int
    base: int
    end: int
    changes: tuple[int, ...]
    durable: int = 0

    @property
    def all(self) -> int:
        """The bits of all changes."""
        return (1 << len(self.changes)) - 1

    @property
    def losable(self) -> int:
        """The bits of the changes that may be lost."""
        return self.all & ~self.durable


class CrashState(Value, order=True):
    """One state: an epoch, the bits of the changes that reached the disk, and of those torn.

    Of a torn change only some units of `unit` bytes are present; `seed` decides which. A `prefix`
    has no epoch: the number counts the log entries that were completed; the next one may be torn.
    """

    epoch: int
    kept: int = 0
    torn: int = 0
    unit: int = 0
    seed: int = 0
    prefix: bool = False

    def __str__(self) -> str:
        if self.prefix:
            return f"@{self.epoch}-{self.unit}-{self.seed}" if self.torn else f"@{self.epoch}"
        text = f"{self.epoch}-{self.kept:x}"
        return f"{text}-{self.torn:x}-{self.unit}-{self.seed}" if self.torn else text


def parse_crash_state(text: str) -> CrashState:
    """The cut spelled by `str(cut)`. Raises PowercutError for anything else."""
    if (prefix := re.fullmatch(_PREFIX, text)) is not None:
        position, unit, seed = prefix.groups()
        if unit is None:
            return CrashState(int(position), prefix=True)
        return CrashState(int(position), torn=1, unit=int(unit), seed=int(seed), prefix=True)
    match = re.fullmatch(_CASE, text)
    if match is None:
        raise PowercutError(f"{text!r} is not a case", hint="copy it from the verdict's table")
    epoch, kept, torn, unit, seed = match.groups()
    if torn is None:
        return CrashState(int(epoch), int(kept, 16))
    return CrashState(int(epoch), int(kept, 16), int(torn, 16), int(unit), int(seed))


def epoch_of(
    cut: CrashState, epochs: Sequence[Epoch], entries: Sequence[LogEntry], end: int
) -> Epoch | None:
    """The epoch to which a cut belongs, in a log whose run ends at entry `end`, or None.

    A prefix is its own epoch: the write in flight is its only change.
    """
    if not cut.prefix:
        is_possible = cut.epoch < len(epochs) and cut.kept | cut.torn <= epochs[cut.epoch].all
        return epochs[cut.epoch] if is_possible else None
    if cut.epoch > end or (cut.torn and not _is_tearable(entries, cut.epoch, end, cut.unit)):
        return None
    in_flight = (cut.epoch,) if cut.torn else ()
    return Epoch(cut.epoch, cut.epoch, cut.epoch, in_flight)


def _is_tearable(entries: Sequence[LogEntry], place: int, end: int, unit: int) -> bool:
    return place < end and entries[place].changes_disk and entries[place].length > unit


def epochs_between(
    entries: Sequence[LogEntry], begin: int, end: int, stops: Sequence[int] = ()
) -> tuple[Epoch, ...]:
    """The epochs between two log positions.

    A flush ends an epoch. So does a write with FUA, which cannot be lost afterwards, nor be present
    before; and so does each log position in `stops`. Raises PowercutError when the log is shorter
    than the recorded run.
    """
    if not 0 <= begin <= end <= len(entries):
        raise PowercutError(
            f"the log has {len(entries)} entries, but the recorded run ends at entry {end}"
        )
    ends = [place for place in range(begin, end) if entries[place].flags & (Flag.FLUSH | Flag.FUA)]
    base = max((place for place in range(begin) if entries[place].flushes), default=0)
    epochs: list[Epoch] = []
    for stop in sorted({*ends, *stops, end}):
        changes = tuple(place for place in range(base, stop) if entries[place].changes_disk)
        durable = sum(
            1 << bit for bit, place in enumerate(changes) if Flag.FUA in entries[place].flags
        )
        epochs.append(Epoch(len(epochs), base, stop, changes, durable))
        if stop < end and entries[stop].flushes:
            base = stop
    return tuple(epochs)


class Sampling(Value):
    """Which states to judge: all subsets of small epochs, and a sample of the others.

    Small epochs have up to `exhaustive_up_to` changes that may be lost; if no more than `states`
    are possible in all, every epoch counts as small. `states` is the maximum in all. Writes are
    torn at `tear` bytes, never if it is 0.
    """

    states: int | None = 1000
    exhaustive_up_to: int = 8
    tear: int = TEAR_BYTES
    seed: int = 1


class Selection(Value):
    """The cuts to judge, in order. `exhaustive` is True if they include every subset of every
    epoch.

    `possible` is the number of cuts to choose from: all subsets of all epochs, or the number of
    candidates if torn ones make it larger.
    """

    cuts: tuple[CrashState, ...]
    possible: int
    exhaustive: bool


def _is_within(position: int, windows: Windows) -> bool:
    return any(begin <= position <= end for begin, end in windows)


def _drawn(
    strata: Sequence[Sequence[CrashState]], states: int, rng: random.Random
) -> list[CrashState]:
    """So many states, as evenly from the strata as their sizes allow."""
    chosen: list[CrashState] = []
    for number, stratum in enumerate(sorted(strata, key=len)):
        share = (states - len(chosen)) // (len(strata) - number)
        chosen += stratum if len(stratum) <= share else sorted(rng.sample(stratum, share))
    return chosen


def select_states_of_epochs(
    epochs: Sequence[Epoch], entries: Sequence[LogEntry], sampling: Sampling, around: Windows = ()
) -> Selection:
    """First every state in which nothing after the flush survived, then the others.

    The former are few, detect most losses, and assume no reordering: they are prefixes of the log.
    A random sample is taken of more than `sampling.states` others. With the windows `around` a
    sample is drawn evenly from the former and the others, within the windows and outside.
    """
    rng = random.Random(sampling.seed)  # noqa: S311 - reproducible, not secret
    first = [CrashState(epoch.number, epoch.durable) for epoch in epochs]
    candidates: dict[CrashState, None] = {}
    allowed = sum(1 << epoch.losable.bit_count() for epoch in epochs)
    few = allowed <= (sampling.states or 0)
    exhaustive = True
    for epoch in epochs:
        short = few or epoch.losable.bit_count() <= sampling.exhaustive_up_to
        exhaustive &= short
        candidates |= dict.fromkeys(_every_subset(epoch) if short else _some_subsets(epoch, rng))
        candidates |= dict.fromkeys(_torn(epoch, entries, sampling.tear, rng))
    for cut in first:
        candidates.pop(cut, None)
    others = sorted(candidates)
    possible = max(allowed, len(first) + len(others))
    if sampling.states is not None and len(first) + len(others) > sampling.states:
        if around:
            near = [_is_within(epoch.end, around) for epoch in epochs]
            strata = [
                [cut for cut in kind if near[cut.epoch] is wanted]
                for kind in (first, others)
                for wanted in (True, False)
            ]
            return Selection(tuple(_drawn(strata, sampling.states, rng)), possible, False)
        exhaustive = False
        if len(first) > sampling.states:
            first = sorted(rng.sample(first, sampling.states))
        others = sorted(rng.sample(others, sampling.states - len(first)))
    return Selection((*first, *others), possible, exhaustive)


def select_prefixes(
    entries: Sequence[LogEntry],
    begin: int,
    end: int,
    sampling: Sampling,
    *,
    torn: bool,
    around: Windows = (),
) -> Selection:
    """Every prefix of the log between two positions that leaves another state, in their order.

    `torn`: the write in flight may be half on the disk. Of more prefixes than `sampling.states` a
    random sample is taken, evenly from within the windows `around` and outside.
    """
    rng = random.Random(sampling.seed)  # noqa: S311 - reproducible, not secret
    positions = [place for place in range(begin, end) if entries[place].changes_disk]
    cuts = [CrashState(place, prefix=True) for place in (*positions, end)]
    if torn and sampling.tear:
        cuts += [
            CrashState(place, torn=1, unit=sampling.tear, seed=rng.getrandbits(32), prefix=True)
            for place in positions
            if _is_tearable(entries, place, end, sampling.tear)
        ]
    exhaustive = sampling.states is None or len(cuts) <= sampling.states
    strata = [
        [cut for cut in cuts if _is_within(cut.epoch, around) is near] for near in (True, False)
    ]
    chosen = cuts if exhaustive else _drawn(strata, sampling.states or 0, rng)
    return Selection(tuple(sorted(chosen)), len(cuts), exhaustive)


def _every_subset(epoch: Epoch) -> Iterator[CrashState]:
    bits = 0
    for _ in range(1 << epoch.losable.bit_count()):
        yield CrashState(epoch.number, bits | epoch.durable)
        bits = (bits - epoch.losable) & epoch.losable  # the next subset of these bits


def _some_subsets(epoch: Epoch, rng: random.Random) -> Iterator[CrashState]:
    """All changes, all except one, only the last one, and random subsets."""
    size, everything = len(epoch.changes), epoch.all
    subsets = [everything, *(everything & ~(1 << bit) for bit in range(size)), 1 << size - 1]
    for _ in range(_RANDOM_STATES):
        share = rng.choice(_SHARES)
        subsets.append(sum(1 << bit for bit in range(size) if rng.random() < share))
    return (CrashState(epoch.number, bits | epoch.durable) for bits in subsets)


def _torn(
    epoch: Epoch, entries: Sequence[LogEntry], unit: int, rng: random.Random
) -> Iterator[CrashState]:
    """States with one torn change among whole ones."""
    tearable = [
        bit
        for bit, place in enumerate(epoch.changes)
        if unit and entries[place].length > unit and not epoch.durable >> bit & 1
    ]
    for _ in range(min(_TORN_STATES, 2 * len(tearable))):
        torn = 1 << rng.choice(tearable)
        survivors = rng.getrandbits(len(epoch.changes)) & ~torn | epoch.durable
        yield CrashState(epoch.number, survivors, torn, unit, rng.getrandbits(32))


def torn_parts(cut: CrashState, index: int, length: int) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of the surviving parts of a torn change: some, never all or none."""
    rng = random.Random(cut.seed << 32 | index)  # noqa: S311 - reproducible, not secret
    units = -(-length // cut.unit)
    share = rng.choice((0.3, 0.5, 0.9))
    survives = [rng.random() < share for _ in range(units)]
    if all(survives) or not any(survives):
        changed = rng.randrange(units)
        survives[changed] = not survives[changed]
    return tuple(
        (number * cut.unit, min(cut.unit, length - number * cut.unit))
        for number, present in enumerate(survives)
        if present
    )


class FutureVersionError(PowercutError):
    """A state holds data that were written only after its cut: a bug of vdisklab, not of a disk."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="this is a bug in vdisklab; please report it with the recording"
        )


class DueVersions(Value):
    """For each written sector: the oldest and the newest version that it may hold."""

    oldest: Numbers
    newest: Numbers


@dataclass(slots=True)
class Expectation:
    """The versions due in each written sector, by log position."""

    trace: Trace
    sectors: Numbers = dataclasses.field(init=False)
    _worked_out: dict[int, DueVersions] = dataclasses.field(init=False, default_factory=dict)
    _slices: list[slice] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        ranges = [np.arange(w.first, w.first + w.count) for w in self.trace.writes]
        self.sectors = np.unique(np.concatenate(ranges)) if ranges else np.zeros(0, np.int64)
        starts = np.searchsorted(self.sectors, [w.first for w in self.trace.writes])
        self._slices = [
            slice(int(start), int(start) + write.count)
            for start, write in zip(starts, self.trace.writes, strict=True)
        ]

    def due_at(self, position: int) -> DueVersions:
        """The oldest and the newest possible versions after a cut at a log position."""
        if position not in self._worked_out:
            self._worked_out[position] = self._work_out(position)
        return self._worked_out[position]

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


def judge_sectors(sectors: Numbers, versions: Numbers, due: DueVersions) -> RecoveredState:
    """The worst kind of error, and the first sector with it. Raises FutureVersionError."""
    future = versions > due.newest
    if future.any():
        first = int(np.argmax(future))
        raise FutureVersionError(
            f"sector {sectors[first]} holds version {versions[first]}, which had not been written"
        )
    for outcome, wrong in (
        (StateOutcome.GARBAGE, versions == NoVersion.GARBAGE),
        (StateOutcome.TORN, versions == NoVersion.TORN),
        (StateOutcome.LOST, (versions >= 0) & (versions < due.oldest)),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            held = _NO_VERSION.get(versions[first], f"version {versions[first]}")
            return outcome, (
                f"{wrong.sum()} sectors {outcome}; sector {sectors[first]} must hold version "
                f"{due.oldest[first]} and holds {held}"
            )
    return KEPT


class JudgedState(Value):
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
        bound = self.loss_bound
        most = "" if bound is None else f"; at most {in_percent(bound, 2)} of them do (95 %)"
        return (
            f"for this recorded run, under the model that {model}, none of {self.states} "
            f"{failures} of {self.possible} possible ones loses acknowledged writes{most}"
        )

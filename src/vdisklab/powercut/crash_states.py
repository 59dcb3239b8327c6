"""The possible states of a disk after a power cut, and the choice of those to judge. No I/O.

The model: what completed before the last flush is durable; any subset of what came after it may be.
Between two flushes (an epoch) every cut leaves a subset of the epoch's writes. A subset that is
possible at some moment stays possible until the end of the epoch, when most writes are
acknowledged. So each state is judged once, at the end of its epoch.

Where the disk, or the kernel, keeps all that it completed (models other than `power`), the possible
states are the prefixes of the log. Each is judged just before the next change, for the same reason.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vdisklab.errors import PowercutError
from vdisklab.powercut.write_log import Flag, LogEntry

TEAR_BYTES = 4096
"""The unit that a disk writes atomically, in bytes."""

_RANDOM_STATES = 32
_TORN_STATES = 4
_SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Epoch:
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


@dataclass(frozen=True, slots=True, order=True)
class CrashState:
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


_PREFIX = r"@([0-9]{1,18})(?:-([1-9][0-9]{0,17})-([0-9]{1,18}))?"
_CASE = r"([0-9]{1,18})-([0-9a-f]+)(?:-([0-9a-f]+)-([1-9][0-9]{0,17})-([0-9]{1,18}))?"


def parse_crash_state(text: str) -> CrashState:
    """The cut spelled by `str(cut)`. Raises PowercutError for anything else."""
    prefix = re.fullmatch(_PREFIX, text)
    if prefix is not None:
        return _prefix(*prefix.groups())
    match = re.fullmatch(_CASE, text)
    if match is None:
        raise PowercutError(f"{text!r} is not a case", hint="copy it from the verdict's table")
    epoch, kept, torn, unit, seed = match.groups()
    if torn is None:
        return CrashState(int(epoch), int(kept, 16))
    return CrashState(int(epoch), int(kept, 16), int(torn, 16), int(unit), int(seed))


def _prefix(position: str, unit: str | None, seed: str | None) -> CrashState:
    if unit is None or seed is None:
        return CrashState(int(position), prefix=True)
    return CrashState(int(position), torn=1, unit=int(unit), seed=int(seed), prefix=True)


def epoch_of(
    cut: CrashState, epochs: Sequence[Epoch], entries: Sequence[LogEntry], end: int
) -> Epoch | None:
    """The epoch of a cut in a log whose run ends at entry `end`; None if there is no such epoch.

    A prefix is an epoch of its own, whose only change is the write in flight.
    """
    if not cut.prefix:
        known = cut.epoch < len(epochs) and cut.kept | cut.torn <= epochs[cut.epoch].all
        return epochs[cut.epoch] if known else None
    if cut.epoch > end or (cut.torn and not _is_tearable(entries, cut.epoch, end, cut.unit)):
        return None
    in_flight = (cut.epoch,) if cut.torn else ()
    return Epoch(cut.epoch, cut.epoch, cut.epoch, in_flight)


def _is_tearable(entries: Sequence[LogEntry], at: int, end: int, unit: int) -> bool:
    return at < end and entries[at].changes_disk and entries[at].length > unit


def epochs_between(
    entries: Sequence[LogEntry], begin: int, end: int, stops: Sequence[int] = ()
) -> tuple[Epoch, ...]:
    """The epochs between two log positions.

    A write with FUA ends an epoch too: it cannot be lost afterwards, nor be present before. So does
    each of `stops`, at which something else changes. Raises PowercutError when the log is shorter
    than the recorded run.
    """
    if not 0 <= begin <= end <= len(entries):
        raise PowercutError(
            f"the log has {len(entries)} entries, but the recorded run ends at entry {end}"
        )
    ends = [at for at in range(begin, end) if entries[at].flags & (Flag.FLUSH | Flag.FUA)]
    base = max((at for at in range(begin) if entries[at].flushes), default=0)
    epochs: list[Epoch] = []
    for stop in sorted({*ends, *stops, end}):
        changes = tuple(at for at in range(base, stop) if entries[at].changes_disk)
        durable = sum(1 << bit for bit, at in enumerate(changes) if Flag.FUA in entries[at].flags)
        epochs.append(Epoch(len(epochs), base, stop, changes, durable))
        if stop < end and entries[stop].flushes:
            base = stop
    return tuple(epochs)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which states to judge: all subsets of small epochs, and a sample of the others.

    Small epochs have up to `exhaustive_up_to` changes that may be lost; if no more than `states`
    are possible in all, every epoch counts as small. `states` is the maximum in all. Writes are
    torn at `tear` bytes, never if it is 0.
    """

    states: int | None = 1000
    exhaustive_up_to: int = 8
    tear: int = TEAR_BYTES
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The cuts to judge, in order. `exhaustive` is True if they include every subset of every
    epoch.

    `possible` is the number of cuts to choose from: all subsets of all epochs, or the number of
    candidates if torn ones make it larger.
    """

    cuts: tuple[CrashState, ...]
    possible: int
    exhaustive: bool


def select_states_of_epochs(
    epochs: Sequence[Epoch], entries: Sequence[LogEntry], sampling: Sampling
) -> Selection:
    """First every state in which nothing after the flush survived, then the others.

    The former are few, detect most losses, and assume no reordering: they are prefixes of the log.
    If there are more than `sampling.states` others, a random sample of them is taken.
    """
    rng = random.Random(sampling.seed)  # noqa: S311 - reproducible, not secret
    first = [CrashState(epoch.number, epoch.durable) for epoch in epochs]
    candidates: dict[CrashState, None] = {}
    allowed = _count_possible(epochs)
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
        exhaustive = False
        if len(first) > sampling.states:
            first = sorted(rng.sample(first, sampling.states))
        others = sorted(rng.sample(others, sampling.states - len(first)))
    return Selection((*first, *others), possible, exhaustive)


def select_prefixes(
    entries: Sequence[LogEntry], begin: int, end: int, sampling: Sampling, *, torn: bool
) -> Selection:
    """Every prefix of the log between two positions that leaves another state, in their order.

    `torn`: the write in flight may be half on the disk. If there are more prefixes than
    `sampling.states`, a random sample is taken.
    """
    rng = random.Random(sampling.seed)  # noqa: S311 - reproducible, not secret
    positions = [at for at in range(begin, end) if entries[at].changes_disk]
    cuts = [CrashState(at, prefix=True) for at in (*positions, end)]
    if torn and sampling.tear:
        cuts += [
            CrashState(at, torn=1, unit=sampling.tear, seed=rng.getrandbits(32), prefix=True)
            for at in positions
            if _is_tearable(entries, at, end, sampling.tear)
        ]
    exhaustive = sampling.states is None or len(cuts) <= sampling.states
    chosen = cuts if exhaustive else rng.sample(cuts, sampling.states or 0)
    return Selection(tuple(sorted(chosen)), len(cuts), exhaustive)


def _count_possible(epochs: Sequence[Epoch]) -> int:
    """The number of states that the model allows: all subsets of all epochs, without tearing."""
    return sum(1 << epoch.losable.bit_count() for epoch in epochs)


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
        for bit, at in enumerate(epoch.changes)
        if unit and entries[at].length > unit and not epoch.durable >> bit & 1
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

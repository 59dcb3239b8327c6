"""Which states a disk may hold after a power cut, and which of them to judge. Pure and seeded.

The model: what completed before the last flush is durable; of what came after it any subset may
be. Between two flushes (an epoch) all cuts lead to subsets of the epoch's writes, and a subset that
is possible at some moment stays possible until the epoch ends, when the most has been promised. So
every state is judged once, at the end of its epoch.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vdisklab.errors import PowercutError
from vdisklab.powercut.recording.log import Entry, Flag

TEAR_BYTES = 4096
"""The unit that a disk writes whole; 512 on request, with fsck as part of recovery."""

_RANDOM_STATES = 32
_TORN_STATES = 4
_SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What lies between two flushes, or a part of it: `changes` are indices of the log.

    Entries before `base` are durable, the cut is at `end`: before entry number `end`. `durable`
    are the bits of changes that had FUA and cannot be lost.
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


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """One state: the epoch, the bits of its changes that reached the disk, and those torn.

    Of a torn change a part is there, chosen by `seed` in units of `unit` bytes.
    """

    epoch: int
    kept: int = 0
    torn: int = 0
    unit: int = 0
    seed: int = 0

    def __str__(self) -> str:
        text = f"{self.epoch}-{self.kept:x}"
        return f"{text}-{self.torn:x}-{self.unit}-{self.seed}" if self.torn else text


def parse_cut(text: str) -> Cut:
    """The cut that `str(cut)` spelled; PowercutError for anything else."""
    match = re.fullmatch(r"(\d+)-([0-9a-f]+)(?:-([0-9a-f]+)-([1-9]\d*)-(\d+))?", text)
    if match is None:
        raise PowercutError(f"{text!r} names no case", hint="copy it from the verdict's table")
    epoch, kept, torn, unit, seed = match.groups()
    if torn is None:
        return Cut(int(epoch), int(kept, 16))
    return Cut(int(epoch), int(kept, 16), int(torn, 16), int(unit), int(seed))


def epochs_between(entries: Sequence[Entry], begin: int, end: int) -> tuple[Epoch, ...]:
    """The epochs in which a cut between two positions of the log may fall.

    A write with FUA ends one, too: from then on it cannot be lost, before it could not be there.
    Raises PowercutError when the log is shorter than the run that is to be judged.
    """
    if not 0 <= begin <= end <= len(entries):
        raise PowercutError(
            f"the log has {len(entries)} entries, the run that was recorded in it ends at {end}"
        )
    ends = [at for at in range(begin, end) if entries[at].flags & (Flag.FLUSH | Flag.FUA)]
    base = max((at for at in range(begin) if entries[at].flushes), default=0)
    found: list[Epoch] = []
    for stop in [*ends, end]:
        changes = tuple(at for at in range(base, stop) if entries[at].changes_disk)
        durable = sum(1 << bit for bit, at in enumerate(changes) if Flag.FUA in entries[at].flags)
        found.append(Epoch(len(found), base, stop, changes, durable))
        if stop < end and entries[stop].flushes:
            base = stop
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much to judge: every subset of epochs with up to `exhaustive_up_to` changes, of the
    others a sample; of all these at most `states`; torn at `tear` bytes, 0 for no tearing."""

    states: int | None = 1000
    exhaustive_up_to: int = 8
    tear: int = TEAR_BYTES
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The cuts in the order in which to judge them; `possible` counts all subsets of all epochs,
    or those that came into question where these, some torn, are more.

    `exhaustive`: every subset of every epoch is among them.
    """

    cuts: tuple[Cut, ...]
    possible: int
    exhaustive: bool


def select_cuts(epochs: Sequence[Epoch], entries: Sequence[Entry], wanted: Wanted) -> Selection:
    """All states in which nothing after the flush survived first, then the others.

    The former are few, the most sensitive, and assume no reordering: they are prefixes of the
    log. When there are more than `wanted.states`, a random sample of the others is taken.
    """
    rng = random.Random(wanted.seed)  # noqa: S311 - reproducible, not secret
    first = [Cut(epoch.number, epoch.durable) for epoch in epochs]
    rest: dict[Cut, None] = {}
    whole = True
    for epoch in epochs:
        short = len(epoch.changes) <= wanted.exhaustive_up_to
        whole &= short
        rest |= dict.fromkeys(_every_subset(epoch) if short else _some_subsets(epoch, rng))
        rest |= dict.fromkeys(_torn(epoch, entries, wanted.tear, rng))
    for cut in first:
        rest.pop(cut, None)
    others = sorted(rest)
    possible = max(count_possible(epochs), len(first) + len(others))
    if wanted.states is not None and len(first) + len(others) > wanted.states:
        whole = False
        if len(first) > wanted.states:
            first = sorted(rng.sample(first, wanted.states))
        others = sorted(rng.sample(others, wanted.states - len(first)))
    return Selection((*first, *others), possible, whole)


def count_possible(epochs: Sequence[Epoch]) -> int:
    """How many states the model allows: all subsets of all epochs, tearing left aside."""
    return sum(1 << (len(epoch.changes) - epoch.durable.bit_count()) for epoch in epochs)


def _every_subset(epoch: Epoch) -> Iterator[Cut]:
    return (Cut(epoch.number, bits | epoch.durable) for bits in range(epoch.all + 1))


def _some_subsets(epoch: Epoch, rng: random.Random) -> Iterator[Cut]:
    """All, all but one, the last one only, and random ones."""
    size, everything = len(epoch.changes), epoch.all
    chosen = [everything, *(everything & ~(1 << bit) for bit in range(size)), 1 << size - 1]
    for _ in range(_RANDOM_STATES):
        share = rng.choice(_SHARES)
        chosen.append(sum(1 << bit for bit in range(size) if rng.random() < share))
    return (Cut(epoch.number, bits | epoch.durable) for bits in chosen)


def _torn(epoch: Epoch, entries: Sequence[Entry], unit: int, rng: random.Random) -> Iterator[Cut]:
    """States with one torn change among some that are whole."""
    tearable = [
        bit
        for bit, at in enumerate(epoch.changes)
        if unit and entries[at].length > unit and not epoch.durable >> bit & 1
    ]
    for _ in range(min(_TORN_STATES, 2 * len(tearable))):
        torn = 1 << rng.choice(tearable)
        kept = rng.getrandbits(len(epoch.changes)) & ~torn | epoch.durable
        yield Cut(epoch.number, kept, torn, unit, rng.getrandbits(32))


def torn_parts(cut: Cut, index: int, length: int) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of what is there of a torn change; some, never all and never none."""
    rng = random.Random(cut.seed << 32 | index)  # noqa: S311 - reproducible, not secret
    units = -(-length // cut.unit)
    share = rng.choice((0.3, 0.5, 0.9))
    there = [rng.random() < share for _ in range(units)]
    if all(there) or not any(there):
        changed = rng.randrange(units)
        there[changed] = not there[changed]
    return tuple(
        (number * cut.unit, min(cut.unit, length - number * cut.unit))
        for number, present in enumerate(there)
        if present
    )

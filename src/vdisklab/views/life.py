"""The life of disks made from a template, in words and columns."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.answers.life import NOT_COUNTED, DiskLife, LifeAnswer
from vdisklab.path.disk_path import EMPTY
from vdisklab.units import counted, format_bytes, named
from vdisklab.views.choice import MOST_CHARACTERS
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_SLOW = 1 << 20
"""Bytes in memory that a flush is slow by."""

_NAMED = 4
"""Most disks that a sentence names; the others are counted."""


def tables(answer: LifeAnswer) -> Iterator[Table[DiskLife]]:
    """One row for each path and way, the fewest disks at once first, and of these the soonest
    ready; then what was counted.

    CSV has each row once, with the columns of all steps.
    """
    yield times_table(answer)
    yield counts_table(answer)


def made_by(row: DiskLife) -> str:
    """The way, and how many disks were made at once."""
    made = f"{row.made} (empty)" if row.made == EMPTY else row.made
    return made if row.disks == 1 else f"{made}, {row.disks} at once"


_NAMES = (
    Column[DiskLife]("path", lambda row: row.path, folds=NAMES),
    Column[DiskLife]("made by", made_by, folds=NAMES),
)


def times_table(answer: LifeAnswer) -> Table[DiskLife]:
    """The seconds of each step."""
    settled = Column[DiskLife]("settled after", _settled, right=True, spare=3)
    times = (
        _seconds("make", lambda row: row.seconds("make")),
        _seconds("attach", lambda row: row.seconds("attach"), 4),
        _seconds("first write + flush", lambda row: row.seconds("first-write")),
        _seconds("ready", lambda row: row.ready),
        *((settled,) if any(life.in_guests for life in answer.lives) else ()),
        _seconds("reset", lambda row: row.seconds("reset"), 2),
        _seconds("delete", lambda row: row.seconds("delete"), 1),
    )
    return Table(
        headline(answer), (*_NAMES, *times), answer.lives, tuple(_notes(answer)), kind=DiskLife
    )


def counts_table(answer: LifeAnswer) -> Table[DiskLife]:
    """The bytes that moved, and why the first flush took its time."""
    counts = (
        _bytes("read\nto make", lambda row: _of(row, "make", "read"), 4),
        _bytes("written\nuntil flushed", _written, 1),
        _bytes("in memory\nat the flush", lambda row: _of(row, "first-write", "unwritten"), 5),
        _bytes("allocated\nby make", lambda row: _of(row, "make", "allocated"), 3),
        _bytes("given back", lambda row: row.given_back, 2),
        Column[DiskLife](
            "extra work at\nthe first flush", lambda row: row.why or "", folds=WORDS, whole=True
        ),
    )
    return Table("What was counted", (*_NAMES, *counts), answer.lives, intro=why_slow(answer))


def _seconds(
    title: str, value: Callable[[DiskLife], float | None], spare: int = 0
) -> Column[DiskLife]:
    return Column[DiskLife](
        title, lambda row: numbers.value(value(row), "s"), right=True, spare=spare
    )


def _settled(row: DiskLife) -> str:
    """The seconds until a disk is as fast as it stays; a disk that was so from its first write has
    none to wait."""
    seconds = row.seconds("settle")
    return "at once" if seconds == 0 else numbers.value(seconds, "s")


def _bytes(
    title: str, value: Callable[[DiskLife], float | None], spare: int = 0
) -> Column[DiskLife]:
    return Column[DiskLife](title, lambda row: _in_bytes(value(row)), right=True, spare=spare)


def _in_bytes(value: float | None) -> str:
    """Powers of two, as in the words beside it: blocks and clusters are powers of two."""
    return numbers.MISSING if value is None else format_bytes(round(value))


def _of(row: DiskLife, step: str, name: str) -> float | None:
    found = row.steps.get(step)
    return None if found is None else getattr(found, name)


def _written(row: DiskLife) -> float | None:
    """Bytes written to the device until the first flush was answered; None if one step lacks."""
    values = [_of(row, step, "written") for step in ("make", "attach", "first-write")]
    counted_values = [value for value in values if value is not None]
    return sum(counted_values) if len(counted_values) == len(values) else None


def headline(answer: LifeAnswer) -> str:
    """Which way is ready first, how soon a disk is made, how slow its first flush is, and what a
    full copy costs."""
    made = _usable(answer)
    if not made:
        return "No disk could be made and written."
    best = made[0]
    sentence = (
        f"{_which_first(answer)}{_subject(answer, best)}; its first write and flush take "
        f"{_shown(best, 'first-write')}.{_at_once(best, made)}"
    )
    copy = _copy_beside(best, made)
    if copy is None:
        return sentence
    where = "there" if copy.path == best.path else f"on {copy.path}"
    sentence += (
        f" A full copy {where} takes {_shown(copy, 'make')} to make, and its first write and flush "
        f"take {_shown(copy, 'first-write')}"
    )
    waiting = _of(copy, "first-write", "unwritten")
    if waiting is None or waiting < _SLOW:
        return f"{sentence}."
    return (
        f"{sentence}: {format_bytes(round(waiting))} of the copy were still in the host's memory, "
        "and the flush wrote them."
    )


def _shown(life: DiskLife, step: str) -> str:
    return numbers.value(life.seconds(step), "s")


def _subject(answer: LifeAnswer, best: DiskLife) -> str:
    """Which disk the headline is about, and how long it takes to make it."""
    at_once = "" if best.disks == 1 else f" with {best.disks - 1} more{_rate(best)}"
    name, made = f"{best.path} by {best.made}", f"made in {_shown(best, 'make')}{at_once}"
    if len(answer.leaders) > 1:
        return f"The soonest by the median is {name}: it is {made}"
    is_named = len(answer.leaders) == 1 and _which_first(answer)
    return f"{'It' if is_named else name} is {made}"


def _rate(life: DiskLife) -> str:
    rate = life.each_second
    return "" if rate is None or rate < 1 else f" ({counted(round(rate), 'disk')} a second)"


def _at_once(best: DiskLife, made: Sequence[DiskLife]) -> str:
    """How soon the most disks are made that were made at once in the same way, and when the last is
    ready."""
    alike = [life for life in made if (life.path, life.made) == (best.path, best.made)]
    most = max(alike, key=lambda life: life.disks)
    if most.disks == best.disks:
        return ""
    return (
        f" {most.disks} at once are made in {_shown(most, 'make')}{_rate(most)}, and the last is "
        f"ready after {numbers.value(most.ready, 's')}."
    )


def _usable(answer: LifeAnswer) -> list[DiskLife]:
    """The disks that could be used and hold the template's data; what leads comes first."""
    usable = [life for life in answer.lives if life.is_usable]
    leaders = answer.leaders
    return [*leaders[:1], *(life for life in usable if life not in leaders[:1])]


def _which_first(answer: LifeAnswer) -> str:
    """Which disks are ready first: shown, a tie, or no more than what these rounds had."""
    leaders, rounds = answer.leaders, _rounds(answer)
    usable = [life for life in answer.lives if life.is_usable]
    if not leaders:
        return f"In {counted(rounds, 'round')}: " if rounds < MIN_ROUNDS else ""
    compared = [life for life in usable if life.disks == leaders[0].disks]
    if len(compared) < 2:
        return ""
    if len(leaders) == 1:
        (leader,) = leaders
        return (
            f"{leader.path} by {leader.made} is ready first of {counted(len(compared), 'disk')} "
            f"(95 %), after {numbers.value(leader.ready, 's')}. "
        )
    each = [f"{life.path} by {life.made}" for life in leaders]
    return (
        f"Which disk is ready first is not shown in {counted(rounds, 'round')}; candidates are "
        f"{named(each, _NAMED)}. "
    )


def _copy_beside(best: DiskLife, made: Sequence[DiskLife]) -> DiskLife | None:
    """The full copy that a life is compared with, if there is one: on its own path at best."""
    copies = [life for life in made if life.made == "cp" and life.disks == best.disks]
    copy = next((life for life in copies if life.path == best.path), next(iter(copies), None))
    return None if copy is best else copy


def _pair(made: Sequence[DiskLife]) -> str | None:
    """The words that `compare` takes for the disks that are ready first and a copy, or the next."""
    if len(made) < 2:
        return None
    return shlex.join((made[0].cell, (_copy_beside(made[0], made) or made[1]).cell))


def short_headline(answer: LifeAnswer) -> str:
    """The disks that are ready first, in a few words: a way is named only if it is shown to be."""
    made = _usable(answer)
    if not made:
        return "No disk could be made and written"
    best, rounds = made[0], _rounds(answer)
    after = numbers.value(best.ready, "s")
    if not answer.first:
        return f"{best.made} was ready first in {counted(rounds, 'round')}, after {after}"
    if len(answer.first) == 1:
        return f"{best.made} is ready first, after {after}"
    ways = list(dict.fromkeys(life.made for life in answer.leaders))
    said = f"Not shown which is ready first: {named(ways, _NAMED)}"
    if len(ways) > 1 and len(said) <= MOST_CHARACTERS:
        return said
    return f"Not shown which of {len(answer.first)} disks is ready first"


def _rounds(answer: LifeAnswer) -> int:
    return max((life.runs for life in answer.lives), default=0)


def why_slow(answer: LifeAnswer) -> tuple[str, ...]:
    """What the first write and flush had to do besides, the slowest disk of each kind of work; of
    those made alone, or with the fewest others."""
    usable = _usable(answer)
    fewest = min((life.disks for life in usable), default=1)
    slowest: dict[str, DiskLife] = {}
    for life in sorted(usable, key=lambda life: -(life.seconds("first-write") or 0.0)):
        if life.disks == fewest and life.why is not None and not life.why.startswith(NOT_COUNTED):
            slowest.setdefault(life.why.partition(" ")[0], life)
    said = [
        f"{life.why} ({life.made} on {life.path}: "
        f"{numbers.value(life.seconds('first-write'), 's')})"
        for life in slowest.values()
    ]
    if not said:
        return ()
    its = "writing 4 KiB" if fewest == 1 else f"writing 4 KiB to each of {fewest} disks"
    return (f"What the first flush had to do besides {its}: {'; '.join(said)}.",)


def first_lines(answer: LifeAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below a page's headline, each with its subject."""
    return (
        ("Ready first", headline(answer)),
        *(("Why the first flush is slow", sentence) for sentence in why_slow(answer)),
    )


def noted_lines(answer: LifeAnswer) -> tuple[tuple[str, str], ...]:
    """The notes of a report, which states the caveats itself, each with its subject."""
    return tuple(("Note", note) for note in _notes(answer) if note not in answer.caveats.notes)


def next_step(answer: LifeAnswer) -> Iterator[str]:
    """What to run next: the figure, and which way to take, or why none could be used."""
    if all(life.ready is None for life in answer.lives):
        yield f"why the cells failed: `vdisklab runs {answer.campaign}`"
        return
    numbers_of_disks = {life.disks for life in answer.lives}
    at_once = f"--guests {max(numbers_of_disks)} " if len(numbers_of_disks) > 1 else ""
    yield (
        f"see it: `vdisklab report --campaign {answer.campaign}`; which way to take for disks that "
        f"are thrown away: `vdisklab recommend --need disposable {at_once}--campaign "
        f"{answer.campaign}`"
    )


def _failures(answer: LifeAnswer) -> Iterator[str]:
    """One note for all disks that failed for one reason."""
    failed: dict[str, list[DiskLife]] = {}
    for life in answer.lives:
        if life.failure is not None:
            failed.setdefault(life.failure, []).append(life)
    for why, lives in failed.items():
        which = named([f"{made_by(life)} on {life.path}" for life in lives], _NAMED)
        runs = counted(sum(life.failed for life in lives), "run")
        yield f"{which} failed in {runs}: {why}"


def rank_command(answer: LifeAnswer) -> str:
    """The command that tells which of these disks is ready first."""
    several = sorted({life.disks for life in answer.lives})
    at_once = f" --guests {several[-1]}" if len(several) > 1 else ""
    return f"vdisklab rank --metric ready{at_once} --campaign {answer.campaign}"


def _notes(answer: LifeAnswer) -> Iterator[str]:
    source = "the default template" if answer.template is None else answer.template
    rounds = _rounds(answer)
    medians = "one round"
    if rounds > 1:
        medians = f"medians of up to {rounds} rounds, each alone: they need not add up"
    yield (
        f"disks of {format_bytes(answer.size)} from {source}; {medians}; a disk is ready when its "
        "first flush is answered, counted from the order to make it; reset deletes it and makes it "
        "anew"
    )
    if any(not life.in_guests for life in answer.lives):
        yield (
            "no guest: the times of attach and of the first write have the start of qemu-io in them"
        )
    unsettled: dict[str, list[str]] = {}
    for life in answer.lives:
        if life.unsettled is not None:
            unsettled.setdefault(life.unsettled, []).append(f"{made_by(life)} on {life.path}")
    for why, disks in unsettled.items():
        which = named(disks, _NAMED)
        yield f"no time “settled after” of {which}: {why}; choose a longer --runtime"
    yield from _failures(answer)
    for life in answer.lives:
        if life.given_back is not None and life.space_back is None:
            yield f"{made_by(life)} on {life.path}: not all of its space came back in half a minute"
    of = f"--campaign {answer.campaign}"
    yield f"rank by a step: `{rank_command(answer)}`, or first-write/none/duration"
    pair = _pair([life for life in answer.lives if life.is_usable])
    if pair is not None:
        yield f"compare two of them: `vdisklab compare {pair} {of}`"
    yield from answer.caveats.notes

"""The life of disks made from a template, in words and columns."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.answers.life import DiskLife, LifeAnswer
from vdisklab.path.disk_path import EMPTY
from vdisklab.units import counted, format_bytes
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_SLOW = 1 << 20
"""Bytes in memory that a flush is slow by."""


def tables(answer: LifeAnswer) -> Iterator[Table[DiskLife]]:
    """One row for each path and way, the soonest ready first; then what was counted."""
    names = (
        Column[DiskLife]("path", lambda row: row.path, folds=NAMES),
        Column[DiskLife]("made by", _made, folds=NAMES),
    )
    times = (
        _seconds("make", lambda row: row.seconds("make")),
        _seconds("attach", lambda row: row.seconds("attach"), 4),
        _seconds("first write + flush", lambda row: row.seconds("first-write")),
        _seconds("ready", lambda row: row.ready, 5),
        _seconds("settled after", lambda row: row.seconds("settle"), 3),
        _seconds("reset", lambda row: row.seconds("reset"), 2),
        _seconds("delete", lambda row: row.seconds("delete"), 1),
    )
    yield Table(
        headline(answer),
        (*names, *times),
        answer.lives,
        tuple(_notes(answer)),
        kind=DiskLife,
    )
    counts = (
        _bytes("read to make", lambda row: _of(row, "make", "read"), 3),
        _bytes("written until flushed", _written),
        _bytes("in memory at the flush", lambda row: _of(row, "first-write", "unwritten"), 4),
        _bytes("allocated by make", lambda row: _of(row, "make", "allocated"), 2),
        _bytes("given back", lambda row: row.given_back, 1),
        Column[DiskLife](
            "besides the first write", lambda row: row.why or "", folds=WORDS, spare=5
        ),
    )
    yield Table("What was counted", (*names, *counts), answer.lives, kind=DiskLife)


def _made(row: DiskLife) -> str:
    return row.made if row.disks == 1 else f"{row.made}, {row.disks} at once"


def _seconds(
    title: str, value: Callable[[DiskLife], float | None], spare: int = 0
) -> Column[DiskLife]:
    return Column[DiskLife](
        title, lambda row: numbers.value(value(row), "s"), right=True, spare=spare
    )


def _bytes(
    title: str, value: Callable[[DiskLife], float | None], spare: int = 0
) -> Column[DiskLife]:
    return Column[DiskLife](title, lambda row: _in_bytes(value(row)), right=True, spare=spare)


def _in_bytes(value: float | None) -> str:
    """Powers of two, as in the words beside it: blocks and clusters are powers of two."""
    return numbers.MISSING if value is None else format_bytes(round(value))


def _of(row: DiskLife, step: str, name: str) -> float | None:
    found = row.step(step)
    return None if found is None else getattr(found, name)


def _written(row: DiskLife) -> float | None:
    """Bytes written to the device until the first flush was answered; None if one step lacks."""
    values = [_of(row, step, "written") for step in ("make", "attach", "first-write")]
    counted_values = [value for value in values if value is not None]
    return sum(counted_values) if len(counted_values) == len(values) else None


def headline(answer: LifeAnswer) -> str:
    """How many disks a second, how slow the first flush is, and what a full copy costs."""
    made = [life for life in answer.lives if _is_made(life)]
    if not made:
        return "No disk could be made and written."
    best = made[0]
    rate, first = best.each_second, numbers.value(best.seconds("first-write"), "s")
    makes = "" if rate is None else f" makes {_rate(rate)} a second;"
    few = f"In {counted(rounds, 'round')}: " if (rounds := _rounds(answer)) < MIN_ROUNDS else ""
    sentence = (
        f"{few}{best.path} by {best.made}{makes} a disk's first write and flush take {first}."
    )
    copy = _copy_beside(best, made)
    if copy is None:
        return sentence
    where = "" if copy.path == best.path else f" on {copy.path}"
    slow = numbers.value(copy.seconds("first-write"), "s")
    sentence += (
        f" A full copy{where} takes {numbers.value(copy.seconds('make'), 's')} to make, and its "
        f"first write and flush take {slow}"
    )
    waiting = _of(copy, "first-write", "unwritten")
    if waiting is None or waiting < _SLOW:
        return f"{sentence}."
    return (
        f"{sentence}: {format_bytes(round(waiting))} of the copy were still in the host's memory, "
        "and the flush wrote them."
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
    """The disks that are ready first, in a few words."""
    best = next((life for life in answer.lives if _is_made(life)), None)
    if best is None:
        return "No disk could be made and written"
    after = numbers.value(best.ready, "s")
    if (rounds := _rounds(answer)) < MIN_ROUNDS:
        return f"{best.made} was ready first in {counted(rounds, 'round')}, after {after}"
    return f"{best.made} is ready first, after {after}"


def _rounds(answer: LifeAnswer) -> int:
    return max((life.runs for life in answer.lives), default=0)


def first_lines(answer: LifeAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below a page's headline, each with its subject."""
    return (
        ("Ready first", headline(answer)),
        ("Why the first flush is slow", f"`vdisklab life --campaign {answer.campaign}`"),
        *(("Note", note) for note in _notes(answer)),
    )


def _is_made(life: DiskLife) -> bool:
    """True for a disk that could be used and holds the template's data."""
    return life.ready is not None and life.made != EMPTY


def next_step(answer: LifeAnswer) -> Iterator[str]:
    """What to run next: the figure, and which way to take, or why none could be used."""
    if all(life.ready is None for life in answer.lives):
        yield f"why the cells failed: `vdisklab runs {answer.campaign}`"
        return
    see = f"see it: `vdisklab report --campaign {answer.campaign}`"
    if len({life.disks for life in answer.lives}) > 1:
        # Disks made at once are compared with as many alone.
        most = max(life.disks for life in answer.lives)
        pair = _pair([life for life in answer.lives if _is_made(life) and life.disks == most])
        yield (
            see
            if pair is None
            else (
                f"{see}; compare two ways for {counted(most, 'disk')} at once: "
                f"`vdisklab compare {pair} --campaign {answer.campaign}`"
            )
        )
        return
    yield (
        f"{see}; which way to take for disks that are thrown away: `vdisklab recommend --need "
        f"disposable --campaign {answer.campaign}`"
    )


def _rate(each_second: float) -> str:
    if each_second >= 1:
        return counted(round(each_second), "disk")
    return f"{each_second:.2g} disks"


def _notes(answer: LifeAnswer) -> Iterator[str]:
    source = "the default template" if answer.template is None else answer.template
    rounds = _rounds(answer)
    medians = "one round" if rounds == 1 else f"medians of up to {rounds} rounds"
    yield (
        f"disks of {format_bytes(answer.size)} from {source}; {medians}; a disk is ready when its "
        "first flush is answered, counted from the order to make it"
    )
    if any(not life.in_guests for life in answer.lives):
        yield (
            "no guest: the times of attach and of the first write have the start of qemu-io in them"
        )
    unsettled = [life for life in answer.lives if life.in_guests and life.seconds("settle") is None]
    for life in unsettled:
        yield f"{_made(life)} on {life.path}: the rate had not settled; choose a longer --runtime"
    for life in answer.lives:
        if life.failure is not None:
            yield f"{_made(life)} on {life.path} failed in {life.failed} runs: {life.failure}"
    for life in answer.lives:
        if life.given_back is not None and life.space_back is None:
            yield f"{_made(life)} on {life.path}: not all of its space came back in half a minute"
    yield "rank by a step: `vdisklab rank --metric ready`, or first-write/none/duration"
    pair = _pair([life for life in answer.lives if _is_made(life)])
    if pair is not None:
        yield f"compare two of them: `vdisklab compare {pair}`"
    yield from answer.caveats.notes

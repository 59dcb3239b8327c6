"""How many guests each path carries, and what a noisy neighbour does to one, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.guest_groups import FROM_MEMORY, Bottleneck, GroupStep, LimitedBy
from vdisklab.answers.density import DensityAnswer, NeighbourAnswer, NeighbourEffect, PathCapacity
from vdisklab.units import in_percent, named
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_MOST_NAMED = 4
SHOWS_DRIFT = 0.5
"""From this probability on, a note says that differences between rounds last. Before any run it is
0.35; at most 5 % of searches reach it where nothing lasts (`bench/density.py`)."""

_FROM_MEMORY = "A path limited by the page cache shows the host's memory, not its disk."


def tables(answer: DensityAnswer) -> Iterator[Table[PathCapacity]]:
    """One row per path, the one that carries most guests first."""
    columns = (
        Column[PathCapacity]("path", lambda row: row.path, folds=NAMES),
        Column[PathCapacity]("guests", _guests, right=True),
        Column[PathCapacity]("95 %", _interval, right=True),
        Column[PathCapacity]("limited by", lambda row: _limit(row.limited), folds=WORDS),
        _at_limit("IOPS", lambda step: numbers.value(step.iops, "IOPS"), 2),
        _at_limit("worst guest", lambda step: numbers.value(step.worst, "s"), 1),
        _at_limit("p99 of all", lambda step: numbers.value(step.p99, "s"), 3),
        _at_limit("fairness", lambda step: _plain(step.fairness), 4),
        _at_limit("CPUs each", lambda step: _plain(step.cpu_for_each), 5),
    )
    what = f"Guests with {answer.load} requests a second each, at {answer.until}"
    doubts = (line for subject, line in density_lines(answer) if subject in ("Why", "Doubt"))
    yield Table(
        f"{density_headline(answer)}.",
        columns,
        answer.paths,
        tuple(_notes(answer)),
        intro=(*doubts, what),
        kind=PathCapacity,
    )


def _at_limit(title: str, shown: Callable[[GroupStep], str], spare: int) -> Column[PathCapacity]:
    """A column about the worst run at the limit."""
    return Column(
        title,
        lambda row: numbers.MISSING if row.at_limit is None else shown(row.at_limit),
        right=True,
        spare=spare,
    )


def _notes(answer: DensityAnswer) -> Iterator[str]:
    yield (
        "at the limit: IOPS of all guests, latency of the worst one, p99 of all requests together, "
        "Jain's fairness index"
    )
    for row in answer.paths:
        if row.capacity is not None and row.capacity.guests == 0:
            yield f"{row.path}: one guest alone is too slow; the numbers are of that one"
    if answer.left_out:
        yield f"not shown to carry that many: {named(answer.left_out, _MOST_NAMED)}"
    yield from answer.caveats.notes
    if any(row.limited.limit is LimitedBy.PAGE_CACHE for row in answer.paths):
        yield _FROM_MEMORY
    yield from _in_memory(answer.paths)
    lasting = [
        row.path for row in answer.paths if row.capacity and row.capacity.lasts >= SHOWS_DRIFT
    ]
    if lasting:
        yield (
            f"{named(lasting, _MOST_NAMED)}: the disk seems to stay slower or faster for several "
            "rounds, so the interval may miss the number: repeat the search on another day"
        )
    for row in answer.paths:
        if row.reached is not None:
            yield (
                f"{row.path}: one guest alone reaches {row.reached:.0f} of {answer.load} requests "
                "a second: choose a smaller --load"
            )
    for row in answer.paths:
        if not row.complete:
            why = row.failure or "its `vdisklab density` command continues it"
            yield f"{row.path}: the search did not end: {why}"


def _in_memory(paths: Sequence[PathCapacity | NeighbourEffect]) -> Iterator[str]:
    """The paths whose guests wrote faster than the disk took it, with what shows the rest."""
    told = [row for row in paths if row.on_device is not None and row.on_device < FROM_MEMORY]
    if told:
        least = min(row.on_device for row in told if row.on_device is not None)
        yield (
            f"{named([row.path for row in told], _MOST_NAMED)}: only {in_percent(least)} of what "
            "the guests wrote had reached the disk at the end, and the host's memory held the "
            "rest. Whether the disk keeps up for longer is not shown: look at cache=none, or "
            "measure with --cache-memory 25% or a longer --runtime"
        )


def density_headline(answer: DensityAnswer) -> str:
    """The paths that carry most guests, in a few words."""
    with_capacity = [path for path in answer.paths if path.capacity is not None]
    if not with_capacity:
        return "No answer yet"
    number = _guests(with_capacity[0])
    best = [path.path for path in with_capacity if _guests(path) == number]
    verb, single = "carries" if len(best) == 1 else "carry", number in ("1", "at least 1")
    sure = f" (95 %: {_interval(with_capacity[0])})" if len(best) == 1 else ""
    return f"{named(best, _MOST_NAMED)} {verb} {number} {'guest' if single else 'guests'}{sure}"


def density_lines(answer: DensityAnswer) -> tuple[tuple[str, str], ...]:
    """At most three lines below the headline, each with its subject."""
    with_capacity = [path for path in answer.paths if path.capacity is not None]
    if not with_capacity:
        failures = [path.failure for path in answer.paths if path.failure]
        return (("Why", failures[-1] if failures else "No run of this search was measured."),)
    others = "; ".join(
        f"{path.path}: {capacity_text(path)}" for path in with_capacity[:_MOST_NAMED]
    )
    first, *rest = with_capacity
    tied = [path for path in rest if _may_carry_as_many(path, first)]
    load = f"{answer.load} requests a second in each guest, each at {answer.until}. {others}."
    doubt = (
        f"The intervals of {named([path.path for path in (first, *tied)], _MOST_NAMED)} overlap: "
        "which carries more is not shown. More `--rounds`, or `--precision`, narrow them."
    )
    lines = (("Load", load), ("Limited by", f"{first.path}: {_limit(first.limited)}."))
    return (*lines, ("Doubt", doubt)) if tied else lines


def _may_carry_as_many(path: PathCapacity, best: PathCapacity) -> bool:
    if path.capacity is None or best.capacity is None:
        return False
    return path.capacity.at_least or path.capacity.high >= best.capacity.low


def capacity_text(path: PathCapacity) -> str:
    """The number of guests with its interval, such as `3 (2–4)`."""
    return f"{_guests(path)} ({_interval(path)})" if path.capacity else _guests(path)


def _guests(row: PathCapacity) -> str:
    if row.capacity is None:
        return numbers.MISSING
    return f"{'at least ' if row.capacity.at_least else ''}{row.capacity.guests}"


def _interval(row: PathCapacity) -> str:
    if row.capacity is None:
        return numbers.MISSING
    low, high = row.capacity.low, row.capacity.high
    if row.capacity.at_least:
        return f"{low} or more"
    return f"{low}–{high}"


def _limit(limited: Bottleneck | None) -> str:
    if limited is None:
        return numbers.MISSING
    return f"{limited.limit} ({limited.evidence})" if limited.evidence else limited.limit


def _plain(number: float | None) -> str:
    return numbers.MISSING if number is None else f"{number:.2f}"


def neighbour_tables(answer: NeighbourAnswer) -> Iterator[Table[NeighbourEffect]]:
    """One row per path; first the path on which the victim loses least."""
    columns: tuple[Column[NeighbourEffect], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("alone", lambda row: numbers.value(row.alone, "s"), right=True),
        Column("beside", lambda row: numbers.value(row.beside, "s"), right=True),
        Column("ratio", lambda row: numbers.ratio(row.ratio.ratio), right=True),
        Column(
            "95 %", lambda row: numbers.ratio_interval(row.ratio.low, row.ratio.high), right=True
        ),
        Column("limited by", lambda row: _limit(row.limited), folds=WORDS, spare=1),
    )
    notes = (
        "the ratio is paired within rounds; its interval needs three of them",
        *answer.caveats.notes,
        *_in_memory(answer.paths),
        *(f"{row.path}: {row.failure}" for row in answer.paths if row.failure),
    )
    title = f"p99 of {answer.victim}, alone and beside {answer.neighbour}"
    yield Table(title, columns, answer.paths, notes, kind=NeighbourEffect)

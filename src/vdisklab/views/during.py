"""What operations cost a running guest, in words and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from vdisklab import numbers
from vdisklab.answers.during import DuringAnswer, OperationCost, ReliefLine
from vdisklab.units import counted
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_FELT = 0.1
"""Seconds: shorter waits are the disk's own."""


def tables(answer: DuringAnswer) -> Iterator[Table[OperationCost]]:
    """One row for each path and operation, the longest waits first."""
    columns = (
        Column[OperationCost]("path", lambda row: row.path, folds=NAMES),
        Column[OperationCost]("operation", lambda row: row.operation, folds=NAMES),
        Column[OperationCost](
            "longest stall", lambda row: numbers.value(row.stall, "s"), right=True
        ),
        Column[OperationCost]("stall before", _seconds("stall_before"), right=True, spare=1),
        Column[OperationCost]("stall of writes", _seconds("write_stall"), right=True),
        Column[OperationCost](
            "stall of writes before", _seconds("write_stall_before"), right=True, spare=1
        ),
        Column[OperationCost]("p99 before", _seconds("latency_before"), right=True, spare=4),
        Column[OperationCost]("p99 during", _seconds("latency"), right=True, spare=2),
        Column[OperationCost](
            "during : before", lambda row: numbers.ratio(row.during.ratio), right=True
        ),
        Column[OperationCost](
            "95 %",
            lambda row: numbers.ratio_interval(row.during.low, row.during.high),
            right=True,
            spare=5,
        ),
        Column[OperationCost](
            "after : before", lambda row: numbers.ratio(row.after.ratio), right=True, spare=3
        ),
        Column[OperationCost](
            "p99 : row 1",
            lambda row: numbers.ratio(row.to_first.ratio) if row.to_first else numbers.MISSING,
            right=True,
            spare=3,
        ),
        Column[OperationCost]("took", _seconds("seconds"), right=True),
        Column[OperationCost]("power cut in the middle", _power_cut, folds=WORDS, spare=2),
    )
    # A column that is empty in every row, such as an interval of one round, is left out.
    shown = [
        column
        for column in columns
        if not column.spare or any(column.show(row) != numbers.MISSING for row in answer.costs)
    ]
    yield Table(
        headline(answer),
        shown,
        answer.costs,
        tuple(_notes(answer)),
        verbatim=tuple(_relief(answer)),
        kind=OperationCost,
    )


def _seconds(name: str) -> Callable[[OperationCost], str]:
    def shown(row: OperationCost) -> str:
        return numbers.value(getattr(row, name), "s")

    return shown


def headline(answer: DuringAnswer) -> str:
    """What failed, then what the guest feels most."""
    return " ".join(filter(None, (_failed(answer), _felt_most(answer))))


def _failed(answer: DuringAnswer) -> str:
    """The operation that failed and its reason, one without a number first; empty if none did."""
    failed = [cost for cost in answer.costs if cost.failure is not None]
    if not failed:
        return ""
    first = min(failed, key=lambda cost: cost.runs > 0)
    runs = f" in {first.failed} of {counted(first.runs + first.failed, 'run')}"
    reason = (first.failure or "").rstrip(".").removeprefix(f"the {first.in_words} failed: ")
    sentence = f"{_named(first)} failed{runs if first.runs else ''}: {reason}."
    others = len(failed) - 1
    return sentence if not others else f"{sentence} So did {counted(others, 'other')}."


def _felt_most(answer: DuringAnswer) -> str:
    """What the guest feels most, in one sentence; empty if only a control beside what failed has
    numbers."""
    measured = [cost for cost in answer.costs if cost.stall is not None]
    failed = _without_number(answer)
    if not measured:
        return "" if failed else "No operation could be measured."
    if failed and all(cost.is_control for cost in measured):
        return ""
    none = "No other operation" if failed else "No operation"
    longest = max(measured, key=lambda cost: cost.felt)
    if longest.felt < _FELT:
        return f"{none} made the guest's requests wait for more than {_FELT:g} s."
    worst = measured[0]
    if not worst.is_felt or worst.felt < _FELT:
        rounds = max(cost.runs for cost in measured)
        longer = f"for more than {_FELT:g} s and longer" if worst.is_felt else "longer"
        return (
            f"{none} is shown to make the guest wait {longer} than before, in "
            f"{counted(rounds, 'round')}. The longest wait, during {longest.operation} on "
            f"{longest.path}: {_felt(longest)}."
        )
    said, what = "The guest waits", _felt(worst)
    if not worst.is_shown:  # nothing more is known than what happened in these rounds
        said, what = f"{_in_rounds(worst)} the guest waited longer", _felt_longer(worst)
    sentence = f"{said} during {worst.operation} on {worst.path}: {what}."
    others = [cost for cost in measured if cost is not worst and not cost.is_control]
    if others:
        # what can take its place, if anything was measured that can
        mildest = ([cost for cost in others if cost.is_instead_of(worst)] or others)[-1]
        most = "least" if mildest is others[-1] else "less"
        sentence += (
            f" The guest felt {_named(mildest)} {most}: p99 "
            f"{numbers.value(mildest.latency, 's')}, and {_stalled(mildest)}"
        )
        sentence += _against(worst, mildest) + "."
    return sentence


def _against(worst: OperationCost, mildest: OperationCost) -> str:
    """How much shorter the p99 of the mildest was, if rounds can say so."""
    ratio = mildest.to_first
    if ratio is None or ratio.low is None or ratio.high is None:
        return ""
    other = f"{worst.operation} on {worst.path}"
    if ratio.low <= 1 <= ratio.high:
        rounds = counted(min(worst.runs, mildest.runs), "round")
        return f"; {rounds} do not show that its p99 differs from that of {other}"
    within = numbers.known_interval(ratio.low, ratio.high)
    times = numbers.ratio(ratio.ratio).removeprefix("×")
    return "" if within is None else f"; its p99 is {times} times that of {other} (95 %: {within})"


def short_headline(answer: DuringAnswer) -> str:
    """The operation that is felt most, in a few words."""
    failed = _without_number(answer)
    if failed:
        return f"{failed[0].operation} failed"
    measured = [cost for cost in answer.costs if cost.stall is not None]
    if not measured:
        return "No operation could be measured"
    worst = measured[0]
    if not worst.is_felt or worst.felt < _FELT:
        return "No operation is shown to be felt"
    waits = "waits" if worst.is_shown else "waited"
    return f"{worst.operation}: a guest {waits} {numbers.value(worst.felt, 's')}"


def _in_rounds(row: OperationCost) -> str:
    return "In this round" if row.runs == 1 else f"In these {counted(row.runs, 'round')}"


def operation_in_words(row: OperationCost) -> str:
    """How long an operation took, and what the guest felt."""
    return f"it took {numbers.value(row.seconds, 's')}; {_felt(row)}"


def first_lines(answer: DuringAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below a page's headline, each with its subject."""
    notes = tuple(("Note", note) for note in _notes(answer))
    return (
        *answer_lines(answer),
        *(
            ("To paste", f"{felt}, {each.platform}: {each.line or f'no line: {each.reason}'}")
            for felt, each in relief(answer)
        ),
        *notes,
    )


def answer_lines(answer: DuringAnswer) -> tuple[tuple[str, str], ...]:
    """What failed and what the guest felt most, each with its subject."""
    lines = (("Failed", _failed(answer)), ("Felt most", _felt_most(answer)))
    return tuple((subject, line) for subject, line in lines if line)


def _without_number(answer: DuringAnswer) -> list[OperationCost]:
    """The operations that failed in each run, so that nobody knows what a guest feels."""
    return [cost for cost in answer.costs if cost.stall is None and cost.failure is not None]


def _named(row: OperationCost) -> str:
    return f"{row.operation} on {row.path}"


def _felt(row: OperationCost) -> str:
    """What the guest felt: how slow, and for how long nothing went on."""
    return f"{_slow(row)}, and {_stalled(row)}"


def _felt_longer(row: OperationCost) -> str:
    """The same of what took longer than before."""
    what, before = row.latency or 0.0, row.latency_before or 0.0
    slower = _slow(row) if what > before else ""
    stall, earlier = _longest_stall(row)
    stalled = _stalled(row) if stall > (earlier or 0.0) else ""
    if not slower and not stalled:  # drift hides it between the medians of runs
        return f"its p99 is {numbers.ratio(row.during.ratio)} of that before, within runs"
    return ", and ".join(filter(None, (slower, stalled)))


def _slow(row: OperationCost) -> str:
    return (
        f"its slowest 1 % of requests took {numbers.value(row.latency, 's')} or longer "
        f"({numbers.value(row.latency_before, 's')} before)"
    )


def _longest_stall(row: OperationCost) -> tuple[float, float | None]:
    """The longer stall, of all requests or of writes, and the one before it."""
    if row.write_stall is None or row.write_stall <= (row.stall or 0.0):
        return row.stall or 0.0, row.stall_before
    return row.write_stall, row.write_stall_before


def _stalled(row: OperationCost) -> str:
    stall, before = _longest_stall(row)
    what = "write" if row.write_stall is not None and stall > (row.stall or 0.0) else "request"
    earlier = "" if before is None else f" ({numbers.value(before, 's')} before)"
    return f"no {what} was completed for {numbers.value(stall, 's')}{earlier}"


def _power_cut(row: OperationCost) -> str:
    if row.survives is None:
        return "not judged" if row.judge else "cannot be judged"
    return "keeps flushed data" if row.survives else "loses flushed data"


def _notes(answer: DuringAnswer) -> Iterator[str]:
    yield (
        "longest stall: requests waited, and none was completed; stall of writes: writes waited, "
        "and none was completed; p99 counts from the moment at which a request was due; ratios are "
        "of p99: those to before are within one run, those to row 1 within rounds"
    )
    unjudged = [row for row in answer.costs if row.survives is None and row.judge]
    if unjudged:
        yield f"judge a power cut in the middle of {_named(unjudged[0])}: `{unjudged[0].judge}`"
    by_reason: dict[str, list[str]] = {}
    for row in answer.costs:
        if row.survives is None and row.unjudged is not None:
            by_reason.setdefault(row.unjudged, []).append(f"{row.operation} on {row.path}")
    for reason, named in by_reason.items():
        yield f"no power cut can be judged in the middle of {', '.join(named)}: {reason}"
    for row in answer.costs:
        if row.control is not None and row.felt == row.control:
            yield (
                f'the operation "{row.operation}" on {row.path} is a control: a wait up to '
                f"{numbers.value(row.control, 's')} there is this machine's own"
            )
    few = [row for row in answer.costs if row.is_felt and row.during.low is None]
    if few:
        rounds = counted(few[0].runs, "round")
        yield (
            f"{rounds} cannot show whether a wait is more than chance: repeat the run with "
            "--rounds 3"
        )
    for row in answer.costs:
        if row.paused:
            yield (
                f"{row.operation} on {row.path}: QEMU stopped the guest for "
                f"{numbers.value(row.paused, 's')}, which its clock does not count"
            )
    for row in answer.costs:
        if row.failure is not None:
            runs = counted(row.failed, "run")
            yield f"{row.operation} on {row.path} failed in {runs}: {row.failure}"
    yield f"latency over time: `vdisklab report --campaign {answer.campaign}`"
    yield from answer.caveats.notes


def _relief(answer: DuringAnswer) -> Iterator[str]:
    """The lines to paste for each operation that was felt, each line once with all its paths."""
    found = tuple(relief(answer))
    unknown = [_named(row) for row in _without_number(answer)]
    if not found and unknown:
        yield f"nothing to paste: what the guest felt is not known of {', '.join(unknown)}"
    elif not found and any(row.stall is not None for row in answer.costs):
        yield "nothing to paste: the guest felt no operation"
    for (felt, platform), lines in groupby(found, lambda line: (line[0], line[1].platform)):
        yield f"# {felt}, {platform}"
        for _, each in lines:
            yield each.line or f"# no line: {each.reason}"


def relief(answer: DuringAnswer) -> Iterator[tuple[str, ReliefLine]]:
    """Each line to paste once, with the operation that was felt and all its paths."""
    paths: dict[tuple[str, ReliefLine], list[str]] = {}
    for row in answer.costs:
        if row.felt >= _FELT and row.is_felt:
            for each in row.relief:
                paths.setdefault((row.operation, each), []).append(row.path)
    for (operation, each), named in paths.items():
        yield f"{operation} on {' and '.join(dict.fromkeys(named))}", each

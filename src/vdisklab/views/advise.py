"""The answer of `advise`: a sentence, a table of groups, and the lines to paste."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab import numbers
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.advise import (
    AdviceAnswer,
    DiskAction,
    DiskAdvice,
    PlannedMeasurement,
    disks_by_action,
)
from vdisklab.answers.disks import DiskGroup
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, DurabilityKind
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import (
    FileVolume,
    FlushesDropped,
    PendingChange,
    WritesThrownAway,
)
from vdisklab.sanitise import sanitise_line
from vdisklab.units import counted, format_duration
from vdisklab.views.durability import durability_sentence, power_cut_word
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_SAID = (FileVolume, PendingChange, WritesThrownAway)
SHOWN = 12
"""Number of disks whose lines are printed; the JSON document has all."""


def advice_headline(answer: AdviceAnswer) -> str:
    """What to do about how many disks, in one sentence."""
    counts = disks_by_action(answer.advice)
    total = sum(counts.values())
    words = {
        DiskAction.CHANGE: "change {}",
        DiskAction.KEEP: "keep {}",
        DiskAction.MEASURE: "{} not measured yet",
        DiskAction.CANNOT: "{} cannot be measured here",
    }
    parts = [words[verdict].format(count) for verdict, count in counts.items() if count]
    order = sorted(parts, key=lambda text: ("change" not in text, "keep" not in text))
    return f"{counted(total, 'disk')}: {', '.join(order)}"


def tables(answer: AdviceAnswer) -> Iterator[Table[DiskAdvice]]:
    """One row per group; reasons follow as notes, and the lines to paste come last."""
    columns: tuple[Column[DiskAdvice], ...] = (
        Column("advice", lambda row: str(row.action)),
        Column("disks", _disks, folds=WORDS),
        Column("path", lambda row: str(row.group.path or numbers.MISSING), folds=NAMES),
        Column("change to", lambda row: str(row.to or numbers.MISSING), folds=NAMES),
        Column("gain", lambda row: gain_text(row.gain) if row.to else "–"),
        Column("power cut now", lambda row: _safety(row.now), spare=1),
        Column("and then", lambda row: _safety(row.then), spare=1),
    )
    yield Table(
        advice_headline(answer),
        columns,
        answer.advice,
        tuple(_notes(answer)),
        verbatim=tuple(_lines(answer)),
        kind=DiskAdvice,
    )


def gain_text(gain: Ratio | None) -> str:
    """`+35 % (12–60)`: the change in percent with its 95 % interval."""
    return numbers.MISSING if gain is None else numbers.gain(gain.ratio, gain.low, gain.high)


def advice_sentence(entry: DiskAdvice) -> str:
    """The answer for a group, without the names of its disks."""
    match entry.action:
        case DiskAction.CANNOT:
            return f"it cannot be measured here: {entry.reason}."
        case DiskAction.MEASURE:
            return f"not measured yet: {entry.reason}."
        case DiskAction.KEEP:
            other = _best_other(entry)
            return f"keep {entry.group.path}: no other setting is shown to be better{other}."
        case _:
            return f"change to {entry.to}: {_why_change(entry)}."


def _best_other(entry: DiskAdvice) -> str:
    """The best other setting, and how many rounds would decide if it is better."""
    if entry.gain is None:
        return ""
    needed = entry.gain.rounds_needed
    ahead = needed is not None and entry.gain.a_is_more
    more = f", which about {needed} rounds would decide (--rounds)" if ahead else ""
    return f"; the best other is {entry.other}, {gain_text(entry.gain)}{more}"


def _why_change(entry: DiskAdvice) -> str:
    tested = entry.then is not None and entry.then.kind is DurabilityKind.KEPT_IN_TEST
    kept = "flushed data is kept then" if tested else "it passes flushes on (untested)"
    if entry.gain is None:
        return f"{kept}; {entry.reason}"
    gain = f"{gain_text(entry.gain)} by the overall score"
    if entry.for_safety:
        return f"{kept}, at {gain}"
    return (
        f"{gain}, {'as safe' if _equally_tested(entry) else 'as safe by its settings (untested)'}"
    )


def _equally_tested(entry: DiskAdvice) -> bool:
    """True unless only the present path's power cuts were tested."""
    now, then = entry.now, entry.then
    return now is not None and then is not None and now.kind is then.kind


def _names(entry: DiskAdvice) -> Iterator[str]:
    yield from (f"{disk.domain} {disk.target}" for disk in entry.group.disks)


def _disks(entry: DiskAdvice) -> str:
    first, *others = _names(entry)
    return f"{first} and {len(others)} more" if others else first


def _safety(durability: Durability | None) -> str:
    return numbers.MISSING if durability is None else power_cut_word(durability)


def _notes(answer: AdviceAnswer) -> Iterator[str]:
    for entry in answer.advice:
        name = _disks(entry)
        yield f"{name}: {advice_sentence(entry)}"
        if entry.elsewhere is not None:
            yield (
                f"{name}: measured in {entry.elsewhere}, on another file system than this disk: "
                "--measure measures on its own."
            )
        if entry.to is not None and entry.then is not None:
            yield f"{name}: {durability_sentence(str(entry.to), entry.then)}"
        if entry.rebuilt is not None:
            yield (
                f"{name}: {entry.rebuilt} is {gain_text(entry.over_rebuilt)}, but needs "
                f"{_needed(entry.group, entry.rebuilt)}: `vdisklab export` writes its "
                "configuration."
            )
        if entry.over_default is not None:
            platform = entry.group.platform
            yield (
                f"{name}: compared with the disk of a new guest of {platform.full_name} it is "
                f"{gain_text(entry.over_default)}."
            )
        for risk in entry.group.risks:
            if isinstance(risk, _SAID) or (
                isinstance(risk, FlushesDropped) and entry.action is DiskAction.CANNOT
            ):
                yield f"{name}: {risk}"
    yield from answer.notes
    for planned in answer.planned:
        yield (
            f"Measuring in {planned.request.directory} takes about "
            f"{_time(planned)} for {counted(planned.groups, 'path')} with "
            "the adjacent paths, and touches no guest: the same command with --measure."
        )
    if answer.unplaced:
        yield (
            f"{counted(answer.unplaced, 'path')} of images that are not on this host: name a "
            "directory on the same kind of storage with --dir."
        )
    yield from answer.caveats.notes


def _time(planned: PlannedMeasurement) -> str:
    """How long it takes: a race ends when it is decided."""
    most = format_duration(planned.seconds)
    if planned.race is None:
        return most
    return f"{format_duration(planned.seconds_at_least)} to {most}"


def _needed(group: DiskGroup, rebuilt: DiskPath) -> str:
    bus = rebuilt.attachment.bus
    other_bus = group.path is not None and group.path.attachment.bus is not bus
    return f"the driver of {bus} in the guest" if other_bus else "a converted image"


def _lines(answer: AdviceAnswer) -> Iterator[str]:
    left = SHOWN
    for entry in answer.advice:
        shown = list(zip(entry.group.disks, entry.changes, strict=False))[: max(left, 0)]
        for disk, change in shown:
            instead = ", instead of its arguments" if disk.platform is Platform.QEMU else ""
            name = sanitise_line(f"{disk.domain} {disk.target}")
            yield f"# {name}, from its next start on{instead}"
            yield change.paste
            yield f"#   undo: {change.undo}"
        left -= len(shown)
        hidden = len(entry.changes) - len(shown)
        if hidden:
            yield f"# … and {counted(hidden, 'more disk')}: see --format json"
    for planned in answer.planned:
        yield f"# or measure these paths yourself, {_time(planned)}:"
        yield planned.command

"""Existing disks in columns and sentences: what `audit` and `advise` show alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vdisklab import numbers
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.disks import DisksAnswer, DiskStanding, ExistingDisk
from vdisklab.path.durability import Durability
from vdisklab.platforms.risk_kinds import DurableOnceFlushed
from vdisklab.units import counted
from vdisklab.views.durability import power_cut_word
from vdisklab.views.layout import WORDS, Column
from vdisklab.views.wording import at_most, difference

_MOST_NAMES = 3


def name_of(row: ExistingDisk) -> str:
    """The guest and its disk."""
    return row.name


def counted_disks(rows: Sequence[ExistingDisk]) -> str:
    """`3 disks and 1 of a template`: how many disks guests have, and how many templates."""
    of_templates = sum(row.disk.template for row in rows)
    of_guests = len(rows) - of_templates
    if not of_templates:
        return counted(of_guests, "disk")
    if not of_guests:
        return f"{counted(of_templates, 'disk')} of templates"
    return f"{counted(of_guests, 'disk')} and {of_templates} of templates"


def disk_column() -> Column[Any]:
    """The names of the disks."""
    return Column("disk", name_of, folds=WORDS)


def measured_columns(spare: int = 0) -> tuple[Column[Any], ...]:
    """The columns of a disk's path (dropped at `spare`, see `Column`) and of its measurements; with
    advice those that the advice is based on."""
    return (
        Column("path", _path_text, folds=WORDS, spare=spare),
        Column("rank", lambda row: rank_of(_standing(row)), spare=2),
        Column("score", _score_text, right=True, folds=WORDS, spare=3),
    )


def power_cut_column() -> Column[Any]:
    """What a power cut does to each disk."""
    return Column("power cut", power_cut_of)


def _path_text(row: ExistingDisk) -> str:
    return str(row.path or (row.advice and row.advice.path) or numbers.MISSING)


def _standing(row: ExistingDisk) -> DiskStanding | None:
    return row.standing if row.advice is None else row.advice.standing


def source_column() -> Column[Any]:
    """The file or device of each disk."""
    return Column("source", lambda row: row.disk.source or numbers.MISSING, folds=WORDS, spare=9)


def rank_of(standing: DiskStanding | None) -> str:
    """`2–3 of 10`: the rank among all ranked cells."""
    if standing is None or standing.best is None or standing.worst is None:
        return numbers.MISSING
    return f"{numbers.place(standing.best, standing.worst)} of {standing.cells}"


def _score_text(row: ExistingDisk) -> str:
    standing = _standing(row)
    if standing is None or standing.score is None:
        return numbers.MISSING
    score = numbers.value(standing.score.median, standing.measure.quantity.shown_unit)
    elsewhere = None if row.advice is None else row.advice.elsewhere
    return f"{score} {row.measured_at or (f'in {elsewhere}' if elsewhere else '')}".rstrip()


def power_cut_of(row: ExistingDisk) -> str:
    """The effect of a power cut on the disk's data, in a word or two."""
    return "read-only" if row.disk.read_only else safety(row.power_cut)


def safety(durability: Durability | None) -> str:
    """The effect of a power cut on a path's data, in a word or two."""
    return numbers.MISSING if durability is None else power_cut_word(durability)


def gain_text(gain: Ratio | None) -> str:
    """`+35 % (12–60)`: the change in percent with its 95 % interval."""
    return numbers.MISSING if gain is None else numbers.gain(gain.ratio, gain.low, gain.high)


def known_gain(gain: Ratio | None) -> str | None:
    """The same for a sentence; None if nothing is known of it."""
    return None if gain is None else numbers.known_gain(gain.ratio, gain.low, gain.high)


def gain_words(gain: Ratio | None) -> str | None:
    """`between 2.0 % slower and 30 % faster (95 %)`, for a sentence; None if nothing is known. An
    interval that the ranks end at 1 shows no difference: `at most 23 % faster (95 %), if at all`.
    """
    if gain is None or known_gain(gain) is None:
        return None
    if gain.low is None or gain.high is None:
        return difference(gain)
    if (most := at_most(gain)) is not None:
        return f"{most} (95 %), if at all"
    return f"{difference(gain)} (95 %)"


def made_sentence(row: ExistingDisk) -> Iterator[str]:
    """The measured path whose rank and score are shown, if it is the disk's by another name."""
    standing, path = _standing(row), row.path
    if standing is None or path is None or not standing.exact or standing.cell.path is None:
        return
    if path.image is not None and standing.cell.path.image != path.image:
        by = row.disk.platform.full_name
        yield f"rank and score are those of {standing.cell}, a new image as {by} makes it."


def unseen_clause(rows: Iterable[ExistingDisk]) -> str:
    """`; the storage of web data is unknown: run …`, for the first sentence of an answer; empty if
    all storage is known."""
    ways: dict[str, list[str]] = {}
    for row in rows:
        if row.disk.unseen is not None:
            ways.setdefault(row.disk.unseen, []).append(name_of(row))
    said = (f"the storage of {shown_names(names)} is unknown: {way}" for way, names in ways.items())
    return "".join(f"; {clause}" for clause in said)


def said_first(row: ExistingDisk, clause: str) -> str:
    """A clause without what the answer's first sentence says: how unknown storage becomes known."""
    return clause if row.disk.unseen is None else clause.removesuffix(f": {row.disk.unseen}")


def risk_words(row: ExistingDisk) -> str:
    """The risks in a few words each; that data wait for a flush holds for nearly every disk."""
    blocked = any(risk.blocks for risk in row.risks)  # which says more
    phrases = ["no disk path"] if row.path is None and not blocked else []
    phrases = phrases if row.disk.unseen is None else ["storage unknown"]
    return ", ".join([*phrases, *(risk.short for risk in row.risks if risk.short)])


def risk_sentences(row: ExistingDisk) -> Iterator[str]:
    """A sentence for each risk; that data wait for a flush is said once for all disks."""
    yield from (str(risk) for risk in row.risks if not isinstance(risk, DurableOnceFlushed))


def measured_elsewhere(answer: DisksAnswer) -> Iterator[str]:
    """That the speeds are another machine's, as the settings are not."""
    if answer.measured_on is not None:
        yield f"Speeds were measured on the host {answer.measured_on}, not on this machine."


def said_of(
    rows: Iterable[ExistingDisk], sentences: Callable[[ExistingDisk], Iterable[str]]
) -> Iterator[str]:
    """Each sentence once, after the names of the disks for which it holds."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for sentence in sentences(row):
            names.setdefault(sentence, []).append(name_of(row))
    for sentence, disks in names.items():
        yield f"{shown_names(disks)}: {sentence}"


def shown_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

"""The answer of `audit` in words and columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from vdisklab import numbers
from vdisklab.answers.disks import ClaimedCache, DisksAnswer, ExistingDisk
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import DURABLE, lack
from vdisklab.platforms.risk_kinds import (
    CannotWork,
    DurableOnceFlushed,
    OtherArchitecture,
    policy_setting,
)
from vdisklab.units import counted, named
from vdisklab.views.disks import (
    counted_disks,
    disk_column,
    made_sentence,
    measured_columns,
    measured_elsewhere,
    name_of,
    power_cut_column,
    rank_of,
    risk_sentences,
    risk_words,
    said_first,
    said_of,
    shown_names,
    source_column,
    unseen_clause,
)
from vdisklab.views.durability import disk_note, durability_sentence
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def _audit_of(campaign: str) -> str:
    return f"`vdisklab audit --campaign {campaign}`"


def tables(
    answer: DisksAnswer, again: Callable[[str], str] = _audit_of
) -> Iterator[Table[ExistingDisk]]:
    """One row per disk; the risks follow as notes. `again` has the words that ask a campaign for
    the same disks."""
    lacks = (Column[ExistingDisk]("lacks", _lacks_text, folds=WORDS),) if answer.needs else ()
    columns: tuple[Column[ExistingDisk], ...] = (
        disk_column(),
        *measured_columns(),
        power_cut_column(),
        Column("better", _better, folds=NAMES, spare=5),
        Column("gain", _gain, right=True, spare=6),
        Column("risks", risk_words, folds=WORDS, whole=True),
        *lacks,
        source_column(),
    )
    title = f"Audit: {counted_disks(answer.disks)}{unseen_clause(answer.disks)}"
    intro, notes = tuple(_speeds_of(answer)), tuple(_notes(answer, again))
    yield Table(title, columns, answer.disks, notes, intro=intro, kind=ExistingDisk)


def _speeds_of(answer: DisksAnswer) -> Iterator[str]:
    """What the speeds are of, which the settings are not: emulation, another machine."""
    if not any(audited.standing for audited in answer.disks):
        return  # the nearest path's rank in a note is not this disk's speed
    if answer.caveats.warning is not None:
        yield f"Speeds were measured {answer.caveats.warning}."
    yield from measured_elsewhere(answer)
    if answer.measured_on is None and answer.measured_at:
        other = [name_of(audited) for audited in answer.disks if audited.on_other_storage]
        than = f", on another file system than {shown_names(other)}" if other else ""
        unsure = [name_of(each) for each in answer.disks if each.standing and each.measured_at]
        if unsure and not other:
            than = f", perhaps on another file system than {shown_names(unsure)}"
        yield f"Speeds were measured in {named(answer.measured_at)}{than}."


def _lacks_text(audited: ExistingDisk) -> str:
    names = [str(need) for need in audited.lacks]
    names += [f"{need} (unknown)" for need in audited.undecided]
    # A disk that cannot work meets no need, whatever its settings would keep.
    nothing = numbers.MISSING if any(risk.blocks for risk in audited.risks) else "nothing"
    return ", ".join(names) or nothing


def _gain(audited: ExistingDisk) -> str:
    gain = None if audited.standing is None else audited.standing.gain
    return numbers.ratio(None if gain is None else gain.ratio)


def _better(audited: ExistingDisk) -> str:
    standing = audited.standing
    return numbers.MISSING if standing is None or standing.better is None else standing.better.label


def _notes(answer: DisksAnswer, again: Callable[[str], str]) -> Iterator[str]:
    where = f"in campaign {named(answer.measured_in)}" if answer.measured_in else "here"

    def unmeasured(audited: ExistingDisk) -> Iterator[str]:
        said = (
            audited.disk.limits
            or audited.disk.unseen
            or any(isinstance(risk, OtherArchitecture) for risk in audited.risks)
        )
        if audited.standing is None and audited.path is not None and not said:
            yield f"not measured {where}{_way_to_measure(audited, again)}."

    disks = sorted(
        answer.disks,
        key=lambda audited: -max((risk.weight for risk in audited.risks), default=0),
    )
    yield from said_of(disks, _sentences)
    if answer.why_no_speed is None:
        yield from said_of(answer.disks, unmeasured)
    yield from _volatile_data(answer.disks)
    yield from disk_note(answer.host_disk)
    caches = dict.fromkeys(cache for audited in answer.disks for cache in audited.caches)
    yield from filter(None, (_claim(cache, answer.host_disk) for cache in caches))
    if answer.why_no_speed is not None:
        yield answer.why_no_speed


def _claim(disk: ClaimedCache, assumed: HostDisk) -> str | None:
    """A host disk's claim about its write cache, and the crash verdicts that count above it.

    None if the kernel does not know it.
    """
    match disk.write_cache:
        case "write back":
            fua = {None: "", False: ", no FUA", True: ", FUA"}[disk.fua]
            counts = (
                "so --disk plp holds only if it has power-loss protection"
                if assumed.keeps_its_cache
                else "so the strictest power cuts count; if it has power-loss protection, "
                "add --disk plp"
            )
            return f"{disk.name} claims a volatile write cache (write back{fua}), {counts}."
        case "write through":
            counts = (
                "as --disk plp assumes"
                if assumed.keeps_its_cache
                else "so the power cuts of --disk plp count"
            )
            return (
                f"{disk.name} claims no volatile write cache (write through), {counts}, unless "
                "queue/write_cache was set by hand: then the kernel drops its flushes."
            )
        case _:
            return None


def _volatile_data(disks: Iterable[ExistingDisk]) -> Iterator[str]:
    """One sentence about all disks on which only flushed data are durable: nearly every disk."""
    starts = (each for each in disks if not any(risk.blocks for risk in each.risks))
    counts = Counter(
        risk for audited in starts for risk in audited.risks if isinstance(risk, DurableOnceFlushed)
    )
    if counts:
        where = ", and ".join(
            f"{risk.where} ({counted(count, 'disk')})"
            for risk, count in sorted(counts.items(), key=lambda item: not item[0].in_memory)
        )
        yield (
            "Data are durable once the guest has flushed them, as on a real disk; until then "
            f"{where}."
        )


def _sentences(audited: ExistingDisk) -> Iterator[str]:
    """Sentences about one disk, without its name."""
    refused = any(isinstance(risk, CannotWork) for risk in audited.risks)
    if audited.disk.problem is not None and not refused:  # the platform's own words say it
        yield f"no disk path, as {said_first(audited, audited.disk.problem)}."
    yield from risk_sentences(audited)
    for need, reason in audited.lacks.items():
        yield f"It does not meet {need}: {reason}."
    for need, reason in audited.undecided.items():
        yield f"It is unknown whether it meets {need}: {reason}."
    if audited.lacks and audited.path not in (None, audited.instead):
        yield _offer(audited)  # it may lack in another setting
    keeps = audited.power_cut
    if audited.path is not None and keeps is not None and keeps.tested is not None:
        yield durability_sentence(str(audited.path), keeps)
    yield from made_sentence(audited)
    if audited.standing is not None and audited.standing.differs:
        yield (
            f"this very path was not measured; {audited.standing.cell} is shown instead: the disk "
            f"has {'; '.join(audited.standing.differs)}."
        )


def _offer(audited: ExistingDisk) -> str:
    instead = audited.instead
    if instead is None and audited.lost_below is not None:
        return f"No setting of the guest helps: {audited.lost_below}."
    if instead is None:
        return f"No path of {audited.disk.platform.full_name} meets all these needs."
    reason = lack(instead, DURABLE, CrashVerdicts())
    but = "" if reason is None else f", but it loses flushed data in a power cut: {reason}"
    return f"The nearest path that meets all needs: {instead}{but}{_setting(audited, instead)}."


def _setting(audited: ExistingDisk, instead: DiskPath) -> str:
    """The platform's setting, if the paths differ in the error policy alone."""
    path = audited.path
    if path is None or path.without_error_policy != instead.without_error_policy:
        return ""
    setting = policy_setting(audited.disk.platform, instead)
    return "" if setting is None else f"; set {setting}"


def _way_to_measure(audited: ExistingDisk, again: Callable[[str], str]) -> str:
    """A clause with the most similar measured path, and the command to measure this path too, or
    what this host lacks for it; or with the command that shows an older measurement of it."""
    nearest, way, before = audited.nearest, audited.to_measure, audited.measured_before
    if before is not None:
        return f", but in {before}: {again(before)}"
    cannot = ""
    if audited.lacks_here:
        there = "advise, instead of audit, has the command for its host"
        cannot = f" here: {audited.lacks_here} (`vdisklab doctor`); {there}"
    if way is None and (nearest is None or not cannot):
        return f", and cannot be{cannot}"
    if nearest is None:
        return f": {way}"
    compared = (
        f"To measure it beside another setting: {way}" if way else f"It cannot be measured{cannot}"
    )
    return (
        f"; the nearest measured path is {nearest.cell} (rank {rank_of(nearest)}), but the disk "
        f"has {'; '.join(nearest.differs)}. {compared}"
    )

"""The answer of `audit` in words and columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from vdisklab import numbers
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.audit import AuditAnswer, AuditedDisk, ClaimedCache, PathScore
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import DURABLE, lack
from vdisklab.platforms.configured_disk import (
    AioConflict,
    CannotWork,
    DurableOnceFlushed,
)
from vdisklab.units import counted
from vdisklab.views.durability import (
    disk_note,
    durability_sentence,
    power_cut_word,
)
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def tables(answer: AuditAnswer) -> Iterator[Table[AuditedDisk]]:
    """One row per disk; the risks follow as notes."""
    columns: tuple[Column[AuditedDisk], ...] = (
        Column("domain", lambda row: row.disk.domain),
        Column("disk", lambda row: row.disk.target),
        Column("path", lambda row: str(row.path or "see below"), folds=NAMES),
        Column("rank", lambda audited: _rank_of(audited.standing)),
        Column("score", _score_text, right=True, spare=1),
        Column("power cut", _power_cut, spare=1),
        Column("worth changing to", _better, folds=NAMES),
        Column("gain", lambda row: numbers.ratio(_gain(row).ratio), right=True, spare=1),
        Column("source", lambda row: row.disk.source or numbers.MISSING, folds=WORDS, spare=2),
    )
    if answer.needs:
        columns += (Column[AuditedDisk]("lacks", _lacks_text, folds=WORDS),)
    title = f"Audit: {counted(len(answer.disks), 'disk')}"
    yield Table(title, columns, answer.disks, tuple(_notes(answer)), kind=AuditedDisk)


def _lacks_text(audited: AuditedDisk) -> str:
    if audited.path is None and not audited.lacks:
        return numbers.MISSING
    names = [str(need) for need in audited.lacks]
    names += [f"{need} (unknown)" for need in audited.undecided]
    return ", ".join(names) or "nothing"


def _score(audited: AuditedDisk) -> float | None:
    standing = audited.standing
    return None if standing is None or standing.score is None else standing.score.median


def _score_text(audited: AuditedDisk) -> str:
    unit = "" if audited.standing is None else audited.standing.measure.quantity.unit
    return numbers.value(_score(audited), unit)


def _gain(audited: AuditedDisk) -> Ratio:
    standing = audited.standing
    return Ratio(0) if standing is None or standing.gain is None else standing.gain


def _better(audited: AuditedDisk) -> str:
    standing = audited.standing
    return numbers.MISSING if standing is None or standing.better is None else standing.better.label


def _place(standing: PathScore | None) -> str | None:
    if standing is None or standing.best is None or standing.worst is None:
        return None
    return numbers.place(standing.best, standing.worst)


def _rank_of(standing: PathScore | None) -> str:
    place = _place(standing)
    if standing is None or place is None:
        return numbers.MISSING
    return f"{place} of {standing.cells}"


def _power_cut(audited: AuditedDisk) -> str:
    if audited.path is None:
        return numbers.MISSING
    if audited.disk.read_only:
        return "read-only"
    return numbers.MISSING if audited.power_cut is None else power_cut_word(audited.power_cut)


def _notes(answer: AuditAnswer) -> Iterator[str]:
    for audited in answer.disks:
        name = f"{audited.disk.domain}, {audited.disk.target}"
        yield from (f"{name}: {sentence}" for sentence in _sentences(audited))
        if audited.standing is None and audited.path is not None and _wants_speed(answer, audited):
            yield f"{name}: not measured here{_way_to_measure(audited)}."
    yield from _volatile_data(answer.disks)
    yield from disk_note(answer.host_disk)
    caches = dict.fromkeys(cache for audited in answer.disks for cache in audited.caches)
    yield from filter(None, (_claim(cache, answer.host_disk) for cache in caches))
    if answer.why_no_speed is not None:
        yield answer.why_no_speed
    beware = answer.caveats.warning
    if beware is not None and any(audited.standing or audited.nearest for audited in answer.disks):
        yield f"Speeds were measured {beware}."


def _wants_speed(answer: AuditAnswer, audited: AuditedDisk) -> bool:
    """False where another sentence says why there is no speed."""
    return answer.why_no_speed is None and not audited.disk.limits


def _claim(disk: ClaimedCache, assumed: HostDisk) -> str | None:
    """What a disk of the host says about its write cache, and which verdicts count above it.

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


def _volatile_data(disks: Iterable[AuditedDisk]) -> Iterator[str]:
    """One sentence about all disks on which only flushed data are durable: nearly every disk."""
    counts = Counter(
        risk for audited in disks for risk in audited.risks if isinstance(risk, DurableOnceFlushed)
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


def _sentences(audited: AuditedDisk) -> Iterator[str]:
    """Sentences about one disk, without its name."""
    if audited.disk.problem is not None:
        yield f"no disk path, as {audited.disk.problem}."
    for risk in audited.risks:
        if not isinstance(risk, DurableOnceFlushed):  # said once for all disks, at the end
            yield str(risk)
    for need, reason in audited.lacks.items():
        yield f"It does not meet {need}: {reason}."
    for need, reason in audited.undecided.items():
        yield f"It is unknown whether it meets {need}: {reason}."
    if audited.lacks and audited.path is not None:
        yield _offer(audited.instead)
    keeps = audited.power_cut
    if audited.path is not None and keeps is not None and keeps.tested is not None:
        yield durability_sentence(str(audited.path), keeps)
    if audited.standing is not None and not audited.standing.exact:
        yield (
            f"this very path was not measured; {audited.standing.cell} is shown instead, which "
            "looks the same to the guest."
        )


def _offer(instead: DiskPath | None) -> str:
    if instead is None:
        return "No path meets all these needs."
    reason = lack(instead, DURABLE, CrashVerdicts())
    but = "" if reason is None else f", but it loses flushed data in a power cut: {reason}"
    return f"The nearest path that meets all needs: {instead}{but}."


def _way_to_measure(audited: AuditedDisk) -> str:
    """A clause with the most similar measured path, and the command to measure this path too."""
    path, nearest = audited.path, audited.nearest
    if path is None or any(isinstance(risk, AioConflict | CannotWork) for risk in audited.risks):
        return ", and cannot be"
    beside, text = "", ""
    if nearest is not None:
        place = _rank_of(nearest)
        beside = f" {nearest.cell.name}"
        text = f"; the nearest measured path is {nearest.cell} (rank {place}). To compare them"
    if backing_below(path).devices:
        where = "--on DEVICE`, on a device that may be overwritten"
        return f"{text}: `vdisklab run {path}{beside} {where}"
    return f"{text}: `vdisklab run {path}{beside}`"

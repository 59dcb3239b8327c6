"""The result of an audit, as a table and as a document."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from vdisklab.audit.configured_disk import (
    AioConflict,
    FlushAfterEachWrite,
    FlushesDropped,
    FlushesDroppedBelow,
    FuaForgotten,
    HangsOnGuestFlushes,
    MayOutgrow,
    NoDiscard,
    Risk,
    SlowBus,
    StaleNote,
)
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability
from vdisklab.path.needs import Need
from vdisklab.path.rules import Impossible
from vdisklab.render import numbers
from vdisklab.render.document import Json, document, findings_json
from vdisklab.render.tables.layout import Column, Table, Value, text
from vdisklab.render.tables.power_cuts import (
    POWER_CUT_COLUMNS,
    durability_sentence,
    power_cut_values,
)
from vdisklab.render.wording import caution
from vdisklab.services.disk_audit import AuditAnswer, AuditedDisk, Standing
from vdisklab.units import format_bytes


def risk_sentence(risk: Risk) -> str:  # noqa: C901, PLR0911 - one case per kind
    """One risk in one or two sentences, with the way out."""
    match risk:
        case FlushesDropped():
            return (
                "Flushes are dropped: a power cut may lose or mix up what the guest believes to "
                "be safe. Use none or writeback, which pass them on."
            )
        case FlushesDroppedBelow(reason):
            return (
                f"Flushes are dropped below the image: {reason}. A power cut may lose or mix up "
                "what the guest believes to be safe."
            )
        case HangsOnGuestFlushes(in_memory):
            where = "in the host's memory" if in_memory else "in the disk's own cache"
            return f"Durable is what the guest flushes; until then writes wait {where}."
        case FuaForgotten():
            return (
                "QEMU's NVMe device answers FUA writes before they are durable, so fsync in the "
                "guest may return too early: a power cut took acknowledged writes with QEMU 7.2. "
                "Use virtio, or write_cache=off (the property write-cache=off of the device)."
            )
        case FlushAfterEachWrite():
            return "No write cache: each write is flushed at once, which is safe and slow."
        case MayOutgrow(may_grow, free):
            return (
                f"The image may grow by {format_bytes(may_grow)}, and its file system has "
                f"{format_bytes(free)} left: when it is full, the guest stops or gets errors. "
                "Make room, or allocate the image in full."
            )
        case SlowBus(bus):
            return f"{bus} emulates a real controller; virtio does the same with less work."
        case AioConflict(cache):
            return (
                f"io=native needs O_DIRECT, which {cache} does not use: QEMU refuses to start. "
                "Use cache none or directsync, or io threads."
            )
        case NoDiscard():
            return (
                "A thin image, and discards are ignored: it only ever grows. "
                "Set discard=unmap and run fstrim in the guest."
            )
        case Impossible(reason, instead):
            return f"It cannot work: {reason}; {instead}."
        case StaleNote(noted):
            return (
                f"vdisklab's note in the metadata says {noted}, but the XML was changed since; "
                "what the XML says counts."
            )
        case _:
            assert_never(risk)


def audit_table(answer: AuditAnswer) -> Table:
    """One row per disk; risks and unmet needs are the notes below."""
    columns = (
        Column("domain", "domain"),
        Column("target", "disk"),
        Column("path", "path", folds=True),
        Column("rank", "rank"),
        Column("score", "score", right=True),
        Column("measured_as", "", only_data=True),
        *POWER_CUT_COLUMNS,
        Column("better", "worth changing to", folds=True),
        Column("gain", "gain", right=True),
        Column("source", "source", folds=True, only_wide=True),
        Column("risks", "", only_data=True),
        Column("problem", "", only_data=True),
        *((Column("lacks", "lacks", folds=True),) if answer.needs else ()),
    )
    count = len(answer.disks)
    title = f"Audit: {count} disk{'' if count == 1 else 's'}"
    rows = tuple(_row(audited, with_needs=bool(answer.needs)) for audited in answer.disks)
    return Table(title, columns, rows, tuple(_notes(answer)))


def audit_document(answer: AuditAnswer) -> Json:
    """The JSON form."""
    return document(
        "audit",
        1,
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        why_no_speed=answer.why_no_speed,
        disks=[_disk_json(audited, answer.needs) for audited in answer.disks],
        findings=findings_json(answer.caveats.findings),
    )


def _row(audited: AuditedDisk, *, with_needs: bool) -> tuple[Value, ...]:
    disk, standing = audited.disk, audited.standing
    score = None if standing is None or standing.score is None else standing.score.median
    gain = None if standing is None or standing.gain is None else standing.gain.ratio
    return (
        text(disk.domain),
        text(disk.target),
        Value(None, "none: see below") if audited.path is None else text(str(audited.path)),
        _rank(standing),
        Value(score, numbers.value(score, "B/s")),
        Value(None if standing is None else str(standing.cell), ""),
        *power_cut_values(None if audited.keeps is None else audited.keeps.tested),
        Value(None, numbers.MISSING)
        if standing is None or standing.better is None
        else text(str(standing.better)),
        Value(gain, numbers.ratio(gain)),
        Value(disk.source, disk.source or numbers.MISSING),
        Value("; ".join(_kind(risk) for risk in audited.risks), ""),
        Value(disk.problem, ""),
        *((_lacks(audited),) if with_needs else ()),
    )


def _rank(standing: Standing | None) -> Value:
    if standing is None or standing.best is None or standing.worst is None:
        return Value(None, numbers.MISSING)
    place = numbers.place(standing.best, standing.worst)
    return Value(place, f"{place} of {standing.cells}")


def _lacks(audited: AuditedDisk) -> Value:
    if audited.path is None:
        return Value(None, numbers.MISSING)
    names = ", ".join(map(str, audited.lacks))
    return Value(names, names or "nothing")


def _notes(answer: AuditAnswer) -> Iterator[str]:
    for audited in answer.disks:
        name = f"{audited.disk.domain}, {audited.disk.target}"
        yield from (f"{name}: {sentence}" for sentence in _sentences(audited))
        if audited.standing is None and audited.path is not None and answer.why_no_speed is None:
            yield f"{name}: not measured here{_way_to_measure(audited.path, audited.risks)}."
    if answer.why_no_speed is not None:
        yield answer.why_no_speed
    beware = caution(answer.caveats)
    if beware is not None:
        yield f"Speeds were measured {beware}."


def _sentences(audited: AuditedDisk) -> Iterator[str]:
    """What there is to know about one disk, without its name."""
    if audited.disk.problem is not None:
        yield f"no disk path, as {audited.disk.problem}."
    yield from map(risk_sentence, audited.risks)
    for need, reason in audited.lacks.items():
        yield f"It does not meet {need}: {reason}."
    if audited.lacks:
        yield (
            "No path meets all these needs."
            if audited.instead is None
            else f"The nearest path that meets all needs: {audited.instead}."
        )
    keeps = audited.keeps
    if audited.path is not None and keeps is not None and keeps.tested is not None:
        yield durability_sentence(str(audited.path), keeps)
    if audited.standing is not None and not audited.standing.exact:
        yield (
            f"this very path was not measured; {audited.standing.cell} stands for it, which "
            "looks the same to the guest."
        )


def _way_to_measure(path: DiskPath, disk_risks: Iterable[Risk]) -> str:
    """The command that would measure a path, if there is one."""
    if any(isinstance(risk, AioConflict | Impossible) for risk in disk_risks):
        return ", and cannot be"
    if path.image is None and not path.layers:
        return f": `vdisklab run {path} --on DEVICE`, on a device that may be overwritten"
    return f": `vdisklab run {path}`"


def _kind(risk: Risk) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(risk).__name__).lower()


def _disk_json(audited: AuditedDisk, needs: Iterable[Need]) -> Json:
    return {
        "domain": audited.disk.domain,
        "target": audited.disk.target,
        "source": audited.disk.source,
        "path": None if audited.path is None else audited.path.canonical,
        "problem": audited.disk.problem,
        "risks": [
            {"kind": _kind(risk), "text": risk_sentence(risk), **dataclasses.asdict(risk)}
            for risk in audited.risks
        ],
        "needs": [_need_json(audited, need) for need in needs],
        "instead": None if audited.instead is None else audited.instead.canonical,
        "power_cut": _power_cut_json(audited.keeps),
        "standing": None if audited.standing is None else _standing_json(audited.standing),
    }


def _need_json(audited: AuditedDisk, need: Need) -> Json:
    return {
        "need": str(need),
        "met": None if audited.path is None else need not in audited.lacks,
        "reason": audited.lacks.get(need),
    }


def _standing_json(standing: Standing) -> Json:
    return {
        "cell": str(standing.cell),
        "exact": standing.exact,
        "score": None if standing.score is None else standing.score.median,
        "rank_best": standing.best,
        "rank_worst": standing.worst,
        "ranked_cells": standing.cells,
        "better": None if standing.better is None else str(standing.better),
        "gain": None if standing.gain is None else standing.gain.ratio,
        "gain_low": None if standing.gain is None else standing.gain.low,
        "gain_high": None if standing.gain is None else standing.gain.high,
    }


def _power_cut_json(keeps: Durability | None) -> Json | None:
    """The verdict of power cuts on the very path; None where none was judged."""
    if keeps is None or keeps.tested is None:
        return None
    flushed, unflushed = keeps.tested.flushed, keeps.tested.unflushed
    return {
        "keeping": keeps.keeping.value,
        "flushed_states": flushed.judged,
        "flushed_broken": flushed.broken,
        "unflushed_states": unflushed.judged,
        "unflushed_broken": unflushed.broken,
    }

"""Audits the disks of existing guests: paths, risks, unmet needs, and speed measured on this host.

Nothing is changed, neither guests nor images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from vdisklab.analysis.candidates import candidates, ratio_of, to_use
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.analysis.observations import MeasureKey, narrowed
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.rank_intervals import rank as rank_cells
from vdisklab.analysis.score import Score, Scored, add_scores
from vdisklab.analysis.summary import Summary, summarise
from vdisklab.answers.disks import read_contexts, shown_better, unlikeness
from vdisklab.answers.loading import (
    baseline_of,
    choose_campaigns,
    load_chosen,
    open_results,
    stored_verdicts,
)
from vdisklab.documents import Answer
from vdisklab.errors import DatabaseError
from vdisklab.host.blockdevice import device_of, stacked_device
from vdisklab.host.command import Host
from vdisklab.host.facts import collect_facts
from vdisklab.host.mounts import is_visible_device, is_visible_file
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, Durability, HostDisk, durability
from vdisklab.path.needs import (
    Need,
    nearest,
    undecided,
    unmet,
    with_default,
)
from vdisklab.platforms.configured_disk import (
    ConfiguredDisk,
    DiskContext,
    Risk,
    disk_path,
    loses_writes,
    risks,
    unknown_layers,
)
from vdisklab.results.store import Store

_MEASURE = "Measure first: `vdisklab run PATHS…`."


@dataclass(frozen=True, slots=True)
class PathScore:
    """The score of a path, and its rank among `cells` ranked cells.

    `better` keeps flushed data and meets the requested needs; without one, no such cell is shown to
    be better.
    """

    cell: Annotated[MeasuredCell, "the measured cell that is compared with the disk"]
    exact: Annotated[bool, "false when only the guest's side of the path is the same"]
    measure: Annotated[MeasureKey, "what `score` and ranks are of"]
    score: Summary | None
    best: Annotated[int | None, "its rank, from `best` to `worst`"]
    worst: int | None
    cells: Annotated[int, "number of ranked cells"]
    better: Annotated[MeasuredCell | None, "the cell worth changing to"] = None
    gain: Annotated[Ratio | None, "the ratio of `better` to it"] = None


@dataclass(frozen=True, slots=True)
class ClaimedCache:
    """What a disk of the host says about its write cache; null if the kernel does not know it."""

    name: str
    write_cache: Annotated[str | None, "queue/write_cache"]
    fua: Annotated[bool | None, "queue/fua"]


@dataclass(frozen=True, slots=True)
class AuditedDisk:
    """One disk with its risks, its speed, and the effect of a power cut on its data."""

    disk: ConfiguredDisk
    path: Annotated[DiskPath | None, "with host layers and what the image's header shows"]
    risks: Annotated[tuple[Risk, ...], "most serious first"]
    standing: Annotated[PathScore | None, "null when no similar path was measured"]
    power_cut: Annotated[Durability | None, "null for a read-only disk"] = None
    lacks: Annotated[Mapping[Need, str], "why, for each requested need that is not met"] = field(
        default_factory=dict
    )
    undecided: Annotated[Mapping[Need, str], "why, for each that unknown layers decide"] = field(
        default_factory=dict
    )
    instead: Annotated[
        DiskPath | None, "the nearest path that meets all needs; null when none is unmet"
    ] = None
    nearest: Annotated[
        PathScore | None, "the measured path that differs least, without `standing`"
    ] = None
    caches: Annotated[tuple[ClaimedCache, ...], "of the host's disks that hold the source"] = ()


@dataclass(frozen=True, slots=True)
class AuditAnswer(Answer):
    """`vdisklab audit`: each disk with its risks and its speed."""

    FORMAT = "vdisklab.audit/2"

    disks: tuple[AuditedDisk, ...]
    caveats: Annotated[Caveats, "of the campaign that the speeds come from"]
    why_no_speed: Annotated[str | None, "a sentence if there is no database"] = None
    needs: Annotated[tuple[Need, ...], "as requested"] = ()
    host_disk: Annotated[HostDisk, "the host's disk in a power cut, as --disk says"] = (
        HostDisk.VOLATILE
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """The database's data about paths; empty if nothing was measured."""

    verdicts: CrashVerdicts = field(default_factory=CrashVerdicts)
    scores: Mapping[DiskPath, PathScore] = field(default_factory=dict)
    nearest: Mapping[DiskPath, PathScore] = field(default_factory=dict)
    caveats: Caveats = field(default_factory=lambda: caveats_of(()))
    why_no_speed: str | None = None


def audit_disks(
    host: Host,
    disks: Iterable[ConfiguredDisk],
    needs: tuple[Need, ...],
    campaign: Sequence[str] | None,
    db: str | None,
    *,
    host_disk: HostDisk = HostDisk.VOLATILE,
) -> AuditAnswer:
    """Every disk with its risks and unmet needs, and its score if the database has one.

    Raises DatabaseError if the caller named a database or campaign that cannot be read.
    """
    disks = tuple(disks)
    placed = [
        (disk, replace(context, disk=host_disk))
        for disk, context in zip(disks, read_contexts(disks), strict=True)
    ]
    paths = [disk_path(disk, context) for disk, context in placed]
    try:
        known_paths = [path for path in paths if path is not None]
        measured = _measured(
            host, known_paths, with_default(needs), campaign, db, host_disk=host_disk
        )
    except DatabaseError as error:
        if db is not None or campaign:
            raise
        reason = f"No speeds: {error}. {_MEASURE}"
        measured = _Measured(CrashVerdicts(disk=host_disk), why_no_speed=reason)
    audited = tuple(
        _audited(disk, path, context, needs, measured)
        for (disk, context), path in zip(placed, paths, strict=True)
    )
    return AuditAnswer(audited, measured.caveats, measured.why_no_speed, needs, host_disk)


def _audited(
    disk: ConfiguredDisk,
    path: DiskPath | None,
    context: DiskContext,
    needs: tuple[Need, ...],
    measured: _Measured,
) -> AuditedDisk:
    loss = loses_writes(disk)
    lost = {need: loss for need in needs if loss and need.goes_by_power_cuts}
    if path is None:
        return AuditedDisk(disk, None, risks(disk), None, lacks=lost)
    if disk.read_only:  # it loses nothing in a power cut
        needs = tuple(need for need in needs if not need.goes_by_power_cuts)
    lacks = {**lost, **unmet(path, needs, measured.verdicts)}
    unknown = unknown_layers(disk, context)
    open_needs = [need for need in lacks if unknown and undecided(path, need)]
    reasons = {need: f"{lacks.pop(need)}, and {unknown}" for need in open_needs}
    return AuditedDisk(
        disk,
        path,
        risks(disk, context),
        None if disk.limits else _usable(disk, measured.scores.get(path)),
        None if disk.read_only else durability(path, measured.verdicts),
        lacks,
        reasons,
        _offered(path, needs, measured.verdicts) if lacks else None,
        None if disk.limits else measured.nearest.get(path),
        _caches_below(disk),
    )


def _usable(disk: ConfiguredDisk, standing: PathScore | None) -> PathScore | None:
    """The standing without a better cell that the disk cannot have: guests share no page cache."""
    better = None if standing is None or standing.better is None else standing.better.path
    if standing is None or better is None or not disk.shareable or better.cache.direct:
        return standing
    return replace(standing, better=None, gain=None)


def _offered(path: DiskPath, needs: tuple[Need, ...], verdicts: CrashVerdicts) -> DiskPath | None:
    """The nearest path that meets all needs; one that drops flushes only if no other does."""
    return nearest(path, with_default(needs), verdicts) or nearest(path, needs, verdicts)


def _measured(
    host: Host,
    paths: Sequence[DiskPath],
    needs: Sequence[Need],
    campaign: Sequence[str] | None,
    db: str | None,
    *,
    host_disk: HostDisk,
) -> _Measured:
    with open_results(db) as results:
        if not campaign and not results.campaigns():
            verdicts = stored_verdicts(results, collect_facts(host), host_disk)
            reason = f"No speeds: the database holds no campaign. {_MEASURE}"
            return _Measured(verdicts, why_no_speed=reason)
        return _measured_in(results, paths, needs, campaign, host_disk)


def _measured_in(
    results: Store,
    paths: Sequence[DiskPath],
    needs: Sequence[Need],
    campaign: Sequence[str] | None,
    host_disk: HostDisk,
) -> _Measured:
    loaded = load_chosen(results, choose_campaigns(results, campaign))
    verdicts = stored_verdicts(results, loaded.campaigns[0].host, host_disk)
    baseline, _ = baseline_of(loaded)
    scored = add_scores(loaded.observations, baseline)
    cells = candidates(loaded.observations.cells)
    measure = scored.overall or Score.OVERALL.key
    ranking = rank_cells(narrowed(scored.observations, cells), measure)
    eligible = [cell for cell, path in cells.items() if not unmet(path, needs, verdicts)]
    best = to_use(rank_cells(narrowed(scored.observations, eligible), measure))
    better = partial(shown_better, ranking=ranking, eligible=eligible, best=best)
    scores: dict[DiskPath, PathScore] = {}
    nearest_scores: dict[DiskPath, PathScore] = {}
    for path in paths if cells else ():
        # The path's own cell, else one with the same guest side, else the most similar one.
        cell = min(cells, key=lambda cell: (unlikeness(path, cells[cell]), cell))
        exact = cells[cell] == path
        path_score = replace(_path_score(cell, scored, ranking, better), exact=exact)
        alike = cells[cell].guest_side == path.guest_side
        (scores if alike else nearest_scores)[path] = path_score
    return _Measured(verdicts, scores, nearest_scores, loaded.caveats)


def _path_score(
    cell: MeasuredCell,
    scored: Scored,
    ranking: Ranking,
    better_than: Callable[[MeasuredCell], MeasuredCell | None],
) -> PathScore:
    """The score and rank of a measured cell."""
    row = next((row for row in ranking.rows if row.cell == cell), None)
    better = better_than(cell)
    measure = ranking.measure
    return PathScore(
        cell,
        True,
        measure,
        summarise(scored.observations, measure).get(cell),
        None if row is None else row.best,
        None if row is None else row.worst,
        len(ranking.rows),
        better,
        None if better is None else ratio_of(scored.observations, measure, better, cell),
    )


def _caches_below(disk: ConfiguredDisk) -> tuple[ClaimedCache, ...]:
    """The caches of the host's disks that hold a disk's source; none if it is not on this host."""
    if disk.source is None or not disk.source.startswith("/"):
        return ()
    source = Path(disk.source)
    if is_visible_file(source):
        device = device_of(source.parent)
    else:
        device = stacked_device(source) if is_visible_device(source) else None
    leaves = () if device is None else device.leaves()
    return tuple(ClaimedCache(leaf.name, leaf.write_cache, leaf.fua) for leaf in leaves)

"""`vdisklab audit`: what existing guests' disks cost and risk, by what was measured here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from vdisklab.analysis.diagnostics.findings import Caveats, caveats_of
from vdisklab.analysis.observations import narrowed
from vdisklab.analysis.rank import Ranking
from vdisklab.analysis.rank import rank as rank_cells
from vdisklab.analysis.recommend import candidates, ratio_of
from vdisklab.analysis.score import Score, Scored, add_scores
from vdisklab.analysis.summary import summarise
from vdisklab.audit.disk import ConfiguredDisk, disk_path
from vdisklab.audit.domain import LARGEST, read_domain
from vdisklab.audit.risks import risks
from vdisklab.cli.options import CampaignOption, DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.cli.surroundings import look_around
from vdisklab.errors import CommandError, DatabaseError, HostError, PlanError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Verdicts, durability
from vdisklab.render.auditing import (
    AuditAnswer,
    AuditedDisk,
    Standing,
    audit_document,
    audit_table,
)
from vdisklab.services.answers import (
    Results,
    choose_campaigns,
    load,
    open_results,
    stored_verdicts,
)

_MEASURE = "Measure first: `vdisklab run PATHS…`."


def audit(
    domains: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DOMAIN.xml...", help="Files from `virsh dumpxml`; - is a pipe."),
    ] = None,
    libvirt: Annotated[
        str | None,
        typer.Option(
            "--libvirt", metavar="URI", help="Read all guests of a libvirt: qemu:///system."
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what each disk of existing guests is, how it ranks here, and what it risks.

    Nothing is changed, neither guests nor images.

    Examples:

      vdisklab audit web.xml db.xml

      vdisklab audit --libvirt qemu:///system --format json
    """
    host = LocalHost()
    disks = [disk for text, name in _texts(host, domains, libvirt) for disk in
             read_domain(text, name)]  # fmt: skip
    if not disks:
        raise PlanError("there is no hard disk in what was given", hint="name another domain")
    answer = answer_audit(host, disks, campaign, db)
    emit(form, [audit_table(answer)], lambda: audit_document(answer))


def _texts(host: Host, files: list[Path] | None, uri: str | None) -> Iterator[tuple[str, str]]:
    """The XML of each domain, and where it is from. Raises PlanError and HostError."""
    if not files and uri is None:
        raise PlanError(
            "no guest was named",
            hint="name files from `virsh dumpxml`, or --libvirt qemu:///system",
        )
    for file in files or ():
        yield _read(file), str(file)
    if uri is not None:
        try:
            listed = host.run("virsh", "-q", "-c", uri, "list", "--all", "--uuid")
        except CommandError as error:
            raise HostError(
                f"libvirt at {uri} does not answer: {error}",
                hint=f"see that `virsh -c {uri} list --all` works: libvirtd runs, you may use it",
            ) from error
        for name in listed.stdout.split():
            dumped = host.run("virsh", "-q", "-c", uri, "dumpxml", "--inactive", name)
            yield dumped.stdout, f"{uri} {name}"


def _read(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read(LARGEST + 1)
        with file.open(encoding="utf-8") as text:
            return text.read(LARGEST + 1)
    except OSError as error:
        raise PlanError(
            f"{file} cannot be read: {error.strerror}", hint="name a file from `virsh dumpxml`"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{file} is not UTF-8 text", hint="`virsh dumpxml` writes UTF-8") from error


def answer_audit(
    host: Host, disks: list[ConfiguredDisk], campaign: list[str] | None, db: str | None
) -> AuditAnswer:
    """Every disk with its risks, and its standing where a database has one."""
    around = [look_around(host, disk) for disk in disks]
    paths = [disk_path(disk, place) for disk, place in zip(disks, around, strict=True)]
    standings: list[Standing | None] = [None] * len(disks)
    caveats = caveats_of(())
    verdicts: Verdicts = {}
    why = None
    try:
        with open_results(db) as results:
            verdicts = _verdicts(results, host, campaign)
            if campaign or results.campaigns():
                standings, caveats = _standings(results, paths, campaign, verdicts)
            else:
                why = f"No speeds: the database holds no campaign. {_MEASURE}"
    except DatabaseError as error:
        if db is not None or campaign:
            raise
        why = f"No speeds: {error}. {_MEASURE}"
    audited = tuple(
        AuditedDisk(
            disk,
            path,
            risks(disk, place),
            standing,
            None if path is None else durability(path, verdicts),
        )
        for disk, path, place, standing in zip(disks, paths, around, standings, strict=True)
    )
    return AuditAnswer(audited, caveats, why)


def _verdicts(results: Results, host: Host, campaign: list[str] | None) -> Verdicts:
    """Of the machine that was measured; of this one where nothing was."""
    if not campaign and not results.campaigns():
        return stored_verdicts(results, collect_facts(host))
    return stored_verdicts(results, choose_campaigns(results, campaign)[0].host)


def _standings(
    results: Results,
    paths: list[DiskPath | None],
    campaign: list[str] | None,
    verdicts: Verdicts,
) -> tuple[list[Standing | None], Caveats]:
    loaded = load(results, campaign)
    baseline = str(loaded.campaigns[0].plan.get("baseline", "host"))
    scored = add_scores(loaded.observations, MeasuredCell(baseline))
    cells = candidates(loaded.observations.cells)
    ranking = rank_cells(narrowed(scored.observations, cells), Score.OVERALL.key)
    standings = [_standing(path, cells, scored, ranking, verdicts) for path in paths]
    return standings, caveats_of(loaded.outlines)


def _standing(
    path: DiskPath | None,
    cells: dict[MeasuredCell, DiskPath],
    scored: Scored,
    ranking: Ranking,
    verdicts: Verdicts,
) -> Standing | None:
    if path is None:
        return None
    exact = [cell for cell, measured in cells.items() if measured == path]
    alike = [cell for cell, measured in cells.items() if _guest_side(measured) == _guest_side(path)]
    found = exact or sorted(alike)
    if not found:
        return None
    cell = found[0]
    place = next((row for row in ranking.rows if row.cell == cell), None)
    better = _better(cell, cells, ranking, verdicts)
    measure = Score.OVERALL.key
    gain = None if better is None else ratio_of(scored.observations, measure, better, cell)
    return Standing(
        cell,
        bool(exact),
        summarise(scored.observations, measure).get(cell),
        None if place is None else place.best,
        None if place is None else place.worst,
        len(ranking.rows),
        better,
        gain,
    )


def _guest_side(path: DiskPath) -> tuple[object, ...]:
    return path.image and path.image.format, path.cache, path.attachment


def _better(
    cell: MeasuredCell, cells: dict[MeasuredCell, DiskPath], ranking: Ranking, verdicts: Verdicts
) -> MeasuredCell | None:
    """The first ranked cell that keeps flushed data, if it is shown to be better than this."""
    rows = {row.cell: row for row in ranking.rows}
    if cell not in rows:
        return None
    for row in ranking.rows:
        if row.cell == cell:
            return None
        keeps = durability(cells[row.cell], verdicts).keeping
        if row.worst < rows[cell].best and keeps.acceptable:
            return row.cell
    return None

"""`vdisklab report`: one file that people look at."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vdisklab.analysis.compare import against_baseline
from vdisklab.analysis.doubt import FromPageCache, host_findings
from vdisklab.analysis.evidence import workings
from vdisklab.analysis.findings import (
    Emulated,
    Finding,
    NoBaseline,
    emulated,
    failed_cells,
    ranking_findings,
)
from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.needs import Need, NeedKind
from vdisklab.analysis.observations import MeasureKey, Observations, cell_label
from vdisklab.analysis.rank import rank as rank_cells
from vdisklab.analysis.score import Score, Scored, add_scores
from vdisklab.analysis.summary import summarise
from vdisklab.cli.recommend import recommendation_of
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Loaded,
    Results,
    evidence_doubts,
    find_cells,
    load,
    open_results,
)
from vdisklab.errors import HostError, PlanError
from vdisklab.report.contents import Contents, from_page_cache
from vdisklab.report.recommending import RecommendationAnswer
from vdisklab.result.model import Origin

if TYPE_CHECKING:
    from vdisklab.report.files import Files


DOUBTED_CELLS = 1000
"""Up to so many cells the evidence of every single run is read."""


class Written(StrEnum):
    """The formats of `report.files`, named here so that other verbs need not load its charts."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    MARKDOWN = "md"


def report(
    form: Annotated[
        Written, typer.Option("--format", help="How to write it; png and svg are directories.")
    ] = Written.HTML,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Where to write it.",
            show_default="report.FORMAT in the current directory",
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
) -> None:
    """Write a report: the answer, the figures, all cells, and what is doubtful.

    The HTML file needs no network and nothing beside it.

    Examples:

      vdisklab report

      vdisklab report --format png --output figures/

      vdisklab report --format parquet -o numbers.parquet
    """  # fmt: skip
    from vdisklab.report.files import ReportFormat, build  # noqa: PLC0415 - a second to load

    with open_results(db) as results:
        contents = gather(results, campaign)
    chosen = ReportFormat(form.value)
    files = build(contents, chosen)
    if not files:
        raise PlanError("nothing was measured that could be drawn", hint="vdisklab run PATHS… host")
    place = output or Path(f"report-{chosen}" if chosen.is_directory else f"report.{chosen}")
    for written in write(files, place, directory=chosen.is_directory):
        print(written)


def write(files: Files, place: Path, *, directory: bool) -> list[Path]:
    """Writes each file whole or not at all; returns where. Raises HostError."""
    try:
        if directory:
            place.mkdir(parents=True, exist_ok=True)
        targets = {place / name if directory else place: data for name, data in files.items()}
        for target, data in targets.items():
            _replace(target, data)
    except OSError as error:
        raise HostError(
            f"{place} cannot be written: {error.strerror}", hint="choose another --output"
        ) from error
    return list(targets)


def _replace(target: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.",
                                     delete=False) as sink:  # fmt: skip
        temporary = Path(sink.name)
        try:
            sink.write(data)
            sink.flush()
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def gather(results: Results, names: list[str] | None) -> Contents:
    """Everything of a report. Raises PlanError where the campaign holds no numbers at all."""
    loaded = load(results, names)
    baseline, findings = _baseline(loaded)
    scored = add_scores(loaded.observations, baseline)
    observations = scored.observations
    measure = _measure(scored)
    if measure is None:
        raise PlanError(
            "this campaign holds no numbers: every run failed, or none was made",
            hint=f"see why: `vdisklab runs {loaded.campaigns[0].id}`",
        )
    ranking = rank_cells(observations, measure)
    ids = [each.id for each in loaded.campaigns]
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in loaded.outlines}
    tallies = results.tallies(ids)
    answer, why = _recommendation(results, loaded)
    under = emulated(loaded.outlines)
    found: list[Finding] = [Emulated()] if under else []
    return Contents(
        campaigns=loaded.campaigns,
        emulated=under,
        lab=any(getattr(run, "origin", None) is Origin.LAB for run in loaded.outlines),
        blocks=loaded.blocks,
        baseline=baseline,
        roles=scored.roles,
        measure=measure,
        ranking=ranking,
        ratios=against_baseline(observations, measure, baseline),
        summaries={key: summarise(observations, key) for key in _ordered(observations)},
        recommendation=answer,
        why_none=why,
        workings=workings(tallies, labels),
        cached=from_page_cache(tallies, labels),
        examples={
            labels.get(each.cell, each.cell): each for each in results.examples(ids)
        },
        failed=failed_cells(loaded.outlines),
        findings=(
            *found, *findings, *_doubts(results, loaded), *ranking_findings(ranking, MIN_BLOCKS),
        ),
    )  # fmt: skip


def _doubts(results: Results, loaded: Loaded) -> Iterator[Finding]:
    """What evidence and host give away; that of too many cells is left to `vdisklab rank`.

    What came from the page cache stands in the table, cell by cell.
    """
    yield from host_findings(loaded.campaigns, loaded.observations)
    if len(loaded.observations.cells) <= DOUBTED_CELLS:
        for each in evidence_doubts(results, loaded):
            if not isinstance(each, FromPageCache):
                yield each


def _baseline(loaded: Loaded) -> tuple[str, tuple[Finding, ...]]:
    planned = str(loaded.campaigns[0].plan.get("baseline", "host"))
    try:
        return find_cells(loaded.observations, planned)[0], ()
    except PlanError:
        return planned, (NoBaseline(planned),)


def _measure(scored: Scored) -> MeasureKey | None:
    """The overall score where any cell has it, else the first bandwidth, else anything."""
    used = {scored.observations.measures[code] for code in set(scored.observations.measure)}
    if Score.OVERALL.key in used:
        return Score.OVERALL.key
    return min(used, key=lambda key: (key.metric != "bandwidth", key), default=None)


def _ordered(observations: Observations) -> list[MeasureKey]:
    """The measures that have values, the scores first."""
    used = {observations.measures[code] for code in set(observations.measure.tolist())}
    return sorted(used, key=lambda key: (key.name != "score", key))


def _recommendation(results: Results, loaded: Loaded) -> tuple[RecommendationAnswer | None, str]:
    """What is recommended to somebody who wants to keep data; else why nothing is."""
    try:
        needs = (Need(NeedKind.DURABLE),)
        return recommendation_of(results, loaded, needs, None), ""
    except PlanError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, f"Nothing can be recommended yet: {error}{hint}."

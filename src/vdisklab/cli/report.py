"""`vdisklab report`: one file that people look at."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vdisklab.analysis.claimfile import builtin_claims
from vdisklab.analysis.compare import against_baseline
from vdisklab.analysis.courses import Course, courses
from vdisklab.analysis.diagnostics.circumstances import host_findings
from vdisklab.analysis.diagnostics.doubt import FromPageCache
from vdisklab.analysis.diagnostics.findings import (
    Finding,
    NoBaseline,
    caveats_of,
    failed_cells,
    ranking_findings,
)
from vdisklab.analysis.evidence import Workings, workings
from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.observations import MeasureKey, Observations, cell_label
from vdisklab.analysis.published import builtin_publications
from vdisklab.analysis.rank import rank as rank_cells
from vdisklab.analysis.score import Score, Scored, add_scores
from vdisklab.analysis.summary import summarise
from vdisklab.cli.held import held_claims, held_publications
from vdisklab.cli.rank import missing_scores, value_doubts
from vdisklab.cli.recommend import recommendation_of
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Loaded,
    Results,
    choose_campaigns,
    direct_doubts,
    evidence_doubts,
    find_cells,
    load_chosen,
    open_results,
    require_numbers,
)
from vdisklab.cli.verdicts import stored_verdicts
from vdisklab.errors import HostError, PlanError
from vdisklab.path.needs import Need, NeedKind
from vdisklab.render.charts.svg import drawing_aside
from vdisklab.render.page.contents import Contents, from_page_cache
from vdisklab.render.tables.recommendation import RecommendationAnswer

if TYPE_CHECKING:
    from vdisklab.render.page.files import Files


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
    with _everything_kept(), drawing_aside() as draw, open_results(db) as results:
        contents = gather(results, campaign)
        from vdisklab.render.page.files import ReportFormat, build  # noqa: PLC0415 - half a second

        chosen = ReportFormat(form.value)
        files = build(contents, chosen, draw)
    if not files:
        raise PlanError("nothing was measured that could be drawn", hint="vdisklab run PATHS… host")
    place = output or Path(f"report-{chosen}" if chosen.is_directory else f"report.{chosen}")
    for written in write(files, place, directory=chosen.is_directory):
        print(written)


@contextmanager
def _everything_kept() -> Iterator[None]:
    """Without looking for garbage: a report makes a million objects and keeps nearly all.

    To look through them again and again takes a fifth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
    campaigns = choose_campaigns(results, names)
    ids = [each.id for each in campaigns]
    with ThreadPoolExecutor(1) as aside:
        # The database adds up by itself while we read the numbers one after another.
        summing = aside.submit(results.tallies, ids)
        loaded = load_chosen(results, campaigns)
    tallies = summing.result()
    require_numbers(loaded)
    baseline, findings = _baseline(loaded)
    scored = add_scores(loaded.observations, baseline)
    observations = scored.observations
    measure = _measure(scored)
    ranking = rank_cells(observations, measure)
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in loaded.outlines}
    worked = workings(tallies, labels)
    answer, why = _recommendation(results, loaded, worked)
    caveats = caveats_of(loaded.outlines)
    cached = from_page_cache(tallies, labels)
    contents = Contents(
        campaigns=loaded.campaigns,
        caveats=caveats,
        blocks=loaded.blocks,
        baseline=baseline,
        roles=scored.roles,
        measure=measure,
        ranking=ranking,
        ratios=against_baseline(observations, measure, baseline),
        summaries={key: summarise(observations, key) for key in _ordered(observations)},
        recommendation=answer,
        why_none=why,
        workings=worked,
        cached=cached,
        examples={
            labels.get(each.cell, each.cell): each for each in results.examples(ids)
        },
        failed=failed_cells(loaded.outlines),
        findings=(
            *caveats.findings, *findings, *_doubts(results, loaded),
            *value_doubts(observations, _doubted(scored, measure), measure, cached),
            *ranking_findings(ranking, MIN_BLOCKS),
            *(() if findings or measure.name != "score" else missing_scores(scored, measure)),
        ),
        claims=held_claims(loaded, builtin_claims()),
        published=held_publications(loaded, builtin_publications()),
        verdicts=stored_verdicts(results, loaded.campaigns[0].host),
    )  # fmt: skip
    return replace(contents, courses=_courses(results, loaded, contents.featured, scored))


def _doubted(scored: Scored, measure: MeasureKey) -> tuple[MeasureKey, ...]:
    """The measures whose values are looked at one by one: what the ranking shows."""
    if measure.name != "score":
        return (measure,)
    there = set(scored.observations.used)
    return tuple(score.key for score in Score if score.key in there)


COURSES = 4
"""So many measurements are drawn over time: those that the score is made of, or the first."""


def _courses(
    results: Results, loaded: Loaded, cells: tuple[str, ...], scored: Scored
) -> tuple[Course, ...]:
    """How the featured cells went, second by second; the featured cells' order is kept."""
    labels = {run.cell: cell_label(run.path, run.page_cache) for run in loaded.outlines}
    wanted = [fingerprint for fingerprint, label in labels.items() if label in cells]
    seen = results.courses([each.id for each in loaded.campaigns], wanted)
    roles = () if scored.roles is None else [key.name for key in scored.roles.measures.values()]
    there = dict.fromkeys(each.measurement for each in seen)
    chosen = [name for name in dict.fromkeys(roles) if name in there] or list(there)
    found = courses(seen, labels, chosen[:COURSES])
    return tuple(sorted(found, key=lambda each: (cells.index(each.cell), each.run)))


def _doubts(results: Results, loaded: Loaded) -> Iterator[Finding]:
    """What evidence and host give away; that of too many cells is left to `vdisklab rank`.

    What came from the page cache stands in the table, cell by cell.
    """
    yield from direct_doubts(results, loaded)
    yield from host_findings(loaded.campaigns, loaded.observations.cells)
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


def _measure(scored: Scored) -> MeasureKey:
    """The overall score where any cell has it, else the first bandwidth, else anything."""
    used = scored.observations.used
    if Score.OVERALL.key in used:
        return Score.OVERALL.key
    return min(used, key=lambda key: (key.metric != "bandwidth", key))


def _ordered(observations: Observations) -> list[MeasureKey]:
    """The measures that have values, the scores first."""
    return sorted(observations.used, key=lambda key: (key.name != "score", key))


def _recommendation(
    results: Results, loaded: Loaded, worked: Mapping[str, Workings]
) -> tuple[RecommendationAnswer | None, str]:
    """What is recommended to somebody who wants to keep data; else why nothing is."""
    try:
        needs = (Need(NeedKind.DURABLE),)
        return recommendation_of(results, loaded, needs, None, worked), ""
    except PlanError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, f"Nothing can be recommended yet: {error}{hint}."

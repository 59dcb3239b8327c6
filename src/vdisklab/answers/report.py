"""`report`: the other answers from one analysis, and every median as a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Annotated, overload

import numpy as np
from pydantic import InstanceOf, PlainSerializer

from vdisklab.analysis.claimfile import builtin_claims
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.recorded import FromPageCache, age_diagnostics, queue_diagnostics
from vdisklab.analysis.guest_groups import parse_criterion
from vdisklab.analysis.measure_words import RUNTIME
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.published import builtin_publications
from vdisklab.analysis.rank_intervals import Ranked, Unranked, WithoutRank
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.analysis.summary import IntervalMethod, Summaries, Summary
from vdisklab.analysis.sums import BandwidthSeries, RelativeSums, bandwidth_series
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import PathChoice
from vdisklab.answers.claims import ClaimsAnswer, evaluate_claims
from vdisklab.answers.compare import PublishedAnswer, all_published
from vdisklab.answers.density import DensityAnswer, density_of, searched_capacity
from vdisklab.answers.during import DURING, DuringAnswer, operations_of
from vdisklab.answers.elsewhere import where_measured
from vdisklab.answers.export import ConfiguredFor, configurations_of
from vdisklab.answers.hosts import HostsAnalysis, MeasuredHost
from vdisklab.answers.life import LifeAnswer, lives_of, measured_lives
from vdisklab.answers.loading import first_measure
from vdisklab.answers.measured_for import measured_operations, runtime_of
from vdisklab.answers.pareto import ParetoAnswer, usual_front
from vdisklab.answers.rank import RankAnswer, RankedCell, rank_cells
from vdisklab.answers.recommend import RecommendAnswer, TooFewRoundsError, recommend
from vdisklab.answers.trend import TrendAnswer, trend_of
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import DurabilityKind, known_durability
from vdisklab.path.needs import with_default
from vdisklab.path.segments import PageCache
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.results.model import Better, Direction, Example
from vdisklab.value import HIDDEN, Value, replace

FEATURED = 4
"""Number of cells in charts with few lines: more cannot be distinguished."""

TRADE_OFF_CELLS = 1000
"""With more cells than this, trade-offs are not drawn; `vdisklab rank --pareto` lists them."""

OWN = 5
"""Paths in each host's own ranking."""

CELLS_OVER_TIME = 100
"""With more cells than this, only the featured ones have their bandwidth over time in the page."""

MOST_TIME_SERIES = 4
"""Number of measurements drawn over time: those that the score uses, else the first."""


class ReportValue(Value):
    """The median of one measure of one cell over rounds."""

    cell: MeasuredCell
    path: str
    page_cache: Annotated[PageCache | None, "null for an import, which does not say it"]
    measure: MeasureKey
    unit: str
    median: float
    low: Annotated[float | None, "end of the 95 % interval"]
    high: float | None
    interval_method: IntervalMethod | None
    rounds: int
    runtime: Annotated[float | None, RUNTIME]
    rank_best: Annotated[int | None, "of the cell, by the report's first measure"]
    rank_worst: int | None
    durability: Annotated[
        DurabilityKind | None,
        "what happens to flushed data in a power cut, by rule or as tested here; null on the host",
    ]
    from_page_cache: Annotated[
        bool,
        "less than half of the bytes reached the device, and the measure does not count the time "
        "until they did",
    ]
    accelerator: Annotated[
        Accelerator | None, "the caveats of the document; null on the host itself"
    ]
    emulated: bool
    lab: bool


class Bar(Value):
    """One value with its interval, in the unit that the chart's axis names."""

    label: str
    value: float
    low: float | None
    high: float | None
    group: str = ""
    highlight: bool = False
    unit: Annotated[str, "of its group, if the groups show different quantities"] = ""
    parts: Annotated[tuple[float, ...], "what it is the sum of, as the figure names them"] = ()


class Lines(Value):
    """Lines over an axis whose places may have names."""

    x: str
    y: Annotated[str, "the unit of the values"]
    lines: Annotated[tuple[str, ...], "their names"]
    data: Annotated[
        tuple[tuple[float | None, ...], ...], "the places on the axis, then each line's values"
    ]
    ticks: Annotated[tuple[str, ...], "the places' names; empty for numbers"] = ()
    gaps: Annotated[tuple[tuple[float, float], ...], "places at which a line stalled"] = ()
    log: bool = False
    panel: Annotated[str, "what is drawn, if a figure has several"] = ""
    alt: Annotated[str, "what the panel shows in words, if a figure has several"] = ""
    steps: Annotated[bool, HIDDEN] = False
    """True if a value holds from its place to the next; the last place ends the last one."""


class Figure(Value):
    """One figure. `bars` in `unit` are rows in the page; their scale ends at `longest`."""

    key: str
    title: str
    alt: Annotated[str, "what the figure shows, in words for people who cannot see it"]
    curves: Annotated[tuple[Lines, ...], "its lines, one below the other"] = ()
    missing: Annotated[str | None, "the command that would measure it; null when it is drawn"] = (
        None
    )
    note: Annotated[str, "what the axes do not show"] = ""
    cells: Annotated[tuple[str, ...], "the drawn cells; their diagnostics stand below it"] = ()
    bars: Annotated[tuple[Bar, ...], "its values, if it has bars"] = ()
    unit: Annotated[str, "of the bars, or of each"] = ""
    parts: Annotated[tuple[str, ...], "the names of the parts that the bars are stacked of"] = ()
    shared: Annotated[bool, "all groups have one scale", HIDDEN] = True
    longest: Annotated[float, HIDDEN] = math.inf


class OwnRank(Value):
    """A path's rank on one host, by that host's own rounds."""

    cell: MeasuredCell
    best: int
    worst: int
    share: Annotated[float, "of the host's best path"]


class OwnAnswer(Value):
    """One host's own answer, as the report on its campaigns gives it."""

    host: MeasuredHost
    first: Annotated[tuple[OwnRank, ...], "the highest paths in its ranking"]
    choice: Annotated[PathChoice | None, "the path to use on that host; null if none is known"]
    why_none: Annotated[str, "why no path is recommended there; empty if one is"]


class Values(Sequence[ReportValue]):
    """Every median as a row, made when it is asked for: ten thousand cells have half a million."""

    def __init__(
        self,
        ranked: RankAnswer,
        summaries: Mapping[MeasureKey, Summaries],
        cached: Mapping[tuple[MeasuredCell, str], Sequence[FromPageCache]],
    ) -> None:
        self._rows = {row.cell: row for row in ranked.cells}
        self._caveats, self._summaries, self._cached = ranked.caveats, summaries, cached
        names = {measure.name for measure in summaries}
        self._runtimes = {name: runtime_of(ranked.campaigns, name) for name in names}

    def __len__(self) -> int:
        return sum(map(len, self._summaries.values()))

    def __iter__(self) -> Iterator[ReportValue]:
        for summaries in self._summaries.values():
            yield from map(self._value, summaries.values())

    @overload
    def __getitem__(self, index: int) -> ReportValue: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReportValue]: ...
    def __getitem__(self, index: int | slice) -> ReportValue | Sequence[ReportValue]:
        return tuple(self)[index]

    def _value(self, summary: Summary) -> ReportValue:
        cell, measure, row = summary.cell, summary.measure, self._rows[summary.cell]
        ranked = row.place if isinstance(row.place, Ranked) else None
        return ReportValue(
            cell=cell,
            path=cell.name,
            page_cache=cell.known_page_cache,
            measure=measure,
            unit=measure.quantity.unit,
            median=summary.median,
            low=summary.low,
            high=summary.high,
            interval_method=summary.method,
            rounds=summary.rounds,
            runtime=self._runtimes[measure.name],
            rank_best=None if ranked is None else ranked.best,
            rank_worst=None if ranked is None else ranked.worst,
            durability=None if row.power_cut is None else row.power_cut.kind,
            from_page_cache=any(
                measure.direction in (found.direction, Direction.NONE)
                and found.shows_memory(measure)
                for found in self._cached.get((cell, measure.name), ())
            ),
            # The caveats are those of guests, and the host's own paths have none.
            accelerator=None if cell.on_host else self._caveats.accelerator,
            emulated=self._caveats.emulated_host if cell.on_host else self._caveats.emulated,
            lab=self._caveats.lab,
        )


class ReportAnswer(Answer, dict=True):
    """`vdisklab report --format json`: everything that the page shows."""

    FORMAT = "vdisklab.report/3"

    ranked: Annotated[RankAnswer, "all cells by the overall score, else by the first measure"]
    recommendation: Annotated[RecommendAnswer | None, "for durable paths"]
    why_none: Annotated[str, "why nothing is recommended; empty if something is"]
    configurations: Annotated[
        tuple[ConfiguredFor, ...], "the recommended path; without platforms that cannot express it"
    ]
    density: Annotated[
        DensityAnswer | None, "for a search of how many guests each path carries, instead"
    ]
    operations: Annotated[
        DuringAnswer | None, "for a campaign of `run --during`: what operations cost, instead"
    ]
    lives: Annotated[
        LifeAnswer | None, "for disks that were made from a template: what each step cost, instead"
    ]
    trade_offs: Annotated[ParetoAnswer | None, "null without two measures, and for many cells"]
    claims: ClaimsAnswer | None
    published: Annotated[
        tuple[PublishedAnswer, ...], "the articles' series with a counterpart here"
    ]
    findings: Annotated[tuple[Diagnostic, ...], "all that is to know about these numbers"]
    relative_sums: Annotated[Mapping[MeasuredCell, RelativeSums], "what a request cost"]
    cached: Annotated[
        Mapping[MeasuredCell, tuple[str, ...]],
        "by cell, the measurements whose bytes mostly did not reach the device",
    ]
    bursts: Annotated[
        Mapping[MeasuredCell, tuple[str, ...]],
        "by cell, the measurements whose writes mostly reached the device after the program's end: "
        "their sustained rate counts that time, their other numbers do not",
    ]
    values: Annotated[
        Sequence[ReportValue],
        PlainSerializer(tuple, return_type=tuple[ReportValue, ...]),
        "every median, the scores first",
    ]
    summaries: Annotated[Mapping[MeasureKey, InstanceOf[Summaries]], HIDDEN]
    levels: Annotated[InstanceOf[Summaries], HIDDEN]
    examples: Annotated[Mapping[MeasuredCell, Example], HIDDEN]
    bandwidth_series: Annotated[tuple[BandwidthSeries, ...], HIDDEN] = ()
    places: Annotated[tuple[str, ...], HIDDEN] = ()
    """Sentences: that another host measured it, or that its directory is gone."""
    each_host: Annotated[tuple[OwnAnswer, ...], "with --hosts: each host's own answer"] = ()
    trend: Annotated[TrendAnswer | None, "null for the only campaign of its plan and host"] = None
    figures: Annotated[tuple[Figure, ...], "the charts, in JSON only"] = ()

    @property
    def caveats(self) -> Caveats:
        """Why the numbers do not measure this machine."""
        return self.ranked.caveats

    @property
    def measure(self) -> MeasureKey:
        """The measure that ranks the cells."""
        return self.ranked.ranking.measure

    @property
    def baseline(self) -> MeasuredCell:
        """The cell that scores and ratios relate to."""
        return self.ranked.baseline

    @property
    def answer(self) -> MeasuredCell | None:
        """The recommended cell; None without a recommendation."""
        return None if self.recommendation is None else self.recommendation.recommendation.cell

    @cached_property
    def featured(self) -> tuple[MeasuredCell, ...]:
        """The cells of charts with few lines: the answer, the baseline, the next best."""
        ranked = (row.cell for row in self.ranked.ranking.rows[:FEATURED])
        chosen = dict.fromkeys(cell for cell in (self.answer, self.baseline, *ranked) if cell)
        return tuple(chosen)[:FEATURED]

    @cached_property
    def measured(self) -> Mapping[MeasuredCell, int]:
        """For each cell, the largest number of rounds of any one measure."""
        return measured_rounds(self.summaries)

    @property
    def raced(self) -> bool:
        """True if a campaign was a race, which leaves paths out of later rounds."""
        return any(RaceTerms.of(campaign.plan) for campaign in self.ranked.campaigns)

    def shown(self, row: RankedCell, measure: MeasureKey) -> Summary | None:
        """What is shown of a measure: of the ranked one the level, of others the median."""
        if measure == self.measure:
            return row.shown(measure)
        return self.summaries[measure].get(row.cell)

    def of(self, measure: MeasureKey) -> Mapping[MeasuredCell, Summary]:
        """What is shown of a measure by cell: of the ranked one the levels, else the medians; empty
        if it was not measured.
        """
        return self.levels if measure == self.measure else self.summaries.get(measure) or {}


def report_on(analysis: Analysis) -> ReportAnswer:
    """The report on the analysed campaigns, or on the hosts."""
    if isinstance(analysis, HostsAnalysis):
        return _over_hosts(analysis)
    with ThreadPoolExecutor(1) as pool:
        # The database aggregates in a thread while this one computes, without the database: one
        # connection does for both.
        summing = pool.submit(lambda: analysis.sums)
        analysis.ranking(analysis.measure(_metric(analysis)))
        summaries = _summaries(analysis)
        summing.result()
    report = _common(analysis, summaries)
    searched = next(
        (campaign.id for campaign in analysis.campaigns if searched_capacity(campaign.plan)), None
    )
    if searched is not None:
        report = replace(
            report, recommendation=None, why_none="", density=density_of(analysis.results, searched)
        )
    ordered = next(
        (campaign.id for campaign in analysis.campaigns if measured_operations(campaign)), None
    )
    if ordered is not None:
        report = replace(
            report,
            recommendation=None,
            why_none="",
            configurations=(),
            findings=analysis.findings_of_runs(),  # operations have neither ranks nor scores
            operations=operations_of(analysis.results, ordered),
        )
    made = next((campaign.id for campaign in analysis.campaigns if measured_lives(campaign)), None)
    if made is not None:
        report = replace(
            report,
            recommendation=None,
            why_none="",
            configurations=(),
            findings=analysis.findings_of_runs(),
            lives=lives_of(analysis.results, made),
        )
    few = len(analysis.observations.cells) <= TRADE_OFF_CELLS
    return replace(
        report,
        trade_offs=usual_front(analysis) if few else None,
        claims=evaluate_claims(analysis.loaded, builtin_claims()),
        published=all_published(analysis.loaded, builtin_publications()),
        findings=(
            *report.findings,
            *queue_diagnostics(analysis.examples),
            *age_diagnostics(analysis.examples, analysis.loaded.cells),
        ),
        bandwidth_series=_time_series(analysis, report),
        trend=trend_of(analysis.results, analysis.loaded.ids),
    )


def _over_hosts(analysis: HostsAnalysis) -> ReportAnswer:
    analysis.all_values  # noqa: B018 - computes the means of all measures at once
    report = _common(analysis, _summaries(analysis))
    missing = () if analysis.scored.overall == report.measure else analysis.no_baseline
    return replace(
        report,
        each_host=tuple(
            _own_answer(analysis.analysis_alone(host), host) for host in analysis.hosts
        ),
        findings=(*report.findings, *missing),
    )


def _own_answer(analysis: Analysis, host: MeasuredHost) -> OwnAnswer:
    answer, why_none = _recommendation(analysis)
    ranking = (
        analysis.ranking(analysis.measure(_metric(analysis)))
        if answer is None
        else answer.recommendation.ranking
    )
    sign = 1 if ranking.measure.quantity.better is Better.HIGHER else -1
    best = max((sign * row.effect for row in ranking.rows), default=0.0)
    first = tuple(
        OwnRank(row.cell, row.best, row.worst, math.exp(sign * row.effect - best))
        for row in ranking.rows[:OWN]
    )
    return OwnAnswer(host, first, None if answer is None else answer.choice, why_none)


def _metric(analysis: Analysis) -> str:
    """For a search of capacities what its limit is of, for operations the p99 meanwhile; else the
    overall score if any cell has it, else the first measure.
    """
    for campaign in analysis.campaigns:
        if searched_capacity(campaign.plan):
            limited = parse_criterion(str(campaign.plan["until"])).metric
            of = (key for key in analysis.observations.measures if key.metric == limited)
            return str(next(of, first_measure(analysis.observations)))
        if measured_operations(campaign):  # IOPS would only show the fixed rate of their load
            meanwhile = (
                key
                for key in analysis.observations.used
                if key.name.endswith(f"-{DURING}")
                and (key.metric, key.direction) == ("latency_p99", Direction.NONE)
            )
            return str(next(meanwhile, first_measure(analysis.observations)))
    if analysis.scored.overall in analysis.observations.used:
        return DEFAULT_METRIC
    return str(first_measure(analysis.observations))


def _summaries(analysis: Analysis) -> Mapping[MeasureKey, Summaries]:
    keys = sorted(analysis.observations.used, key=lambda key: (key.name != "score", key))
    return {key: analysis.summaries(key) for key in keys}


def _common(analysis: Analysis, summaries: Mapping[MeasureKey, Summaries]) -> ReportAnswer:
    """The parts that a report on one host shares with a report on several."""
    ranked = _with_all_cells(rank_cells(analysis, _metric(analysis)), analysis, summaries)
    from_memory: dict[tuple[MeasuredCell, str], list[FromPageCache]] = {}
    for finding in analysis.cached:
        from_memory.setdefault((finding.cell, finding.measurement), []).append(finding)
    names, bursts = (_measurements(analysis.cached, lasting=is_burst) for is_burst in (False, True))
    recommendation, why_none = _recommendation(analysis)
    return ReportAnswer(
        places=tuple(where_measured(ranked.campaigns)),
        ranked=ranked,
        recommendation=recommendation,
        why_none=why_none,
        configurations=tuple(
            ()
            if recommendation is None
            else configurations_of(recommendation.recommendation.cell, ranked.campaigns[0])
        ),
        density=None,
        operations=None,
        lives=None,
        trade_offs=None,
        claims=None,
        published=(),
        findings=tuple(
            finding for finding in ranked.findings if not isinstance(finding, FromPageCache)
        ),
        relative_sums=analysis.relative_sums,
        cached=names,
        bursts=bursts,
        values=Values(ranked, summaries, from_memory),
        summaries=summaries,
        levels=analysis.levels(ranked.ranking.measure),
        examples={analysis.loaded.cells[example.cell]: example for example in analysis.examples},
    )


def _measurements(
    found: Iterable[FromPageCache], *, lasting: bool
) -> Mapping[MeasuredCell, tuple[str, ...]]:
    """By cell, the measurements of the findings that are, or are not, of sustained writes."""
    names: dict[MeasuredCell, set[str]] = {}
    for finding in found:
        if finding.lasting is lasting:
            names.setdefault(finding.cell, set()).add(finding.measurement)
    return {cell: tuple(sorted(measurements)) for cell, measurements in names.items()}


def measured_rounds(summaries: Mapping[MeasureKey, Summaries]) -> Mapping[MeasuredCell, int]:
    """For each cell with numbers, the largest number of rounds of any one measure."""
    if not summaries:
        return {}
    cells = next(iter(summaries.values())).cells
    most = np.max([summary.rounds for summary in summaries.values()], axis=0).tolist()
    return {cell: rounds for cell, rounds in zip(cells, most, strict=True) if rounds}


def _with_all_cells(
    answer: RankAnswer, analysis: Analysis, summaries: Mapping[MeasureKey, Summaries]
) -> RankAnswer:
    """The answer with the cells that lack the ranked measure, too; they come last, by name."""
    rows = {row.cell: row for row in answer.cells}
    for cell in sorted(measured_rounds(summaries)):
        if cell not in rows:
            place = WithoutRank(cell, 0, Unranked.TOO_FEW_ROUNDS)
            durability = known_durability(cell, analysis.verdicts)
            rows[cell] = RankedCell(cell, place, {}, None, Ratio(0), False, (), durability)
    return replace(answer, cells=tuple(rows.values()))


def _time_series(analysis: Analysis, report: ReportAnswer) -> tuple[BandwidthSeries, ...]:
    """The bandwidth over time of the featured cells, and of the others if they are few."""
    measured = analysis.loaded.cells
    every = (row.cell for row in report.ranked.cells[:CELLS_OVER_TIME])
    few = len(report.ranked.cells) <= CELLS_OVER_TIME
    cells = tuple(dict.fromkeys((*report.featured, *(every if few else ()))))
    fingerprints = [fingerprint for fingerprint, cell in measured.items() if cell in cells]
    series = analysis.results.bandwidth_series(analysis.loaded.ids, fingerprints)
    roles = analysis.scored.roles
    wanted = () if roles is None else [key.name for key in roles.measures.values()]
    names = dict.fromkeys(run.measurement for run in series)
    chosen = [name for name in dict.fromkeys(wanted) if name in names] or list(names)
    drawn = bandwidth_series(series, measured, chosen[:MOST_TIME_SERIES])
    return tuple(sorted(drawn, key=lambda drawn_run: (cells.index(drawn_run.cell), drawn_run.run)))


def _recommendation(analysis: Analysis) -> tuple[RecommendAnswer | None, str]:
    """The recommendation for the default needs, or why there is none."""
    try:
        return recommend(analysis, with_default(())), ""
    except TooFewRoundsError as error:
        return None, f"{str(error)[0].upper()}{str(error)[1:]}: {error.hint}."
    except PlanError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, f"Nothing can be recommended yet: {error}{hint}."

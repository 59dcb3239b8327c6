"""`rank`: each measured cell with all that is shown beside it, best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from vdisklab.analysis.best import competitors
from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.rank_intervals import Ranked, Ranking, WithoutRank
from vdisklab.analysis.score import RoleSet
from vdisklab.analysis.summary import Summary
from vdisklab.answers.analysis import DEFAULT_METRIC, Analysis
from vdisklab.answers.choice import PathChoice, choose
from vdisklab.answers.hosts import CellOverHosts, HostsAnalysis, OverHosts
from vdisklab.documents import RARE, Answer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import Durability, HostDisk, known_durability
from vdisklab.results.model import Campaign, Direction, Metric


@dataclass(frozen=True, slots=True)
class RankedCell:
    """One cell of a ranking."""

    cell: MeasuredCell
    place: Annotated[Ranked | WithoutRank, "its rank, from `best` to `worst`, or why it has none"]
    medians: Annotated[Mapping[MeasureKey, Summary], "over rounds, with their 95 % intervals"]
    ratio: Annotated[Ratio, "to the baseline, within rounds; the baseline itself is 1"]
    competes: Annotated[
        bool, "false for the host, a null device and a warm page cache, shown for comparison"
    ]
    from_page_cache: Annotated[
        tuple[Direction, ...], "directions in which less than half of the bytes reached the device"
    ]
    power_cut: Annotated[Durability | None, "null on the host, and for a free name"]
    hosts: Annotated[
        CellOverHosts | None, RARE, "with --hosts, for a ranked cell; rounds are hosts then"
    ] = None


@dataclass(frozen=True, slots=True)
class RankAnswer(Answer):
    """`vdisklab rank`: all cells, best first, then those without a rank."""

    FORMAT = "vdisklab.rank/2"

    campaigns: Annotated[tuple[Campaign, ...], "what was ranked"]
    caveats: Caveats
    ranking: Ranking
    choice: Annotated[
        PathChoice | None, "of paths that keep flushed data, if any does; null if none is ranked"
    ]
    quantity: Annotated[Metric, "of the ranked measure"]
    inconclusive: Annotated[bool, "true when cells were ranked and no pair is shown to differ"]
    competitors: Annotated[int | None, "paths that may be chosen: no host, null or warm cache"]
    shows: Annotated[
        float | None,
        "the lead that these rounds show in about 80 % of simulated campaigns with this noise and "
        "with rivals close behind (in 54 to 97 % with uneven noise): 0.25 is 25 %",
    ]
    rounds_for_10_percent: Annotated[
        int | None, "rounds that show a lead of 10 % so; null above 1,000"
    ]
    baseline: Annotated[MeasuredCell, "the cell that scores and ratios relate to"]
    host_disk: Annotated[HostDisk, "the host's disk in a power cut, as --disk says"]
    roles: Annotated[RoleSet | None, "for scores: which measure played which role"]
    rates: Annotated[tuple[MeasureKey, ...], "for `overall_ratio`: the measures whose mean it is"]
    cells: tuple[RankedCell, ...]
    rounds: Annotated[int, "in which at least one run succeeded, or hosts"]
    findings: Annotated[tuple[Diagnostic, ...], "failed cells, page cache, missing scores and more"]
    hosts: Annotated[OverHosts | None, "with --hosts; rounds are hosts then"] = None


def rank_cells(analysis: Analysis, metric: str = DEFAULT_METRIC) -> RankAnswer:
    """Ranks the cells by a score or a measure. Raises PlanError for an unknown one."""
    measure = analysis.measure(metric)
    shown = analysis.shown_with(metric, measure)
    ranking, best = analysis.ranking(measure), analysis.ranking(measure).best
    scored = analysis.scored
    return RankAnswer(
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        ranking=ranking,
        choice=choose(analysis, measure),
        quantity=measure.quantity,
        inconclusive=ranking.inconclusive,
        competitors=None if best is None else best.competitors,
        shows=None if best is None else best.shows,
        rounds_for_10_percent=None if best is None else best.rounds_for(0.1),
        baseline=analysis.baseline,
        host_disk=analysis.verdicts.disk,
        roles=scored.roles if measure.name == "score" else None,
        rates=scored.rates if measure == scored.overall else (),
        cells=tuple(_ranked_cells(analysis, measure, shown)),
        rounds=analysis.rounds,
        findings=analysis.findings(measure, shown),
        hosts=_over_hosts(analysis, ranking) if isinstance(analysis, HostsAnalysis) else None,
    )


def _over_hosts(analysis: HostsAnalysis, ranking: Ranking) -> OverHosts:
    order = [row.cell for row in ranking.rows]
    usable = candidates(analysis.observations.cells)
    paths = [cell for cell in order if cell in usable]
    return analysis.over_hosts(ranking.measure, order[:2], paths if paths[1:] else ())


def the_best(answer: RankAnswer, top: int | None) -> RankAnswer:
    """The answer with its first cells only; all for None."""
    return replace(answer, cells=answer.cells[:top])


def _ranked_cells(
    analysis: Analysis, measure: MeasureKey, shown: tuple[MeasureKey, ...]
) -> list[RankedCell]:
    ranking = analysis.ranking(measure)
    summaries = {key: analysis.summaries(key) for key in shown}
    ratios = analysis.ratios(measure)
    used = analysis.measurements_used(measure)
    every = analysis.observations.cells
    competing = {every[at] for at in competitors(every).tolist()}
    cached = {(one.cell, one.direction) for one in analysis.cached if one.measurement in used}
    places: tuple[Ranked | WithoutRank, ...] = (*ranking.rows, *ranking.unranked)
    over_hosts = analysis.by_cell(measure) if isinstance(analysis, HostsAnalysis) else {}
    return [
        RankedCell(
            cell=place.cell,
            place=place,
            medians={key: of[place.cell] for key, of in summaries.items() if place.cell in of},
            ratio=ratios.get(place.cell, Ratio(0)),
            competes=place.cell in competing,
            from_page_cache=tuple(
                direction
                for direction in (Direction.READ, Direction.WRITE)
                if (place.cell, direction) in cached
            ),
            power_cut=known_durability(place.cell, analysis.verdicts),
            hosts=over_hosts.get(place.cell),
        )
        for place in places
    ]

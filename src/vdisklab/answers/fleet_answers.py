"""One answer from many hosts: `--hosts` of `rank`, `compare`, `recommend` and `claims`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab.analysis.candidates import candidates, simplest
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.claimfile import ClaimFile
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.fleet.agreement import Agreement, agreement
from vdisklab.analysis.fleet.host_means import fleet_numbers, of_hosts
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS, may_be_best, rank_over_hosts
from vdisklab.analysis.observations import MeasureKey, narrowed
from vdisklab.analysis.paired_ratios import Comparison, compare_cells
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.claims import JudgedClaim, evaluate_claims
from vdisklab.answers.compare import match_cells
from vdisklab.answers.hosts import HostsAnalysis, OverHosts
from vdisklab.answers.loading import load_chosen
from vdisklab.answers.recommend import none_meets, weighted
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import CrashVerdicts, Durability, durability
from vdisklab.path.needs import Need, meets
from vdisklab.plan.settings import Request


@dataclass(frozen=True, slots=True, eq=False)
class FleetComparison:
    """Two cells over hosts: all measures, who agrees in the main ones, and each class's ratio."""

    fleet: HostsAnalysis
    caveats: Caveats
    a: MeasuredCell
    b: MeasuredCell
    comparisons: tuple[Comparison, ...]
    agreements: Mapping[MeasureKey, Agreement]
    by_class: Mapping[str, Agreement]


@dataclass(frozen=True, slots=True, eq=False)
class FleetRecommendation:
    """The path for the fleet: the simplest of `ties`, which may all be the best over hosts.

    `over` compares it with the next ones. `excluded` counts the paths that each need rules out.
    """

    fleet: HostsAnalysis
    caveats: Caveats
    measure: MeasureKey
    needs: tuple[Need, ...]
    cell: MeasuredCell
    ties: tuple[MeasuredCell, ...]
    considered: int
    excluded: Mapping[Need, int]
    ranking: Ranking
    over: tuple[Agreement, ...]
    durability: Mapping[MeasuredCell, Durability]
    hosts: OverHosts


@dataclass(frozen=True, slots=True)
class FleetClaim:
    """One claim on each host: the names of the hosts by status."""

    claim: JudgedClaim
    hosts: Mapping[ClaimStatus, tuple[str, ...]]


def answer_fleet_comparisons(fleet: HostsAnalysis, a: str, b: str) -> tuple[FleetComparison, ...]:
    """One answer for each pair of cells. Raises PlanError for a path that was not measured."""
    pairs = match_cells(fleet.loaded.observations, a, b)
    numbers = fleet_numbers(fleet.observations, fleet.host_of, fleet.observations.used)
    caveats = fleet.loaded.caveats
    answers = []
    for first, second in pairs:
        comparisons = compare_cells(numbers.means, first, second)
        if not comparisons:
            raise PlanError(
                f"no host measured both {first} and {second}",
                hint="compare paths of one plan: `vdisklab rank --hosts all`",
            )
        main = [entry.measure for entry in comparisons if entry.main]
        agreements = {key: agreement(numbers, key, first, second) for key in main}
        key = comparisons[0].measure
        answers.append(
            FleetComparison(
                fleet=fleet,
                caveats=caveats,
                a=first,
                b=second,
                comparisons=comparisons,
                agreements=agreements,
                by_class={
                    name: agreement(
                        replace(numbers, means=of_hosts(numbers.means, members)), key, first, second
                    )
                    for name, members in fleet.members.items()
                }
                if fleet.varying
                else {},
            )
        )
    return tuple(answers)


def answer_fleet_recommendation(
    fleet: HostsAnalysis, needs: tuple[Need, ...], weights: str | None = None
) -> FleetRecommendation:
    """The path for all hosts that meets all needs. Raises PlanError if there is none."""
    observations, measure, _ = weighted(fleet, weights)
    numbers = fleet.numbers(measure, observations)
    paths = candidates(numbers.means.cells)
    verdicts = fleet.verdicts
    met = {need: {c for c, path in paths.items() if meets(path, need, verdicts)} for need in needs}
    qualified = [cell for cell in paths if all(cell in cells for cells in met.values())]
    ranking = rank_over_hosts(narrowed(numbers.means, qualified), measure)
    ties = may_be_best(ranking)
    chosen = simplest(ties)
    if chosen is None:
        raise _nothing_for_all(fleet, paths.values(), needs, verdicts)
    order = [row.cell for row in ranking.rows]
    return FleetRecommendation(
        fleet=fleet,
        caveats=fleet.loaded.caveats,
        measure=measure,
        needs=needs,
        cell=chosen,
        ties=ties if len(ties) > 1 else (),
        considered=len(paths),
        excluded={need: len(paths) - len(cells) for need, cells in met.items()},
        ranking=ranking,
        over=tuple(
            agreement(numbers, measure, chosen, cell) for cell in order[:6] if cell != chosen
        ),
        durability={cell: durability(paths[cell], verdicts) for cell in order},
        hosts=fleet.over_hosts(
            numbers, measure, (chosen, *(c for c in order[:6] if c != chosen)), order, chosen
        ),
    )


def answer_fleet_claims(
    fleet: HostsAnalysis, files: Sequence[ClaimFile], requested: Request
) -> tuple[FleetClaim, ...]:
    """Every claim, judged on each host by its own rounds."""
    by_claim: dict[tuple[str, str], tuple[JudgedClaim, dict[ClaimStatus, list[str]]]] = {}
    for host in fleet.hosts:
        campaigns = tuple(c for c in fleet.campaigns if c.id in host.campaigns)
        answer = evaluate_claims(load_chosen(fleet.results, campaigns), files, requested)
        for claim in answer.claims:
            hosts = by_claim.setdefault((claim.article, claim.claim), (claim, {}))[1]
            hosts.setdefault(claim.status, []).append(host.name)
    return tuple(
        FleetClaim(claim, {kind: tuple(names) for kind, names in hosts.items()})
        for claim, hosts in by_claim.values()
    )


def _nothing_for_all(
    fleet: HostsAnalysis,
    paths: Collection[DiskPath],
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
) -> PlanError:
    """Why no path is recommended for these hosts, and what to do."""
    if len(fleet.hosts) < MIN_HOSTS:
        return PlanError(
            f"a recommendation for a fleet needs {MIN_HOSTS} hosts, and {len(fleet.hosts)} have "
            "results of this plan",
            hint="measure more hosts, or leave out --hosts for the answer of one",
        )
    refusal = none_meets(paths, needs, verdicts) if paths else None
    meeting = f" and that meets {' and '.join(map(str, needs))}" if needs else ""
    return refusal or PlanError(
        f"no path that a guest could use{meeting} was measured on {MIN_HOSTS} hosts",
        hint="run the same command on every host: `vdisklab run PATHS… --db postgresql://…`",
    )

"""One answer from many hosts: `--hosts` of `rank`, `compare`, `recommend` and `claims`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vdisklab.analysis.candidates import candidates, simplest
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.claimfile import Claim, ClaimFile
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.ranked import NoBaseline
from vdisklab.analysis.fleet.agreement import Agreement, agreement
from vdisklab.analysis.fleet.host_classes import BetterPath, better_paths, profiles_differ
from vdisklab.analysis.fleet.host_means import FleetNumbers, fleet_numbers, of_hosts
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS, may_be_best, rank_over_hosts
from vdisklab.analysis.fleet.outlier_hosts import OutlierSearch, find_outliers
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Comparison, compare_cells, holm, main_measures
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.score import add_scores
from vdisklab.answers.advice import DEFAULT_METRIC, criterion, match_cells, none_meets, weighted
from vdisklab.answers.claim_answers import evaluate_claims, status
from vdisklab.answers.fleet_hosts import LoadedFleet
from vdisklab.answers.loading import baseline_of, load_chosen, verdicts_of
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import Durability, HostDisk, Verdicts, durability
from vdisklab.path.needs import Need, meets
from vdisklab.plan.settings import Request
from vdisklab.results.model import Better
from vdisklab.results.store import Store

MIN_CLASS = MIN_HOSTS
"""Hosts of a class that get an answer of their own."""


@dataclass(frozen=True, slots=True)
class FactTest:
    """Do paths compare differently on hosts that differ in a fact?

    `hosts` counts the hosts by value; `p` is corrected for the facts that vary (Holm), None if it
    cannot be tested.
    """

    fact: str
    hosts: Mapping[str, int]
    p: float | None


@dataclass(frozen=True, slots=True)
class HostClass:
    """Hosts with equal facts, and their own answer.

    `cell` is the path to use there, None for fewer than three hosts; `ties` may be the best there,
    too. `better` are the paths that are shown to beat the fleet's path in this class.
    """

    name: str
    hosts: tuple[str, ...]
    cell: MeasuredCell | None
    ties: tuple[MeasuredCell, ...]
    better: tuple[BetterPath, ...]


@dataclass(frozen=True, slots=True)
class ClassAnswer:
    """The tests of single facts, and the classes by all facts that vary; none if all are alike."""

    tests: tuple[FactTest, ...] = ()
    classes: tuple[HostClass, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FleetRanking:
    """The ranking over hosts, with what must be known about the hosts.

    `agreements` compare each cell with the baseline, `first` the leader with the second.
    `best_on` counts the hosts on which a cell has the best value of all. `missing` says why there
    are no scores.
    """

    fleet: LoadedFleet
    caveats: Caveats
    ranking: Ranking
    baseline: MeasuredCell
    missing: tuple[NoBaseline, ...]
    rates: tuple[MeasureKey, ...]
    agreements: Mapping[MeasuredCell, Agreement]
    best_on: Mapping[MeasuredCell, int]
    first: Agreement | None
    outliers: OutlierSearch
    classes: ClassAnswer
    top: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FleetComparison:
    """Two cells over hosts: all measures, who agrees in the main ones, and each class's ratio."""

    fleet: LoadedFleet
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

    fleet: LoadedFleet
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
    outliers: OutlierSearch
    classes: ClassAnswer


@dataclass(frozen=True, slots=True)
class FleetClaim:
    """One claim on each host: the names of the hosts by status."""

    claim: Claim
    hosts: Mapping[ClaimStatus, tuple[str, ...]]


def answer_fleet_ranking(
    fleet: LoadedFleet, metric: str = DEFAULT_METRIC, baseline: str | None = None
) -> FleetRanking:
    """Ranks the cells over hosts. Raises PlanError for an unknown metric or baseline."""
    chosen, missing = baseline_of(fleet.loaded, baseline)
    scored = add_scores(fleet.loaded.observations, chosen)
    measure = criterion(scored, metric)
    numbers = _numbers(fleet, scored.observations, measure)
    base = scored.baseline
    ranking = rank_over_hosts(numbers.means, measure)
    order = [row.cell for row in ranking.rows]
    agreements = (
        {cell: agreement(numbers, measure, cell, base) for cell in order if cell != base}
        if base in numbers.means.place
        else {}
    )
    competing = candidates(numbers.means.cells)
    paths = [cell for cell in order if cell in competing]
    return FleetRanking(
        fleet=fleet,
        caveats=fleet.loaded.caveats,
        ranking=ranking,
        baseline=base,
        missing=missing if measure == scored.overall else (),
        rates=scored.rates if measure == scored.overall else (),
        agreements=agreements,
        best_on=_best_on(numbers.means, measure, order),
        first=agreement(numbers, measure, order[0], order[1]) if len(order) > 1 else None,
        outliers=_outliers(fleet, numbers.means),
        classes=_classes(fleet, numbers.means, measure, paths) if len(paths) > 1 else ClassAnswer(),
    )


def answer_fleet_comparisons(fleet: LoadedFleet, a: str, b: str) -> tuple[FleetComparison, ...]:
    """One answer for each pair of cells. Raises PlanError for a path that was not measured."""
    pairs = match_cells(fleet.loaded.observations, a, b)
    scored = add_scores(fleet.loaded.observations, baseline_of(fleet.loaded)[0])
    numbers = fleet_numbers(scored.observations, fleet.host_of, scored.observations.used)
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
                    for name, members in _members(fleet).items()
                }
                if fleet.varying
                else {},
            )
        )
    return tuple(answers)


def answer_fleet_recommendation(
    results: Store,
    fleet: LoadedFleet,
    needs: tuple[Need, ...],
    weights: str | None = None,
    disk: HostDisk | None = None,
) -> FleetRecommendation:
    """The path for all hosts that meets all needs. Raises PlanError if there is none."""
    scored = add_scores(fleet.loaded.observations, baseline_of(fleet.loaded)[0])
    observations, measure, _ = weighted(scored, weights)
    numbers = _numbers(fleet, observations, measure)
    paths = candidates(numbers.means.cells)
    verdicts = fleet_verdicts(results, fleet, disk)
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
        outliers=_outliers(fleet, numbers.means),
        classes=_classes(fleet, numbers.means, measure, order, chosen),
    )


def answer_fleet_claims(
    results: Store, fleet: LoadedFleet, files: Sequence[ClaimFile], requested: Request
) -> tuple[FleetClaim, ...]:
    """Every claim, judged on each host by its own rounds."""
    by_claim: dict[tuple[str, str], tuple[Claim, dict[ClaimStatus, list[str]]]] = {}
    for host in fleet.hosts:
        answer = evaluate_claims(load_chosen(results, host.campaigns), files, requested)
        for entry in answer.answers:
            key = (entry.claim.article, entry.claim.name)
            hosts = by_claim.setdefault(key, (entry.claim, {}))[1]
            hosts.setdefault(status(entry), []).append(host.name)
    return tuple(
        FleetClaim(claim, {kind: tuple(names) for kind, names in hosts.items()})
        for claim, hosts in by_claim.values()
    )


def fleet_verdicts(results: Store, fleet: LoadedFleet, disk: HostDisk | None) -> Verdicts:
    """The power-cut verdicts of all hosts together: what one host lost counts for all."""
    machines = {campaign.host.machine_id: campaign.host for campaign in fleet.loaded.campaigns}
    cuts = [
        cut
        for cut in results.power_cuts()
        if (host := machines.get(cut.host.machine_id)) is not None and cut.applies_to(host)
    ]
    zfs_fuse = any(host.has_zfs_fuse for host in machines.values())
    return verdicts_of(cuts, disk or HostDisk.VOLATILE, zfs_fuse=zfs_fuse)


def _numbers(fleet: LoadedFleet, observations: Observations, measure: MeasureKey) -> FleetNumbers:
    """The host means of the deciding measure and of the rates."""
    return fleet_numbers(observations, fleet.host_of, dict.fromkeys((measure, *_rates(fleet))))


def _rates(fleet: LoadedFleet) -> list[MeasureKey]:
    """The rate of each measurement, in which hosts are compared with each other."""
    return sorted(main_measures(fleet.loaded.observations.used))


def _outliers(fleet: LoadedFleet, means: Observations) -> OutlierSearch:
    return find_outliers(means, _rates(fleet), fleet.peers)


def _best_on(
    means: Observations, measure: MeasureKey, cells: Sequence[MeasuredCell]
) -> dict[MeasuredCell, int]:
    """On how many hosts each cell has the best mean of all."""
    logs = means.ranked_logs(measure)[[means.place[cell] for cell in cells]]
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    higher = measure.quantity.better is Better.HIGHER
    leader = np.nanargmax(logs if higher else -logs, axis=0) if logs.size else []
    counts = Counter(cells[place] for place in np.asarray(leader).tolist())
    return {cell: counts[cell] for cell in cells}


def _members(fleet: LoadedFleet) -> dict[str, list[str]]:
    """The hosts of each class by all facts that vary."""
    members: dict[str, list[str]] = {}
    for host, name in fleet.class_names(fleet.varying).items():
        members.setdefault(name, []).append(host)
    return dict(sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))


def _classes(
    fleet: LoadedFleet,
    means: Observations,
    measure: MeasureKey,
    cells: Sequence[MeasuredCell],
    chosen: MeasuredCell | None = None,
) -> ClassAnswer:
    """The tests and the classes; `chosen` is the fleet's path, None: the first of the cells."""
    if not fleet.varying:
        return ClassAnswer()
    fleet_path = chosen or cells[0]
    names = fleet.class_names(fleet.varying)
    better = better_paths(means, measure, names, cells, chosen=fleet_path)
    return ClassAnswer(
        tests=_fact_tests(fleet, means, measure, cells),
        classes=tuple(
            _class(narrowed(means, cells), measure, name, hosts, better.get(name, ()))
            for name, hosts in _members(fleet).items()
        ),
    )


def _class(
    means: Observations,
    measure: MeasureKey,
    name: str,
    hosts: Sequence[str],
    better: tuple[BetterPath, ...],
) -> HostClass:
    ties = may_be_best(rank_over_hosts(of_hosts(means, hosts), measure))
    ties = ties if len(hosts) >= MIN_CLASS else ()
    return HostClass(name, tuple(hosts), simplest(ties), ties if len(ties) > 1 else (), better)


def _fact_tests(
    fleet: LoadedFleet,
    means: Observations,
    measure: MeasureKey,
    cells: Sequence[MeasuredCell],
) -> tuple[FactTest, ...]:
    p = np.array(
        [
            profiles_differ(means, measure, fleet.class_names((fact,)), cells) or np.nan
            for fact in fleet.varying
        ]
    )
    tested = np.isfinite(p)
    p[tested] = holm(p[tested])
    return tuple(
        FactTest(
            fact,
            Counter(host.facts.get(fact, "unknown") for host in fleet.hosts),
            float(chance) if sure else None,
        )
        for fact, chance, sure in zip(fleet.varying, p, tested, strict=True)
    )


def _nothing_for_all(
    fleet: LoadedFleet, paths: Collection[DiskPath], needs: Sequence[Need], verdicts: Verdicts
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

"""Answers over hosts (`--hosts`): an Analysis whose rounds are hosts, and facts about hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Self

import numpy as np

from vdisklab.analysis.candidates import RankedBy, ratio_of
from vdisklab.analysis.diagnostics import recorded
from vdisklab.analysis.diagnostics.baseline import MiddleBaseline, NoBaseline
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.fleet.agreement import Agreement, agreement
from vdisklab.analysis.fleet.host_apart import HostApart, hosts_apart
from vdisklab.analysis.fleet.host_classes import BetterPath, better_paths, profiles_differ
from vdisklab.analysis.fleet.host_means import FleetNumbers, fleet_numbers, of_hosts, units_of
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS, may_be_best, rank_over_hosts, to_use
from vdisklab.analysis.fleet.outlier_hosts import OutlierSearch, find_outliers
from vdisklab.analysis.observations import MeasureKey, Observations, narrowed
from vdisklab.analysis.paired_ratios import Ratio, holm, main_measures
from vdisklab.answers import loading
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.joining import Joining, require_joined, require_one_accelerator, separate
from vdisklab.documents import Probability
from vdisklab.errors import DatabaseError, PlanError, SeparateCampaignsError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.results.host_choice import by_host, chosen_hosts
from vdisklab.results.model import Better, Campaign, HostFacts
from vdisklab.results.store import Store
from vdisklab.value import Value, replace

CLASS_FACTS = ("cpu", "medium", "kernel", "qemu")
"""The facts that make hosts comparable; hosts with equal values are peers."""

SHARED_FACTS = ("rack", "array")
"""Hosts with the same rack or the same array share hardware, so they are not independent."""

MIN_CLASS = MIN_HOSTS
"""Hosts of a class that get an answer of their own."""

_UNKNOWN = "unknown"


class MeasuredHost(Value):
    """One machine with its campaigns and facts."""

    name: Annotated[str, "with the machine's id where two machines have one name"]
    facts: Mapping[str, str]
    campaigns: Annotated[tuple[str, ...], "ids"]

    @property
    def kind(self) -> tuple[str, ...]:
        """The values of `CLASS_FACTS`."""
        return tuple(self.facts.get(fact, _UNKNOWN) for fact in CLASS_FACTS)


def varying(hosts: Sequence[MeasuredHost]) -> tuple[str, ...]:
    """The facts in which some hosts differ."""
    return tuple(
        fact
        for place, fact in enumerate(CLASS_FACTS)
        if len({host.kind[place] for host in hosts}) > 1
    )


class FactTest(Value):
    """Do paths compare differently on hosts that differ in a fact?"""

    fact: str
    hosts: Annotated[Mapping[str, int], "by value"]
    p: Annotated[
        Probability | None, "corrected for the facts that vary (Holm); null: too few hosts"
    ]


class HostClass(Value):
    """Hosts with equal facts, and the path to use there."""

    name: Annotated[str, "the facts that vary in the fleet, with their values"]
    hosts: tuple[str, ...]
    cell: Annotated[MeasuredCell | None, "the leader there; null below 3 hosts"]
    ties: Annotated[tuple[MeasuredCell, ...], "paths that may be the best there"]
    better: Annotated[tuple[BetterPath, ...], "paths shown to beat the fleet's path there"]


class OverHosts(Value):
    """The facts about hosts in an answer from many hosts."""

    hosts: tuple[MeasuredHost, ...]
    left_out: Annotated[tuple[str, ...], "chosen hosts without numbers of this plan, and why"]
    groups: Annotated[
        int, "independent replications: hosts of one rack or array (facts of a host) count as one"
    ]
    first: Annotated[Agreement | None, "the leader, or the chosen path, against the next one"] = (
        None
    )
    outliers: Annotated[
        OutlierSearch | None, "null where hosts are not compared with each other"
    ] = None
    facts: Annotated[tuple[FactTest, ...], "the facts that vary"] = ()
    classes: Annotated[tuple[HostClass, ...], "by all facts that vary; empty if none does"] = ()
    apart: Annotated[
        tuple[HostApart, ...],
        "paths whose ratio to the baseline is alike on all hosts but one, the farthest first; "
        "without a test",
    ] = ()


class CellOverHosts(Value):
    """The hosts' results for one cell."""

    best_on: Annotated[int, "hosts on which it has the best value of all"]
    agreement: Annotated[
        Agreement | None, "with the baseline; null for that itself, and without a rank"
    ]


@dataclass(eq=False, kw_only=True)
class HostsAnalysis(Analysis):
    """Campaigns of one plan on several hosts: a host takes the place of a round."""

    hosts: tuple[MeasuredHost, ...]
    left_out: tuple[str, ...]
    _numbers: dict[MeasureKey, FleetNumbers] = field(default_factory=dict, init=False)
    _by_cell: dict[MeasureKey, Mapping[MeasuredCell, CellOverHosts]] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def ranked_by(self) -> RankedBy:
        """Over hosts."""
        return RankedBy(
            rank_over_hosts,
            may_be_best,
            to_use,
            # Each pair has its own noise over hosts, so nothing is shared (Bonferroni).
            lambda means, measure, cells: partial(
                ratio_of, means, measure, tests=max(1, len(cells) - 1)
            ),
            connects=False,
        ).once()

    @cached_property
    def _base(self) -> tuple[MeasuredCell, tuple[NoBaseline | MiddleBaseline, ...]]:
        """Without a baseline hosts are not compared: what is in the middle differs between them."""
        return loading.baseline_of(self.loaded, self.requested, middle=False)

    @property
    def unplanned_look(self) -> None:
        """Hosts are looked at as one."""

    @classmethod
    def of_hosts(
        cls,
        results: Store,
        wanted: Sequence[str],
        names: Sequence[str] | None = None,
        *,
        disk: HostDisk | None = None,
        baseline: str | None = None,
        unsafe: bool = False,
    ) -> Self:
        """The analysis of the chosen hosts: of each the newest campaign that can join the others.

        `wanted` has `all`, names of hosts, and conditions FACT=VALUE that a host must all meet. The
        newest campaign of all decides which plan and which accelerator is compared; `names` has the
        campaigns to use instead. Raises PlanError for an unknown host or fact, for a single host,
        and if the newest campaign ran under two accelerators; DatabaseError for an empty database.
        """
        campaigns = [results.campaign(name) for name in names] if names else []
        campaigns = campaigns or list(results.campaigns(with_runs=True))
        if not campaigns:
            raise DatabaseError(
                "the database holds no campaign with results",
                hint="measure something on each host: `vdisklab run PATHS… --db postgresql://…`",
            )
        grouped, media = by_host(campaigns), results.media()
        facts = {
            name: facts_of(group[0].host, media.get(group[0].id)) for name, group in grouped.items()
        }
        named = frozenset(chosen_hosts(wanted, facts, with_results=True))
        joined, left_out = _joined(
            results,
            {name: group for name, group in grouped.items() if name in named},
            all_must_join=bool(names),
        )
        loaded = loading.load_chosen(results, tuple(c for group in joined.values() for c in group))
        loading.require_numbers(loaded)
        with_numbers = {round.campaign for round in loaded.observations.rounds}
        hosts = []
        for name, group in sorted(joined.items()):
            host = MeasuredHost(name, facts[name], tuple(campaign.id for campaign in group))
            if with_numbers.isdisjoint(host.campaigns):
                left_out.append(f"{name}: no run of {host.campaigns[0]} has numbers")
            else:
                hosts.append(host)
        if len(hosts) < 2:
            chosen = [each for name in grouped if name in named for each in grouped[name]]
            raise _one_host(results, hosts[0], chosen, left_out)
        return cls(
            results, loaded, disk, baseline, unsafe, hosts=tuple(hosts), left_out=tuple(left_out)
        )

    @property
    def rounds(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    @property
    def host_of(self) -> dict[str, str]:
        """The host's name by campaign."""
        return {campaign: host.name for host in self.hosts for campaign in host.campaigns}

    @cached_property
    def unit_of(self) -> Mapping[str, str]:
        """The group of each host: hosts that share a rack or an array, however indirectly."""
        unit = {host.name: host.name for host in self.hosts}
        for fact in SHARED_FACTS:
            first: dict[str, str] = {}
            for host in self.hosts:
                value = host.facts.get(fact)
                if value is not None:
                    old, new = unit[host.name], unit[first.setdefault(value, host.name)]
                    unit = {name: new if of == old else of for name, of in unit.items()}
        return unit

    @property
    def varying(self) -> tuple[str, ...]:
        """The facts in which the hosts differ."""
        return varying(self.hosts)

    @property
    def members(self) -> dict[str, list[str]]:
        """The hosts of each class by all facts that vary, large classes first."""
        members: dict[str, list[str]] = {}
        for host, name in self._class_names(self.varying).items():
            members.setdefault(name, []).append(host)
        return dict(sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))

    @cached_property
    def verdicts(self) -> CrashVerdicts:
        """The power-cut verdicts of all hosts together: what one host lost counts for all, and
        where a path was cut is said."""
        machines = {campaign.host.machine_id: campaign.host for campaign in self.campaigns}
        names = {
            campaign.host.machine_id: self.host_of.get(campaign.id, campaign.host.hostname)
            for campaign in self.campaigns
        }
        cuts = [
            cut
            for cut in self.results.power_cuts()
            if (host := machines.get(cut.host.machine_id)) is not None and cut.applies_to(host)
        ]
        disk, hosts = self.disk or HostDisk.VOLATILE, dict[str, tuple[str, ...]]()
        for machine, name in names.items():
            of_host = (cut for cut in cuts if cut.host.machine_id == machine)
            for path in loading.verdicts_of(of_host, disk).by_path:
                hosts[path] = (*hosts.get(path, ()), name)
        verdicts = replace(loading.verdicts_of(cuts, disk, machines.values()), hosts=hosts)
        verdicts = loading.with_stored_servers(verdicts, self.results, self.loaded)
        return replace(verdicts, stalls=self.stalls)

    @cached_property
    def evidence(self) -> tuple[Diagnostic, ...]:
        """Diagnostics from the counters of all hosts together; their clocks are not asked."""
        reported = {(key.name, key.direction) for key in self.loaded.observations.used}
        return recorded.evidence_diagnostics(self.sums, (), self.loaded.cells, reported, None)

    def numbers(self, measure: MeasureKey, scored: Observations | None = None) -> FleetNumbers:
        """The host means of a measure and of the rates; `scored` has it if it is a weighted one."""
        if measure not in self._numbers:
            self._numbers[measure] = fleet_numbers(
                scored or self.observations,
                self.host_of,
                dict.fromkeys((measure, *self.rates)),
                self.unit_of,
            )
        return self._numbers[measure]

    @property
    def rates(self) -> list[MeasureKey]:
        """Each measurement's main rate, by which hosts are compared."""
        return sorted(main_measures(self.loaded.observations.used))

    @cached_property
    def all_numbers(self) -> FleetNumbers:
        """The host means of all measures."""
        measures = self.observations.used
        numbers = fleet_numbers(self.observations, self.host_of, measures, self.unit_of)
        self._numbers.update(dict.fromkeys(measures, numbers))
        return numbers

    @property
    def all_values(self) -> Observations:
        """The numbers in which cells are compared: a mean for each host or group of hosts."""
        return self.all_numbers.units

    def values(self, measure: MeasureKey, observations: Observations | None = None) -> Observations:
        """The same, at least for a measure; `observations` have it if it is a weighted one."""
        return self.numbers(measure, observations).units

    def shown_with(self, metric: str, measure: MeasureKey) -> tuple[MeasureKey, ...]:
        """The ranked measure alone."""
        del metric
        return (measure,)

    def ratios(self, measure: MeasureKey) -> dict[MeasuredCell, Ratio]:
        """Each ranked cell's ratio to the baseline, of the mean host."""
        pairs = {
            cell: over.agreement.ratio
            for cell, over in self.by_cell(measure).items()
            if over.agreement is not None
        }
        return {**pairs, self.baseline: Ratio(0, 1.0)}

    def findings(
        self, measure: MeasureKey, shown: Collection[MeasureKey]
    ) -> tuple[Diagnostic, ...]:
        """Caveats, and why there is no score."""
        del shown
        missing = self.no_baseline if measure == self.scored.overall else ()
        return (*self.caveats.findings, *missing)

    def by_cell(self, measure: MeasureKey) -> Mapping[MeasuredCell, CellOverHosts]:
        """The hosts' results for each ranked cell."""
        if measure not in self._by_cell:
            numbers = self.numbers(measure)
            ranking = self.ranking(measure)
            order = [row.cell for row in ranking.rows]
            best_on = _best_on(numbers.means, measure, order)
            compared = self.baseline in numbers.means.place
            beside = [row.cell for row in ranking.unranked if row.reason.beside]
            self._by_cell[measure] = {
                cell: CellOverHosts(
                    best_on.get(cell, 0),
                    agreement(numbers, measure, cell, self.baseline)
                    if compared and cell != self.baseline
                    else None,
                )
                for cell in (*order, *beside)
            }
        return self._by_cell[measure]

    def analysis_alone(self, host: MeasuredHost) -> Analysis:
        """The analysis of a host alone, as its campaigns have it without `--hosts`."""
        return Analysis.of(
            self.results,
            host.campaigns,
            disk=self.disk,
            baseline=self.requested,
            unsafe=self.unsafe,
        )

    def own_rounds(self, host: MeasuredHost) -> Observations:
        """The numbers of a host's own rounds."""
        observations = self.observations
        inside = [round.campaign in host.campaigns for round in observations.rounds]
        columns = np.flatnonzero(inside)
        rows = np.isin(observations.round, columns)
        return replace(
            observations,
            cell=observations.cell[rows],
            round=np.searchsorted(columns, observations.round[rows]).astype(np.int32),
            measure=observations.measure[rows],
            value=observations.value[rows],
            rounds=tuple(observations.rounds[column] for column in columns),
            too_slow=(),
        )

    @property
    def named_hosts(self) -> OverHosts:
        """The hosts alone."""
        return OverHosts(self.hosts, self.left_out, self.groups)

    @property
    def groups(self) -> int:
        """Number of independent replications."""
        return len(set(self.unit_of.values()))

    def over_hosts(
        self,
        measure: MeasureKey,
        pair: Sequence[MeasuredCell],
        cells: Sequence[MeasuredCell],
        chosen: MeasuredCell | None = None,
    ) -> OverHosts:
        """The facts about hosts: do they agree on the `pair`, do classes need other paths?

        `chosen` is the cell for all hosts (None: the first of `cells`). There are no classes
        without cells.
        """
        numbers, classes = self.numbers(measure), self.varying and cells
        return OverHosts(
            hosts=self.hosts,
            left_out=self.left_out,
            groups=self.groups,
            first=agreement(numbers, measure, pair[0], pair[1]) if len(pair) > 1 else None,
            outliers=find_outliers(numbers.means, self.rates, self._peers()),
            facts=self._fact_tests(numbers.means, measure, cells) if classes else (),
            classes=self._classes(numbers.means, measure, cells, chosen or cells[0])
            if classes
            else (),
            apart=hosts_apart(numbers.means, measure, self.baseline, cells),
        )

    def _peers(self) -> list[list[str]]:
        """The names of the hosts, grouped by equal facts."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for host in self.hosts:
            groups.setdefault(host.kind, []).append(host.name)
        return list(groups.values())

    def _class_names(self, facts: Sequence[str]) -> dict[str, str]:
        """The class of each host, named by some of its facts, such as `medium=SSD 840`."""
        return {
            host.name: ", ".join(f"{fact}={host.facts.get(fact, _UNKNOWN)}" for fact in facts)
            or "all hosts"
            for host in self.hosts
        }

    def _units(
        self, means: Observations, facts: Sequence[str]
    ) -> tuple[Observations, Mapping[str, str]]:
        """The independent replications within classes of hosts by facts, and their classes."""
        names = self._class_names(facts)
        unit_of = {host: f"{self.unit_of[host]} {name}" for host, name in names.items()}
        units = units_of(means, unit_of)
        return units, names | {unit_of[host]: name for host, name in names.items()}

    def _classes(
        self,
        means: Observations,
        measure: MeasureKey,
        cells: Sequence[MeasuredCell],
        chosen: MeasuredCell,
    ) -> tuple[HostClass, ...]:
        units, class_of = self._units(means, self.varying)
        better = better_paths(units, measure, class_of, cells, chosen=chosen)
        usable = narrowed(units, cells)
        classes = []
        for name, hosts in self.members.items():
            ties: tuple[MeasuredCell, ...] = ()
            inside = [round.campaign for round in units.rounds if class_of[round.campaign] == name]
            if len(inside) >= MIN_CLASS:
                ties = may_be_best(rank_over_hosts(of_hosts(usable, inside), measure))
            classes.append(
                HostClass(
                    name,
                    tuple(hosts),
                    ties[0] if ties else None,
                    ties if len(ties) > 1 else (),
                    better.get(name, ()),
                )
            )
        return tuple(classes)

    def _fact_tests(
        self, means: Observations, measure: MeasureKey, cells: Sequence[MeasuredCell]
    ) -> tuple[FactTest, ...]:
        p = np.array(
            [
                profiles_differ(units, measure, class_of, cells) or np.nan
                for units, class_of in (self._units(means, (fact,)) for fact in self.varying)
            ]
        )
        tested = np.isfinite(p)
        p[tested] = holm(p[tested])
        return tuple(
            FactTest(
                fact,
                Counter(host.facts.get(fact, _UNKNOWN) for host in self.hosts),
                float(chance) if sure else None,
            )
            for fact, chance, sure in zip(self.varying, p, tested, strict=True)
        )


def analysis_of(
    results: Store,
    names: Sequence[str] | None,
    hosts: Sequence[str] | None,
    *,
    disk: HostDisk | None = None,
    baseline: str | None = None,
    unsafe: bool = False,
    guests: int | None = None,
    fewest_disks: bool = False,
) -> Analysis:
    """The analysis of one machine's campaigns, or over `hosts` if these are named; of cells in any
    number of guests at once, or in `guests`. With `fewest_disks`, of disks that were made 1 and 10
    at once only those made alone, as `life` answers first.

    If neither hosts nor campaigns are named, the analysis knows how many hosts it leaves out.
    """
    analysis = (
        HostsAnalysis.of_hosts(results, hosts, names, disk=disk, baseline=baseline, unsafe=unsafe)
        if hosts
        else Analysis.of(results, names, disk=disk, baseline=baseline, unsafe=unsafe)
    )
    if fewest_disks and guests is None:
        analysis.disks_at_once = loading.disks_at_once(analysis.loaded)
        guests = next(iter(analysis.disks_at_once), None)
    analysis.loaded = loading.in_guests(analysis.loaded, guests)
    if not names and not hosts:
        found = by_host(list(results.campaigns(with_runs=True)))
        names_by_id = {each.id: name for name, group in found.items() for each in group}
        analysis.database_hosts = len(found)
        analysis.host_name = names_by_id.get(analysis.campaigns[0].id, "")
    return analysis


def _best_on(
    means: Observations, measure: MeasureKey, cells: Sequence[MeasuredCell]
) -> Mapping[MeasuredCell, int]:
    """On how many hosts each cell has the best mean of all."""
    logs = means.ranked_logs(measure)[[means.place[cell] for cell in cells]]
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    higher = measure.quantity.better is Better.HIGHER
    leader = np.nanargmax(logs if higher else -logs, axis=0) if logs.size else []
    return Counter(cells[place] for place in np.asarray(leader).tolist())


def _joined(
    results: Store, chosen: Mapping[str, Sequence[Campaign]], *, all_must_join: bool
) -> tuple[dict[str, list[Campaign]], list[str]]:
    """Each host's newest campaign that can join the others, and why other hosts have none.

    If `all_must_join`, all campaigns of each host; raises PlanError for one that does not.
    """
    reference = next(iter(chosen.values()))[0]
    require_one_accelerator(results, reference)
    if all_must_join:
        every = [campaign for campaigns in chosen.values() for campaign in campaigns]
        require_joined(results, every, machines=True)
    joining = Joining(results, reference, machines=True)
    joined: dict[str, list[Campaign]] = {}
    left_out: list[str] = []
    for name, campaigns in chosen.items():
        why = ""
        for campaign in campaigns:
            error = joining.add(campaign)
            if error is None:
                joined.setdefault(name, []).append(campaign)
                if not all_must_join:
                    break
            why = why or str(error)
        if name not in joined:
            left_out.append(f"{name}: {why}")
    return joined, left_out


def facts_of(host: HostFacts, medium: str | None) -> dict[str, str]:
    """The known facts of a host by name, as `--hosts FACT=VALUE` compares them."""
    facts = {
        "cpu": host.cpu,
        "kernel": host.kernel,
        "qemu": host.qemu,
        "fio": host.fio,
        "cpus": None if host.cpus is None else str(host.cpus),
        "medium": medium,
        **host.more,
    }
    return {name: value for name, value in facts.items() if value}


def _one_host(
    results: Store, host: MeasuredHost, chosen: Sequence[Campaign], left_out: Sequence[str]
) -> PlanError:
    """The error for one host alone, with the `chosen` campaigns that have an answer."""
    if left_out:
        newest_first = sorted(chosen, key=lambda each: each.started, reverse=True)
        over = separate(results, newest_first, "").over_hosts[:1]
        return SeparateCampaignsError(
            f"only {host.name} has numbers of this plan: {left_out[0]}",
            together=[[name] for name in _newest_of_hosts(newest_first)],
            over_hosts=[_newest_of_hosts(map(results.campaign, ids)) for ids in over],
        )
    return PlanError(
        f"{host.name} is the only host that matches",
        hint=f"for the answer of one host give --campaign {host.campaigns[0]} instead of --hosts; "
        "to compare hosts, store their results in one database and give --hosts all",
    )


def _newest_of_hosts(newest_first: Iterable[Campaign]) -> list[str]:
    """The id of each machine's newest campaign."""
    newest: dict[str, str] = {}
    for campaign in newest_first:
        newest.setdefault(campaign.host.machine_id, campaign.id)
    return list(newest.values())

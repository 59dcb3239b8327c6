"""The numbers of some campaigns, analysed once for all that a command says of them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

import numpy as np

from vdisklab.analysis.best import competitors
from vdisklab.analysis.candidates import OVER_ROUNDS, UNPLANNED_LOOK, RankedBy
from vdisklab.analysis.diagnostics import ranked, recorded, values
from vdisklab.analysis.diagnostics.baseline import MiddleBaseline, NoBaseline
from vdisklab.analysis.diagnostics.bursts import burst_diagnostics, unlasting_diagnostics
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, OfMeasurement
from vdisklab.analysis.diagnostics.idle import idle_diagnostics
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.paired_ratios import Ratio, against_baseline
from vdisklab.analysis.rank_intervals import Ranking, Unranked, WithoutRank
from vdisklab.analysis.score import DEFAULT_METRIC, MEAN, SCORES, Scored, add_scores
from vdisklab.analysis.summary import Summaries, levels, summarise
from vdisklab.answers import loading
from vdisklab.answers.elsewhere import host_elsewhere
from vdisklab.answers.measured_for import measured_operations, seconds_of_measurements
from vdisklab.errors import PlanError
from vdisklab.host.facts import machine_id
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import DURABLE, unmet
from vdisklab.path.stalls import MeasuredStalls
from vdisklab.results.model import Campaign, CellSums, Example, GateCount
from vdisklab.results.store import Store
from vdisklab.value import replace
from vdisklab.workload.builtin_profiles import builtin_profiles

if TYPE_CHECKING:
    from vdisklab.analysis.sums import RelativeSums


@dataclass(eq=False)
class Analysis:
    """Campaigns of one machine with all that is computed from them, each on its first use.

    `requested` is the baseline that the user named, None for the plan's. `disk` is what the host's
    disk keeps in a power cut. With `unsafe`, paths that lose flushed data compete, too. The
    database must stay open while something new is asked for.
    """

    results: Store
    loaded: loading.Loaded
    disk: HostDisk | None = None
    requested: str | None = None
    unsafe: bool = False
    stalls: MeasuredStalls = field(default_factory=MeasuredStalls, init=False)
    """Of operations, if a need goes by them; set before verdicts are asked for."""
    disks_at_once: tuple[int, ...] = field(default=(), init=False)
    """How many disks were made at once, if only the fewest of several numbers are looked at."""
    database_hosts: int = field(default=1, init=False)
    """Hosts in the database, if this is the answer of one because none was named."""
    host_name: str = field(default="", init=False)
    """What `--hosts` calls this host, if the database has others."""
    _summaries: dict[MeasureKey, Summaries] = field(default_factory=dict, init=False)
    _levels: dict[MeasureKey, Summaries] = field(default_factory=dict, init=False)
    _rankings: dict[MeasureKey, Ranking] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls,
        results: Store,
        names: Sequence[str] | None = None,
        *,
        disk: HostDisk | None = None,
        baseline: str | None = None,
        unsafe: bool = False,
    ) -> Self:
        """The analysis of the named campaigns, or of the newest, with older ones if it cannot
        compare two paths.

        Raises PlanError if they cannot be joined or hold no numbers, DatabaseError for an unknown
        campaign.
        """
        loaded = loading.load(results, names) if names else loading.load_newest(results)
        loading.require_numbers(loaded)
        return cls(results, loaded, disk, baseline, unsafe)

    @cached_property
    def ranked_by(self) -> RankedBy:
        """How cells are ranked: an unplanned look at a campaign has a smaller error."""
        usual = UNPLANNED_LOOK if self.unplanned_look else OVER_ROUNDS
        missed = [gate for gate in self.gates if not gate.only_said]
        return (usual.without(partial(self._gone, missed)) if missed else usual).once()

    def _gone(self, missed: Sequence[GateCount], measure: MeasureKey) -> set[MeasuredCell]:
        """The cells that missed a gate of a measurement from which the measure is computed."""
        used = self.measurements_used(measure)
        return {self.loaded.cells[gate.cell] for gate in missed if gate.measurement in used}

    @property
    def unplanned_look(self) -> ranked.UnplannedLook | None:
        """The warning that this look at the campaign was not planned; None for a planned one."""
        plan = self.campaigns[0].plan
        planned = None if "race" in plan else plan.get("rounds")
        has_planned = "race" in plan or isinstance(planned, int)
        if len(self.campaigns) > 1 or not has_planned or planned == self.rounds:
            return None
        return ranked.UnplannedLook(planned, self.rounds)

    @property
    def campaigns(self) -> tuple[Campaign, ...]:
        """The analysed campaigns."""
        return self.loaded.campaigns

    @property
    def rounds(self) -> int:
        """Number of rounds in which at least one run succeeded."""
        return self.loaded.rounds

    @cached_property
    def older_answer(self) -> str | None:
        """The id of another campaign of this host that compares paths; None without one."""
        found = loading.older_answer(self.results, self.campaigns[0], measured_operations)
        return None if found is None else found.id

    @property
    def caveats(self) -> Caveats:
        """Why the numbers do not measure this machine, or not all hosts of the database."""
        if self.only_of is None:
            return self.loaded.caveats
        return replace(self.loaded.caveats, only_of=self.only_of, of_hosts=self.database_hosts)

    @property
    def only_of(self) -> str | None:
        """The host whose answer this is, because no host was named of several; else None."""
        name = self.host_name or self.campaigns[0].host.hostname
        return name if self.database_hosts > 1 else None

    @property
    def run_on(self) -> str | None:
        """The host on which commands that measure more must run; None if that is this one."""
        if {campaign.host.machine_id for campaign in self.campaigns} == {machine_id()}:
            return None
        return self.only_of or host_elsewhere(self.campaigns)

    @cached_property
    def _base(
        self,
    ) -> tuple[MeasuredCell, tuple[NoBaseline | MiddleBaseline, ...]]:
        return loading.baseline_of(self.loaded, self.requested)

    @property
    def baseline(self) -> MeasuredCell:
        """The cell that scores and ratios relate to. Raises PlanError for an unknown one."""
        return self._base[0]

    @property
    def no_baseline(self) -> tuple[NoBaseline, ...]:
        """A diagnostic if the plan's baseline was not measured, and nothing stands for it."""
        return tuple(finding for finding in self._base[1] if isinstance(finding, NoBaseline))

    @property
    def names_baseline(self) -> bool:
        """True if the baseline is the one that was asked for, or the plan's, unless the plan was to
        have none: then the first path is a reference, and not what a user is said to have."""
        unnamed = self.requested is None and self.campaigns[0].plan.get("no_baseline")
        return not self._base[1] and not unnamed

    @cached_property
    def scored(self) -> Scored:
        """The observations with scores."""
        return add_scores(self.loaded.observations, self.baseline)

    @property
    def observations(self) -> Observations:
        """All numbers, with scores."""
        return self.scored.observations

    @cached_property
    def verdicts(self) -> CrashVerdicts:
        """What power cuts on this machine showed, and what servers said of flushes."""
        verdicts = loading.verdicts_of_loaded(self.results, self.loaded, self.disk)
        return replace(verdicts, stalls=self.stalls)

    @cached_property
    def on_servers(self) -> tuple[Diagnostic, ...]:
        """What a reader must know of numbers measured on servers; empty without servers."""
        if not self.loaded.on_targets:
            return ()
        # Imported late: most campaigns measured disks of the host itself.
        from vdisklab.analysis.diagnostics.servers import server_diagnostics  # noqa: PLC0415

        return server_diagnostics(self.examples, self.loaded.cells)

    @cached_property
    def sums(self) -> tuple[CellSums, ...]:
        """The counters of each cell and measurement, added up."""
        return tuple(self.results.sums(self.loaded.ids))

    @cached_property
    def relative_sums(self) -> Mapping[MeasuredCell, RelativeSums]:
        """The cost of a request on each cell: CPU time, flushes, bytes at the device."""
        # Imported late: a ranking does without it.
        from vdisklab.analysis.sums import relative_sums  # noqa: PLC0415

        return relative_sums(self.sums, self.loaded.cells)

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """One run of each cell, with its checks and commands."""
        return tuple(self.results.examples(self.loaded.ids))

    @cached_property
    def gates(self) -> tuple[GateCount, ...]:
        """The conditions that do not hold, without which numbers are not the disk's."""
        return tuple(self.results.gates_not_met(self.loaded.ids))

    @cached_property
    def evidence(self) -> tuple[Diagnostic, ...]:
        """Diagnostics from the counters and clocks recorded with the numbers."""
        return recorded.evidence_diagnostics(
            self.sums,
            self.results.times(self.loaded.ids),
            self.loaded.cells,
            {(measure.name, measure.direction) for measure in self.loaded.observations.used},
            self.campaigns[0].host.cpus or 1,
        )

    @cached_property
    def cached(self) -> tuple[recorded.FromPageCache, ...]:
        """The numbers that came from the host's page cache."""
        found = (
            finding for finding in self.evidence if isinstance(finding, recorded.FromPageCache)
        )
        marked = recorded.with_lasting(found, self.loaded.observations)
        seconds = seconds_of_measurements(self.campaigns)
        return tuple(replace(finding, runtime=seconds) for finding in marked)

    @cached_property
    def not_direct(self) -> tuple[recorded.NotDirect, ...]:
        """Cells that should bypass the page cache, on a ZFS that ignores O_DIRECT."""
        if not any("zfs" in cell.name for cell in self.loaded.cells.values()):
            return ()  # the database is not read
        return recorded.direct_diagnostics(self.examples, self.loaded.cells)

    @cached_property
    def all_may_be_dirty(self) -> tuple[recorded.AllMayBeDirty, ...]:
        """Cells whose bounded memory could be dirty as a whole."""
        if not any(campaign.plan.get("cache_memory") for campaign in self.campaigns):
            return ()  # the database is not read
        return recorded.dirty_diagnostics(self.examples, self.loaded.cells)

    @cached_property
    def failed(self) -> tuple[ranked.FailedCell, ...]:
        """The cells with failed rounds that no later run measured."""
        return ranked.failed_cells(self.loaded.outlines)

    @cached_property
    def dropped(self) -> frozenset[MeasuredCell]:
        """The cells that a search for the best left out of a round."""
        return ranked.dropped_by_search(self.loaded.outlines)

    def require_speed(self) -> None:
        """Raises PlanError for a campaign of operations: its load has a fixed rate."""
        ordered = next(filter(measured_operations, self.campaigns), None)
        if ordered is not None:
            older = self.older_answer
            raise no_speed(
                ordered, f"`vdisklab rank --campaign {older}` ranks paths" if older else ""
            )

    def measure(self, name: str = DEFAULT_METRIC) -> MeasureKey:
        """The measure of a name: overall, read, write, or a measure. Raises PlanError."""
        scored = self.scored
        if name not in SCORES:
            return loading.find_measure(scored.observations, name)
        if name == DEFAULT_METRIC and scored.overall is not None:
            return scored.overall
        if scored.roles is None:
            self.require_speed()
        if scored.roles is None:
            raise PlanError(
                self.why_no_score(name),
                hint=f"name a measure: `vdisklab rank --metric {self.example_measure}`",
            )
        return SCORES[name].key

    def shown_with(self, metric: str, measure: MeasureKey) -> tuple[MeasureKey, ...]:
        """The measures to show as columns of a ranking: beside a score those that it is made of."""
        roles = self.scored.roles
        if metric not in SCORES or roles is None:
            return (measure,)
        parts = [roles.measures[role] for role in SCORES[metric].roles]
        used = set(self.observations.used)
        return (*parts, measure) if used.issuperset(parts) else (measure,)

    @property
    def example_measure(self) -> str:
        """A measure that has numbers, as an option's value."""
        return shlex.quote(str(loading.first_measure(self.observations)))

    def why_no_score(self, metric: str) -> str:
        """Explains why the campaign has no score with this name."""
        if metric != DEFAULT_METRIC and self.scored.overall is not None:
            return f"this campaign's profile has no {metric} score, only the overall one"
        return (
            "this campaign has no scores: its profile has no rate, or the baseline "
            f"{self.baseline} was not measured"
        )

    @property
    def all_values(self) -> Observations:
        """The numbers in which cells are compared: those of each round."""
        return self.observations

    def values(self, measure: MeasureKey, observations: Observations | None = None) -> Observations:
        """The same, at least for a measure; `observations` have it if it is a weighted one."""
        del measure
        return self.observations if observations is None else observations

    @cached_property
    def measured(self) -> tuple[MeasuredCell, ...]:
        """The cells that a guest could use: no host, no null device, no warm page cache."""
        cells = self.observations.cells
        return tuple(cells[place] for place in competitors(cells).tolist())

    @cached_property
    def competing(self) -> tuple[MeasuredCell, ...]:
        """The measured cells that keep flushed data in a power cut; all if none, or `unsafe`."""
        durable = tuple(
            cell
            for cell in self.measured
            if self.unsafe or cell.path is None or not unmet(cell.path, (DURABLE,), self.verdicts)
        )
        return durable or self.measured

    def ranking(self, measure: MeasureKey) -> Ranking:
        """The competing cells ranked by a measure; the others have no rank."""
        if measure not in self._rankings:
            self._rankings[measure] = self._ranked(measure)
        return self._rankings[measure]

    def _ranked(self, measure: MeasureKey) -> Ranking:
        values = self.values(measure)
        ranking = self.ranked_by.among(values, measure, self.competing)
        counts = dict(
            zip(values.cells, np.isfinite(values.grid(measure)).sum(axis=1).tolist(), strict=True)
        )
        unranked = {row.cell for row in ranking.unranked}
        beside = tuple(
            WithoutRank(
                cell,
                counts[cell],
                Unranked.LOSES_DATA if cell in self.measured else Unranked.NOT_COMPETING,
            )
            for cell in values.cells
            if counts[cell] and cell not in self.competing and cell not in unranked
        )
        return replace(ranking, unranked=(*ranking.unranked, *beside))

    def levels(self, measure: MeasureKey) -> Summaries:
        """The number of each cell by which it is ranked, with its interval."""
        if measure not in self._levels:
            values = self.values(measure)
            self._levels[measure] = levels(values, measure, self.ranking(measure))
        return self._levels[measure]

    def summaries(self, measure: MeasureKey) -> Summaries:
        """The median of each cell that has the measure, with its interval."""
        if measure not in self._summaries:
            self._summaries[measure] = summarise(self.values(measure), measure)
        return self._summaries[measure]

    def ratios(self, measure: MeasureKey) -> dict[MeasuredCell, Ratio]:
        """Each cell's ratio to the baseline; exactly 1, without an interval, for the baseline."""
        ratios = against_baseline(self.observations, measure, self.baseline)
        return {**ratios, self.baseline: Ratio(0, 1.0)}

    def measurements_used(self, measure: MeasureKey) -> set[str]:
        """The names of the measurements from which the numbers of a measure are computed."""
        scored = self.scored
        if measure.name != "score":
            return {measure.name}
        if scored.roles is None or (measure == MEAN and scored.rates):
            return {key.name for key in scored.rates}
        return {key.name for key in scored.roles.measures.values()}

    def missing_scores(self, measure: MeasureKey) -> tuple[Diagnostic, ...]:
        """The cells without the ranked score; only the baseline if that is the cause."""
        missing = tuple(entry for entry in self.scored.missing if entry.key == measure)
        if missing and (missing[0].baseline_lacking or missing[0].baseline_zero):
            return tuple(score for score in missing if score.cell == self.baseline) or missing[:1]
        return missing

    def ranking_findings(self, ranking: Ranking) -> tuple[Diagnostic, ...]:
        """The diagnostics of a ranking itself."""
        alone = len(ranking.rows) < 2 and len(self.campaigns) == 1
        id = self.older_answer if alone else None
        older = () if id is None else (ranked.OlderAnswer(id),)
        look = self.unplanned_look if len(ranking.rows) > 1 else None
        used = self.measurements_used(ranking.measure)
        gates = [gate for gate in self.gates if gate.measurement in used]
        missed = ranked.gate_diagnostics(gates, self.loaded.cells)
        is_mean = ranking.measure.name == "score" and self.scored.rates
        lacking = ranked.lacking_measures(
            self.values(ranking.measure),
            ranking,
            self.scored.rates if is_mean else (ranking.measure,),
            MIN_ROUNDS,
        )
        found = (
            *missed,
            *ranked.ranking_diagnostics(ranking, MIN_ROUNDS, self.dropped, lacking),
            *(self._idle(ranking, used) if ranking.inconclusive else ()),
            *older,
            *(self._span() if len(ranking.rows) > 1 else ()),
        )
        return found if look is None else (look, *found)

    def _span(self) -> tuple[Diagnostic, ...]:
        """How long the rounds say nothing beyond; nothing of several campaigns, or of one that is
        being measured."""
        if len(self.campaigns) > 1 or self.loaded.measured_now is not None:
            return ()
        (campaign,), again = self.campaigns, None
        if self.run_on is None and campaign.plan.get("profile") in builtin_profiles():
            again = f"vdisklab run --again {campaign.id}"  # a profile of a file is not stored
        return ranked.span_diagnostics(campaign, self.loaded.outlines, self.run_on, again)

    def _idle(self, ranking: Ranking, used: Collection[str]) -> Iterable[Diagnostic]:
        fixed = any(recorded.has_open_load(campaign.plan) for campaign in self.campaigns)
        cells = [row.cell for row in ranking.rows]
        return idle_diagnostics(self.sums, self.loaded.cells, cells, used, fixed=fixed)

    def value_findings(
        self, shown: Collection[MeasureKey], measure: MeasureKey, cached: Iterable[MeasuredCell]
    ) -> Iterable[Diagnostic]:
        """Diagnostics from the values: drift, outlying first rounds, two modes, ceilings.

        `cached` are the cells whose numbers come from the page cache.
        """
        observations = self.observations
        yield from values.drift_diagnostics(observations, measure)
        yield from values.first_round_diagnostics(observations, measure)
        yield from values.lasting_diagnostics(observations, measure)
        for key in shown:
            yield from values.bimodal_diagnostics(observations, key)
        yield from values.ceiling_diagnostics(observations, measure, cached)
        yield from burst_diagnostics(observations, shown)
        yield from unlasting_diagnostics(observations, shown)

    def fewest_of_several(self, command: str) -> tuple[recorded.SeveralGuests, ...]:
        """The remark that only the fewest disks made at once are looked at; `command` and a number
        looks at others."""
        if not self.disks_at_once:
            return ()
        most = self.disks_at_once[-1]
        command = f"{command} --guests {most}"
        return (
            recorded.SeveralGuests(self.disks_at_once, disks=True, command=command, fewest=True),
        )

    def findings_of_runs(self) -> tuple[Diagnostic, ...]:
        """All that is to know about the runs themselves, whatever is compared; failures last."""
        return (
            *self.caveats.findings,
            *self.on_servers,
            *(
                finding
                for finding in self.evidence
                if not isinstance(finding, recorded.FromPageCache)
            ),
            *recorded.diagnostics_of_all(self.campaigns, self.loaded.observations),
            *self.not_direct,
            *self.all_may_be_dirty,
            *self.failed,
        )

    def findings(
        self, measure: MeasureKey, shown: Collection[MeasureKey]
    ) -> tuple[Diagnostic, ...]:
        """All that is to know about a ranking by a measure, the page cache and failures last."""
        return tuple(self._timed(self._findings(measure, shown)))

    def _timed(self, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
        """The findings; those of a measurement say how long it ran, which changes what it shows."""
        seconds = seconds_of_measurements(self.campaigns)
        for finding in findings:
            yield (
                replace(finding, runtime=seconds) if isinstance(finding, OfMeasurement) else finding
            )

    def _findings(
        self, measure: MeasureKey, shown: Collection[MeasureKey]
    ) -> tuple[Diagnostic, ...]:
        no_baseline = self.no_baseline
        used = self.measurements_used(measure)
        return (
            *self.caveats.findings,
            *self.on_servers,
            *(
                finding
                for finding in self._base[1]
                if not isinstance(finding, NoBaseline)
                or finding.instead is None
                or measure.name == "score"
            ),
            *(
                finding
                for finding in self.evidence
                if not isinstance(finding, recorded.FromPageCache)
            ),
            *recorded.diagnostics_of_all(self.campaigns, self.loaded.observations),
            *self.not_direct,
            *self.all_may_be_dirty,
            *self.value_findings(shown, measure, {finding.cell for finding in self.cached}),
            *self.ranking_findings(self.ranking(measure)),
            *(() if no_baseline or measure.name != "score" else self.missing_scores(measure)),
            *self.failed,
            *(finding for finding in self.cached if finding.measurement in used),
        )


def no_speed(campaign: Campaign, instead: str = "") -> PlanError:
    """The error for a campaign of operations, whose load has a fixed rate; `instead` says where a
    speed is to be had."""
    more = f"; {instead}" if instead else ""
    return PlanError(
        f"the campaign {campaign.id} measured what operations cost a guest, not how fast a path is",
        hint=f"`vdisklab during --campaign {campaign.id}` shows it{more}",
    )

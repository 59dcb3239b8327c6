"""`run --find best`: before each block, selects the cells that can still be the best."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
)
from vdisklab.analysis.score import ROLE_SETS, add_scores
from vdisklab.analysis.search import Ended, Outcome, Rules, goodness, next_cells, search_state
from vdisklab.campaign.estimate import campaign_seconds
from vdisklab.campaign.runner import Choose
from vdisklab.campaign.schedule import schedule
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.durability import Keeping, Verdicts, durability
from vdisklab.path.needs import Need, with_default
from vdisklab.path.segments import HOST
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.profile import Profile
from vdisklab.plan.run_request import DEFAULT_MARGIN, SEARCH_BLOCKS, RunRequest
from vdisklab.progress import DurablePaths, Progress
from vdisklab.results.model import METRICS, Campaign, Direction
from vdisklab.results.store import Store
from vdisklab.services.advice import DEFAULT_METRIC, SCORES
from vdisklab.services.answers import find_measure
from vdisklab.units import counted, format_duration
from vdisklab.workload.registry import directions_of


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of a search, and the amount of measuring for it."""

    outcome: Outcome
    runs: int
    cells: int
    blocks: int


@dataclass(frozen=True, slots=True)
class BestSearch:
    """A search for the best path by `metric`, among the paths that meet all needs.

    `budget` is in seconds from `began`; runs stored before an interruption count with their
    duration. The search ends after `most_blocks`.
    """

    rules: Rules
    most_blocks: int
    budget: float
    needs: tuple[Need, ...]
    metric: str
    began: float

    def narrow(self, plan: CampaignPlan, verdicts: Verdicts, progress: Progress) -> CampaignPlan:
        """The plan without paths that lack a need.

        Raises PlanError if no guest path is left, or if the search could not give an answer.
        """
        matrix = narrow_to_needs(Matrix(plan.cells, plan.dropped), self.needs, verdicts)
        plan = replace(plan, cells=matrix.cells, dropped=matrix.dropped)
        if any(need.goes_by_power_cuts for need in self.needs):
            progress(durable_paths(plan, verdicts))
        self.require(plan)
        return plan

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells to measure in each block.

        Only earlier blocks count, so an interrupted search continues in the same way: equal numbers
        select equal cells. The baseline and paths on the host are measured in every block, because
        scores relate to them.
        """
        before = sum(run.wall_seconds or 0.0 for run in results.outlines([campaign]))
        fingerprint = {cell.measured: cell.fingerprint for cell in plan.cells}
        always = {cell.fingerprint for cell in plan.cells if self._related_to(cell, plan)}

        def choose(block: int) -> Collection[str]:
            if block == 1:
                return set(fingerprint.values())
            cells, logs = self._goodness(results, campaign, block)
            if not len(cells):
                raise PlanError(
                    f"no guest path has the measure {self.metric!r} after block {block - 1}",
                    hint="see in `vdisklab rank` what failed, or choose another --metric",
                )
            runs = results.outlines([campaign])
            seconds_per_run = sum(run.wall_seconds or 0.0 for run in runs) / max(1, len(runs))
            spent = before + time.monotonic() - self.began
            affordable = (self.budget - spent) / seconds_per_run - len(always)
            rows = next_cells(search_state(logs, self.rules), affordable)
            chosen = {fingerprint[cells[row]] for row in rows}
            return chosen | always if chosen else chosen

        return choose

    def result(self, store: Store, campaign: str) -> SearchResult | None:
        """The answer of a finished search; None if nothing was measured in a guest."""
        outcome = self.outcome(store, campaign)
        if outcome is None:
            return None
        finished = store.finished(campaign)
        blocks = max((block for block, _ in finished), default=0)
        cells = len(store.campaign(campaign).plan["cells"])
        return SearchResult(outcome, len(finished), cells, blocks)

    def outcome(self, results: Store, campaign: str) -> Outcome | None:
        """The best cell after all measured blocks, and why the search ended.

        None if nothing was measured in a guest.
        """
        cells, logs = self._goodness(results, campaign, None)
        if not len(cells):
            return None
        state = search_state(logs, self.rules)
        blocks = int(np.isfinite(logs).any(axis=0).sum())
        return Outcome(
            best=cells[state.leader],
            as_good=tuple(cells[row] for row in sorted(state.near)),
            unsettled=tuple(cells[row] for row in (*state.survivors[1:], *state.dropped)),
            ended=self._ended(state.ended, last_block=blocks >= self.most_blocks),
            blocks=blocks,
            margin=self.rules.margin,
            gap=state.gap,
            others=len(cells) - 1,
        )

    def _ended(self, why: Ended | None, *, last_block: bool) -> Ended:
        """Why the search ended: `why` if the numbers decided it, else the exhausted limit."""
        limited = math.isfinite(self.budget)
        if why in (Ended.SEPARATED, Ended.TIED) or (why is Ended.UNSETTLED and not limited):
            return why
        return Ended.OUT_OF_BUDGET if limited and not last_block else Ended.OUT_OF_BLOCKS

    def _related_to(self, cell: Cell, plan: CampaignPlan) -> bool:
        return cell.path.on_host or (self.metric in SCORES and cell.path == plan.baseline)

    def require(self, plan: CampaignPlan) -> None:
        """Raises PlanError if the search could not give an answer."""
        self._require_metric(plan)
        first = tuple(slot for slot in schedule(plan) if slot.block == 1)
        seconds = campaign_seconds(plan, first)
        if seconds > self.budget:
            raise PlanError(
                f"the first block alone, of {counted(len(first), 'cell')}, takes about "
                f"{format_duration(seconds)}, more than --budget "
                f"{format_duration(self.budget)}",
                hint=f"use --budget {math.ceil(MIN_BLOCKS * seconds / 60)}m, name fewer paths, "
                "or measure for a shorter --runtime",
            )

    def _require_metric(self, plan: CampaignPlan) -> None:
        names = [measurement.name for measurement in plan.profile.measurements]
        if self.metric not in SCORES:
            numbers = _numbers_called(self.metric, plan.profile)
            if len(numbers) != 1:
                problem = "several numbers" if numbers else "nothing"
                raise PlanError(
                    f"the profile {plan.profile.name} measures {problem} called {self.metric!r}",
                    hint=f"write overall, read, write, or MEASUREMENT/DIRECTION/METRIC of "
                    f"{', '.join(names)}",
                )
            return
        roles = SCORES[self.metric].roles
        if not any(all(known.measures[r].name in names for r in roles) for known in ROLE_SETS):
            raise PlanError(
                f"the profile {plan.profile.name} has no score {self.metric!r}",
                hint="name the metric to rank by: --metric MEASUREMENT/DIRECTION/METRIC",
            )

    def _goodness(
        self, results: Store, campaign: str, block: int | None
    ) -> tuple[tuple[MeasuredCell, ...], Floats]:
        """The guests' cells and their goodness in the blocks before `block` (None: in all)."""
        observations = results.observations([campaign])
        scored, key = self._ranked_by(observations, results.campaign(campaign))
        logs = goodness(scored, key)
        rows = [row for row, cell in enumerate(scored.cells) if not cell.on_host]
        columns = [
            place
            for place, earlier in enumerate(scored.blocks)
            if block is None or earlier.number < block
        ]
        part = logs[np.ix_(rows, columns)]
        measured = np.flatnonzero(np.isfinite(part).any(axis=1))
        return tuple(scored.cells[rows[place]] for place in measured), part[measured]

    def _ranked_by(
        self, observations: Observations, campaign: Campaign
    ) -> tuple[Observations, MeasureKey]:
        """The observations (with scores if the metric is a score), and the deciding measure."""
        if self.metric not in SCORES:
            return observations, find_measure(observations, self.metric)
        baseline = str(campaign.plan.get("baseline", HOST))
        cells = [cell for cell in observations.cells if cell.name == baseline]
        scored = add_scores(observations, cells[0] if cells else MeasuredCell(baseline))
        return scored.observations, SCORES[self.metric].key


def _numbers_called(metric: str, profile: Profile) -> set[tuple[str, str]]:
    """Measurement and metric of each number in a profile whose name contains `metric`."""
    spelled = {
        f"{measurement.name}/{direction}/{name}": (measurement.name, name)
        for measurement in profile.measurements
        for direction in directions_of(measurement) or Direction
        for name in METRICS
    }
    if metric in spelled:
        return {spelled[metric]}
    return {number for text, number in spelled.items() if metric in text}


def make_search(request: RunRequest) -> BestSearch | None:
    """The search that a request wants, beginning now; None without --find."""
    if request.find is None:
        return None
    return BestSearch(
        rules=Rules(margin=request.within or DEFAULT_MARGIN),
        most_blocks=request.blocks or SEARCH_BLOCKS,
        budget=math.inf if request.budget is None else request.budget,
        needs=with_default(request.need, unsafe=request.unsafe),
        metric=request.metric or DEFAULT_METRIC,
        began=time.monotonic(),
    )


def durable_paths(plan: CampaignPlan, verdicts: Verdicts) -> DurablePaths:
    """The number of durable paths in a plan, and how many of them were tested by power cuts."""
    paths = {cell.path.canonical: cell.path for cell in plan.cells if not cell.path.on_host}
    judged = [durability(path, verdicts).keeping for path in paths.values()]
    return DurablePaths(len(judged), sum(verdict is Keeping.KEPT_IN_TEST for verdict in judged))

"""`run --find best`: between campaign and analysis, asks after each block who is to be measured."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vdisklab.analysis.intervals import MIN_BLOCKS
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    from_columns,
)
from vdisklab.analysis.score import ROLE_SETS, add_scores
from vdisklab.analysis.search import Ended, Outcome, Rules, goodness, next_cells, standing
from vdisklab.campaign.estimate import campaign_seconds
from vdisklab.campaign.runner import Choose
from vdisklab.campaign.schedule import schedule
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.durability import Keeping, Verdicts, durability
from vdisklab.path.needs import Need, parse_needs
from vdisklab.path.segments import HOST
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import Profile
from vdisklab.render.tables.power_cuts import basis
from vdisklab.results.model import METRICS, Campaign, Direction
from vdisklab.results.store import Store
from vdisklab.services.advice import DEFAULT_METRIC, SCORES
from vdisklab.services.answers import cells_of, find_measure
from vdisklab.units import counted, format_duration, parse_duration
from vdisklab.workload.registry import directions_of

SEARCH_BLOCKS = 20
"""At most so many blocks, where the user says nothing: the leaders alone get so far."""


class Wanted(StrEnum):
    """What a search looks for."""

    BEST = "best"


@dataclass(frozen=True, slots=True)
class BestSearch:
    """What was asked: by which measure, how near to the best, and what the answer must be.

    `budget` is in seconds, from the start of the search on; earlier runs of an interrupted
    search count by the time that they took.
    """

    rules: Rules
    budget: float
    needs: tuple[Need, ...]
    metric: str
    began: float

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Says before each block of a campaign which cells to measure in it.

        It looks at the blocks before only, so that an interrupted search goes on as it would
        have: the same numbers choose the same cells. What scores relate to, the baseline and
        paths on the host, is measured in every block.
        """
        before = sum(run.wall_seconds or 0.0 for run in results.outlines([campaign]))
        fingerprint = {cell.measured: cell.fingerprint for cell in plan.cells}
        beside = {cell.fingerprint for cell in plan.cells if self._related_to(cell, plan)}

        def choose(block: int) -> Collection[str]:
            if block == 1:
                return set(fingerprint.values())
            cells, logs = self._goodness(results, campaign, block)
            if not len(cells):
                raise PlanError(
                    f"no path of a guest has the measure {self.metric!r} after block {block - 1}",
                    hint="`vdisklab rank` says what failed; choose another --metric",
                )
            runs = results.outlines([campaign])
            each = sum(run.wall_seconds or 0.0 for run in runs) / max(1, len(runs))
            spent = before + time.monotonic() - self.began
            affordable = (self.budget - spent) / each - len(beside)
            rows = next_cells(standing(logs, self.rules), affordable)
            chosen = {fingerprint[cells[row]] for row in rows}
            return chosen | beside if chosen else chosen

        return choose

    def outcome(self, results: Store, campaign: str, most_blocks: int) -> Outcome | None:
        """Who is best after all blocks that were measured, and why the search ended.

        None when nothing of a guest was measured.
        """
        cells, logs = self._goodness(results, campaign, None)
        if not len(cells):
            return None
        found = standing(logs, self.rules)
        blocks = int(np.isfinite(logs).any(axis=0).sum())
        return Outcome(
            best=cells[found.leader],
            as_good=tuple(cells[row] for row in sorted(found.near)),
            unsettled=tuple(cells[row] for row in (*found.survivors[1:], *found.dropped)),
            ended=self._ended(found.ended, last_block=blocks >= most_blocks),
            blocks=blocks,
            margin=self.rules.margin,
            gap=found.gap,
            others=len(cells) - 1,
        )

    def _ended(self, why: Ended | None, *, last_block: bool) -> Ended:
        """Why nothing was measured any more, where the numbers alone would go on or cannot."""
        limited = math.isfinite(self.budget)
        if why in (Ended.SEPARATED, Ended.TIED) or (why is Ended.UNSETTLED and not limited):
            return why
        return Ended.OUT_OF_BUDGET if limited and not last_block else Ended.OUT_OF_BLOCKS

    def _related_to(self, cell: Cell, plan: CampaignPlan) -> bool:
        return cell.path.on_host or (self.metric in SCORES and cell.path == plan.baseline)

    def require(self, plan: CampaignPlan) -> None:
        """Raises PlanError for a search that could not end with an answer: before it is begun."""
        self._require_metric(plan)
        first = tuple(slot for slot in schedule(plan) if slot.block == 1)
        seconds = campaign_seconds(plan, first)
        if seconds > self.budget:
            raise PlanError(
                f"the first block alone, of {counted(len(first), 'cell')}, takes about "
                f"{format_duration(seconds)}, more than --budget "
                f"{format_duration(self.budget)}",
                hint=f"give it --budget {math.ceil(MIN_BLOCKS * seconds / 60)}m, name fewer paths, "
                "or measure for a shorter --runtime",
            )

    def _require_metric(self, plan: CampaignPlan) -> None:
        names = [measurement.name for measurement in plan.profile.measurements]
        if self.metric not in SCORES:
            found = _meant(self.metric, plan.profile)
            if len(found) != 1:
                problem = "several numbers that are" if found else "nothing that is"
                raise PlanError(
                    f"the profile {plan.profile.name} measures {problem} called {self.metric!r}",
                    hint=f"write overall, read, write, or MEASUREMENT/DIRECTION/METRIC of "
                    f"{', '.join(names)}",
                )
            return
        roles = SCORES[self.metric].roles
        if not any(all(each.measures[r].name in names for r in roles) for each in ROLE_SETS):
            raise PlanError(
                f"the profile {plan.profile.name} has no score {self.metric!r} to be best at",
                hint="say what counts: --metric MEASUREMENT/DIRECTION/METRIC",
            )

    def _goodness(
        self, results: Store, campaign: str, block: int | None
    ) -> tuple[tuple[MeasuredCell, ...], Floats]:
        """The guests' cells and their goodness in the blocks before `block` (None: in all)."""
        outlines = results.outlines([campaign])
        observations = from_columns(results.observations([campaign]), cells_of(outlines))
        scored, key = self._ranked_by(observations, results.campaign(campaign))
        logs = goodness(scored, key)
        rows = [row for row, cell in enumerate(scored.cells) if not cell.on_host]
        columns = [
            place
            for place, name in enumerate(scored.blocks)
            if block is None or int(name.rpartition("/")[2]) < block
        ]
        part = logs[np.ix_(rows, columns)]
        measured = np.flatnonzero(np.isfinite(part).any(axis=1))
        return tuple(scored.cells[rows[place]] for place in measured), part[measured]

    def _ranked_by(
        self, observations: Observations, campaign: Campaign
    ) -> tuple[Observations, MeasureKey]:
        """The observations, with scores where one is asked for, and the measure to be best at."""
        if self.metric not in SCORES:
            return observations, find_measure(observations, self.metric)
        baseline = str(campaign.plan.get("baseline", HOST))
        cells = [cell for cell in observations.cells if cell.name == baseline]
        scored = add_scores(observations, cells[0] if cells else MeasuredCell(baseline))
        return scored.observations, SCORES[self.metric].key


def _meant(metric: str, profile: Profile) -> set[tuple[str, str]]:
    """Measurement and metric of each number of a profile that a text may mean, by its spelling."""
    spelled = {
        f"{measurement.name}/{direction}/{name}": (measurement.name, name)
        for measurement in profile.measurements
        for direction in directions_of(measurement) or Direction
        for name in METRICS
    }
    if metric in spelled:
        return {spelled[metric]}
    return {number for text, number in spelled.items() if metric in text}


def make_search(
    find: Wanted | None,
    within: str | None,
    budget: str | None,
    needs: Sequence[str] | None,
    metric: str | None,
) -> BestSearch | None:
    """The search that the options ask for, None without --find. Raises PlanError."""
    if find is None:
        said = {"--within": within, "--budget": budget, "--need": needs, "--metric": metric}
        lone = [option for option, value in said.items() if value]
        if lone:
            raise PlanError(f"{lone[0]} belongs to a search", hint="add --find best")
        return None
    return BestSearch(
        rules=Rules(margin=parse_share(within or "3%")),
        budget=math.inf if budget is None else parse_duration(budget),
        needs=parse_needs(needs),
        metric=metric or DEFAULT_METRIC,
        began=time.monotonic(),
    )


def durable_basis(plan: CampaignPlan, needs: Sequence[Need], verdicts: Verdicts) -> str | None:
    """By what `--need durable` chose the paths of a plan; None where it was not asked for."""
    if not any(need.goes_by_power_cuts for need in needs):
        return None
    paths = {cell.path.canonical: cell.path for cell in plan.cells if not cell.path.on_host}
    found = [durability(path, verdicts) for path in paths.values()]
    return basis(sum(each.keeping is Keeping.KEPT_IN_TEST for each in found), len(found))


def parse_share(text: str) -> float:
    """0.03 for `3%` or `0.03`. Raises PlanError for what is not above 0 and up to 100 %."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(%?)", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise PlanError(f"{text!r} is no share", hint="write --within 3%")
    return share

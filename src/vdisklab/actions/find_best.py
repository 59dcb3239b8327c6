"""`run --find best`: before each round, selects the cells that may be the best."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from vdisklab.analysis.best import competitors
from vdisklab.analysis.observations import Floats, MeasureKey, Observations
from vdisklab.analysis.path_model import PathModel
from vdisklab.analysis.race import ERROR, MOST_ROUNDS, RaceOutcome, RaceState, race_state
from vdisklab.analysis.score import ROLE_SETS, add_scores
from vdisklab.analysis.search import (
    ATTEMPTS,
    Ended,
    Outcome,
    Rules,
    SearchState,
    first_cells,
    given_up,
    goodness,
    margin_with_resolution,
    next_cells,
    search_state,
)
from vdisklab.answers.analysis import DEFAULT_METRIC, SCORES
from vdisklab.answers.loading import Loaded, find_measure
from vdisklab.campaign.estimate import boot_seconds, run_seconds
from vdisklab.campaign.runner import Choose, TimeLimit
from vdisklab.errors import PlanError
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.durability import CrashVerdicts, DurabilityKind, durability
from vdisklab.path.factors import Levels, factor_levels
from vdisklab.path.needs import Need, with_default
from vdisklab.path.segments import HOST
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.profile import Profile
from vdisklab.plan.run_request import DEFAULT_MARGIN, SEARCH_ROUNDS, RunRequest
from vdisklab.progress import DurablePaths, Progress
from vdisklab.results.model import METRICS, Campaign, Direction
from vdisklab.results.store import Store
from vdisklab.units import format_duration
from vdisklab.workload.registry import directions_of

RACE_UP_TO = 20
"""Up to this many paths all are raced; of more, a model of their segments chooses."""


@dataclass(frozen=True, slots=True, eq=False)
class _Contest:
    """The cells that compete: guests' paths, cold where they were also measured warm."""

    cells: tuple[MeasuredCell, ...]
    levels: Levels
    model: PathModel

    @classmethod
    def among(cls, cells: Sequence[MeasuredCell]) -> Self:
        chosen = tuple(cells[place] for place in competitors(cells).tolist())
        levels = factor_levels(chosen)
        return cls(chosen, levels, PathModel(levels))

    def named(self, rows: Sequence[int]) -> tuple[MeasuredCell, ...]:
        return tuple(self.cells[row] for row in rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What some rounds have shown: the goodness of competing cells x rounds, NaN if missing.

    `out` are the rows that were given up, `seconds` is the mean duration of a run, 0 without runs.
    The `margin` is at least the resolution of the values; `step` is that of the metric if so.
    `waits` is True if only the numbers to which scores relate are missing, in few rounds.
    """

    logs: Floats
    out: frozenset[int]
    seconds: float
    margin: float
    step: float | None
    waits: bool = False

    @property
    def runs(self) -> int:
        return int(np.isfinite(self.logs).sum())

    def race(self, alpha: float) -> RaceState | None:
        """The state of a race of the rows that were not given up; None if none has a number."""
        rows = [row for row in range(len(self.logs)) if row not in self.out]
        if not np.isfinite(self.logs[rows]).any():
            return None
        state = race_state(self.logs[rows], self.margin, alpha)
        return replace(
            state, left=tuple(rows[row] for row in state.left), leader=rows[state.leader]
        )

    def state(self, contest: _Contest, rules: Rules) -> SearchState | None:
        """The state of the search; None if no cell is left that has a number."""
        if not np.isfinite(np.delete(self.logs, sorted(self.out), axis=0)).any():
            return None
        rules = replace(rules, margin=self.margin)
        return search_state(contest.model, self.logs, rules, self.out)


@dataclass(frozen=True, slots=True)
class BestSearch:
    """A search for the best path by `metric`, among the paths that meet all needs.

    `budget` is in seconds from `began`; runs stored before an interruption count with their
    duration. The search ends after `most_rounds`.
    """

    rules: Rules
    most_rounds: int
    budget: float
    needs: tuple[Need, ...]
    metric: str
    began: float
    renews_guests: bool = True
    alpha: float = ERROR
    race_up_to: int = RACE_UP_TO

    def narrow(
        self, plan: CampaignPlan, verdicts: CrashVerdicts, progress: Progress
    ) -> CampaignPlan:
        """The plan without paths that lack a need.

        Raises PlanError if no guest path is left, or if the search could not give an answer.
        """
        if not any(cell.path.is_guest_storage for cell in plan.cells):
            raise PlanError(
                "--find best compares guests' paths, and none is given",
                hint="name two or more, such as {raw,qcow2}/none",
            )
        matrix = narrow_to_needs(Matrix(plan.cells, plan.dropped), self.needs, verdicts)
        plan = replace(plan, cells=matrix.cells, dropped=matrix.dropped)
        if any(need.goes_by_power_cuts for need in self.needs):
            progress(durable_paths(plan, verdicts))
        self.require(plan)
        return plan

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells to measure in each round.

        Only earlier rounds count, so an interrupted search continues in the same way: equal numbers
        select equal cells. The baseline and paths on the host are measured in every round, because
        scores relate to them.
        """
        limit = self.time_limit(results, plan, campaign)
        always = set(limit.needed)
        fingerprint = {cell.measured: cell.fingerprint for cell in plan.cells}
        contest = _Contest.among(tuple(fingerprint))
        allowed = self._allowed(contest)

        def choose(round: int) -> Collection[str]:
            numbers = Loaded(
                (results.campaign(campaign),),
                tuple(results.outlines([campaign])),
                results.observations([campaign]),
            )
            known = self._known(contest, numbers, round)
            affordable = limit.left() / (known.seconds or _mean_seconds(plan)) - len(always)
            if self._races(contest):
                rows = self._still_racing(contest, known, campaign, round, affordable)
            elif round == 1 or known.waits:
                rows = first_cells(contest.levels, min(affordable, allowed))
            else:
                state = known.state(contest, self.rules)
                if state is None:
                    raise self._nothing_measured(campaign, round)
                rows = next_cells(state, known.runs, min(affordable, allowed - known.runs))
            chosen = {fingerprint[contest.cells[row]] for row in rows}
            return chosen | always if chosen else chosen

        return choose

    def _still_racing(
        self, contest: _Contest, known: _Known, campaign: str, round: int, affordable: float
    ) -> tuple[int, ...]:
        """The rows of a race's next round; none if it has ended, or the budget lacks a round."""
        rows: tuple[int, ...] = tuple(range(len(contest.cells)))
        if round > 1 and not known.waits:
            found = known.race(self.alpha)
            if found is None:
                raise self._nothing_measured(campaign, round)
            rows = () if found.ended or round > self.most_rounds else found.left
        return rows if len(rows) <= affordable else ()

    def _nothing_measured(self, campaign: str, round: int) -> PlanError:
        return PlanError(
            f"no guest path has the measure {self.metric!r} after round {round - 1}",
            hint=f"see what failed: `vdisklab runs {campaign}`. Scores relate to the baseline, so "
            "if only that failed, choose another --metric or --baseline",
        )

    def _races(self, contest: _Contest) -> bool:
        """True for few cells: each can be measured in every round."""
        return len(contest.cells) <= self.race_up_to

    def _allowed(self, contest: _Contest) -> int:
        """The largest number of runs of a search."""
        return min(self.most_rounds, SEARCH_ROUNDS) * len(contest.cells)

    def time_limit(self, results: Store, plan: CampaignPlan, campaign: str) -> TimeLimit:
        """What is left of the budget."""
        before = sum(run.wall_seconds or 0.0 for run in results.outlines([campaign]))
        return TimeLimit(
            lambda: self.budget - before - (time.monotonic() - self.began),
            {cell.fingerprint for cell in plan.cells if self._related_to(cell, plan)},
        )

    def outcome(self, numbers: Loaded) -> Outcome | RaceOutcome | None:
        """The best cell after all measured rounds, and why the search or the race ended.

        None if nothing was measured in a guest.
        """
        contest = _Contest.among(numbers.campaigns[0].cells)
        known = self._known(contest, numbers, None)
        if self._races(contest):
            return self._race_outcome(contest, known)
        state = known.state(contest, self.rules)
        if state is None:
            return None
        comparison = state.comparison
        seen = np.flatnonzero(np.isfinite(known.logs).any(axis=1))
        # With one measured path the model only knows that path, and the others are guesses.
        leader = state.leader if len(seen) > 1 else int(seen[0])
        allowed = self._allowed(contest)
        return Outcome(
            best=contest.cells[leader],
            probability=state.probability,
            rivals=0 if comparison is None else len(state.rivals),
            as_good=contest.named(() if comparison is None else comparison.near),
            undecided=contest.named(() if comparison is None else comparison.undecided),
            gap=0.0 if comparison is None else comparison.gap,
            ended=self._ended(state, used_up=known.runs >= allowed),
            rounds=known.logs.shape[1],
            margin=known.margin,
            step=known.step,
            predicted=leader not in seen,
            cells=len(contest.cells),
            measured=len(seen),
            failed=len(known.out),
        )

    def _race_outcome(self, contest: _Contest, known: _Known) -> RaceOutcome | None:
        """What a race has shown; None if nothing was measured in a guest."""
        state = known.race(self.alpha)
        if state is None:
            return None
        limited = math.isfinite(self.budget) and state.rounds < self.most_rounds
        return RaceOutcome(
            best=contest.cells[state.leader],
            as_good=contest.named(state.left[1:]),
            behind=state.behind,
            proven=state.decided and state.best,
            ended=Ended.FOUND
            if state.decided
            else Ended.OUT_OF_BUDGET
            if limited
            else Ended.OUT_OF_ROUNDS,
            rounds=state.rounds,
            margin=known.margin,
            alpha=self.alpha,
            cells=len(contest.cells),
            measured=int(np.isfinite(known.logs).any(axis=1).sum()),
            failed=len(known.out),
            step=known.step,
        )

    def _ended(self, state: SearchState, *, used_up: bool) -> Ended:
        """Why the search ended: the numbers decided it, or a limit was reached."""
        if state.ended:
            return Ended.FOUND
        limited = math.isfinite(self.budget) and not used_up
        return Ended.OUT_OF_BUDGET if limited else Ended.OUT_OF_ROUNDS

    def _known(self, contest: _Contest, numbers: Loaded, round: int | None) -> _Known:
        """What the rounds before `round` have shown (None: all rounds)."""
        runs = [run for run in numbers.outlines if round is None or run.round < round]
        place = {cell: row for row, cell in enumerate(contest.cells)}
        logs = np.full((len(place), 0), np.nan)
        margin, step = self.rules.margin, None
        if runs:
            scored, key = self._ranked_by(numbers.observations, numbers.campaigns[0])
            grid = goodness(scored, key)
            columns = [
                column
                for column, earlier in enumerate(scored.rounds)
                if round is None or earlier.number < round
            ]
            logs = np.full((len(place), len(columns)), np.nan)
            resolution = np.zeros(len(place))
            known_resolution = scored.resolution(key)
            for row, cell in enumerate(scored.cells):
                if cell in place:
                    logs[place[cell]] = grid[row, columns]
                    resolution[place[cell]] = known_resolution[row]
            margin = margin_with_resolution(margin, logs, resolution)
            step = key.quantity.step if margin > self.rules.margin else None
        latest = {
            place[run.measured_cell]: run
            for run in sorted(runs, key=lambda run: run.round)
            if run.measured_cell in place
        }
        measured = np.isfinite(logs).any(axis=1)
        # If no cell has a number, it is what scores relate to that is missing.
        lacks = ~measured if measured.any() else np.zeros(len(place), dtype=np.bool_)
        failed = [row for row, run in latest.items() if run.failure is not None or lacks[row]]
        waits = not measured.any() and len(failed) < len(latest)
        return _Known(
            logs=logs[:, np.isfinite(logs).any(axis=0)],
            out=given_up(contest.levels, latest, failed),
            seconds=sum(run.wall_seconds or 0.0 for run in runs) / max(1, len(runs)),
            margin=margin,
            step=step,
            waits=waits and len({run.round for run in runs}) < ATTEMPTS,
        )

    def _related_to(self, cell: Cell, plan: CampaignPlan) -> bool:
        return cell.path.on_host or (self.metric in SCORES and cell.path == plan.baseline)

    def require(self, plan: CampaignPlan) -> None:
        """Raises PlanError if the search could not give an answer."""
        self._require_metric(plan)
        related = sum(self._related_to(cell, plan) for cell in plan.cells)
        seconds = (related + 2) * _mean_seconds(plan) + boot_seconds(plan)
        if seconds > self.budget:
            raise PlanError(
                f"measuring two paths alone takes about {format_duration(seconds)}, more than "
                f"--budget {format_duration(self.budget)}",
                hint=f"use --budget {math.ceil(seconds / 6)}m, name fewer "
                "measurements, or measure for a shorter --runtime",
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
        if plan.profile.is_open_load:
            raise PlanError(
                f"the load of profile {plan.profile.name} is open: rates show the load that is set",
                hint="rank by a latency: --metric MEASUREMENT/DIRECTION/latency_p99",
            )
        if self.metric == DEFAULT_METRIC:
            return  # without the score's measurements it is the mean of all rates
        if not any(all(known.measures[r].name in names for r in roles) for known in ROLE_SETS):
            raise PlanError(
                f"the profile {plan.profile.name} has no score {self.metric!r}",
                hint="name the metric to rank by: --metric MEASUREMENT/DIRECTION/METRIC",
            )

    def _ranked_by(
        self, observations: Observations, campaign: Campaign
    ) -> tuple[Observations, MeasureKey]:
        """The observations (with scores if the metric is a score), and the deciding measure."""
        if self.metric not in SCORES:
            return observations, find_measure(observations, self.metric)
        baseline = str(campaign.plan.get("baseline", HOST))
        cells = [cell for cell in observations.cells if cell.name == baseline]
        scored = add_scores(observations, cells[0] if cells else MeasuredCell(baseline))
        if self.metric == DEFAULT_METRIC and scored.overall is not None:
            return scored.observations, scored.overall
        return scored.observations, SCORES[self.metric].key


def _mean_seconds(plan: CampaignPlan) -> float:
    """The mean of the estimated durations of the runs of one round."""
    return sum(map(run_seconds(plan), plan.cells)) / len(plan.cells)


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
        rules=Rules(request.within or DEFAULT_MARGIN, every_cell=request.every_path),
        most_rounds=request.rounds or MOST_ROUNDS,
        budget=math.inf if request.budget is None else request.budget,
        needs=with_default(request.need, unsafe=request.unsafe),
        metric=request.metric or DEFAULT_METRIC,
        began=time.monotonic(),
        alpha=ERROR if request.confidence is None else 1 - request.confidence,
    )


def durable_paths(plan: CampaignPlan, verdicts: CrashVerdicts) -> DurablePaths:
    """The number of durable paths in a plan, and how many of them were tested by power cuts."""
    paths = {cell.path.canonical: cell.path for cell in plan.cells if cell.path.is_guest_storage}
    judged = [durability(path, verdicts).kind for path in paths.values()]
    return DurablePaths(
        len(judged), sum(verdict is DurabilityKind.KEPT_IN_TEST for verdict in judged)
    )

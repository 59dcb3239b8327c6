"""`run` without a number of rounds, and `run --find best`: measures until one path is enough.

The paths race: see `answers.race` for who is left after each round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection

from vdisklab.actions.cell_search import Narrowed
from vdisklab.analysis.race import LOOKS
from vdisklab.analysis.search import first_cells, next_cells
from vdisklab.answers import race, race_plan
from vdisklab.answers.loading import Loaded, stored_verdicts, with_stored_servers
from vdisklab.campaign.chosen_slots import Choose, TimeLimit
from vdisklab.campaign.schedule import boot_seconds, run_seconds
from vdisklab.errors import PlanError
from vdisklab.path.durability import CrashVerdicts, DurabilityKind, durability
from vdisklab.path.needs import with_default
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.matrix import Matrix, narrow_to_needs
from vdisklab.plan.race_terms import SEARCH_ROUNDS, RaceTerms
from vdisklab.plan.run_request import RunRequest
from vdisklab.progress import DurablePaths
from vdisklab.results.store import Store
from vdisklab.units import format_duration
from vdisklab.value import Value, field, replace

AT_LEAST = LOOKS[0]
"""So many rounds measure every path, unless --find leaves some out."""


class BestSearch(Value):
    """A race for the best path on some terms.

    With `find` only paths that compete are measured; without it, all paths are measured in the
    first rounds, and a plan with nothing to rank is measured as often as it says. `asked` is True
    if the user wants a race. `budget` is in seconds from `began`: the same command, which
    continues the race, has it anew.
    """

    terms: RaceTerms = field(default_factory=RaceTerms)
    budget: float = math.inf
    began: float = 0.0
    find: bool = False
    asked: bool = False
    renews_guests: bool = True

    def narrow(self, plan: CampaignPlan, verdicts: CrashVerdicts) -> Narrowed:
        """The plan as a race; --find leaves out the paths that lack a need.

        A plan with nothing to rank stays as it is, without a race, unless the user asked for one.
        Raises PlanError if no guest path is left, or if the race could not give an answer.
        """
        if not self.asked and not race_plan.can_race(plan, self.terms):
            return Narrowed(plan)
        if not any(cell.path.is_guest_storage for cell in plan.cells):
            raise PlanError(
                "a race compares guests' paths, and none is given",
                hint="name two or more, such as {raw,qcow2}/none",
            )
        events = []
        if self.find:
            matrix = narrow_to_needs(Matrix(plan.cells, plan.dropped), self.terms.needs, verdicts)
            plan = replace(plan, cells=matrix.cells, dropped=matrix.dropped)
            if any(need.goes_by_power_cuts for need in self.terms.needs):
                events.append(durable_paths(plan, verdicts))
        self.require(plan)
        return Narrowed(race_plan.as_race(plan, self.terms), self, tuple(events))

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells to measure in each round.

        Only earlier rounds count, so an interrupted race continues in the same way: equal numbers
        select equal cells. The baseline and paths on the host are measured in every round, because
        scores relate to them.
        """
        limit = self.time_limit(results, plan, campaign)
        always = set(limit.needed)
        owed = limit.owed
        tried = results.finished(campaign, failed_too=True) if owed else set()
        last_owed = max((round for round, _ in owed), default=0)
        fingerprint = {cell.measured: cell.fingerprint for cell in plan.cells}
        verdicts = stored_verdicts(results, results.campaign(campaign).host, plan.settings.disk)
        contests: dict[frozenset[str], list[race.Contest]] = {}

        def choose(round: int) -> Collection[str]:
            if not self.find and round <= AT_LEAST:
                return set(fingerprint.values())
            # A selection ends the campaign if it is empty: those before an owed run never are.
            begun = {cell for number, cell in tried if number == round <= last_owed}
            numbers = Loaded(
                (results.campaign(campaign),),
                tuple(results.outlines([campaign])),
                results.observations([campaign]),
            )
            # Only runs show which servers offer no flush: the race then goes on without them.
            now = with_stored_servers(verdicts, results, numbers)
            if now.flushless not in contests:
                contests[now.flushless] = [
                    race.contest_of(tuple(fingerprint), self.terms, now, group)
                    for group in self.terms.groups or ((),)
                ]
                for contest in contests[now.flushless]:
                    contest.replay(numbers, round)
            chosen: set[str] = set()
            for contest in contests[now.flushless]:
                so_far = race.known_before(contest, numbers, round)
                runs = limit.left() / (so_far.seconds or _mean_seconds(plan)) - len(always)
                rows = self._rows(contest, so_far, round, runs, campaign)
                chosen |= {fingerprint[contest.cells[row]] for row in rows}
            return chosen | begun | always if chosen else begun

        return choose

    def _rows(
        self,
        contest: race.Contest,
        so_far: race.Known,
        round: int,
        affordable: float,
        campaign: str,
    ) -> tuple[int, ...]:
        """The rows of a contest's next round; none if it has ended, or the budget lacks a round."""
        if contest.rows is None:
            allowed = min(self.terms.rounds, SEARCH_ROUNDS) * len(contest.cells)
            if round == 1 or so_far.waits:
                return first_cells(contest.levels, min(affordable, allowed))
            state = contest.search(so_far)
            if state is not None:
                return next_cells(state, so_far.runs, min(affordable, allowed - so_far.runs))
        rows: tuple[int, ...] = contest.rows or ()
        if round > 1 and not so_far.waits:
            found = contest.race(so_far)
            if found is None:
                if self.find:
                    raise PlanError(
                        f"no guest path has the measure {self.terms.metric!r} after round "
                        f"{round - 1}",
                        hint=f"see what failed: `vdisklab runs {campaign}`. If only the baseline "
                        "failed, choose another --metric or --baseline",
                    )
                return ()
            rows = () if found.ended or round > self.terms.rounds else found.left
        return rows if len(rows) <= affordable else ()

    def time_limit(self, results: Store, plan: CampaignPlan, campaign: str) -> TimeLimit:
        """What remains of this command's budget, which does not hold back what failed before: the
        user still asks for it. The same command has the whole budget again, and goes on."""
        outlines = results.outlines([campaign])
        failed = {(run.round, run.cell) for run in outlines if run.failure is not None}
        return TimeLimit(
            lambda: self.budget - (time.monotonic() - self.began),
            {
                cell.fingerprint
                for cell in plan.cells
                if race_plan.in_every_round(cell, plan, self.terms.metric)
            },
            failed - results.finished(campaign),
        )

    def require(self, plan: CampaignPlan) -> None:
        """Raises PlanError if the race could not give an answer."""
        race_plan.require_metric(plan.profile, self.terms.metric)
        related = sum(
            race_plan.in_every_round(cell, plan, self.terms.metric) for cell in plan.cells
        )
        seconds = (related + 2) * _mean_seconds(plan) + boot_seconds(plan)
        if seconds > self.budget:
            raise PlanError(
                f"measuring two paths alone takes about {format_duration(seconds)}, more than "
                f"--budget {format_duration(self.budget)}",
                hint=f"use --budget {math.ceil(seconds / 6)}m, name fewer "
                "measurements, or measure for a shorter --runtime",
            )


def _mean_seconds(plan: CampaignPlan) -> float:
    """The mean estimated duration of a run in one round."""
    return sum(map(run_seconds(plan), plan.cells)) / len(plan.cells)


def make_search(request: RunRequest) -> BestSearch | None:
    """The race that a request wants, beginning now; None with a number of rounds alone."""
    find = request.find is not None
    if request.rounds is not None and not find:
        return None
    usual = RaceTerms()
    return BestSearch(
        RaceTerms(
            margin=request.within or usual.margin,
            confidence=request.confidence or usual.confidence,
            metric=request.metric or usual.metric,
            needs=with_default(request.need, unsafe=request.unsafe),
            shortlist=find and not request.every_path,
            rounds=request.rounds or usual.rounds,
        ),
        budget=math.inf if request.budget is None else request.budget,
        began=time.monotonic(),
        find=find,
        asked=find or request.asks_for_a_race,
    )


def durable_paths(plan: CampaignPlan, verdicts: CrashVerdicts) -> DurablePaths:
    """The number of durable paths in a plan, and how many of them were tested by power cuts."""
    paths = {cell.path.canonical: cell.path for cell in plan.cells if cell.path.is_guest_storage}
    judged = [durability(path, verdicts).kind for path in paths.values()]
    return DurablePaths(
        len(judged), sum(verdict is DurabilityKind.KEPT_IN_TEST for verdict in judged)
    )

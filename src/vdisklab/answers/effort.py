"""How long a command of `run` takes: one estimate, whichever answer prints the command."""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from vdisklab.analysis.race import LOOKS, USUAL_ROUNDS
from vdisklab.answers.begun import MeasuringHost, begun_campaign
from vdisklab.answers.loading import Loaded
from vdisklab.answers.race import contestants, race_outcome
from vdisklab.answers.race_plan import in_every_round
from vdisklab.campaign.schedule import Slot, campaign_seconds, run_seconds, schedule
from vdisklab.documents import Count
from vdisklab.path.cell import Cell, MeasuredCell
from vdisklab.path.durability import CrashVerdicts
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.race_terms import DEFAULT_MARGIN, RaceTerms
from vdisklab.results.model import Campaign, RunOutline
from vdisklab.results.store import Store
from vdisklab.value import Value

_ALIKE = ("profile", "measurements", "size_bytes", "runtime", "ramp", "guest")
"""The parts of a plan that decide how long one run takes."""


class SoFar(Value):
    """What stored campaigns say of the time of a plan.

    `finished` are the runs (round, cell's fingerprint) of the campaign that the plan continues, and
    `racing` the cells that are left in its race: None before the first look, empty if it has ended.
    `pace` is how long runs of such a plan took on this machine, as a multiple of their estimate.
    """

    finished: Collection[tuple[int, str]] = ()
    racing: Collection[MeasuredCell] | None = None
    pace: float = 1.0


NOTHING_SO_FAR = SoFar()


class WithinBudget(Value):
    """What `--budget` has time for, if no path of the race is dropped."""

    seconds: Annotated[float, "the budget"]
    runs: Annotated[Count, "runs that end within it"]
    rounds: Annotated[Count, "of them complete rounds"]

    def limits(self, times: tuple[float, float, float]) -> tuple[float, float, float]:
        """The times of a race that ends when the budget is used up."""
        least, usually, most = times
        return min(least, self.seconds), min(usually, self.seconds), min(most, self.seconds)


class Effort(Value):
    """The runs of a command that are still to do, and their seconds.

    A race ends at the earliest `at_least`, most races `usually`, all `at_most`; these are equal
    unless it is a race. `slots` are the most runs.
    """

    least_runs: int
    slots: tuple[Slot, ...]
    at_least: float
    usually: float
    at_most: float
    within: WithinBudget | None = None


def effort(plan: CampaignPlan, so_far: SoFar = NOTHING_SO_FAR, budget: float = math.inf) -> Effort:
    """The effort of measuring a plan with what is stored of it. `budget` in seconds.

    A race that has reached the rounds in which most races end usually takes half of what is left.
    """
    slots = tuple(_at_most(plan, so_far))
    rounds = plan.rounds if plan.race is None else min(plan.rounds, _next_look(slots))
    surely = tuple(slot for slot in slots if slot.round <= rounds)
    least, most = (campaign_seconds(plan, some, so_far.pace) for some in (surely, slots))
    return Effort(
        least_runs=len(surely),
        slots=slots,
        at_least=least,
        usually=least + _usual_share(plan, rounds) * (most - least),
        at_most=most,
        within=None if math.isinf(budget) else _within(plan, slots, budget, so_far.pace),
    )


def _at_most(plan: CampaignPlan, so_far: SoFar) -> Iterator[Slot]:
    """All runs, if no path of a race is dropped: after the first rounds only some paths race."""
    racing: set[MeasuredCell] = set(so_far.racing or ())
    race = plan.race
    if race is not None and so_far.racing is None:
        racing |= rivals(plan, race)
    for slot in schedule(plan, so_far.finished):
        if race is None or slot.round <= LOOKS[0]:
            yield slot
            continue
        related = racing and in_every_round(slot.cell, plan, race.metric)
        if related or slot.cell.measured in racing:
            yield slot


def rivals(plan: CampaignPlan, race: RaceTerms) -> set[MeasuredCell]:
    """The cells that race against another one; a path alone is measured in the first rounds."""
    cells = tuple(cell.measured for cell in plan.cells)
    groups = (contestants(cells, race, CrashVerdicts(), group) for group in race.groups or ((),))
    return {cell for group in groups if len(group) > 1 for cell in group}


def _next_look(slots: Sequence[Slot]) -> int:
    """The round after which a race may end first."""
    first = slots[0].round if slots else 1
    following: int = next((look for look in LOOKS if look >= first), LOOKS[-1])
    return following


def _usual_share(plan: CampaignPlan, rounds: int) -> float:
    """How much of the rounds after the next look (`rounds`) most races take; with half of the
    margin, four times as many."""
    if plan.race is None or plan.rounds <= rounds:
        return 1.0
    wider = DEFAULT_MARGIN / plan.race.margin
    usual: float = LOOKS[0] + USUAL_ROUNDS * wider * wider
    return min(1.0, (usual - rounds) / (plan.rounds - rounds)) if usual > rounds else 0.5


def _within(
    plan: CampaignPlan, slots: tuple[Slot, ...], budget: float, pace: float
) -> WithinBudget:
    lengths = range(1, len(slots) + 1)
    runs = bisect_right(
        lengths, budget, key=lambda length: campaign_seconds(plan, slots[:length], pace)
    )
    following = slots[runs].round if runs < len(slots) else plan.rounds + 1
    before = {slot.round for slot in slots[:runs] if slot.round < following}
    return WithinBudget(budget, runs, len(before))


class StoredTimes:
    """What the stored campaigns of a machine say of the time of plans; each is read once, however
    many plans there are."""

    def __init__(self, results: Store, machine_id: str) -> None:
        self._results = results
        self._campaigns = [
            campaign for campaign in results.campaigns() if campaign.host.machine_id == machine_id
        ]
        self._loaded: dict[str, Loaded] = {}
        self._outlines: dict[str, tuple[RunOutline, ...]] = {}

    def so_far(
        self,
        host: MeasuringHost,
        plan: CampaignPlan,
        verdicts: CrashVerdicts,
        *,
        new: bool = False,
    ) -> SoFar:
        """What is stored of a plan: of the campaign that `run` goes on with, unless it is `new`,
        and of the newest one whose runs do the same."""
        begun = None if new else begun_campaign(self._campaigns, host, plan)
        so_far = NOTHING_SO_FAR if begun is None else self._begun(plan, begun[0], verdicts)
        wanted = _alike(plan.as_json())
        for campaign in self._campaigns:
            if _alike(campaign.plan) == wanted:
                pace = pace_of(plan, self._runs_of(campaign))
                if pace is not None:
                    return SoFar(so_far.finished, so_far.racing, pace)
        return so_far

    def _runs_of(self, campaign: Campaign) -> tuple[RunOutline, ...]:
        if campaign.id not in self._outlines:
            self._outlines[campaign.id] = tuple(self._results.outlines([campaign.id]))
        return self._outlines[campaign.id]

    def _begun(self, plan: CampaignPlan, campaign: Campaign, verdicts: CrashVerdicts) -> SoFar:
        finished = self._results.finished(campaign.id)
        if plan.race is None or plan.race.groups or not finished:
            return SoFar(finished)
        if campaign.id not in self._loaded:
            numbers = self._results.observations([campaign.id])
            self._loaded[campaign.id] = Loaded((campaign,), self._runs_of(campaign), numbers)
        outcome = race_outcome(self._loaded[campaign.id], plan.race, verdicts)
        if outcome is None or not outcome.shows_anything:
            return SoFar(finished)
        return SoFar(finished, () if outcome.decided else (outcome.best, *outcome.as_good))


def so_far_of(
    results: Store | None,
    host: MeasuringHost,
    plan: CampaignPlan,
    verdicts: CrashVerdicts,
    *,
    new: bool = False,
) -> SoFar:
    """What is stored of a single plan; see `StoredTimes`."""
    if results is None:
        return NOTHING_SO_FAR
    return StoredTimes(results, host.machine_id).so_far(host, plan, verdicts, new=new)


def _alike(stored: Mapping[str, Any]) -> str:
    return json.dumps([stored.get(key) for key in _ALIKE], sort_keys=True, default=str)


def pace_of(plan: CampaignPlan, runs: Collection[RunOutline]) -> float | None:
    """How long these runs took, as a multiple of their estimate; None without a finished run.

    It is the middle one: the first run of a round boots a guest, which is counted apart.
    """
    estimate = run_seconds(plan)
    ratios = [
        run.wall_seconds / estimate(Cell(run.measured_cell.path, run.page_cache))
        for run in runs
        if run.failure is None and run.wall_seconds and run.measured_cell.path is not None
    ]
    usable = [ratio for ratio in ratios if 0 < ratio < math.inf]
    return statistics.median(usable) if usable else None

"""What a search asks of a campaign: which cells stay in its plan, and which a round measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from vdisklab.campaign.chosen_slots import Choose, TimeLimit
from vdisklab.path.durability import CrashVerdicts
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import Event
from vdisklab.results.store import Store
from vdisklab.value import Value


class CellSearch(Protocol):
    """Decides before each round what to measure: the best path, or the number of guests."""

    @property
    def renews_guests(self) -> bool:
        """True if each round boots new guests."""

    def narrow(self, plan: CampaignPlan, verdicts: CrashVerdicts) -> Narrowed:
        """The plan without cells that the search never measures, and the search.

        No search if the plan has nothing to search. Raises PlanError.
        """

    def choosing(self, results: Store, plan: CampaignPlan, campaign: str) -> Choose:
        """Returns the function that selects the cells to measure in each round."""

    def time_limit(self, results: Store, plan: CampaignPlan, campaign: str) -> TimeLimit:
        """The time that this search may take."""


class Narrowed(Value):
    """A plan without the cells that are not worth measuring; a plan alone stays as it is.

    `search` decides what each round measures, None if every round measures all cells. `events` are
    to be reported if this plan is the one to measure.
    """

    plan: CampaignPlan
    search: CellSearch | None = None
    events: tuple[Event, ...] = ()


Narrow = Callable[[CampaignPlan], Narrowed]
"""Removes cells from a plan. Raises HostError if nothing worth measuring is left."""

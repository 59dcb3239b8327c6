"""The options of `vdisklab density`, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.errors import PlanError
from vdisklab.plan.settings import Panel, Request, setting
from vdisklab.plan.value_kinds import NAME_OR_FILE, SWITCH, TEXT, WHOLE, Limits

DEFAULT_MOST = 16
DEFAULT_LIMIT = "latency_p99<=5ms"


@dataclass(frozen=True, slots=True)
class DensityRequest(Request):
    """A request to `vdisklab density`: a load for each guest, and the limit that each must meet."""

    until: str | None = setting(
        TEXT,
        "What each guest must meet: latency_p99, latency_p50, latency_mean or latency_max, at most "
        "a time.",
        Panel.WHAT,
        key="",
        metavar="LIMIT",
        default=DEFAULT_LIMIT,
        identifies=True,
    )
    victim: str | None = setting(
        NAME_OR_FILE,
        "Instead of a capacity: what neighbours do to a guest with this profile.",
        Panel.WHAT,
        key="",
        metavar="NAME",
        shown="none",
        needs="neighbour",
    )
    neighbour: str | None = setting(
        NAME_OR_FILE,
        "With --victim: the profile whose first measurement the other guests run.",
        Panel.WHAT,
        metavar="NAME",
        shown="none",
        stored="neighbour",
        identifies=True,
    )
    most: int | None = setting(
        WHOLE,
        "The largest number of guests to try; fewer if they do not fit into memory.",
        Panel.WHAT,
        key="",
        metavar="N",
        default=DEFAULT_MOST,
        limits=Limits(1, 999),
        identifies=True,
    )
    thin: bool = setting(
        SWITCH,
        "Also measure images whose blocks are allocated while measuring, which says how fast they "
        "are allocated, not how many guests the path carries.",
        Panel.WHAT,
        key="",
    )
    new: bool = setting(
        SWITCH,
        "Start a new campaign, even if this plan was measured before.",
        Panel.OUTPUT,
        key="",
    )

    def require_search(self) -> None:
        """Raises PlanError for options that the search decides itself."""
        if self.guests:
            raise PlanError(
                "density decides itself how many guests it measures, but --guests is given",
                hint="write --most, or use `vdisklab run --guests`",
            )
        if self.neighbour is not None:
            raise PlanError(
                "--neighbour has no effect without --victim", hint="write --victim quiet-db, too"
            )
        if self.load is None:
            raise PlanError("density needs a load for each guest", hint="write --load 500iops")

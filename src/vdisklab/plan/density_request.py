"""The options that only `vdisklab density` has, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vdisklab.errors import PlanError
from vdisklab.plan import settings
from vdisklab.plan import value_kinds as kinds
from vdisklab.plan.run_request import MeasureRequest

DEFAULT_MOST = 16
DEFAULT_LIMIT = "latency_p99<=5ms"
OPEN_LOAD = "open-load"

# Options that no plan file has.
_option = partial(settings.what_setting, key="")


@dataclass(frozen=True, slots=True)
class DensityRequest(MeasureRequest):
    """A request to `vdisklab density`: a load for each guest, and the limit that each must meet."""

    profile: str | None = settings.what_setting(
        kinds.NAME_OR_FILE,
        "The profile that each guest runs, whose rate is --load.",
        metavar="NAME",
        shown=OPEN_LOAD,
    )
    until: str | None = _option(
        kinds.TEXT,
        "The limit on each guest's latency. Metrics are latency_p99, latency_p50, latency_mean "
        "and latency_max.",
        metavar="LIMIT",
        shown=DEFAULT_LIMIT,
        identifies=True,
    )
    victim: str | None = _option(
        kinds.NAME_OR_FILE,
        "Instead of a capacity: what neighbours do to a guest with this profile.",
        metavar="NAME",
        shown="none",
        needs="neighbour",
    )
    neighbour: str | None = settings.what_setting(
        kinds.NAME_OR_FILE,
        "With --victim: the profile whose first measurement the other guests run.",
        metavar="NAME",
        shown="none",
        stored="neighbour",
        identifies=True,
    )
    most: int | None = _option(
        kinds.WHOLE,
        "The largest number of guests to try; fewer if they do not fit into memory.",
        metavar="N",
        default=DEFAULT_MOST,
        limits=kinds.Limits(1, 999),
        identifies=True,
    )
    precision: int | None = _option(
        kinds.WHOLE,
        "Repeat near the limit until the 95 % interval spans no more than this many guests, at "
        "most 40 times.",
        metavar="N",
        shown="none",
        limits=kinds.Limits(1, 999),
    )
    rounds: int | None = settings.length_setting(
        kinds.WHOLE,
        "How often each number of guests near the limit is tried.",
        default=5,
        shown="5, or what --precision needs",
        limits=kinds.Limits(1, 10_000),
        formerly="blocks",
    )
    thin: bool = _option(
        kinds.SWITCH,
        "Also measure thin images, which says how fast their blocks are allocated, not how many "
        "guests the path carries.",
    )

    @property
    def searches_guests(self) -> bool:
        """True unless it measures what neighbours do to a victim."""
        return self.victim is None

    def require_search(self) -> None:
        """Raises PlanError for options that the search decides itself."""
        if self.guests:
            raise PlanError(
                "density decides itself how many guests it measures, but --guests is given",
                hint="write --most, or use `vdisklab run --guests`",
            )
        if self.baseline is not None:
            raise PlanError(
                "density compares paths with a limit and not with a baseline, so --baseline has no "
                "effect",
                hint="leave it out",
            )
        if self.neighbour is not None:
            raise PlanError(
                "--neighbour has no effect without --victim",
                hint="write --victim quiet-commits, too",
            )
        if self.load is None:
            raise PlanError("density needs a load for each guest", hint="write --load 500iops")

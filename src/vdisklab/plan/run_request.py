"""The options that only `vdisklab run` and `density` have, one row each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.needs import UNSAFE_HELP, Need, needs_help, parse_need
from vdisklab.path.segments import HOST
from vdisklab.plan.settings import NO_BASELINE, Panel, Request, setting, settings_of
from vdisklab.plan.value_kinds import (
    FILE,
    FILES,
    NAME_OR_FILE,
    PERCENTAGE,
    SECONDS,
    SWITCH,
    TEXT,
    WHOLE,
    Limits,
    one_of,
    several,
)

SEARCH_ROUNDS = 20
"""Default limit of a search: as many runs as this many rounds of all cells."""

RACE_ROUNDS = 60
"""Default limit of a race, which measures all paths that are left in every round."""

DEFAULT_MARGIN = 0.1
"""A path that is worse than the best by less than this share counts as good as the best."""


DEFAULT_CONFIDENCE = 0.95


class SearchFor(StrEnum):
    """The goals of a search."""

    BEST = "best"


_search_setting = partial(setting, panel=Panel.SEARCH, key="")
_setting_of_find = partial(_search_setting, needs="find")


@dataclass(frozen=True, slots=True)
class MeasureRequest(Request):
    """A request to measure a campaign now; the same request continues it."""

    new: bool = setting(
        SWITCH,
        "Start a new campaign, even if this plan was measured before.",
        Panel.OUTPUT,
        key="",
    )


@dataclass(frozen=True, slots=True)
class RunRequest(MeasureRequest):
    """A request to `vdisklab run`: the campaign, where to measure it, and whether to search."""

    directories: tuple[Path, ...] = setting(
        FILES,
        "The work directory; with --here it can be repeated, to compare several side by side.",
        Panel.WHERE,
        key="",
        flag="--dir",
        metavar="DIR",
        shown="the current directory",
    )
    here: bool = setting(
        SWITCH,
        "Measure in this machine itself, on files in --dir: no hypervisor and no root needed. "
        "Takes no PATHS.",
        Panel.WHAT,
        key="",
    )
    stream: Path | None = setting(
        FILE,
        "Also append each run to FILE as soon as it is measured, one line of JSON for each, as "
        "`vdisklab export-data` writes it.",
        Panel.OUTPUT,
        key="",
        metavar="FILE",
        shown="none",
    )
    find: SearchFor | None = _search_setting(
        one_of(SearchFor),
        "Measure only paths that may still be the best, and stop when one is shown to be within "
        "--within of it.",
        metavar="best",
    )
    within: float | None = _setting_of_find(
        PERCENTAGE,
        "With --find: a path that is worse than the best by less than this is good enough.",
        metavar="SHARE",
        default=DEFAULT_MARGIN,
    )
    confidence: float | None = _setting_of_find(
        PERCENTAGE,
        "With --find: how sure that must be.",
        metavar="SHARE",
        default=DEFAULT_CONFIDENCE,
    )
    budget: float | None = _setting_of_find(
        SECONDS,
        "With --find: stop after this time, such as 30m.",
        metavar="TIME",
        shown="none",
    )
    every_path: bool = _setting_of_find(
        SWITCH,
        "With --find: measure every path at least once, to find one that is better than its "
        "segments promise.",
    )
    need: tuple[Need, ...] = _setting_of_find(
        several(parse_need, str),
        needs_help("With --find: a need that the path must meet, besides durable"),
        metavar="NEED",
    )
    unsafe: bool = _setting_of_find(
        SWITCH,
        f"With --find: {UNSAFE_HELP[0].lower()}{UNSAFE_HELP[1:]}",
    )
    metric: str | None = _setting_of_find(
        TEXT,
        "With --find: the metric to rank by, as in `vdisklab rank`.",
        metavar="MEASURE",
        shown="overall",
    )

    def campaigns(self) -> tuple[Request, ...]:
        """The campaign to measure; with --here one for each directory.

        Raises PlanError for options that contradict each other.
        """
        places = tuple(dict.fromkeys(self.directories))
        if self.here:
            self._require_place_only()
        if len(places) > 1 and (not self.here or self.find is not None):
            raise PlanError(
                "several directories can be measured side by side only with --here",
                hint="name one --dir, or measure in this machine itself: --here",
            )
        if self.find is not None and len(set(self.guests)) > 1:
            raise PlanError(
                "--find searches the best path, but --guests names several numbers of guests",
                hint="name one number of guests",
            )
        campaign = Request(**{row.name: getattr(self, row.name) for row in settings_of()})
        if self.here:
            campaign = replace(campaign, paths=(HOST,), baseline=NO_BASELINE)
        if self.find is not None and self.rounds is None:
            campaign = replace(campaign, rounds=RACE_ROUNDS)
        return tuple(replace(campaign, directory=place) for place in places) or (campaign,)

    def _require_place_only(self) -> None:
        """Raises PlanError for options and paths that `--here` does not take."""
        if self.patterns or self.baseline is not None:
            raise PlanError(
                "--here measures the directory --dir as it is and takes no PATHS and no --baseline",
                hint="name the directory with --dir, and the run with --label",
            )
        if self.directories and self.devices:
            raise PlanError(
                "--here measures a directory or devices, but both --dir and --on are given",
                hint="leave out one of them",
            )


DEFAULT_MOST = 16
DEFAULT_LIMIT = "latency_p99<=5ms"
OPEN_LOAD = "open-load"


@dataclass(frozen=True, slots=True)
class DensityRequest(MeasureRequest):
    """A request to `vdisklab density`: a load for each guest, and the limit that each must meet."""

    profile: str | None = setting(
        NAME_OR_FILE,
        "The profile that each guest runs, whose rate is --load.",
        Panel.WHAT,
        metavar="NAME",
        shown=OPEN_LOAD,
    )
    until: str | None = setting(
        TEXT,
        "What each guest must meet: latency_p99, latency_p50, latency_mean or latency_max, at most "
        "a time.",
        Panel.WHAT,
        key="",
        metavar="LIMIT",
        shown=DEFAULT_LIMIT,
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
                "--neighbour has no effect without --victim", hint="write --victim quiet-db, too"
            )
        if self.load is None:
            raise PlanError("density needs a load for each guest", hint="write --load 500iops")

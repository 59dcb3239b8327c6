"""The options that only `vdisklab run` has, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.needs import UNSAFE_HELP, Need, needs_help, parse_need
from vdisklab.path.segments import HOST
from vdisklab.plan import settings
from vdisklab.plan import value_kinds as kinds
from vdisklab.plan.option_rows import Panel, setting, settings_of
from vdisklab.plan.race_terms import DEFAULT_CONFIDENCE, DEFAULT_MARGIN
from vdisklab.value import replace

ONLY_MEASURE = "VDISKLAB_ONLY_MEASURE"
"""Set for `vdisklab run` in the lab: it measures, and the vdisklab below answers from its runs.

The vdisklab below knows that the runs are from a lab; and an answer from 48 runs takes an emulated
CPU over 10 s.
"""

# Options that no plan file has.
_what_option = partial(settings.what_setting, key="")

_where_option = partial(settings.where_setting, key="")
_output_option = partial(settings.output_setting, key="")
_search_option = partial(setting, panel=Panel.SEARCH, key="")


class SearchFor(StrEnum):
    """The goals of a search."""

    BEST = "best"


@dataclass(frozen=True, slots=True)
class MeasureRequest(settings.Request):
    """A request to measure a campaign now; the same request continues it."""

    new: bool = _output_option(
        kinds.SWITCH, "Start a new campaign, even if this plan was measured before."
    )


@dataclass(frozen=True, slots=True)
class RunRequest(MeasureRequest):
    """A request to `vdisklab run`: the campaign, where to measure it, and whether to search."""

    directories: tuple[Path, ...] = _where_option(
        kinds.FILES,
        "The work directory; with --here it can be repeated, to compare several side by side.",
        flag="--dir",
        metavar="DIR",
        shown="the current directory",
    )
    here: bool = _what_option(
        kinds.SWITCH,
        "Measure in this machine itself, on files in --dir: no hypervisor and no root needed. "
        "Takes no PATHS.",
    )
    stream: Path | None = _output_option(
        kinds.FILE,
        "Also append each run to FILE as soon as it is measured, as a line of JSON.",
        metavar="FILE",
        shown="none",
    )
    again: str | None = _what_option(
        kinds.TEXT,
        "Measure the plan of this campaign anew, as a new campaign: for `vdisklab trend`. Takes no "
        "PATHS.",
        metavar="CAMPAIGN",
        shown="none",
    )
    find: SearchFor | None = _search_option(
        kinds.one_of(SearchFor),
        "Measure only paths that may still be the best: none that lacks a need, and of more than "
        "20 only those that a model of their segments does not leave out.",
        metavar="best",
    )
    within: float | None = _search_option(
        kinds.PERCENTAGE,
        "End when no path is better than the leader by more than this.",
        metavar="SHARE",
        default=DEFAULT_MARGIN,
    )
    confidence: float | None = _search_option(
        kinds.PERCENTAGE,
        "How sure that must be.",
        metavar="SHARE",
        default=DEFAULT_CONFIDENCE,
    )
    budget: float | None = _search_option(
        kinds.SECONDS,
        "End after this time, such as 30m, with the answer known by then.",
        metavar="TIME",
        shown="none",
    )
    every_path: bool = _search_option(
        kinds.SWITCH,
        "With --find: measure every path, also those that a model would leave out.",
        needs="find",
    )
    need: tuple[Need, ...] = _search_option(
        kinds.several(parse_need, str),
        needs_help("A need that the path must meet to compete, besides durable"),
        metavar="NEED",
    )
    unsafe: bool = _search_option(kinds.SWITCH, UNSAFE_HELP)
    metric: str | None = _search_option(
        kinds.TEXT,
        "The metric to rank by, as in `vdisklab rank`.",
        metavar="MEASURE",
        shown="overall",
    )

    @property
    def asks_for_a_race(self) -> bool:
        """True if an option is given that only a race has."""
        given = (self.within, self.confidence, self.budget, self.metric)
        return any(value is not None for value in given) or bool(self.need) or self.unsafe

    def campaigns(self) -> tuple[settings.Request, ...]:
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
        race = self.find is not None or self.asks_for_a_race
        if race and len(set(self.guests)) > 1:
            raise PlanError(
                "a race finds the best path, but --guests names several numbers of guests",
                hint="name one number of guests",
            )
        if race and self.has_operations:
            raise PlanError(
                "a race finds the best path, and --during compares what operations cost on each",
                hint="leave out --find and the options of a race, and say --rounds",
            )
        if race and self.rounds is not None and self.find is None:
            raise PlanError(
                "--rounds measures all paths as often, and the other options are of a race, which "
                "ends when it is decided",
                hint="leave out --rounds, or write --find best: then they are the most rounds",
            )
        campaign = settings.Request(
            **{row.name: getattr(self, row.name) for row in settings_of(settings.Request)}
        )
        if self.here:
            campaign = replace(campaign, paths=(HOST,), baseline=settings.NO_BASELINE)
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

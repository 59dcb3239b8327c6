"""The numbers of campaigns in one place or several, for tables that show places side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.diagnostics.caveats import Caveats, caveats_of
from vdisklab.analysis.score import role_set
from vdisklab.answers.analysis import DEFAULT_METRIC, Analysis
from vdisklab.answers.loading import (
    Joining,
    Loaded,
    choose_campaigns,
    load,
    load_chosen,
    require_numbers,
    stored_verdicts,
)
from vdisklab.answers.rank import RankAnswer, rank_cells
from vdisklab.path.durability import HostDisk, Verdicts
from vdisklab.results.model import Campaign, Origin
from vdisklab.results.outlines import RunOutline
from vdisklab.results.store import Store
from vdisklab.workload.registry import SYSBENCH
from vdisklab.workload.sysbench import SysbenchSettings, fsync_options
from vdisklab.workload.systems import PROGRAM as INSTALL

Planned = Sequence[Mapping[str, Any]]
"""The measurements of a stored plan."""


@dataclass(frozen=True, slots=True)
class Places:
    """Loaded campaigns by directory or devices. A single place has the name ``.

    `verdicts` are from power cuts on the same host.
    """

    loaded: Mapping[str, Loaded]
    verdicts: Verdicts

    @property
    def has_paths(self) -> bool:
        """True if a path that a guest could use was measured."""
        return any(candidates(place.observations.cells) for place in self.loaded.values())

    @property
    def outlines(self) -> tuple[RunOutline, ...]:
        """All runs, without their numbers."""
        return tuple(run for place in self.loaded.values() for run in place.outlines)

    @property
    def campaigns(self) -> tuple[Campaign, ...]:
        """All campaigns."""
        return tuple(campaign for place in self.loaded.values() for campaign in place.campaigns)

    @property
    def caveats(self) -> Caveats:
        """Caveats for all numbers, such as emulation."""
        return caveats_of(self.outlines)

    @property
    def planned(self) -> Planned:
        """The measurements of the plan, which are the same in all campaigns."""
        planned: Planned = self.campaigns[0].plan.get("measurements", ())
        return planned

    @property
    def order(self) -> list[str]:
        """The names of the measurements in the plan's order."""
        return [str(measurement.get("name", "")) for measurement in self.planned]

    @property
    def installations(self) -> list[str]:
        """The measurements that install packages, in the plan's order."""
        return [
            str(measurement["name"])
            for measurement in self.planned
            if measurement.get("program") == INSTALL
        ]

    @property
    def imported(self) -> bool:
        """True if any run was imported."""
        return any(run.origin is Origin.IMPORTED for run in self.outlines)

    @property
    def in_user_guest(self) -> bool:
        """True if a campaign ran in a user guest, whose operating system decides the program."""
        return any("image" in campaign.plan.get("guest", {}) for campaign in self.campaigns)


def load_places(results: Store, names: Sequence[str] | None) -> Places:
    """Loads the named campaigns, or the newest, and joins those of one place.

    Raises PlanError for campaigns that differ in more than their directory or devices.
    """
    campaigns = tuple({item.id: item for item in map(results.campaign, names or ())}.values())
    places = {place_of(campaign) for campaign in campaigns}
    if len(places) < 2:
        loaded = load_chosen(results, choose_campaigns(results, names))
        return Places({"": loaded}, stored_verdicts(results, loaded.campaigns[0].host))
    joined = Joining(results, campaigns[0], places=True)
    for other in campaigns[1:]:
        error = joined.add(other)
        if error is not None:
            raise error
    grouped: dict[str, list[str]] = {}
    for campaign in campaigns:
        grouped.setdefault(place_of(campaign), []).append(campaign.id)
    verdicts = stored_verdicts(results, campaigns[0].host)
    return Places({place: load(results, ids) for place, ids in grouped.items()}, verdicts)


def place_of(campaign: Campaign) -> str:
    """The place of a campaign: its devices, else its directory."""
    devices = campaign.plan.get("devices") or ()
    return " + ".join(map(str, devices)) or str(campaign.plan.get("directory", "unknown"))


def overview(
    results: Store, campaign: str, metric: str, disk: HostDisk | None = None
) -> RankAnswer | Places:
    """The answer to show after a run: a ranking, or all numbers if the profile lacks the score's
    measurements.

    Raises PlanError if nothing can be ranked.
    """
    loaded = load(results, [campaign])
    observations = loaded.observations
    if metric == DEFAULT_METRIC and observations.measures and role_set(observations) is None:
        return Places({"": loaded}, stored_verdicts(results, loaded.campaigns[0].host, disk))
    require_numbers(loaded)
    return rank_cells(Analysis(results, loaded, disk), metric)


def of_sysbench(names: Sequence[str], planned: Planned) -> tuple[str, ...]:
    """The names of sysbench's measurements, according to the plan or an import's name."""
    programs = {measurement.get("name"): measurement.get("program") for measurement in planned}
    return tuple(
        name for name in names if (programs.get(name) or name.partition("-")[0]) == SYSBENCH
    )


def sysbench_notes(names: Sequence[str], planned: Planned, *, imported: bool) -> tuple[str, ...]:
    """How often sysbench called fsync, which decides what a write costs; one note per setting."""
    measurements = of_sysbench(names, planned)
    by_options: dict[str, list[str]] = {}
    for measurement in planned:
        if measurement.get("name") in measurements and measurement.get("program") == SYSBENCH:
            with suppress(ValidationError):  # settings of another version
                settings = SysbenchSettings.model_validate(measurement.get("settings", {}))
                by_options.setdefault(" ".join(fsync_options(settings)), []).append(
                    str(measurement["name"])
                )
    notes = [
        f"the number of sysbench's fsync calls decides the cost of a write: {options}"
        + (f" ({', '.join(its)})" if len(by_options) > 1 else "")
        for options, its in by_options.items()
    ]
    if measurements and imported:
        notes.append("how often sysbench called fsync is not known for imported results")
    return tuple(notes)

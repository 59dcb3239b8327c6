"""Gathers what the report of a fleet shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vdisklab.analysis.fleet.host_means import rounds_by_host
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.rank_intervals import rank as rank_cells
from vdisklab.analysis.score import add_scores
from vdisklab.answers.fleet_answers import (
    FleetRanking,
    FleetRecommendation,
    answer_fleet_ranking,
    answer_fleet_recommendation,
)
from vdisklab.answers.fleet_hosts import LoadedFleet
from vdisklab.answers.loading import baseline_of
from vdisklab.errors import PlanError
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import with_default
from vdisklab.results.store import Store


@dataclass(frozen=True, slots=True, eq=False)
class FleetContents:
    """The fleet's answer, and each host's own ranking by its own rounds.

    If `recommendation` is None, `why_none` says why.
    """

    ranking: FleetRanking
    recommendation: FleetRecommendation | None
    why_none: str
    own: Mapping[str, Ranking]


def gather_fleet(results: Store, fleet: LoadedFleet, disk: HostDisk | None = None) -> FleetContents:
    """The contents for the default score and needs. Raises PlanError without a ranked cell."""
    ranking = answer_fleet_ranking(fleet)
    recommendation, why = None, ""
    try:
        needs = with_default(())
        recommendation = answer_fleet_recommendation(results, fleet, needs, disk=disk)
    except PlanError as error:
        why = f"{error}: {error.hint}"
    scored = add_scores(fleet.loaded.observations, baseline_of(fleet.loaded)[0]).observations
    return FleetContents(
        ranking, recommendation, why, own_rankings(scored, fleet, ranking.ranking.measure)
    )


def own_rankings(
    observations: Observations, fleet: LoadedFleet, measure: MeasureKey
) -> dict[str, Ranking]:
    """The ranking of each host's own rounds."""
    answer = {}
    for host, columns in rounds_by_host(observations, fleet.host_of).items():
        rows = np.isin(observations.round, columns) & (
            observations.measure == observations.measures.index(measure)
        )
        own = replace(
            observations,
            cell=observations.cell[rows],
            round=np.searchsorted(columns, observations.round[rows]).astype(np.int32),
            measure=observations.measure[rows],
            value=observations.value[rows],
            rounds=tuple(observations.rounds[column] for column in columns),
            too_slow=(),
        )
        answer[host] = rank_cells(own, measure)
    return answer

"""Gathers what the report of a fleet shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vdisklab.analysis.fleet.host_means import rounds_by_host
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.rank_intervals import rank as rank_cells
from vdisklab.answers.fleet_answers import (
    FleetRecommendation,
    answer_fleet_recommendation,
)
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.rank import rank_cells as rank_answer
from vdisklab.errors import PlanError
from vdisklab.path.needs import with_default


@dataclass(frozen=True, slots=True, eq=False)
class FleetContents:
    """The fleet's answer, and each host's own ranking by its own rounds.

    If `recommendation` is None, `why_none` says why.
    """

    ranking: RankAnswer
    recommendation: FleetRecommendation | None
    why_none: str
    own: Mapping[str, Ranking]


def gather_fleet(fleet: HostsAnalysis) -> FleetContents:
    """The contents for the default score and needs. Raises PlanError without a ranked cell."""
    ranking = rank_answer(fleet)
    recommendation, why = None, ""
    try:
        recommendation = answer_fleet_recommendation(fleet, with_default(()))
    except PlanError as error:
        why = f"{error}: {error.hint}"
    own = own_rankings(fleet.observations, fleet, ranking.ranking.measure)
    return FleetContents(ranking, recommendation, why, own)


def own_rankings(
    observations: Observations, fleet: HostsAnalysis, measure: MeasureKey
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

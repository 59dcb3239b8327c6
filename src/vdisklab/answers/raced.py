"""What a campaign's race says of some cells, if the campaign was a race."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.race_terms import RaceTerms

if TYPE_CHECKING:
    from vdisklab.analysis.race import RaceOutcome
    from vdisklab.answers.analysis import Analysis


def race_of(
    analysis: Analysis, meeting: Collection[MeasuredCell], metric: str = DEFAULT_METRIC
) -> RaceOutcome | None:
    """What a campaign's race for the best path, by a metric as `run` names it, says of the cells
    that meet some needs.

    None if it did not race, raced by another metric, had no look yet, or says nothing of these
    cells.
    """
    terms = None if len(analysis.campaigns) > 1 else RaceTerms.of(analysis.campaigns[0].plan)
    if terms is None or terms.groups or terms.metric != metric:
        return None
    # Imported late: most campaigns are not races.
    from vdisklab.answers.race import race_outcome  # noqa: PLC0415

    race = race_outcome(analysis.loaded, terms, analysis.verdicts, counting=meeting)
    return race if race is not None and race.shows_anything else None

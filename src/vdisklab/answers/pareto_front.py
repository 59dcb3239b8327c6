"""Finds the paths that no other beats in all of several measures, for `rank --pareto`."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.pareto import CPU, Front, add_cpu, add_metric_mean, pareto_front
from vdisklab.analysis.score import Scored, add_scores
from vdisklab.answers.advice import SCORES, criterion
from vdisklab.answers.loading import Loaded, baseline_of, load, require_numbers, stored_verdicts
from vdisklab.errors import PlanError
from vdisklab.path.durability import Verdicts
from vdisklab.results.model import METRICS, Campaign
from vdisklab.results.store import Store

CPU_NAME = "cpu"
USUAL = f"read/write/latency_p99/{CPU_NAME}"


@dataclass(frozen=True, slots=True)
class ParetoAnswer:
    """The front with the names of its measures, as they were written.

    `verdicts` are from power cuts on the same host.
    """

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    names: tuple[str, ...]
    front: Front
    verdicts: Verdicts


def answer_pareto(
    results: Store, criteria: str, names: list[str] | None, baseline: str | None
) -> ParetoAnswer:
    """The front of the named campaigns (None: the newest) in the criteria.

    Raises PlanError for an unknown criterion, or if no path has all of them.
    """
    loaded = load(results, names)
    require_numbers(loaded)
    scored = add_scores(loaded.observations, baseline_of(loaded, baseline)[0])
    wanted = parse_criteria(criteria)
    observations, measures = _with_criteria(results, loaded, scored, wanted)
    front = pareto_front(observations, measures)
    if not front.cells:
        raise PlanError(
            f"no path has all of {', '.join(wanted)} in three rounds",
            hint="leave one out, or see `vdisklab rank` for the reason",
        )
    return _answer(results, loaded, wanted, front)


def usual_front(results: Store, loaded: Loaded, scored: Scored) -> ParetoAnswer | None:
    """The front of a report: in reads, writes, p99 latency and CPU, as far as they were measured.

    None if two of them were not.
    """
    used = {measure.metric for measure in scored.observations.used}
    wanted = [name for name, score in SCORES.items() if name != "overall" and score.value in used]
    wanted += ["latency_p99"] if "latency_p99" in used else []
    observations, measures = _with_criteria(results, loaded, scored, [*wanted, CPU_NAME])
    if CPU not in observations.used:
        measures = measures[:-1]
    else:
        wanted.append(CPU_NAME)
    front = pareto_front(observations, measures) if len(measures) > 1 else None
    if front is None or len(front.cells) < 2:
        return None
    return _answer(results, loaded, tuple(wanted), front)


def _answer(results: Store, loaded: Loaded, names: tuple[str, ...], front: Front) -> ParetoAnswer:
    verdicts = stored_verdicts(results, loaded.campaigns[0].host)
    return ParetoAnswer(loaded.campaigns, loaded.caveats, names, front, verdicts)


def parse_criteria(written: str) -> tuple[str, ...]:
    """`read/write/cpu` as names; with commas, names may hold slashes. Raises PlanError."""
    parts = written.split("," if "," in written else "/")
    names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if len(names) < 2:
        raise PlanError(
            f"{written!r} is not a list of two or more measures", hint=f"write --pareto {USUAL}"
        )
    return names


def _with_criteria(
    results: Store, loaded: Loaded, scored: Scored, names: tuple[str, ...] | list[str]
) -> tuple[Observations, list[MeasureKey]]:
    """The observations with computed criteria, and the measure of each name."""
    observations, measures = scored.observations, []
    for name in names:
        if name == CPU_NAME:
            observations = add_cpu(observations, results.cpu_of_runs(loaded.ids), loaded.cells)
            measures.append(CPU)
        elif name in METRICS and any(key.metric == name for key in observations.measures):
            observations, key = add_metric_mean(observations, name)
            measures.append(key)
        else:
            measures.append(criterion(scored, name))
    return observations, measures

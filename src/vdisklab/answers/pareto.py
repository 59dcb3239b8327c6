"""`rank --pareto`: the paths that no other path beats in every chosen measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from vdisklab.analysis import pareto
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.score import DEFAULT_METRIC, SCORES
from vdisklab.answers.analysis import Analysis
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import Durability, known_durability
from vdisklab.results.model import METRICS, Campaign
from vdisklab.value import Value

CPU_NAME = "cpu"
USUAL = f"read/write/latency_p99/{CPU_NAME}"


class ParetoCell(Value):
    """One path among the others."""

    cell: MeasuredCell
    standing: Annotated[
        pareto.Standing,
        "`front`: no other path is better in all measures; `may-be`: one is, but it is not shown; "
        "`beaten`: one is shown to be",
    ]
    by: Annotated[MeasuredCell | None, "a path that is better in all measures"]
    shares: Annotated[
        Mapping[str, pareto.ShareOfBest], "by measure, how good it is as a share of the best one"
    ]
    power_cut: Annotated[Durability | None, "null on the host, and for a free name"]


class ParetoAnswer(Answer):
    """`vdisklab rank --pareto`: which paths no other beats in all of several measures."""

    FORMAT = "vdisklab.pareto/2"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    measures: Annotated[
        Mapping[str, MeasureKey], "each name of --pareto as MEASUREMENT/DIRECTION/METRIC"
    ]
    alpha: Annotated[float, "the error of calling a path beaten"]
    cells: Annotated[tuple[ParetoCell, ...], "the front first"]
    left_out: Annotated[tuple[MeasuredCell, ...], "paths that lack a measure in three rounds"]

    def of(self, standing: pareto.Standing) -> tuple[MeasuredCell, ...]:
        """The cells with this standing."""
        return tuple(row.cell for row in self.cells if row.standing is standing)


def front(analysis: Analysis, criteria: str) -> ParetoAnswer:
    """The Pareto front: the cells that no other beats in all criteria. Raises PlanError for an
    unknown criterion, or if no path has numbers for all."""
    names = parse_criteria(criteria)
    observations, measures = _with_criteria(analysis, names)
    found = pareto.pareto_front(observations, measures)
    if not found.cells:
        raise PlanError(
            f"no path has all of {', '.join(names)} in three rounds",
            hint="leave one out, or see `vdisklab rank` for the reason",
        )
    return _answer(analysis, names, found)


def usual_front(analysis: Analysis) -> ParetoAnswer | None:
    """The front of a report: in reads, writes, p99 latency and CPU, as far as they were measured.

    None if two of them were not.
    """
    used = {measure.metric for measure in analysis.observations.used}
    names = [name for name in SCORES if name != DEFAULT_METRIC and SCORES[name].value in used]
    names += ["latency_p99"] if "latency_p99" in used else []
    observations, measures = _with_criteria(analysis, [*names, CPU_NAME])
    if pareto.CPU in observations.used:
        names.append(CPU_NAME)
    found = pareto.pareto_front(observations, measures[: len(names)]) if len(names) > 1 else None
    if found is None or len(found.cells) < 2:
        return None
    return _answer(analysis, names, found)


def _answer(analysis: Analysis, names: Sequence[str], found: pareto.Front) -> ParetoAnswer:
    return ParetoAnswer(
        campaigns=analysis.campaigns,
        caveats=analysis.caveats,
        measures=dict(zip(names, found.measures, strict=True)),
        alpha=found.alpha,
        cells=tuple(
            ParetoCell(
                cell=placed.cell,
                standing=placed.standing,
                by=placed.by,
                shares=dict(zip(names, placed.shares, strict=True)),
                power_cut=known_durability(placed.cell, analysis.verdicts),
            )
            for placed in found.cells
        ),
        left_out=found.left_out,
    )


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
    analysis: Analysis, names: Sequence[str]
) -> tuple[Observations, list[MeasureKey]]:
    """The observations with computed criteria, and the measure of each name."""
    observations, measures = analysis.observations, []
    for name in names:
        if name == CPU_NAME:
            runs = analysis.results.cpu_of_runs(analysis.loaded.ids)
            observations = pareto.add_cpu(observations, runs, analysis.loaded.cells)
            measures.append(pareto.CPU)
        elif name in METRICS and any(key.metric == name for key in observations.measures):
            observations, key = pareto.add_metric_mean(observations, name)
            measures.append(key)
        else:
            measures.append(analysis.measure(name))
    return observations, measures

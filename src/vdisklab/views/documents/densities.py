"""The document of `vdisklab density`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from vdisklab.analysis.guest_groups import GroupStep
from vdisklab.answers.density_answer import PathCapacity
from vdisklab.views.documents.conversion import At, copy_fields
from vdisklab.views.documents.rankings import MeasuredUnder


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityRow:
    """One path and the number of guests that it carries."""

    path: str
    guests: Annotated[int | None, "null if it could not be measured", At("capacity.guests")]
    low: Annotated[int | None, "end of the 95 % interval", At("capacity.low")]
    high: Annotated[int | None, At("capacity.high")]
    at_least: Annotated[bool, "the largest number that was tried passed"]
    limited_by: Annotated[str, At("limited.limit.value")]
    evidence: Annotated[str, "the numbers that say what limited it", At("limited.evidence")]
    iops: Annotated[
        float | None, "of all guests at the limit; of one if it carries none", At("at_limit.iops")
    ]
    worst: Annotated[float | None, "seconds, of the worst guest at the limit", At("at_limit.worst")]
    p99: Annotated[
        float | None, "seconds, of all guests' requests together at the limit", At("at_limit.p99")
    ]
    fairness: Annotated[float | None, At("at_limit.fairness")]
    cpu_for_each: Annotated[float | None, At("at_limit.cpu_for_each")]
    reached: Annotated[float | None, "the rate that one guest reached, if less than the load"]
    complete: Annotated[
        bool, "false if the search was interrupted, or given up because runs failed"
    ]
    failure: str | None

    @classmethod
    def of(cls, path: PathCapacity) -> Self:
        """The row of a path."""
        at_least = path.capacity is not None and path.capacity.at_least
        return copy_fields(cls, path, at_least=at_least)


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityEntry:
    """One path with all its runs."""

    answer: DensityRow
    steps: tuple[GroupStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityDocument:
    """`vdisklab density`: how many guests each path carries, the highest first."""

    format: Literal["vdisklab.density/1"] = "vdisklab.density/1"
    campaign: str
    load: Annotated[int, "requests per second and guest"]
    until: Annotated[str, "the limit that each guest must meet"]
    caveats: MeasuredUnder
    paths: tuple[DensityEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRow:
    """One path and what a neighbour does to the victim on it."""

    path: str
    alone: Annotated[float | None, "seconds: the victim's median p99 alone"]
    beside: Annotated[float | None, "seconds: the same beside the neighbour"]
    ratio: Annotated[float | None, "beside over alone, paired within rounds", At("ratio.ratio")]
    low: Annotated[float | None, "end of the 95 % interval", At("ratio.low")]
    high: Annotated[float | None, At("ratio.high")]
    pairs: Annotated[int, "rounds with both", At("ratio.pairs")]
    limited_by: Annotated[str | None, At("limited.limit.value")]
    evidence: Annotated[str | None, At("limited.evidence")]
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourDocument:
    """`vdisklab density --victim`: what a neighbour does, the smallest effect first."""

    format: Literal["vdisklab.neighbour/1"] = "vdisklab.neighbour/1"
    campaign: str
    victim: str
    neighbour: str
    caveats: MeasuredUnder
    paths: tuple[NeighbourRow, ...]

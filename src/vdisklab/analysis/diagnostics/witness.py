"""Doubts by the evidence beside each measurement, streamed and added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vdisklab.analysis.diagnostics.doubt import (
    ClockTrouble,
    Doubt,
    FromPageCache,
    NoisyNeighbour,
    ThinImage,
)
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Counted, Direction, Run, Witnessed

FROM_CACHE_BELOW = 0.5
"""When less than this share of the bytes reached the device, the number is the page cache's."""

STOLEN_ABOVE = 0.02
GROWN_ABOVE = 1 << 20
CLOCK_TOLERANCE = 1.02


def witnessed(run: Run) -> Iterator[Witnessed]:
    """A whole run's evidence, as `Store.evidence` gives it; nothing of a failed run."""
    if run.failure is None:
        for each in run.measurements:
            yield Witnessed(
                path=run.path,
                page_cache=run.page_cache,
                name=each.name,
                directions=tuple(sorted({sample.direction for sample in each.samples})),
                wall_seconds=each.wall_seconds,
                measured_seconds=each.measured_seconds,
                evidence=each.evidence,
            )


def evidence_findings(witnessed: Iterable[Witnessed], cpus: int | None) -> tuple[Doubt, ...]:
    """Everything that the evidence gives away, in one pass over it; memory grows with cells.

    `cpus` is the host's number, which steal time is a share of; None leaves that out.
    """
    totals: dict[tuple[MeasuredCell, str, Direction], list[int]] = {}
    grown: dict[MeasuredCell, int] = {}
    clock: dict[tuple[MeasuredCell, str], ClockTrouble] = {}
    stolen: list[tuple[float, MeasuredCell]] = []
    for seen in witnessed:
        cell = seen.measured_cell
        if not cell.is_null:
            for direction, (asked, reached) in _bytes(seen).items():
                total = totals.setdefault((cell, seen.name, direction), [0, 0])
                total[0] += asked
                total[1] += reached
        growth = _growth(seen)
        if growth > GROWN_ABOVE:
            grown[cell] = max(growth, grown.get(cell, 0))
        counted = seen.measured_seconds
        wall = seen.wall_seconds
        if counted is not None and wall is not None and counted > wall * CLOCK_TOLERANCE:
            trouble = ClockTrouble(cell, seen.name, counted, wall)
            clock.setdefault((cell, seen.name), trouble)
        share = _stolen(seen, cpus)
        if share > STOLEN_ABOVE:
            stolen.append((share, cell))
    found: list[Doubt] = list(_from_cache(totals))
    if grown:
        found.append(ThinImage(tuple(sorted(grown)), max(grown.values())))
    if clock:
        found.append(max(clock.values(), key=lambda each: each.counted_seconds / each.host_seconds))
    if stolen:
        share, cell = max(stolen)
        found.append(NoisyNeighbour(len(stolen), share, cell))
    return tuple(found)


def _stolen(seen: Witnessed, cpus: int | None) -> float:
    """The share of all CPUs' time that a hypervisor below took; 0 where nobody can say."""
    steal = seen.evidence.steal_seconds
    if steal is None or not cpus or not seen.wall_seconds:
        return 0.0
    return min(steal / (seen.wall_seconds * cpus), 1.0)


def _from_cache(
    totals: Mapping[tuple[MeasuredCell, str, Direction], Sequence[int]],
) -> Iterable[FromPageCache]:
    for key, (asked, reached) in sorted(totals.items()):
        if asked and reached < FROM_CACHE_BELOW * asked:
            yield FromPageCache(*key, share=reached / asked)


def _bytes(seen: Witnessed) -> dict[Direction, tuple[int, int]]:
    """By direction of the program: bytes asked of the host, and those that reached the device."""
    evidence = seen.evidence
    above = evidence.qemu or evidence.guest
    if above is None or evidence.device is None:
        return {}
    found = {}
    for direction in seen.directions:
        asked, reached = _side(above, direction), _side(evidence.device, direction)
        if asked:
            found[direction] = (asked, reached)
    return found


def _side(counted: Counted, direction: Direction) -> int:
    bytes_by_direction: Mapping[Direction, int] = {
        Direction.READ: counted.read_bytes,
        Direction.WRITE: counted.write_bytes,
    }
    return bytes_by_direction.get(direction, 0)


def _growth(seen: Witnessed) -> int:
    before, after = seen.evidence.allocated_before, seen.evidence.allocated_after
    return 0 if before is None or after is None else after - before

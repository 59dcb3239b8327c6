"""Diagnostics from recorded evidence: counters, checks, plan and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from vdisklab.analysis.diagnostics.kinds import (
    Aged,
    CellDiagnostic,
    ClockTrouble,
    FitsInMemory,
    FrequencyGovernor,
    FromPageCache,
    HostChanged,
    NoisyNeighbour,
    NotDirect,
    OpenLoad,
    QueueDiffers,
    SeveralGuests,
    ThinImage,
    has_open_load,
)
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Campaign, Direction
from vdisklab.results.outlines import CellTally, Example, TimedMeasurement

FROM_CACHE_BELOW = 0.5
"""If less than this share of the bytes reached the device, the page cache was measured."""

STOLEN_ABOVE = 0.02
GROWN_ABOVE = 1 << 20
CLOCK_TOLERANCE = 1.02


def evidence_diagnostics(
    tallies: Iterable[CellTally],
    times: Iterable[TimedMeasurement],
    cells: Mapping[str, MeasuredCell],
    reported: Collection[tuple[str, Direction]],
    cpus: int | None,
) -> tuple[CellDiagnostic, ...]:
    """All diagnostics from evidence; `cells` are by fingerprint.

    `reported` are the measurements with the directions of which their programs gave numbers.
    `cpus` is the host's number of CPUs, for the share of steal time; None skips steal time.
    """
    totals: dict[tuple[MeasuredCell, str, Direction], list[int]] = {}
    grown: dict[MeasuredCell, int] = {}
    for tally in tallies:
        cell = cells[tally.cell]
        transfers = {
            Direction.READ: (tally.read_requested, tally.read_reached),
            Direction.WRITE: (tally.write_requested, tally.write_reached),
        }
        for direction, (requested, reached) in transfers.items():
            if requested and not cell.is_null and (tally.measurement, direction) in reported:
                total = totals.setdefault((cell, tally.measurement, direction), [0, 0])
                total[0] += requested
                total[1] += reached or 0
        if tally.grown is not None and tally.grown > GROWN_ABOVE:
            grown[cell] = max(tally.grown, grown.get(cell, 0))
    diagnostics: list[CellDiagnostic] = list(_from_cache(totals))
    if grown:
        diagnostics.append(ThinImage(tuple(sorted(grown)), max(grown.values())))
    times = tuple(times)
    fast = [
        ClockTrouble(cells[time.cell], time.measurement, time.measured_seconds, time.wall_seconds)
        for time in times
        if time.measured_seconds is not None
        and time.wall_seconds
        and time.measured_seconds > time.wall_seconds * CLOCK_TOLERANCE
    ]
    if fast:
        diagnostics.append(max(fast, key=lambda clock: clock.counted_seconds / clock.host_seconds))
    stolen = [
        (share, cells[time.cell]) for time in times if (share := _stolen(time, cpus)) > STOLEN_ABOVE
    ]
    if stolen:
        share, cell = max(stolen)
        diagnostics.append(NoisyNeighbour(len(stolen), share, cell))
    return tuple(diagnostics)


def _stolen(time: TimedMeasurement, cpus: int | None) -> float:
    """The share of all CPU time that the hypervisor took; 0 if it is unknown."""
    if time.steal_seconds is None or not cpus or not time.wall_seconds:
        return 0.0
    return min(time.steal_seconds / (time.wall_seconds * cpus), 1.0)


def _from_cache(
    totals: Mapping[tuple[MeasuredCell, str, Direction], Sequence[int]],
) -> Iterable[FromPageCache]:
    shares = {key: reached / requested for key, (requested, reached) in totals.items()}
    for key in sorted(key for key, share in shares.items() if share < FROM_CACHE_BELOW):
        yield FromPageCache(*key, share=shares[key])


SERVED_FROM_CACHE = "accepted, served from a cache"
"""The read-back value for a file system that serves O_DIRECT from its cache."""

_UNKNOWN = "of an unknown version"


def direct_diagnostics(
    runs: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> tuple[NotDirect, ...]:
    """Cells that should bypass caches but were on a ZFS version that does not, by version."""
    by_version: dict[str, list[MeasuredCell]] = {}
    for run in runs:
        cell = cells[run.cell]
        checks = {name: value for name, _, value in run.checks}
        if cell.page_cache is not PageCache.BYPASSED:
            continue
        if checks.get("host.zfs.o_direct") == SERVED_FROM_CACHE:
            by_version.setdefault(checks.get("host.zfs.version", _UNKNOWN), []).append(cell)
    return tuple(NotDirect(tuple(sorted(group)), version) for version, group in by_version.items())


_QUEUE_SETTINGS = tuple(
    f"{side}.{setting}"
    for side in ("guest", "host")
    for setting in ("scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec")
)


def queue_diagnostics(runs: Iterable[Example]) -> Iterator[QueueDiffers]:
    """The settings of disks' queues that differ between cells, although no path sets them."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in _QUEUE_SETTINGS}
    for run in runs:
        for name, requested, value in run.checks:
            if name in counts and requested is None:
                counts[name][value] += 1
    for name, values in counts.items():
        if len(values) > 1:
            yield QueueDiffers(name, tuple(values.most_common()))


def age_diagnostics(runs: Iterable[Example], cells: Mapping[str, MeasuredCell]) -> Iterator[Aged]:
    """What --age did to the images, as it was read back; one for each age."""
    ages: dict[str, tuple[set[tuple[MeasuredCell, int, int]], ...]] = {}
    for run in runs:
        seen = {name: value for name, _, value in run.checks}
        age = seen.get("host.age.state")
        if age is None:
            continue
        for what, pieces in zip(
            ("file", "image"), ages.setdefault(age, (set(), set())), strict=True
        ):
            names = [f"host.age.{what}_extents_{when}" for when in ("before", "after")]
            counts = [int(seen[name]) for name in names if name in seen]
            if len(counts) == len(names) and (what == "file" or counts[0] != counts[1]):
                pieces.add((cells[run.cell], counts[0], counts[1]))
    for age, (file, disk) in ages.items():
        yield Aged(age, tuple(sorted(file)), tuple(sorted(disk)))


FITS_BELOW = 0.8

_SAVING = {"powersave", "ondemand", "conservative", "schedutil"}


def host_diagnostics(
    campaigns: Sequence[Campaign], cells: Iterable[MeasuredCell]
) -> tuple[FitsInMemory | FrequencyGovernor | HostChanged | SeveralGuests | OpenLoad, ...]:
    """Diagnostics from plan and host, for one or more campaigns of one machine.

    `cells` are the cells in the answer.
    """
    diagnostics: list[
        FitsInMemory | FrequencyGovernor | HostChanged | SeveralGuests | OpenLoad
    ] = []
    if not campaigns:
        return ()
    host = campaigns[0].host
    size, memory = campaigns[0].plan.get("size_bytes"), host.memory_bytes
    numbers = numbers_of_guests(measured := tuple(cells))
    if max(numbers, default=1) > 1:
        diagnostics.append(SeveralGuests(numbers))
    if any(has_open_load(campaign.plan) for campaign in campaigns):
        diagnostics.append(OpenLoad())
    cached = sum(cell.page_cache is not PageCache.BYPASSED for cell in measured)
    if isinstance(size, int) and memory and cached and size < FITS_BELOW * memory:
        diagnostics.append(FitsInMemory(cached, size, memory))
    governor = host.more.get("governor")
    if governor in _SAVING:
        diagnostics.append(FrequencyGovernor(governor))
    facts = [_facts(campaign) for campaign in campaigns]
    for name in dict.fromkeys(name for host_facts in facts for name in host_facts):
        values = tuple(dict.fromkeys(host_facts.get(name, "unknown") for host_facts in facts))
        if len(values) > 1:
            diagnostics.append(HostChanged(name.replace("_", " "), values))
    return tuple(diagnostics)


def _facts(campaign: Campaign) -> dict[str, str]:
    """The facts of a machine that influence its numbers and can change."""
    host = campaign.host
    named = {
        "kernel": host.kernel,
        "cpu": host.cpu,
        "cpus": str(host.cpus),
        "memory": str(host.memory_bytes),
        "QEMU": host.qemu or "none",
        "fio": host.fio or "none",
    }
    return {**named, **{name: value for name, value in host.more.items() if name in _DECIDING}}


_DECIDING = ("governor", "mitigations", "smt", "microcode", "qemu_img", "virtualised")

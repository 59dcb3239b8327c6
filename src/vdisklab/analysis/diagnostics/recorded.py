"""Diagnostics from recorded evidence: counters, checks, plan and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, OfMeasurement
from vdisklab.analysis.measure_words import key_words
from vdisklab.analysis.observations import MeasureKey, Observations
from vdisklab.analysis.score import MIX, Score
from vdisklab.path.cell import MeasuredCell, numbers_of_guests
from vdisklab.path.durability import promise_of
from vdisklab.path.segments import PageCache
from vdisklab.plan.cache_memory import parse_cache_memory
from vdisklab.plan.profile import RATE
from vdisklab.results.model import (
    MAY_BE_DIRTY,
    Campaign,
    CellSums,
    Direction,
    Example,
    TimedMeasurement,
)
from vdisklab.units import counted, format_bytes, in_percent, named
from vdisklab.value import replace

_MOST_AGED = 6
"""Maximum number of cells that a sentence lists with their fragments."""


FROM_CACHE_BELOW = 0.5
"""If less than this share of the bytes reached the device, the page cache was measured."""

SUSTAINED = "sustained"
"""The metric of writes that counts the time until they are on the disk."""

_OF_SUSTAINED = frozenset({*(score.key for score in Score), MIX})
"""The scores that are made of it where it was measured."""

_COLD_FROM = 0.9
"""If a cold cell read less than this share from the device, the page cache changed its number."""

STOLEN_ABOVE = 0.02
GROWN_ABOVE = 1 << 20
CLOCK_TOLERANCE = 1.02
SERVED_FROM_CACHE = "accepted, served from a cache"
"""The read-back value for a file system that serves O_DIRECT from its cache."""

_UNKNOWN = "of an unknown version"
_QUEUE_SETTINGS = tuple(
    f"{side}.{setting}"
    for side in ("guest", "host")
    for setting in ("scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec")
)

FITS_BELOW = 0.8
_SAVING = {"powersave", "ondemand", "conservative", "schedutil"}
_DECIDING = ("governor", "mitigations", "smt", "microcode", "qemu_img", "virtualised")


class FromPageCache(OfMeasurement):
    """Only a `share` (0 to 1) of the bytes read or written reached the device during the run.

    `lasting` is true of writes with a sustained rate, which counts the time until the device had
    the rest.
    """

    cell: MeasuredCell
    measurement: str
    direction: Direction
    share: float
    lasting: bool = False

    def shows_memory(self, measure: MeasureKey) -> bool:
        """True if a number of this measure, of this measurement, shows memory instead of a disk."""
        return not (self.lasting and (measure.metric == SUSTAINED or measure in _OF_SUSTAINED))

    def __str__(self) -> str:
        what = key_words(self.measurement, seconds=self.runtime)
        path = self.cell.path
        far = "server" if path is not None and promise_of(path) is not None else "device"
        if self.lasting:
            return (
                f"{self.cell} in {what}: only {in_percent(self.share)} of "
                f"the bytes reached the {far} while the program wrote. The sustained rate counts "
                "the time until the rest had; other numbers show a burst into the host's memory."
            )
        if self.direction is Direction.WRITE:
            return (
                f"{self.cell} in {what}: wrote into the host's page cache; "
                f"only {in_percent(self.share)} of the bytes reached the {far} meanwhile. Look at "
                "cache=none, or measure longer (--runtime) with a larger --size."
            )
        return (
            f"{self.cell} in {what}: read from the host's page cache; only "
            f"{in_percent(self.share)} of the bytes came from the {far}. Look at cache=none, or "
            "measure with a --size larger than the host's memory."
        )


class ColdInPart(Diagnostic):
    """Cells with a cold page cache whose measurements read part of their bytes from it.

    `share` (0 to 1) of the bytes came from the device in the measurement with the lowest share.
    """

    cells: tuple[MeasuredCell, ...]
    share: float

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: only {in_percent(self.share)} of the bytes read came from the "
            "disk. What is read a second time comes from the host's page cache. Measure with a "
            "larger --size or a shorter --runtime."
        )


class FitsInMemory(Diagnostic):
    """The measured disk fits into the host's memory, and these cells use the page cache.

    With `--cache-memory` (`bounded`) the memory is what its pages may take. `lasting` is true if
    writes have sustained rates.
    """

    cells: int
    size_bytes: int
    memory_bytes: int
    bounded: bool = False
    lasting: bool = False

    def __str__(self) -> str:
        memory = "--cache-memory" if self.bounded else "the host's memory"
        wait = (
            "may read from it without the disk"
            if self.lasting
            else "may never wait for the real disk"
        )
        return (
            f"The measured disk ({format_bytes(self.size_bytes)}) fits into {memory} "
            f"({format_bytes(self.memory_bytes)}): {counted(self.cells, 'cell')} with the page "
            f"cache {wait}. Measure with a larger --size, or look at cache=none."
        )


class ThinImage(Diagnostic):
    """Images that grew while they were measured; `bytes_grown` is the largest growth in a run."""

    cells: tuple[MeasuredCell, ...]
    bytes_grown: int

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: the image grew while it was measured (by "
            f"{format_bytes(self.bytes_grown)} in one run): first writes are slower than later "
            "ones, and reads of unwritten areas need no disk. Compare with an allocated "
            "image, without :preallocation=off."
        )


class ClockTrouble(Diagnostic):
    """A program counted more seconds than passed on the host: the guest's clock runs fast."""

    cell: MeasuredCell
    measurement: str
    counted_seconds: float
    host_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.cell} in {key_words(self.measurement)}: the program counted "
            f"{self.counted_seconds:.3g} s while {self.host_seconds:.3g} s passed on the host: the "
            "guest's clock is wrong, and so are its rates. Check its clocksource."
        )


class FrequencyGovernor(Diagnostic):
    """The processor's frequency was set by a power-saving governor."""

    governor: str

    def __str__(self) -> str:
        return (
            f"The frequency governor of the processor was {self.governor!r}: short requests wait "
            "for it to speed up. Use `cpupower frequency-set -g performance`."
        )


class NoisyNeighbour(Diagnostic):
    """The hypervisor took CPU time: `share` of all CPUs in the worst of `measurements`."""

    measurements: int
    share: float
    cell: MeasuredCell

    def __str__(self) -> str:
        return (
            f"The hypervisor took up to {in_percent(self.share)} of the CPU time ({self.cell}) in "
            f"{counted(self.measurements, 'measurement')}: other guests share this machine. "
            "Measure at a quiet time, or more rounds."
        )


class NotDirect(Diagnostic):
    """ZFS accepted O_DIRECT but served it from its cache; `version` is that of ZFS."""

    cells: tuple[MeasuredCell, ...]
    version: str

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: ZFS {self.version} accepts O_DIRECT and serves it from its "
            "cache (ARC), so this was not direct I/O. Limit the cache (--arc) or "
            "zfs:primarycache=metadata, or measure a larger --size."
        )


class AllMayBeDirty(Diagnostic):
    """Cells whose bounded memory (`--cache-memory`) was a control group of version 1."""

    cells: tuple[MeasuredCell, ...]

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: with control groups of version 1 all of --cache-memory may hold "
            "writes that have not reached the disk; a host lets a fifth of its memory do so. So "
            "random writes through the page cache look faster here: measure them on a host with "
            "version 2."
        )


class HostChanged(Diagnostic):
    """Joined campaigns of one machine whose facts differ."""

    fact: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"The joined campaigns differ in {self.fact}: {', '.join(self.values)}. Differences "
            "between them may come from that; name one --campaign."
        )


class QueueDiffers(Diagnostic):
    """A setting of the disk's queue, in the guest or on the host, that no path requests.

    `values` are its values with the number of cells that have each.
    """

    setting: str
    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        side, _, name = self.setting.partition(".")
        shares = ", ".join(f"{value} ({counted(count, 'cell')})" for value, count in self.values)
        return (
            f"The cells differ in {name} of the disk's queue ({side}), which no path sets: "
            f"{shares}. Differences may come from that; guest_scheduler sets the guest's scheduler."
        )


class Aged(Diagnostic):
    """The campaign aged its images (`--age`). For each cell: the pieces of the image's file before
    and after the rewrites, and those of the disk in the image if they changed. Unknown numbers are
    left out.
    """

    age: str
    file: tuple[tuple[MeasuredCell, int, int], ...]
    disk: tuple[tuple[MeasuredCell, int, int], ...]

    def __str__(self) -> str:
        sentences = [f"Everything was aged first (--age {self.age})."]
        for what, pieces in (("the image's file", self.file), ("the disk in the image", self.disk)):
            counts = [f"{cell} {before} and {after}" for cell, before, after in pieces]
            more = ", …" if len(counts) > _MOST_AGED else ""
            shown = f"{', '.join(counts[:_MOST_AGED])}{more}"
            if counts:
                sentences.append(f"Pieces of {what} before the rewrites and after: {shown}.")
        return " ".join(sentences)


class SeveralGuests(Diagnostic):
    """Cells were measured in `numbers` of guests at once; a rate is the sum over the guests.

    With `disks` so many disks were made at once. `command` looks at one number alone. With `fewest`
    only those of the first number are in the answer.
    """

    numbers: tuple[int, ...]
    disks: bool = False
    command: str | None = None
    fewest: bool = False

    def __str__(self) -> str:
        if len(self.numbers) == 1:
            (number,) = self.numbers
            if self.disks:
                return f"{number} disks were made at once: a time is that of the last of them."
            return f"Rates are summed over {number} guests."
        which = ", ".join(map(str, self.numbers))
        if self.fewest:
            these = "made alone" if self.numbers[0] == 1 else f"made {self.numbers[0]} at once"
            return (
                f"This is about disks {these}; about {self.numbers[-1]} at once: `{self.command}`."
            )
        said = f"Paths were measured in {which} guests at once. Rates are sums over all guests, and"
        if self.disks:
            said = f"Disks were made {which} at once, and"
        way = f"compare {'disks' if self.disks else 'paths'} with the same number."
        if self.command is not None:
            way = f"`{self.command}` ranks those of one number."
        return f"{said} times grow with their number: {way}"


class OpenLoad(Diagnostic):
    """Each guest sent requests at a given rate, so rates show that load."""

    def __str__(self) -> str:
        return (
            "The load was fixed: rates show the requested load, not what a path can do. Compare "
            "latencies instead: `vdisklab rank --metric MEASUREMENT/write/latency_p99`."
        )


def has_open_load(plan: Mapping[str, Any]) -> bool:
    """True for a stored plan with a measurement that sends requests at a given rate."""
    return any(
        RATE in measurement.get("settings", {}) for measurement in plan.get("measurements", ())
    )


def evidence_diagnostics(
    sums: Iterable[CellSums],
    times: Iterable[TimedMeasurement],
    cells: Mapping[str, MeasuredCell],
    reported: Collection[tuple[str, Direction]],
    cpus: int | None,
) -> tuple[Diagnostic, ...]:
    """All diagnostics from evidence; `cells` are by fingerprint.

    `reported` has the directions that each measurement's program reported. `cpus` is the host's
    number of CPUs, for the share of steal time; None skips steal time.
    """
    totals: dict[tuple[MeasuredCell, str, Direction], list[int]] = {}
    grown: dict[MeasuredCell, int] = {}
    for cell_sums in sums:
        cell = cells[cell_sums.cell]
        transfers = {
            Direction.READ: (cell_sums.read_requested, cell_sums.read_reached),
            Direction.WRITE: (cell_sums.write_requested, cell_sums.write_reached),
        }
        for direction, (requested, reached) in transfers.items():
            if requested and not cell.is_null and (cell_sums.measurement, direction) in reported:
                total = totals.setdefault((cell, cell_sums.measurement, direction), [0, 0])
                total[0] += requested
                total[1] += reached or 0
        # A disk that is made while it is measured grows because that is measured.
        is_made = cell.path is not None and cell.path.attachment.made is not None
        if cell_sums.grown is not None and cell_sums.grown > GROWN_ABOVE and not is_made:
            grown[cell] = max(cell_sums.grown, grown.get(cell, 0))
    diagnostics: list[Diagnostic] = [*_from_cache(totals), *_cold_in_part(totals)]
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


def _cold_in_part(
    totals: Mapping[tuple[MeasuredCell, str, Direction], Sequence[int]],
) -> Iterable[ColdInPart]:
    shares = [
        (share, cell)
        for (cell, _, direction), (requested, reached) in totals.items()
        if direction is Direction.READ
        and cell.page_cache is PageCache.COLD
        and FROM_CACHE_BELOW <= (share := reached / requested) < _COLD_FROM
    ]
    if shares:
        yield ColdInPart(tuple(sorted({cell for _, cell in shares})), min(shares)[0])


def direct_diagnostics(
    runs: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> tuple[NotDirect, ...]:
    """Cells that should bypass caches but ran on ZFS versions that do not, by version."""
    by_version: dict[str, list[MeasuredCell]] = {}
    for run in runs:
        cell = cells[run.cell]
        checks = {name: value for name, _, value in run.checks}
        if cell.page_cache is not PageCache.BYPASSED:
            continue
        if checks.get("host.zfs.o_direct") == SERVED_FROM_CACHE:
            by_version.setdefault(checks.get("host.zfs.version", _UNKNOWN), []).append(cell)
    return tuple(NotDirect(tuple(sorted(group)), version) for version, group in by_version.items())


def dirty_diagnostics(
    runs: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> tuple[AllMayBeDirty, ...]:
    """The cells in whose memory, as read back, all pages could be dirty."""
    found = {
        cells[run.cell]
        for run in runs
        for name, _, value in run.checks
        if name == "host.cache_memory" and value.endswith(MAY_BE_DIRTY)
    }
    cached = tuple(sorted(cell for cell in found if cell.page_cache is not PageCache.BYPASSED))
    return (AllMayBeDirty(cached),) if cached else ()


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
    """How --age changed the images, as read back; one diagnostic for each age."""
    ages: dict[str, tuple[set[tuple[MeasuredCell, int, int]], ...]] = {}
    for run in runs:
        observed = {name: value for name, _, value in run.checks}
        age = observed.get("host.age.state")
        if age is None:
            continue
        for what, pieces in zip(
            ("file", "image"), ages.setdefault(age, (set(), set())), strict=True
        ):
            names = [f"host.age.{what}_extents_{when}" for when in ("before", "after")]
            counts = [int(observed[name]) for name in names if name in observed]
            if len(counts) == len(names) and (what == "file" or counts[0] != counts[1]):
                pieces.add((cells[run.cell], counts[0], counts[1]))
    for age, (file, disk) in ages.items():
        yield Aged(age, tuple(sorted(file)), tuple(sorted(disk)))


def with_lasting(
    found: Iterable[FromPageCache], observations: Observations
) -> Iterator[FromPageCache]:
    """The same findings, of which those of writes with a sustained rate say so."""
    measured: dict[str, npt.NDArray[np.bool_]] = {
        key.name: np.asarray(np.isfinite(observations.grid(key)).any(axis=1))
        for key in observations.used
        if key.metric == SUSTAINED
    }
    for finding in found:
        cells = measured.get(finding.measurement)
        is_lasting = (
            finding.direction is Direction.WRITE
            and cells is not None
            and bool(cells[observations.place[finding.cell]])
        )
        yield replace(finding, lasting=is_lasting)


def has_sustained(observations: Observations) -> bool:
    """True if writes have sustained rates."""
    return any(key.metric == SUSTAINED for key in observations.used)


def diagnostics_of_all(
    campaigns: Sequence[Campaign], numbers: Observations
) -> tuple[Diagnostic, ...]:
    """`host_diagnostics` of all cells of these numbers."""
    return host_diagnostics(campaigns, numbers.cells, lasting=has_sustained(numbers))


def host_diagnostics(
    campaigns: Sequence[Campaign], cells: Iterable[MeasuredCell], *, lasting: bool = False
) -> tuple[Diagnostic, ...]:
    """Diagnostics from plan and host, for one or more campaigns of one machine.

    `cells` are the cells in the answer; `lasting` is true if writes have sustained rates.
    """
    diagnostics: list[Diagnostic] = []
    if not campaigns:
        return ()
    host = campaigns[0].host
    size, memory = campaigns[0].plan.get("size_bytes"), host.memory_bytes
    numbers = numbers_of_guests(measured := tuple(cells))
    if max(numbers, default=1) > 1:
        paths = (cell.path for cell in measured)
        disks = any(path is not None and path.attachment.made is not None for path in paths)
        diagnostics.append(SeveralGuests(numbers, disks=disks))
    if any(has_open_load(campaign.plan) for campaign in campaigns):
        diagnostics.append(OpenLoad())
    cached = sum(cell.page_cache is not PageCache.BYPASSED for cell in measured)
    bound = campaigns[0].plan.get("cache_memory")
    if isinstance(size, int) and isinstance(bound, str):
        memory = parse_cache_memory(bound).of(size)
    if isinstance(size, int) and memory and cached and size < FITS_BELOW * memory:
        bounded = isinstance(bound, str)
        diagnostics.append(FitsInMemory(cached, size, memory, bounded, lasting))
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

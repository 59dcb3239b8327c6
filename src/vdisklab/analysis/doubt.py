"""Why a number may not mean what it seems to: each doubt is a type, its sentence in `wording`.

Found from three things: the values of the blocks in their order, the evidence beside each
measurement (`result.model.Witnessed`, streamed and added up), and the facts of plan and host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vdisklab.analysis.compare import paired_ratios
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.observations import (
    Floats,
    MeasureKey,
    Observations,
    cell_label,
    logarithms,
    split_label,
)
from vdisklab.plan.segments import PageCache
from vdisklab.result.model import Better, Campaign, Counted, Direction, Run, Witnessed

FROM_CACHE_BELOW = 0.5
"""When less than this share of the bytes reached the device, the number is the page cache's."""

TREND_FROM = 5
"""A trend needs so many blocks: of four, Kendall's test cannot reach 5 %."""

SMALLEST_TREND = 0.05
FIRST_RUN_FROM = 4
SLOW_FIRST_BELOW = 0.9
CEILING_SHARE = 0.95
GUEST_CEILING_SHARE = 0.8
STOLEN_ABOVE = 0.02
GROWN_ABOVE = 1 << 20
FITS_BELOW = 0.8
CLOCK_TOLERANCE = 1.02
SMALLEST_MODE_RATIO = 1.15

_MODES_FROM = (8, 10, 12, 15, 20, 30, 50, 100)
_MODES_LIMIT = (15.5, 11.6, 9.1, 7.6, 6.1, 5.0, 4.2, 3.7)
"""99.99 % quantiles of `_two_modes` for normal noise (200,000 simulated cells for each n)."""


@dataclass(frozen=True, slots=True)
class FromPageCache:
    """Few of the bytes that were read or written reached the device meanwhile (`share` 0 to 1)."""

    cell: str
    measurement: str
    direction: Direction
    share: float


@dataclass(frozen=True, slots=True)
class Drift:
    """All cells went one way from block to block: `change` is last over first, less one."""

    measure: str
    campaign: str
    blocks: int
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class SlowFirstBlock:
    """The first block of a campaign is `factor` (below 1) times as good as the others."""

    measure: str
    campaign: str
    factor: float


@dataclass(frozen=True, slots=True)
class Bimodal:
    """A cell's blocks fall into two groups, `low` and `high` apart by `high / low`."""

    cell: str
    measure: str
    low: float
    high: float
    share_high: float


@dataclass(frozen=True, slots=True)
class FitsInMemory:
    """The measured disk fits into the host's memory, and these cells use the page cache."""

    cells: int
    size_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GuestCeiling:
    """Cells that reach `share` of what the guest does with no disk at all below it."""

    cells: tuple[str, ...]
    measure: str
    ceiling: str
    share: float


@dataclass(frozen=True, slots=True)
class DeviceCeiling:
    """Cells as good as the same workload on the host: the device, not the path, is measured."""

    cells: tuple[str, ...]
    measure: str
    ceiling: str
    share: float


@dataclass(frozen=True, slots=True)
class ThinImage:
    """Images that grew while they were measured; `bytes_grown` is the most of one run."""

    cells: tuple[str, ...]
    bytes_grown: int


@dataclass(frozen=True, slots=True)
class ClockTrouble:
    """A program counted more seconds than passed on the host: the guest's clock runs fast."""

    cell: str
    measurement: str
    counted_seconds: float
    host_seconds: float


@dataclass(frozen=True, slots=True)
class FrequencyGovernor:
    """The processor's clock was left to a governor that saves power."""

    governor: str


@dataclass(frozen=True, slots=True)
class NoisyNeighbour:
    """A hypervisor below took CPU time: `share` of all CPUs' in the worst of `measurements`."""

    measurements: int
    share: float
    cell: str


@dataclass(frozen=True, slots=True)
class HostChanged:
    """Joined campaigns of one machine whose facts differ."""

    fact: str
    values: tuple[str, ...]


Doubt = (
    FromPageCache
    | Drift
    | SlowFirstBlock
    | Bimodal
    | FitsInMemory
    | GuestCeiling
    | DeviceCeiling
    | ThinImage
    | ClockTrouble
    | FrequencyGovernor
    | NoisyNeighbour
    | HostChanged
)


# --- values over blocks ----------------------------------------------------------------------


def drift_findings(observations: Observations, measure: MeasureKey) -> tuple[Drift, ...]:
    """A trend over the blocks of each campaign, by Kendall's rank test (Mann 1945, Kendall 1938).

    Tested is what all cells of a block have in common; ratios and ranks are free of it, medians
    are not. Trends below 5 % are not worth a sentence.
    """
    from scipy import stats  # noqa: PLC0415 - takes 1.5 s to load, and is needed here only

    found = []
    for campaign, effects in _block_effects(observations, measure).items():
        if len(effects) < TREND_FROM:
            continue
        order = np.arange(len(effects))
        p = float(stats.kendalltau(order, effects).pvalue)
        slope = float(stats.theilslopes(effects, order)[0])
        change = math.exp(slope * (len(effects) - 1)) - 1
        if p <= 0.05 and abs(change) >= SMALLEST_TREND:
            found.append(Drift(str(measure), campaign, len(effects), change, p))
    return tuple(found)


def first_block_findings(
    observations: Observations, measure: MeasureKey
) -> tuple[SlowFirstBlock, ...]:
    """First blocks below the 99 % prediction of the others, and a tenth worse or more."""
    sign = 1.0 if measure.quantity.better is Better.HIGHER else -1.0
    found = []
    for campaign, effects in _block_effects(observations, measure).items():
        if len(effects) < FIRST_RUN_FROM:
            continue
        first, rest = sign * effects[0], sign * effects[1:]
        spread = float(rest.std(ddof=1)) * math.sqrt(1 + 1 / len(rest))
        below = float(rest.mean()) - first
        factor = math.exp(-below)
        if factor <= SLOW_FIRST_BELOW and below > float(t_isf(0.01, len(rest) - 1)) * spread:
            found.append(SlowFirstBlock(str(measure), campaign, factor))
    return tuple(found)


def _block_effects(observations: Observations, measure: MeasureKey) -> dict[str, Floats]:
    """By campaign: the mean of the cells' logarithms in each block, over cells in all of them.

    Block names end in their number, so that sorted names are in the order of time.
    """
    logs = logarithms(observations.grid(measure))
    campaigns = [block.rpartition("/")[0] for block in observations.blocks]
    effects = {}
    for campaign in dict.fromkeys(campaigns):
        columns = [place for place, name in enumerate(campaigns) if name == campaign]
        part = logs[:, columns]
        part = part[:, np.isfinite(part).any(axis=0)]
        whole = part[np.isfinite(part).all(axis=1)]
        if len(whole) and whole.shape[1]:
            effects[campaign] = whole.mean(axis=0)
    return effects


def bimodal_findings(observations: Observations, measure: MeasureKey) -> tuple[Bimodal, ...]:
    """Cells of eight blocks and more whose values are in two groups, after the blocks' own part.

    The distance of the two means over the spread within is held against its 99.99 % quantile
    under one normal mode, so about one cell in 10,000 is named wrongly.
    """
    logs = logarithms(observations.grid(measure))
    count = np.isfinite(logs).sum(axis=1)
    if not (count >= _MODES_FROM[0]).any():
        return ()
    centre = np.nanmedian(logs[count > 0], axis=1)
    # The block's part by medians, so that one cell in its other mode does not move it.
    with np.errstate(invalid="ignore"):
        seen = np.isfinite(logs[count > 0]).any(axis=0)
        block = np.zeros(logs.shape[1])
        if (count > 0).sum() > 2:
            block[seen] = np.nanmedian((logs[count > 0] - centre[:, None])[:, seen], axis=0)
    adjusted = np.sort(logs - block, axis=1)  # NaN last
    found: dict[int, Bimodal] = {}
    for n in np.unique(count[count >= _MODES_FROM[0]]):
        limit = float(np.interp(n, _MODES_FROM, _MODES_LIMIT))
        rows = np.flatnonzero(count == n)
        values = adjusted[rows, :n]
        distance, cut = _two_modes(values)
        for place in np.flatnonzero(distance > limit):
            at = int(cut[place])
            low, high = float(values[place, :at].mean()), float(values[place, at:].mean())
            if high - low >= math.log(SMALLEST_MODE_RATIO):
                cell = observations.cells[rows[place]]
                share = 1 - at / int(n)
                found[int(rows[place])] = Bimodal(
                    cell, str(measure), math.exp(low), math.exp(high), share
                )
    return tuple(found[row] for row in sorted(found))


def _two_modes(values: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """By row the largest distance of two groups' means over the spread within, and its place.

    Rows are sorted; each group has two of the values and a fifth of them at least.
    """
    rows, n = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sums, squares = centred.cumsum(axis=1), (centred**2).cumsum(axis=1)
    best, at = np.zeros(rows), np.full(rows, n // 2, dtype=np.int64)
    least = max(2, math.ceil(n / 5))
    for cut in range(least, n - least + 1):
        low, high = sums[:, cut - 1] / cut, (sums[:, -1] - sums[:, cut - 1]) / (n - cut)
        within = squares[:, -1] - cut * low**2 - (n - cut) * high**2
        spread = np.sqrt(np.maximum(within, 1e-18) / (n - 2))
        distance = (high - low) / spread
        better = distance > best
        best[better], at[better] = distance[better], cut
    return best, at


# --- ceilings --------------------------------------------------------------------------------


def ceiling_findings(
    observations: Observations, measure: MeasureKey, cached: Iterable[str]
) -> tuple[GuestCeiling | DeviceCeiling, ...]:
    """Guests that are limited by the virtual machine or by the device, not by their path.

    The null device (`null/…`) shows what the guest can do with no disk below, `host` what the
    device can do without a guest. Cells whose numbers are the page cache's (`cached`) are not
    held against the device.
    """
    found: list[GuestCeiling | DeviceCeiling] = []
    nulls = [cell for cell in observations.cells if is_null(cell)]
    hosts = [cell for cell in observations.cells if is_on_host(cell)]
    for ceiling in nulls:
        bus = ceiling.split("/")[2:]
        others = [
            cell
            for cell in observations.cells
            if cell not in (*nulls, *hosts) and _bus_of(cell) == bus
        ]
        near = _reaching(observations, measure, others, ceiling, GUEST_CEILING_SHARE)
        if near:
            found.append(GuestCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    memory = set(cached)
    for ceiling in hosts:
        stack = ceiling.split("/")[:-1]
        others = [
            cell
            for cell in observations.cells
            if cell not in (*nulls, *hosts, *memory)
            and split_label(cell)[1] != PageCache.WARM
            and _layers_of(cell) == stack
        ]
        near = _reaching(observations, measure, others, ceiling, CEILING_SHARE)
        if near:
            found.append(DeviceCeiling(tuple(near), str(measure), ceiling, max(near.values())))
    return tuple(found)


def is_null(label: str) -> bool:
    """A null-co disk has no device below; nothing can reach it."""
    return any(segment.partition(":")[0] == "null" for segment in label.split("/"))


def is_on_host(label: str) -> bool:
    """True for a cell that is measured without a guest."""
    return label.rsplit("/", maxsplit=1)[-1] == "host"


_NOT_LAYERS = {"raw", "qcow2", "vmdk", "vdi", "vhdx", "qed", "null"}
_CACHE_MODES = {"default", "none", "writeback", "writethrough", "directsync", "unsafe"}


def _bus_of(label: str) -> list[str]:
    """The segments after the cache mode: nothing for virtio."""
    parts = split_label(label)[0].split("/")
    at = next((place for place, part in enumerate(parts) if part in _CACHE_MODES), len(parts))
    return parts[at + 1 :]


def _layers_of(label: str) -> list[str]:
    """The segments before format and cache mode."""
    parts = split_label(label)[0].split("/")
    stop = _NOT_LAYERS | _CACHE_MODES
    at = next(
        (place for place, part in enumerate(parts) if part.partition(":")[0] in stop), len(parts)
    )
    return parts[:at]


def _reaching(
    observations: Observations,
    measure: MeasureKey,
    cells: Sequence[str],
    ceiling: str,
    least: float,
) -> dict[str, float]:
    """Cells whose goodness is `least` of the ceiling's or more, by ratios within blocks.

    A cell better than the ceiling (above 1.05) is not limited by it and is left out.
    """
    if not cells:
        return {}
    grid = observations.grid(measure)
    places = [observations.cells.index(cell) for cell in cells]
    base = observations.cells.index(ceiling)
    ratios = paired_ratios(grid[places], grid[base : base + 1], forecast=False)
    higher = measure.quantity.better is Better.HIGHER
    shares = {
        cell: ratio.ratio if higher else 1 / ratio.ratio
        for cell, ratio in zip(cells, ratios, strict=True)
        if ratio.ratio is not None and ratio.pairs
    }
    return {cell: share for cell, share in shares.items() if least <= share <= 1.05}


# --- evidence beside each measurement ---------------------------------------------------------


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
    totals: dict[tuple[str, str, Direction], list[int]] = {}
    grown: dict[str, int] = {}
    clock: dict[tuple[str, str], ClockTrouble] = {}
    stolen: list[tuple[float, str]] = []
    for seen in witnessed:
        label = cell_label(seen.path, seen.page_cache)
        if not is_null(seen.path):
            for direction, (asked, reached) in _bytes(seen).items():
                total = totals.setdefault((label, seen.name, direction), [0, 0])
                total[0] += asked
                total[1] += reached
        growth = _growth(seen)
        if growth > GROWN_ABOVE:
            grown[label] = max(growth, grown.get(label, 0))
        counted = seen.measured_seconds
        if counted is not None and counted > seen.wall_seconds * CLOCK_TOLERANCE:
            trouble = ClockTrouble(label, seen.name, counted, seen.wall_seconds)
            clock.setdefault((label, seen.name), trouble)
        share = _stolen(seen, cpus)
        if share > STOLEN_ABOVE:
            stolen.append((share, label))
    found: list[Doubt] = list(_from_cache(totals))
    if grown:
        found.append(ThinImage(tuple(sorted(grown)), max(grown.values())))
    if clock:
        found.append(max(clock.values(), key=lambda each: each.counted_seconds / each.host_seconds))
    if stolen:
        share, label = max(stolen)
        found.append(NoisyNeighbour(len(stolen), share, label))
    return tuple(found)


def _stolen(seen: Witnessed, cpus: int | None) -> float:
    """The share of all CPUs' time that a hypervisor below took; 0 where nobody can say."""
    steal = seen.evidence.steal_seconds
    if steal is None or not cpus or seen.wall_seconds <= 0:
        return 0.0
    return min(steal / (seen.wall_seconds * cpus), 1.0)


def _from_cache(
    totals: Mapping[tuple[str, str, Direction], Sequence[int]],
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


# --- plan and host ----------------------------------------------------------------------------

_SAVING = {"powersave", "ondemand", "conservative", "schedutil"}


def host_findings(
    campaigns: Sequence[Campaign], observations: Observations
) -> tuple[FitsInMemory | FrequencyGovernor | HostChanged, ...]:
    """What plan and host alone give away. Joined campaigns are of one machine already."""
    found: list[FitsInMemory | FrequencyGovernor | HostChanged] = []
    host = campaigns[0].host
    size = campaigns[0].plan.get("size_bytes")
    cached = sum(split_label(cell)[1] != PageCache.BYPASSED for cell in observations.cells)
    if isinstance(size, int) and cached and size < FITS_BELOW * host.memory_bytes:
        found.append(FitsInMemory(cached, size, host.memory_bytes))
    governor = host.more.get("governor")
    if governor in _SAVING:
        found.append(FrequencyGovernor(governor))
    facts = [_facts(campaign) for campaign in campaigns]
    for name in dict.fromkeys(name for each in facts for name in each):
        values = tuple(dict.fromkeys(each.get(name, "unknown") for each in facts))
        if len(values) > 1:
            found.append(HostChanged(name.replace("_", " "), values))
    return tuple(found)


def _facts(campaign: Campaign) -> dict[str, str]:
    """The facts of a machine that decide its numbers and can change."""
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

"""`table`: the medians of campaigns as articles lay them out, in one directory or in several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any

from pydantic import ValidationError

from vdisklab.analysis.candidates import candidates
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.ranked import gate_diagnostics, slow_diagnostics
from vdisklab.analysis.measure_words import RUNTIME
from vdisklab.analysis.observations import Observations
from vdisklab.analysis.score import DEFAULT_METRIC, role_set
from vdisklab.analysis.summary import summarise
from vdisklab.answers import loading
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.joining import require_joined
from vdisklab.answers.measured_for import runtime_of
from vdisklab.answers.rank import RankAnswer, rank_cells
from vdisklab.as_text import AsText
from vdisklab.documents import Answer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Image
from vdisklab.path.durability import Durability, HostDisk, known_durability
from vdisklab.path.segments import ImageFormat
from vdisklab.results.model import Campaign, Direction, Origin, RunOutline
from vdisklab.results.store import Store
from vdisklab.value import HIDDEN, Value, replace
from vdisklab.workload.registry import SYSBENCH
from vdisklab.workload.sysbench import SysbenchSettings, fsync_options
from vdisklab.workload.systems import PROGRAM as INSTALL

Planned = Sequence[Mapping[str, Any]]
"""The measurements of a stored plan."""

# A replay at recorded times has latencies and no rate.
_RATES = ("bandwidth", "transactions", "iops", "latency_mean")
_TIME_SERIES = ("worst_second", "longest_stall")
_PERCENTILES = ("latency_p50", "latency_p95", "latency_p99", "latency_p99.9", "latency_max")


_IN_ROWS = {
    "bandwidth", "sustained", "iops", "latency_mean", "latency_p50", "latency_p95", "latency_p99",
    "latency_p99.9", "latency_max", "sync_p99", *_TIME_SERIES, "transactions", "duration",
    "allocated", "mapped", "flushes", "boot_time", "shutdown_time", "freed_guest", "freed_image",
    "freed_device", "writes", "host_syncs", "device_flushes",
}  # fmt: skip


class PlacedCell(AsText, Value, order=True):
    """A cell, and the place where it was measured if the answer has several places."""

    cell: MeasuredCell
    place: str = ""

    def __str__(self) -> str:
        return f"{self.cell} in {self.place}" if self.place else self.cell.label


class Medians(Value, dict=True):
    """The medians of observations, each in one place."""

    cells: tuple[PlacedCell, ...]
    runs: int
    values: Mapping[tuple[PlacedCell, str, Direction, str], float]

    @classmethod
    def of(cls, places: Mapping[str, Observations]) -> Medians:
        """The median of every measure of every cell. A single place has no name."""
        values = {
            (PlacedCell(cell, place), key.name, key.direction, str(key.metric)): summary.median
            for place, observations in places.items()
            for key in observations.measures
            for cell, summary in summarise(observations, key).items()
        }
        cells = (
            PlacedCell(cell, place)
            for place, observations in places.items()
            for cell in observations.cells
        )
        return cls(tuple(cells), max((len(of.rounds) for of in places.values()), default=0), values)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The measurements that have a number."""
        return tuple(dict.fromkeys(name for _, name, _, _ in self.values))

    def get(self, cell: PlacedCell, name: str, direction: Direction, metric: str) -> float | None:
        """One median, by cell and measure; None for what was not measured."""
        return self.values.get((cell, name, direction, metric))

    def time_series(
        self, cell: PlacedCell, name: str, direction: Direction
    ) -> dict[str, float | None]:
        """The worst second and the longest stall of this direction, or of both together."""
        return {
            metric: median
            if (median := self.get(cell, name, direction, metric)) is not None
            else self.get(cell, name, Direction.NONE, metric)
            for metric in _TIME_SERIES
        }


class TableCell(Value):
    """One measured cell."""

    cell: Annotated[PlacedCell, "ends in ` in DIRECTORY` if there are several directories"]
    power_cut: Annotated[Durability | None, "null on the host, and for a free name"]
    source: Annotated[str, "where its numbers come from"]


class MeasurementRow(Value):
    """The medians of one measurement, direction and cell."""

    measurement: str
    direction: Direction
    cell: PlacedCell
    bandwidth: float | None
    sustained: Annotated[float | None, "of writes: bytes by the time until the device had them"]
    iops: float | None
    latency_mean: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    latency_p99_9: float | None
    latency_max: float | None
    sync_p99: Annotated[float | None, "of the fsync calls alone; the other times are of writes"]
    worst_second: Annotated[float | None, "bytes in the smallest whole second of a run"]
    longest_stall: Annotated[float | None, "the longest time without a completion"]
    transactions: float | None
    runtime: Annotated[float | None, RUNTIME] = None


class GrowthRow(Value):
    """An installation: its time, and how the image grew."""

    measurement: str
    cell: PlacedCell
    seconds: float | None
    allocated: Annotated[float | None, "bytes by which the image grew on the host's file system"]
    mapped: Annotated[float | None, "bytes by which it grew in its format's own map"]
    flushes: Annotated[float | None, "those that QEMU received"]
    worst_second: float | None
    longest_stall: float | None
    to_again: Annotated[float | None, "ratio to the last installation on the same image"]
    to_allocated: Annotated[float | None, "ratio to the allocated image of the same format"]
    to_raw: Annotated[float | None, "ratio to the raw image"]


class BootRow(Value):
    """A boot and its shutdown."""

    measurement: str
    cell: PlacedCell
    boot_time: float
    worst_second: float | None
    longest_stall: float | None
    shutdown_time: float | None


class FreedRow(Value):
    """What the deletion of a file gave back; null where nothing counts it."""

    measurement: str
    cell: PlacedCell
    guest: Annotated[float | None, "bytes freed in the guest's file system"]
    image: Annotated[float | None, "bytes freed in the image, on the host's file system"]
    device: Annotated[
        float | None, "bytes that the host's devices were told to discard, by others too"
    ]


class FlushRow(Value):
    """What became of a program's writes on their way; null where nothing counts it."""

    measurement: str
    cell: PlacedCell
    writes: Annotated[float | None, "that the program in the guest did"]
    qemu_flushes: Annotated[float | None, "that QEMU received from the guest"]
    host_syncs: Annotated[float | None, "QEMU's calls of fsync and fdatasync on the host"]
    device_flushes: Annotated[
        float | None, "that the host's devices completed, those of others included"
    ]


class OtherMedian(Value):
    """A number that only a program's own layout shows."""

    measurement: str
    direction: Direction
    cell: PlacedCell
    metric: str
    median: float


class FsyncCalls(Diagnostic):
    """How often sysbench called fsync; `measurements` is empty if all of them did so."""

    options: str
    measurements: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = f" ({', '.join(self.measurements)})" if self.measurements else ""
        return (
            f"the number of sysbench's fsync calls decides the cost of a write: {self.options}"
            f"{names}"
        )


class UnknownFsyncCalls(Diagnostic):
    """Results of sysbench were imported."""

    def __str__(self) -> str:
        return "how often sysbench called fsync is not known for imported results"


class TableAnswer(Answer):
    """`vdisklab table`: medians over the runs; at least one of the lists has rows."""

    FORMAT = "vdisklab.table/2"

    campaigns: tuple[Campaign, ...]
    caveats: Caveats
    runs: Annotated[int, "each median is of at most so many runs"]
    places: Annotated[tuple[str, ...], "directories or devices, if several stand side by side"]
    cells: tuple[TableCell, ...]
    measurements: Annotated[tuple[MeasurementRow, ...], "in the profile's order"]
    growth: Annotated[tuple[GrowthRow, ...], "installations"]
    boots: tuple[BootRow, ...]
    freed: Annotated[tuple[FreedRow, ...], "deletions"]
    flushes: Annotated[tuple[FlushRow, ...], "measurements with `count_flushes`"]
    others: tuple[OtherMedian, ...]
    installations: Annotated[tuple[str, ...], "the measurements in `growth`"]
    of_sysbench: Annotated[tuple[str, ...], "measurements whose program counts in MiB/s"]
    findings: tuple[Diagnostic, ...]
    medians: Annotated[Medians, HIDDEN]

    @property
    def has_paths(self) -> bool:
        """True if a path that a guest could use was measured."""
        return any(candidates([row.cell.cell]) for row in self.cells)


def answer_table(
    results: Store, names: Sequence[str] | None, disk: HostDisk | None = None
) -> TableAnswer:
    """The medians of the named campaigns, or of the newest; those of one place are joined.

    `disk` is what the hosts' disks keep in a power cut.

    Raises PlanError for campaigns that differ in more than their host, directory or devices.
    """
    campaigns = tuple({item.id: item for item in map(results.campaign, names or ())}.values())
    places = _places(campaigns)
    if len(set(places.values())) < 2:
        loaded = loading.load_chosen(results, loading.choose_campaigns(results, names))
        return table_of(results, {"": loaded}, disk)
    require_joined(results, campaigns, places=True, machines=True)
    grouped: dict[str, list[str]] = {}
    for campaign in campaigns:
        grouped.setdefault(places[campaign.id], []).append(campaign.id)
    by_place = {place: loading.load(results, ids) for place, ids in grouped.items()}
    return table_of(results, by_place, disk)


def overview(analysis: Analysis, metric: str = DEFAULT_METRIC) -> RankAnswer | TableAnswer:
    """What to show after a run: a ranking, or all numbers if the profile has no score.

    Raises PlanError if nothing can be ranked.
    """
    observations = analysis.loaded.observations
    if metric == DEFAULT_METRIC and observations.measures and role_set(observations) is None:
        return table_of(analysis.results, {"": analysis.loaded}, analysis.disk)
    loading.require_numbers(analysis.loaded)
    return rank_cells(analysis, metric)


def table_of(
    results: Store, loaded: Mapping[str, loading.Loaded], disk: HostDisk | None = None
) -> TableAnswer:
    """The answer from loaded campaigns by their place; a single place has no name."""
    medians = Medians.of({place: campaigns.observations for place, campaigns in loaded.items()})
    campaigns = tuple(campaign for load in loaded.values() for campaign in load.campaigns)
    outlines = [run for load in loaded.values() for run in load.outlines]
    planned: Planned = campaigns[0].plan.get("measurements", ())
    installing = [
        str(measurement["name"]) for measurement in planned if measurement.get("program") == INSTALL
    ]
    growth = tuple(growth_rows(medians, installing))
    boots = tuple(boot_rows(medians))
    imported = any(run.origin is Origin.IMPORTED for run in outlines)
    slow = (slow_diagnostics(load.observations) for load in loaded.values())
    order = [str(measurement.get("name", "")) for measurement in planned]
    runtimes = {name: runtime_of(campaigns, name) for name in order}
    return TableAnswer(
        campaigns=campaigns,
        caveats=caveats_with_remedy(outlines, campaigns),
        runs=medians.runs,
        places=tuple(loaded) if len(loaded) > 1 else (),
        cells=tuple(_cells(results, loaded, disk)),
        measurements=tuple(
            replace(row, runtime=runtimes.get(row.measurement))
            for row in measurement_rows(medians, order)
        ),
        growth=growth,
        boots=boots,
        freed=tuple(freed_rows(medians)),
        flushes=tuple(flush_rows(medians)),
        others=tuple(
            OtherMedian(name, direction, cell, metric, value)
            for (cell, name, direction, metric), value in medians.values.items()
            if metric not in _IN_ROWS
        ),
        installations=tuple(dict.fromkeys(row.measurement for row in growth)),
        of_sysbench=of_sysbench(medians.names, planned),
        findings=(
            *fsync_diagnostics(medians.names, planned, imported=imported),
            *(finding for findings in slow for finding in findings),
            *(
                finding
                for load in loaded.values()
                for finding in gate_diagnostics(results.gates_not_met(load.ids), load.cells)
            ),
        ),
        medians=medians,
    )


def _places(campaigns: Collection[Campaign]) -> dict[str, str]:
    """The place of each campaign by its id; with its host, if there are several."""
    place_of = {campaign.id: _place_of(campaign) for campaign in campaigns}
    hosts = {campaign.host.machine_id: campaign.host.hostname for campaign in campaigns}
    if len(hosts) < 2:
        return place_of
    unique = len(set(hosts.values())) == len(hosts)
    names = {
        campaign.id: campaign.host.hostname if unique else campaign.host.machine_id
        for campaign in campaigns
    }
    if len(set(place_of.values())) < 2:
        return names
    return {name: f"{names[name]}: {place}" for name, place in place_of.items()}


def _place_of(campaign: Campaign) -> str:
    """The place of a campaign: its devices, else its directory."""
    devices = campaign.plan.get("devices") or ()
    return " + ".join(map(str, devices)) or str(campaign.plan.get("directory", "unknown"))


def _cells(
    results: Store, loaded: Mapping[str, loading.Loaded], disk: HostDisk | None
) -> Iterator[TableCell]:
    """Each cell with the verdict of its own place, by that host and its servers."""
    for place, load in loaded.items():
        verdicts = loading.verdicts_of_loaded(results, load, disk)
        # The operating system of a user's guest decides the program.
        in_user_guest = any("image" in other.plan.get("guest", {}) for other in load.campaigns)
        runs: dict[MeasuredCell, list[RunOutline]] = {}
        for run in load.outlines:
            if run.failure is None:
                runs.setdefault(run.measured_cell, []).append(run)
        for cell in load.observations.cells:
            source = _source(runs.get(cell, ()), in_user_guest=in_user_guest)
            kept = known_durability(cell, verdicts)
            yield TableCell(PlacedCell(cell, place), kept, source)


def _source(runs: Iterable[RunOutline], *, in_user_guest: bool) -> str:
    """The source of a cell's numbers: an imported file may be the original program's."""
    origins = {run.origin for run in runs}
    measured = "measured with fio"
    if in_user_guest and Origin.GUEST in origins:
        measured += ", or with DISKSPD where the guest is Windows"
    if Origin.IMPORTED not in origins:
        return measured
    return f"imported, or {measured}" if len(origins) > 1 else "imported"


def _in_order(found: dict[str, float]) -> dict[str, float]:
    """The medians of a row without a percentile that is below a lower one.

    A round with too few operations has no high percentile, so its median is that of other rounds.
    """
    highest = 0.0
    kept = dict(found)
    for metric in _PERCENTILES:
        value = found.get(metric)
        if value is not None and value < highest:
            del kept[metric]
        highest = max(highest, value or 0.0)
    return kept


def measurement_rows(medians: Medians, order: Sequence[str]) -> Iterator[MeasurementRow]:
    """All cells under each measurement with a rate.

    `order` is that of the profile; measurements that it lacks come last.
    """
    place = {name: number for number, name in enumerate(order)}
    measured = {
        (name, direction)
        for cell, name, direction, metric in medians.values
        if metric in _RATES
        or (metric in _TIME_SERIES and _has_only_time_series(medians, cell, name))
    }
    for name, direction in sorted(measured, key=lambda key: (place.get(key[0], len(place)), *key)):
        for cell in medians.cells:
            found = _in_order(
                {
                    metric: value
                    for metric in _IN_ROWS
                    if (value := medians.get(cell, name, direction, metric)) is not None
                }
            )
            if not found.keys() & set(_RATES) and not (
                direction is Direction.NONE and _has_only_time_series(medians, cell, name)
            ):
                continue
            yield MeasurementRow(
                measurement=name,
                direction=direction,
                cell=cell,
                bandwidth=found.get("bandwidth"),
                sustained=found.get("sustained"),
                iops=found.get("iops"),
                latency_mean=found.get("latency_mean"),
                latency_p50=found.get("latency_p50"),
                latency_p95=found.get("latency_p95"),
                latency_p99=found.get("latency_p99"),
                latency_p99_9=found.get("latency_p99.9"),
                latency_max=found.get("latency_max"),
                sync_p99=found.get("sync_p99"),
                **medians.time_series(cell, name, direction),
                transactions=found.get("transactions"),
            )


def _has_only_time_series(medians: Medians, cell: PlacedCell, name: str) -> bool:
    """True if every test of the program was too short for a rate.

    Installations, boots and deletions have tables of their own.
    """
    other = (*_RATES, "duration", "boot_time", "freed_guest")
    metrics = {metric for direction in Direction for metric in (*other, *_TIME_SERIES)
           if medians.get(cell, name, direction, metric) is not None}  # fmt: skip
    return bool(metrics) and metrics <= set(_TIME_SERIES)


def growth_rows(medians: Medians, installations: Sequence[str]) -> Iterator[GrowthRow]:
    """The time of each installation, and how its image grew.

    `installations` are those measurements in the profile's order. On the host there is no image,
    and only the time is known. Ratios are of times: to the last measurement on the same image, to
    the allocated image of the same format, and to the raw image of an otherwise equal path.
    """

    def seconds(cell: PlacedCell | None, name: str) -> float | None:
        return None if cell is None else medians.get(cell, name, Direction.WRITE, "duration")

    def ratio(cell: PlacedCell, name: str, other: PlacedCell | None, divisor: str) -> float | None:
        mine, its = seconds(cell, name), seconds(other, divisor)
        return None if (other, divisor) == (cell, name) or mine is None or not its else mine / its

    names = [
        name
        for name in installations
        if any(seconds(cell, name) is not None for cell in medians.cells)
    ]
    for name in names:
        for cell in medians.cells:
            allocated_image, raw_image = _counterparts(cell)
            yield GrowthRow(
                measurement=name,
                cell=cell,
                seconds=seconds(cell, name),
                allocated=medians.get(cell, name, Direction.WRITE, "allocated"),
                mapped=medians.get(cell, name, Direction.WRITE, "mapped"),
                flushes=medians.get(cell, name, Direction.WRITE, "flushes"),
                **medians.time_series(cell, name, Direction.WRITE),
                to_again=ratio(cell, name, cell, names[-1]),
                to_allocated=ratio(cell, name, allocated_image, name),
                to_raw=ratio(cell, name, raw_image, name),
            )


def _counterparts(cell: PlacedCell) -> tuple[PlacedCell | None, PlacedCell | None]:
    """The cells with the allocated image of the same format, and with the raw one."""
    path = cell.cell.path
    if path is None or path.image is None:
        return None, None
    options = tuple(option for option in path.image.options if option[0] != "preallocation")
    allocated, raw = (
        replace(cell, cell=MeasuredCell(replace(path, image=image).canonical, cell.cell.page_cache))
        for image in (Image(path.image.format, options), Image(ImageFormat.RAW))
    )
    return allocated, raw


def boot_rows(medians: Medians) -> list[BootRow]:
    """Seconds of boot and shutdown."""
    rows = [
        BootRow(
            measurement=name,
            cell=cell,
            boot_time=seconds,
            **medians.time_series(cell, name, direction),
            shutdown_time=medians.get(cell, name, direction, "shutdown_time"),
        )
        for (cell, name, direction, metric), seconds in medians.values.items()
        if metric == "boot_time"
    ]
    return sorted(rows, key=lambda row: str(row.cell))


def freed_rows(medians: Medians) -> Iterator[FreedRow]:
    """What each deletion freed in each cell, by measurement."""
    for name in medians.names:
        for cell in medians.cells:
            guest, image, device = (
                medians.get(cell, name, Direction.TRIM, f"freed_{where}")
                for where in ("guest", "image", "device")
            )
            if guest is not None:
                yield FreedRow(name, cell, guest, image, device)


def flush_rows(medians: Medians) -> Iterator[FlushRow]:
    """What became of the writes of each measurement that counts flushes, by measurement."""
    for name in medians.names:
        for cell in medians.cells:
            writes, flushes, syncs, device = (
                medians.get(cell, name, Direction.WRITE, metric)
                for metric in ("writes", "flushes", "host_syncs", "device_flushes")
            )
            if writes is not None:
                yield FlushRow(name, cell, writes, flushes, syncs, device)


def of_sysbench(names: Sequence[str], planned: Planned) -> tuple[str, ...]:
    """The names of sysbench's measurements, according to the plan or an import's name."""
    programs = {measurement.get("name"): measurement.get("program") for measurement in planned}
    return tuple(
        name for name in names if (programs.get(name) or name.partition("-")[0]) == SYSBENCH
    )


def fsync_diagnostics(
    names: Sequence[str], planned: Planned, *, imported: bool
) -> Iterator[Diagnostic]:
    """How often sysbench called fsync, which decides what a write costs; one for each setting."""
    measurements = of_sysbench(names, planned)
    by_options: dict[str, list[str]] = {}
    for measurement in planned:
        if measurement.get("name") in measurements and measurement.get("program") == SYSBENCH:
            with suppress(ValidationError):  # settings of another version
                settings = SysbenchSettings.model_validate(measurement.get("settings", {}))
                by_options.setdefault(" ".join(fsync_options(settings)), []).append(
                    str(measurement["name"])
                )
    for options, its in by_options.items():
        yield FsyncCalls(options, tuple(its) if len(by_options) > 1 else ())
    if measurements and imported:
        yield UnknownFsyncCalls()

"""`during`: what an operation on its disk costs a running guest, by path and operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated

import numpy as np

from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.observations import median
from vdisklab.analysis.paired_ratios import Ratio, paired_ratios
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.joining import require_one_accelerator, same_surroundings
from vdisklab.answers.loading import (
    newest_campaign,
    verdicts_of,
)
from vdisklab.answers.measured_for import measured_operations, operation_of
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.operations.registry import judged_names, parse_operation
from vdisklab.path.bus_options import without_options
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.durability import DurabilityKind, durability
from vdisklab.path.needs import NeedKind
from vdisklab.path.rules import not_judgeable, where_judged
from vdisklab.path.stalls import MeasuredStalls, OperationStall
from vdisklab.results.model import Campaign, Direction, HostFacts, Measurement, Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.store import Store
from vdisklab.value import Value, replace

BEFORE, DURING, AFTER = "before", "during", "after"

_OPTION = "during"
_CONTROL = "nothing"
_TWICE = 2.0
_SHORTEST = 0.1


class LatencyOverTime(Value):
    """The latencies of one run, from the beginning of the window before the operation."""

    round: int
    interval: Annotated[float, "seconds of each interval"]
    longest: Annotated[
        tuple[float | None, ...],
        "seconds: the longest latency of the requests due in each interval; null: none was due",
    ]
    begin: Annotated[float | None, "seconds: when the operation was ordered"]
    end: Annotated[float | None, "seconds: when it had ended"]


class ReliefLine(Value):
    """What makes an operation bearable on one platform or several, or why nothing does."""

    platform: str
    line: Annotated[str | None, "what to paste; null if there is none"]
    reason: Annotated[str | None, "why there is no line; null if there is one"]


class OperationCost(Value):
    """One operation on one path: medians of its rounds; null where nothing was measured."""

    path: str
    operation: str
    runs: int
    failed: int
    stall: Annotated[float | None, "seconds: the longest time in which no request was completed"]
    stall_before: Annotated[float | None, "seconds: the same in the window before the operation"]
    write_stall: Annotated[
        float | None, "seconds: the longest time in which writes waited and none was completed"
    ]
    write_stall_before: Annotated[
        float | None, "seconds: the same of writes in the window before the operation"
    ]
    latency: Annotated[float | None, "seconds: p99 during the operation, from when each was due"]
    latency_before: Annotated[float | None, "seconds: p99 before the operation"]
    during: Annotated[Ratio, "p99 during over before, paired within runs"]
    after: Annotated[Ratio, "p99 after over before, paired within runs"]
    to_first: Annotated[
        Ratio | None,
        "p99 during over that of the first operation listed, paired within rounds; null for it, "
        "and for an operation with another purpose",
    ]
    seconds: Annotated[float | None, "how long the operation took"]
    copied: Annotated[float | None, "bytes that it copied"]
    allocated: Annotated[float | None, "bytes by which the guest's image and new ones grew"]
    paused: Annotated[float | None, "seconds in which QEMU had stopped the guest"]
    survives: Annotated[
        bool | None,
        "whether flushed data survive a power cut in its middle, by rule or as judged; null: not "
        "judged, or in too few cuts",
    ]
    judge: Annotated[str | None, "the command that judges a power cut in its middle"]
    unjudged: Annotated[str | None, "why no power cut can be judged in its middle"]
    served: Annotated[float | None, "requests that were completed in a second during it"]
    served_before: Annotated[float | None, "the same in the window before it"]
    device_read: Annotated[
        float | None, "bytes that the devices below the image read during it; null: not counted"
    ]
    device_written: Annotated[float | None, "bytes that they wrote during it"]
    relief: Annotated[
        tuple[ReliefLine, ...], "what makes the operation bearable, as lines to paste, in order"
    ]
    failure: str | None
    control: Annotated[
        float | None,
        "seconds: the longest wait on this path while nothing was done; null: not measured",
    ] = None
    runs_over_time: tuple[LatencyOverTime, ...] = ()

    @property
    def in_words(self) -> str:
        """What sentences call the operation."""
        return parse_operation(self.operation).in_words

    @property
    def is_control(self) -> bool:
        """True if nothing was done to the disk."""
        return self.operation == _CONTROL

    def is_instead_of(self, other: OperationCost) -> bool:
        """True if one may choose between the two: the same operation on another path, or another
        for the same purpose on the same path, such as a backup with fleecing."""
        kind, others = (parse_operation(each.operation).kind for each in (self, other))
        alike = kind is others or (kind.need is not None and kind.need == others.need)
        return alike and (self.path == other.path or self.operation == other.operation)

    @property
    def felt(self) -> float:
        """The longest of its stalls and p99, in seconds: reads may go on while writes wait."""
        return max(self.stall or 0.0, self.write_stall or 0.0, self.latency or 0.0)

    @property
    def is_shown(self) -> bool:
        """True if its p99 is longer than before by its interval, and not in these rounds alone."""
        return self.during.low is not None and self.during.low > 1

    @property
    def is_felt(self) -> bool:
        """True if the guest waited longer than before: p99 by its interval, or, with less than
        three runs, twice as long; or a stall that is twice as long and longer than 0.1 s: of all
        requests, or of writes, each against its own kind. A wait that is no longer than that of
        the control, in which nothing was done, shows nothing."""
        if self.control is not None and self.felt <= self.control:
            return False
        longer = (self.during.ratio or 0.0) > _TWICE
        if self.during.low is not None:
            longer = self.during.low > 1
        stalls = [(self.stall, self.stall_before or 0.0)]
        if self.write_stall_before is not None:
            stalls.append((self.write_stall, self.write_stall_before))
        return longer or any(
            (meanwhile or 0.0) > max(_TWICE * before, _SHORTEST) for meanwhile, before in stalls
        )


class DuringAnswer(Answer):
    """`vdisklab during`: what operations cost a running guest, those that it felt first."""

    FORMAT = "vdisklab.during/1"

    campaign: str
    caveats: Caveats
    costs: tuple[OperationCost, ...]


def paths_of_operations(campaign: Campaign) -> tuple[str, ...]:
    """The paths whose operations a campaign measured, as a user writes them."""
    paths = (cell.path for cell in campaign.cells if operation_of(cell) is not None)
    alone = (without_options(path, (_OPTION,)) for path in paths if path is not None)
    return tuple(dict.fromkeys(map(str, alone)))


def stored_operations(store: Store, name: str | None) -> DuringAnswer:
    """The answer of the named campaign, or of the newest with operations.

    Raises PlanError if there is none.
    """
    if name is not None:
        return operations_of(store, name)
    campaign = newest_campaign(store, measured_operations)
    if campaign is not None:
        return operations_of(store, campaign.id)
    raise PlanError(
        f"{store} has no operation on a running guest's disk",
        hint="measure one: `vdisklab run qcow2/none --during backup,snapshot`",
    )


def newest_of_speed(store: Store) -> Campaign | None:
    """The newest campaign of paths' speed if a newer one has operations; None otherwise.

    Speed is not what a campaign of operations measures: its load is far below what a path can do.
    """
    campaigns = store.campaigns(with_runs=True)
    if not campaigns or not measured_operations(campaigns[0]):
        return None
    return next((each for each in campaigns if not measured_operations(each)), None)


def operations_of(store: Store, campaign_id: str) -> DuringAnswer:
    """The answer of a campaign, from its stored runs.

    Raises PlanError for a campaign without operations, or with two accelerators.
    """
    campaign = store.campaign(campaign_id)
    if not measured_operations(campaign):
        raise PlanError(
            f"the campaign {campaign.id} has no operation on a running guest's disk",
            hint="measure one: `vdisklab run qcow2/none --during backup,snapshot`",
        )
    require_one_accelerator(store, campaign)
    runs = _runs(store, campaign)
    machine = campaign.host.machine_id
    cuts = [cut for cut in store.power_cuts(machine) if cut.applies_to(campaign.host)]
    costs = [
        (_cost(cell, measured, cuts, campaign.host), measured) for cell, measured in runs.items()
    ]
    calm: dict[str, float] = {}
    for cost, _ in costs:
        if cost.is_control and cost.stall is not None:
            calm[cost.path] = max(cost.felt, calm.get(cost.path, 0.0))
    costs = [(replace(cost, control=calm.get(cost.path)), found) for cost, found in costs]
    costs.sort(key=lambda pair: (not pair[0].is_felt, -pair[0].felt))
    first = _by_round(costs[0][1])
    return DuringAnswer(
        campaign=campaign.id,
        caveats=caveats_with_remedy(store.outlines((campaign.id,)), (campaign,)),
        costs=tuple(
            replace(cost, to_first=_within_rounds(_by_round(measured), first))
            if place and cost.is_instead_of(costs[0][0])
            else cost
            for place, (cost, measured) in enumerate(costs)
        ),
    )


def _runs(store: Store, campaign: Campaign) -> Mapping[MeasuredCell, list[Run]]:
    """The runs of each cell that names an operation."""
    runs: dict[MeasuredCell, list[Run]] = {
        cell: [] for cell in campaign.cells if operation_of(cell) is not None
    }
    for run in store.runs(campaign.id):
        if run.measured_cell in runs:
            runs[run.measured_cell].append(run)
    return runs


def stored_stalls(store: Store, speed: Campaign, limit: float) -> MeasuredStalls:
    """The longest stalls where a campaign was measured, with its QEMU and accelerator: of the
    newest runs of each operation on each path, for each need the mildest."""
    newest: dict[tuple[str, str], tuple[NeedKind, OperationStall]] = {}
    for campaign in store.campaigns(with_runs=True):
        if measured_operations(campaign) and same_surroundings(store, speed, campaign):
            for cell, runs in _runs(store, campaign).items():
                order = parse_operation(operation_of(cell) or "")
                good = [run for run in runs if _why_failed(run) is None]
                stall = _longest_stall(str(order), good)
                if order.kind.need is not None and cell.path is not None and stall is not None:
                    alone = without_options(cell.path, (_OPTION,)).spelled_out.canonical
                    newest.setdefault((alone, str(order)), (order.kind.need, stall))
    mildest: dict[str, dict[str, OperationStall]] = defaultdict(dict)
    for (path, _), (need, stall) in newest.items():
        so_far = mildest[path].get(need)
        if so_far is None or stall.seconds < so_far.seconds:
            mildest[path][need] = stall
    return MeasuredStalls(mildest, limit)


def stored_stalls_of_all(
    store: Store, speeds: Iterable[Campaign], limit: float, host_of: Mapping[str, str]
) -> MeasuredStalls:
    """The same where several campaigns were measured: a path is as patient as it was where it held
    its guest for longest. `host_of` names the hosts by campaign, if there are several."""
    longest: dict[str, dict[str, OperationStall]] = defaultdict(dict)
    for speed in speeds:
        for path, of_path in stored_stalls(store, speed, limit).by_path.items():
            for need, stall in of_path.items():
                so_far = longest[path].get(need)
                if so_far is None or stall.seconds > so_far.seconds:
                    longest[path][need] = replace(stall, on=host_of.get(speed.id, ""))
    return MeasuredStalls(longest, limit)


def _longest_stall(operation: str, runs: Collection[Run]) -> OperationStall | None:
    """The longer of the medians of the longest stalls: of all requests, and of writes alone; None
    if no stall was stored."""
    stalls = [
        OperationStall(operation, median, of_writes=of is Direction.WRITE)
        for of in (Direction.NONE, Direction.WRITE)
        if (median := _median(_by_metric(runs, DURING, of)["longest_stall"])) is not None
    ]
    return max(stalls, key=lambda stall: stall.seconds, default=None)


def _path(cell: MeasuredCell) -> str:
    if cell.path is None:
        raise TypeError(f"{cell} names no operation")
    alone = without_options(cell.path, (_OPTION,))
    return MeasuredCell(str(alone), cell.page_cache).label


def _cost(
    cell: MeasuredCell, runs: Sequence[Run], cuts: Iterable[PowerCut], host: HostFacts
) -> OperationCost:
    order = parse_operation(operation_of(cell) or "")
    good = [run for run in runs if _why_failed(run) is None]
    values = {window: _by_metric(good, window) for window in (BEFORE, DURING, AFTER)}
    failures = [why for run in runs if (why := _why_failed(run)) is not None]
    path = without_options(cell.path, (_OPTION,)) if cell.path else None
    place = None if path is None else where_judged(path, host.file_system)
    judged = None if place is None or order.unjudged(place) is not None else place
    unjudged = None
    if judged is None and path is not None:
        refused = order.unjudged(path) or not_judgeable(path)
        unjudged = None if refused is None else f"the path {refused.reason}"
        if order.kind.judging is None:
            unjudged = _not_simulated(place, only_reads=order.kind.only_reads)
    windows = [_measured(run, DURING) for run in good]
    devices = [
        measured.evidence.device
        for measured in windows
        if measured is not None and measured.evidence.device is not None
    ]
    took, copied = _median(values[DURING]["duration"]), _median(values[DURING]["copied"])
    rate = copied / took if copied and took else None
    return OperationCost(
        path=_path(cell),
        operation=str(order),
        runs=len(good),
        failed=len(failures),
        stall=_median(values[DURING]["longest_stall"]),
        stall_before=_median(values[BEFORE]["longest_stall"]),
        write_stall=_median(_by_metric(good, DURING, Direction.WRITE)["longest_stall"]),
        write_stall_before=_median(_by_metric(good, BEFORE, Direction.WRITE)["longest_stall"]),
        latency=_median(values[DURING]["latency_p99"]),
        latency_before=_median(values[BEFORE]["latency_p99"]),
        during=_ratio(values[DURING], values[BEFORE]),
        after=_ratio(values[AFTER], values[BEFORE]),
        to_first=None,
        seconds=took,
        copied=copied,
        allocated=_median(values[DURING]["allocated"]),
        paused=_median(values[DURING]["paused"]),
        survives=None if path is None else _survives(path, order.kind.name, cuts, host),
        judge=(
            None
            if judged is None
            else f"vdisklab powercut {judged} --during {order.kind.name} --client flushes"
        ),
        unjudged=unjudged,
        served=_median(values[DURING]["iops"]),
        served_before=_median(values[BEFORE]["iops"]),
        device_read=_median([counted.read_bytes for counted in devices]),
        device_written=_median([counted.write_bytes for counted in devices]),
        relief=tuple(
            ReliefLine(
                ", ".join(filter(None, (each.platform, each.basis))),
                each.line or None,
                each.reason or None,
            )
            for each in (() if path is None else order.relief(path, rate))
        ),
        failure=failures[-1] if failures else None,
        runs_over_time=tuple(found for run in good if (found := _over_time(run)) is not None),
    )


def _not_simulated(place: DiskPath | None, *, only_reads: bool) -> str:
    """Why no power cut is simulated in an operation's middle, and what says more."""
    said = f"powercut simulates cuts in the middle of {judged_names()}"
    if not only_reads or place is None:
        return said
    return (
        f"{said}; this only reads the guest's disk, so what holds without it should hold: "
        f"`vdisklab powercut {place}`"
    )


def _why_failed(run: Run) -> str | None:
    """Why a run has nothing to compare: it failed, or no request was served before the operation,
    in a database of a vdisklab that stored such runs."""
    if run.failure is not None:
        return run.failure.sentence
    served = _by_metric([run], BEFORE)["iops"]
    return "no request was served before the operation" if served and not any(served) else None


def _over_time(run: Run) -> LatencyOverTime | None:
    """The latencies of a run over time; None if they were not stored."""
    windows = {window: _measured(run, window) for window in (BEFORE, DURING)}
    before, during = windows[BEFORE], windows[DURING]
    series = () if during is None else during.series
    stored = next((each for each in series if each.metric == "latency_max"), None)
    if stored is None:
        return None
    took = _median(_by_metric([run], DURING)["duration"])
    begin = None if before is None else before.measured_seconds
    return LatencyOverTime(
        run.round,
        stored.interval,
        tuple(value or None for value in stored.values),
        begin,
        None if begin is None or took is None else begin + took,
    )


def _measured(run: Run, window: str) -> Measurement | None:
    names = (each for each in run.measurements if each.name.endswith(f"-{window}"))
    return next(names, None)


def _by_metric(
    runs: Iterable[Run], window: str, direction: Direction = Direction.NONE
) -> Mapping[str, list[float]]:
    """A window's values by metric: of all requests together, or of those of one direction."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for measurement in run.measurements:
            if measurement.name.endswith(f"-{window}"):
                for sample in measurement.samples:
                    if sample.direction is direction:
                        values[sample.metric].append(sample.value)
    return values


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _ratio(above: Mapping[str, list[float]], below: Mapping[str, list[float]]) -> Ratio:
    name = "latency_p99"
    if not above[name]:
        return Ratio(0)
    return paired_ratios(np.array([above[name]]), np.array([below[name]]))[0]


def _by_round(runs: Iterable[Run]) -> Mapping[int, float]:
    """p99 during the operation, by round."""
    good = (run for run in runs if _why_failed(run) is None)
    values = ((run.round, _by_metric([run], DURING)["latency_p99"]) for run in good)
    return {round: found[0] for round, found in values if found}


def _within_rounds(above: Mapping[int, float], below: Mapping[int, float]) -> Ratio:
    rounds = sorted(above.keys() & below.keys())
    if not rounds:
        return Ratio(0)
    return paired_ratios(
        np.array([[above[round] for round in rounds]]),
        np.array([[below[round] for round in rounds]]),
    )[0]


def _survives(
    path: DiskPath, operation: str, cuts: Iterable[PowerCut], host: HostFacts
) -> bool | None:
    """Whether flushed data survives a power cut in the operation's middle: by a rule if one
    applies, else by the stored cuts above the strictest disk; None with too few of them."""
    kept = durability(path, verdicts_of(cuts, hosts=(host,), during=operation))
    if kept.kind is DurabilityKind.LOST_BY_CONSTRUCTION:
        return False
    return None if kept.tested is None else kept.tested.flushed.kept

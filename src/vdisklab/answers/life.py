"""`life`: what disks made from a template cost, step by step, by path and way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from vdisklab.analysis.candidates import OVER_ROUNDS, UNPLANNED_LOOK
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.observations import MeasureKey, Round, from_numbers, median
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.answers.joining import require_one_accelerator
from vdisklab.answers.loading import newest_campaign
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.operations.making import TemplateForm, Way
from vdisklab.operations.ways.registry import parse_way
from vdisklab.path.bus_options import without_options
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import EMPTY
from vdisklab.plan.profile import IN_GUEST
from vdisklab.results.model import (
    BENEATH,
    LIFE_STEPS,
    NO_DATA,
    SETTLE,
    SETTLED,
    Campaign,
    Measurement,
    Run,
)
from vdisklab.results.store import Store
from vdisklab.units import format_bytes
from vdisklab.value import Value

READY = MeasureKey.parse("first-write/none/ready")
"""The measure by which disks are ready first."""

NOTHING, NOT_COUNTED = "nothing", "not counted"
"""What a first write and flush had to do besides, if it was nothing, and if nobody counted."""

_UNMADE = "measure one: `vdisklab run '{xfs,btrfs}/{raw,qcow2}/none' --profile life`"
_LARGE = 1 << 20
"""Bytes in the host's memory that make a first flush slow."""


class LifeStep(Value):
    """One step: medians of its rounds; null where nothing was measured."""

    seconds: Annotated[float | None, "until the last of the disks had it behind it"]
    read: Annotated[float | None, "bytes read from the device below the disks' file system"]
    written: Annotated[float | None, "bytes written there"]
    unwritten: Annotated[
        float | None, "bytes of the disks that waited in the host's memory, at most"
    ]
    allocated: Annotated[float | None, "bytes by which grew what the disks occupy alone"]


class DiskLife(Value):
    """The disks of one path, made in one way."""

    path: str
    cell: Annotated[str, "the path with the way, as `compare` and `rank` name it"]
    made: Annotated[str, "the way in which they were made"]
    summary: str
    disks: Annotated[int, "how many were made at once"]
    in_guests: Annotated[bool, "false if qemu-io opened them, without a guest"]
    runs: int
    failed: int
    steps: Annotated[Mapping[str, LifeStep], "those that were measured, in their order"]
    ready: Annotated[
        float | None, "seconds from the order to make them to the end of the first flush"
    ]
    flush: Annotated[float | None, "seconds of the first flush alone; null without a guest"]
    unshared: Annotated[float | None, "bytes that the first write took out of what was shared"]
    given_back: Annotated[float | None, "bytes of the file system that deleting gave back"]
    space_back: Annotated[
        float | None, "seconds from the order to delete until they were free; null if never"
    ]
    why: Annotated[
        str | None, "what the first write and flush had to do besides, as far as it was counted"
    ]
    unsettled: Annotated[
        str | None,
        "why some round has no time until the disk is as fast as it stays; null if each has one, "
        "and without a guest",
    ]
    failure: str | None

    @property
    def is_usable(self) -> bool:
        """True for a disk that could be used and holds the template's data."""
        return self.ready is not None and self.made != EMPTY

    def seconds(self, name: str) -> float | None:
        """The seconds of a step; None if it was not measured."""
        step = self.steps.get(name)
        return None if step is None else step.seconds

    @property
    def each_second(self) -> float | None:
        """Disks made in a second."""
        made = self.seconds("make")
        return self.disks / made if made else None


class LifeAnswer(Answer):
    """`vdisklab life`: disks by path and way, the fewest at once first, and of these the soonest
    ready."""

    FORMAT = "vdisklab.life/1"

    campaign: str
    caveats: Caveats
    size: Annotated[int, "bytes of each disk"]
    template: Annotated[str | None, "the image that they were made from; null: the default"]
    first: Annotated[
        tuple[str, ...],
        "the cells that may be ready first, the leader first, of those with the fewest disks: "
        "one of them is, with 95 % confidence; empty with fewer than three rounds",
    ]
    lives: tuple[DiskLife, ...]

    @property
    def leaders(self) -> tuple[DiskLife, ...]:
        """The lives of `first`."""
        by_cell = {life.cell: life for life in self.lives}
        return tuple(by_cell[cell] for cell in self.first)


def measured_lives(campaign: Campaign) -> bool:
    """True for a campaign with disks that were made from a template."""
    return any(_way(cell) is not None for cell in campaign.cells)


def stored_lives(store: Store, name: str | None) -> LifeAnswer:
    """The answer of the named campaign, or of the newest with such disks.

    Raises PlanError if there is none.
    """
    if name is not None:
        return lives_of(store, name)
    campaign = newest_campaign(store, measured_lives)
    if campaign is not None:
        return lives_of(store, campaign.id)
    raise PlanError(f"{store} has no disks that were made from a template", hint=_UNMADE)


def lives_of(store: Store, campaign_id: str) -> LifeAnswer:
    """The answer of a campaign, from its stored runs.

    Raises PlanError for a campaign without such disks, or with two accelerators.
    """
    campaign = store.campaign(campaign_id)
    if not measured_lives(campaign):
        raise PlanError(
            f"the campaign {campaign.id} has no disks that were made from a template",
            hint=_UNMADE,
        )
    require_one_accelerator(store, campaign)
    runs: dict[MeasuredCell, list[Run]] = {
        cell: [] for cell in campaign.cells if _way(cell) is not None
    }
    for run in store.runs(campaign.id):
        if run.measured_cell in runs:
            runs[run.measured_cell].append(run)
    in_guests = _in_guests(campaign.plan)
    lives = {cell: _life(cell, of_cell, in_guests=in_guests) for cell, of_cell in runs.items()}
    return LifeAnswer(
        campaign=campaign.id,
        caveats=caveats_with_remedy(store.outlines((campaign.id,)), (campaign,)),
        size=int(campaign.plan["size_bytes"]),
        template=campaign.plan.get("template"),
        first=_first(campaign, runs, lives),
        lives=tuple(
            sorted(
                lives.values(),
                key=lambda life: (life.disks, life.ready is None, life.ready or 0.0),
            )
        ),
    )


def _first(
    campaign: Campaign,
    runs: Mapping[MeasuredCell, Sequence[Run]],
    lives: Mapping[MeasuredCell, DiskLife],
) -> tuple[str, ...]:
    """The cells that may be ready first; none if there are too few rounds to tell."""
    usable = {cell: life for cell, life in lives.items() if life.is_usable}
    fewest = min((life.disks for life in usable.values()), default=1)
    numbers = {
        (cell, Round(run.campaign, run.round), READY): ready
        for cell, life in usable.items()
        if life.disks == fewest
        for run in runs[cell]
        if run.failure is None
        if (ready := _metric(run.measurements, READY.metric)) is not None
    }
    if not numbers:
        return ()
    observations = from_numbers(numbers)
    planned = campaign.plan.get("rounds")
    # A race ends because of its numbers; `rank` allows for that as well.
    is_planned = "race" not in campaign.plan and planned in (None, len(observations.rounds))
    ranked = OVER_ROUNDS if is_planned else UNPLANNED_LOOK
    ranking = ranked.among(observations, READY, observations.cells)
    return tuple(cell.name for cell in ranked.winners(ranking))


def _way(cell: MeasuredCell) -> str | None:
    return None if cell.path is None else cell.path.attachment.made


def _in_guests(plan: Mapping[str, Any]) -> bool:
    """True if a stored plan gives its disks to guests, whether the guests came to use them."""
    measurements = plan.get("measurements", [])
    return all(each.get("settings", {}).get(IN_GUEST) is not False for each in measurements)


def _life(cell: MeasuredCell, runs: Sequence[Run], *, in_guests: bool) -> DiskLife:
    if cell.path is None:
        raise TypeError(f"{cell} names no way")
    way = parse_way(_way(cell) or "")
    good = [run for run in runs if run.failure is None]
    failures = [run.failure.sentence for run in runs if run.failure is not None]
    by_name: Mapping[str, list[Measurement]] = {
        name: [each for run in good for each in run.measurements if each.name == name]
        for name in LIFE_STEPS
    }
    steps = {name: _step(found) for name, found in by_name.items() if found}
    return DiskLife(
        path=MeasuredCell(
            str(without_options(cell.path, ("made", "guests"))), cell.page_cache
        ).label,
        cell=cell.name,
        made=str(way),
        summary=way.kind.summary,
        disks=cell.path.attachment.guests or 1,
        in_guests=in_guests,
        runs=len(good),
        failed=len(failures),
        steps=steps,
        ready=_metric(by_name["first-write"], "ready"),
        flush=_metric(by_name["first-write"], "sync_max"),
        unshared=_metric(by_name["first-write"], "unshared"),
        given_back=_metric(by_name["delete"], "given_back"),
        space_back=_metric(by_name["delete"], "space_back"),
        why=_why(way, by_name["first-write"], is_empty=_on_no_data(way, good)) if good else None,
        unsettled=_unsettled(good) if in_guests else None,
        failure=failures[-1] if failures else None,
    )


def _unsettled(runs: Sequence[Run]) -> str | None:
    """Why rounds have no time at which the rate had settled, and how many of them."""
    without = [
        run
        for run in runs
        if _metric([of for of in run.measurements if of.name == SETTLE], "duration") is None
    ]
    if not without:
        return None
    said = (check.observed for check in without[-1].checks if check.name == SETTLED)
    why = next(filter(None, said), "the rate had not settled")
    return why if len(without) == len(runs) else f"in {len(without)} of {len(runs)} rounds {why}"


def _on_no_data(way: Way, runs: Sequence[Run]) -> bool:
    """True if the template had no data at all for the disks, so that nothing had to be copied."""
    checks = [check for run in runs for check in run.checks if check.name == BENEATH]
    empty = any(check.observed == NO_DATA for check in checks)
    return empty and way.kind.template is not TemplateForm.NONE


def _why(way: Way, first: Sequence[Measurement], *, is_empty: bool) -> str:
    """What the first write and flush had to do besides, by what was counted: `write 1.0 GiB still
    in memory`."""
    waiting, written = _metric(first, "unwritten"), _step(first).written
    unit, allocated = _metric(first, "unit"), _metric(first, "allocated")
    unshared, mapped = _metric(first, "unshared"), _metric(first, "mapped")
    if waiting is not None and waiting >= _LARGE:
        why = f"write {format_bytes(round(waiting))} still in memory"
    elif unit and allocated:
        of_pool = format_bytes(round(allocated))
        why = f"allocate {of_pool} of the pool, in units of {format_bytes(round(unit))}"
    elif unshared:
        # XFS reserves more for the next writes: its copy-on-write extent size hint (xfs_io(8)).
        more = _beyond(allocated, unshared, ", reserving {}")
        why = f"unshare {format_bytes(round(unshared))}{more}"
    elif mapped:
        # qemu-img gives its images an extent size hint of 1 MiB, which XFS heeds.
        more = _beyond(allocated, mapped, ", {} on the host")
        why = f"allocate {format_bytes(round(mapped))} in the image{more}"
    elif allocated:
        why = f"allocate {format_bytes(round(allocated))}"
    elif written is not None and not waiting:
        why = NOTHING
    else:
        why = "; ".join(filter(None, (NOT_COUNTED, way.kind.first_write)))
    return f"{why}; the template has no data" if is_empty and allocated else why


def _beyond(allocated: float | None, needed: float, phrase: str) -> str:
    """What the file system allocated, if that is more than what was needed."""
    if allocated is None or allocated <= needed:
        return ""
    return phrase.format(format_bytes(round(allocated)))


def _step(measurements: Sequence[Measurement]) -> LifeStep:
    devices = [of.evidence.device for of in measurements if of.evidence.device is not None]
    return LifeStep(
        seconds=_metric(measurements, "duration"),
        read=_median([device.read_bytes for device in devices]),
        written=_median([device.write_bytes for device in devices]),
        unwritten=_metric(measurements, "unwritten"),
        allocated=_metric(measurements, "allocated"),
    )


def _metric(measurements: Iterable[Measurement], metric: str) -> float | None:
    return _median(
        [
            sample.value
            for measurement in measurements
            for sample in measurement.samples
            if sample.metric == metric
        ]
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None

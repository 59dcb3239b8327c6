"""Measures what an operation on its disk costs a running guest: before, meanwhile and after.

A load whose requests are due at moments that are told beforehand runs through all three windows;
the operation is ordered in its middle. So what is compared is one guest with itself, seconds apart.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial

from vdisklab.campaign import measured_evidence
from vdisklab.campaign.attachment import (
    AttachedDisk,
    GuestPlace,
    attached,
    prepared,
    run_measured,
)
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.measure_group import clock_offset
from vdisklab.campaign.new_images import NewImages, destination_stack
from vdisklab.campaign.schedule import PROBE
from vdisklab.errors import GuestError, OperationError, PlanError, WorkloadError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.open_disk import backend_of, open_disk, resize_command, use_node_command
from vdisklab.host.waiting import patience
from vdisklab.operations.operation import DiskAccess, RunningOperation
from vdisklab.operations.registry import parse_operation
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import RATE, MeasurementPlan, load_file_bytes
from vdisklab.progress import MeasurementStarted
from vdisklab.results import model
from vdisklab.results.model import DURING_WINDOWS
from vdisklab.storage.image import ImageFile, require_returned
from vdisklab.storage.site import Site
from vdisklab.units import MIB, format_bytes
from vdisklab.value import Value, replace
from vdisklab.workload import fio, load_windows, open_load, program
from vdisklab.workload.grouped import BesideRun
from vdisklab.workload.registry import beside_workload_for

_LIMIT_SECONDS = 120.0
_PROGRAM_SECONDS = 600.0
_START_SECONDS = 120.0
_FIRST_REQUESTS = 4
"""More than a kernel's own look at a disk that was just plugged in."""
_LOOK_SECONDS = 0.1
_STOP = "kill -INT {}"
_STOP_SECONDS = 30.0
# fio's, if a signal ended it
_ENDED = (0, 1, 2, 128, 130)
_PAUSES = ("STOP", "RESUME")

_FIO = fio.Fio()


def measure_during(context: CampaignContext, cell: Cell) -> CellResult:
    """The measurements of a cell whose path names an operation: a measurement for each window.

    Raises what `measure_cell` does; OperationError if the operation failed or did not end.
    """
    site = context.stacks.site
    order = parse_operation(cell.path.attachment.during or "")
    with (
        destination_stack(context.stacks.site, context.plan, order, cell.path) as target,
        ExitStack() as made,
        context.stacks.image_for(cell.path) as image,
    ):
        if not isinstance(image, ImageFile):
            raise PlanError(f"{cell.path} has no disk that an operation could change")
        with measured_evidence.writing_back(image) as write_back:
            with (
                attached(context, cell, image, write_back, fresh=False) as attachment,
                _place(attachment).workspace(order.kind.filesystem) as space,
            ):
                monitor = _place(attachment).machine.monitor
                images = NewImages(
                    site, context.stacks.source, image, _disk(attachment), monitor, made,
                    context.plan.destination, target,
                )  # fmt: skip
                measured, running = _measured(context, cell, attachment, images, space.subject)
            if cell.path.attachment.bus.hot_pluggable:  # else the guest has ended with its disk
                for node in running.left_nodes:
                    monitor.execute("blockdev-del", {"node-name": node})
                images.close_objects()
        require_returned(site, image, context.plan.size_bytes)
    checks = (*attachment.checks, *space.checks, *images.checks)
    commands = (*attachment.commands, measured[0].command)
    return CellResult(checks, commands, tuple(measured))


def _place(attachment: AttachedDisk) -> GuestPlace:
    if not isinstance(attachment.place, GuestPlace):
        raise TypeError("an operation is measured in a guest")
    return attachment.place


def _disk(attachment: AttachedDisk) -> Disk:
    if attachment.disk is None:
        raise TypeError("an operation needs a disk that QEMU has open")
    return attachment.disk


class _Timeline(Value):
    """Moments of one run by the host's clock of the day, and what was counted at each.

    `ordered` and `ended` are the operation's own; `settled` is when its window ends.
    """

    begin: float
    ordered: float
    ended: float
    settled: float
    end: float
    counted: tuple[measured_evidence.Snapshot, ...]

    @property
    def windows(self) -> tuple[load_windows.LoadWindow, ...]:
        """Before, during and after."""
        moments = (self.begin, self.ordered, self.settled, self.end)
        return tuple(map(load_windows.LoadWindow, moments, moments[1:]))


def _measured(
    context: CampaignContext,
    cell: Cell,
    attachment: AttachedDisk,
    images: NewImages,
    subject: program.Subject,
) -> tuple[list[model.Measurement], RunningOperation]:
    place, disk = _place(attachment), _disk(attachment)
    machine, plan = place.machine, context.plan.profile.measurements[0]
    order = parse_operation(cell.path.attachment.during or "")
    running = order.on(
        open_disk(disk),
        DiskAccess(
            machine.monitor,
            resize=lambda size: _resize(attachment, size),
            new_image=images.new,
            use_node=lambda node: _use_node(attachment, node),
            device=backend_of(disk),
            on_host=partial(on_host, context.stacks.site),
            in_guest=partial(_in_guest, machine),
            mount_point=subject.path,
            layers=tuple(layer.kind for layer in cell.path.layers),
            volume=images.volume,
            new_file=images.new_file,
        ),
    )
    for file in running.left_files:
        images.track(file)
    timing = program.Timing(context.plan.runtime, context.plan.ramp, context.plan.scale)
    attachment.write_back.wait()
    attachment.set_page_cache(cell.page_cache)
    subject, fill = load_subject(subject)
    if fill is not None:
        _in_guest(machine, *fill)
    subject = replace(subject, mark=f"-{secrets.token_hex(4)}")
    running.prepare()
    workload = beside_workload_for(plan)
    rate = None
    if workload.needs_rate:
        rate = context.plan.settings.load or _shown_rate(context, attachment, plan, subject)
    limit = (context.plan.settings.during_limit or _LIMIT_SECONDS) * patience()
    run = beside_run(context.plan, rate, secrets.randbelow(1 << 31) + 1)
    script = workload.beside_script(plan, subject, run)
    context.progress(MeasurementStarted(f"{plan.name} beside {order}", timing.runtime * 3))
    with prepared(place, script), machine.monitor.noting(_PAUSES) as paused:
        offset = clock_offset(machine)
        started = datetime.now(UTC)
        pid = machine.agent.start(script.command, stdin=script.stdin)
        _await_load(attachment)
        begun = time.time()
        timeline = _timeline(attachment, running, timing, limit)
        machine.agent.run(("sh", "-c", _STOP.format(pid)), timeout=_STOP_SECONDS)
        ended = machine.agent.finish(pid, script.command, timeout=_STOP_SECONDS, allowed=_ENDED)
        pauses = paused()
        logs = {name: machine.agent.read_file(name) for name in script.collect}
    wall = time.time() - started.timestamp()
    running.undo()
    output = program.Outputs(ended.stdout, ended.stderr, logs)
    requests = open_load.shifted(
        workload.beside_requests(plan, output, run, timeline.end - begun), offset
    )
    load_windows.require_served(requests, timeline.windows[0], "before the operation")
    beside = tuple(_operation_samples(running, timeline, pauses, images))
    over_time = (_over_time(requests, timeline),)
    results = [
        model.Measurement(
            name=f"{plan.name}-{name}",
            program=plan.program,
            command=shlex.join(script.command),
            samples=(
                *load_windows.samples_in(requests, window),
                *(beside if name == "during" else ()),
            ),
            evidence=measured_evidence.evidence_between(before, after, None),
            started=started,
            wall_seconds=wall,
            measured_seconds=window.end - window.begin,
            raw=ended.stdout if name == "before" else "",
            series=over_time if name == "during" else (),
        )
        for name, window, before, after in zip(
            DURING_WINDOWS,
            timeline.windows,
            timeline.counted[:-1],
            timeline.counted[1:],
            strict=True,
        )
    ]
    return results, running


def _await_load(attachment: AttachedDisk) -> None:
    """Returns once requests of the load come to QEMU: on a busy machine fio starts for seconds."""
    monitor = _place(attachment).machine.monitor
    left = monitor.deadline(_START_SECONDS * patience())
    before = _requests(attachment)
    while _requests(attachment) < before + _FIRST_REQUESTS:
        if left() <= 0:
            raise WorkloadError(
                f"fio sent no request within {_START_SECONDS:g} s",
                hint="the machine may be too busy: try again when it is idle",
            )
        monitor.pause(_LOOK_SECONDS)


def _requests(attachment: AttachedDisk) -> int:
    """How many reads and writes of the disk QEMU has counted."""
    counted = attachment.counters.snapshot().qemu
    if counted is None:
        raise TypeError("QEMU counts what its guest's disk does")
    return counted.read_operations + counted.write_operations


def load_subject(subject: program.Subject) -> tuple[program.Subject, tuple[str, ...] | None]:
    """Where the load works, and the command in the guest that makes it: the disk, for which it is
    None, or a new file of a file system on it."""
    if subject.is_device:
        return subject, None
    size = load_file_bytes(subject.nominal)
    file, count = f"{subject.path}/load", f"count={size // MIB}"
    fill = ("dd", "if=/dev/urandom", f"of={file}", "bs=1M", count, "conv=fsync")
    return replace(subject, path=file, size=size, is_directory=False), fill


def beside_run(plan: CampaignPlan, rate: int | None, seed: int) -> BesideRun:
    """The load of a cell, which is ended when the operation has ended."""
    limit = (plan.settings.during_limit or _LIMIT_SECONDS) * patience()
    longest = plan.ramp + 2 * plan.runtime + max(plan.runtime, limit)
    start = open_load.GroupStart(load_windows.LEAD_SECONDS * patience(), seed)
    return BesideRun(longest, plan.runtime * plan.scale, rate, start)


def probe_script(
    plan: MeasurementPlan, subject: program.Subject
) -> tuple[MeasurementPlan, program.Script]:
    """What shows how much a path carries, before the load: each request waits for those before."""
    settings = {name: value for name, value in plan.settings.items() if name != RATE}
    probe = replace(plan, name=f"{plan.name}-probe", settings=settings)
    return probe, _FIO.script(probe, replace(subject, mark=f"{subject.mark}-probe"), PROBE)


def _in_guest(machine: Machine, *argv: str) -> str:
    return machine.agent.run(argv, timeout=_PROGRAM_SECONDS).stdout


def on_host(site: Site, *argv: str) -> str:
    """What a program of an operation printed. Raises HostError if it fails."""
    return site.run_marked(*argv, timeout=_PROGRAM_SECONDS).stdout


def _shown_rate(
    context: CampaignContext,
    attachment: AttachedDisk,
    plan: MeasurementPlan,
    subject: program.Subject,
) -> int:
    """A third of what the path carries if each request waits for those before it."""
    place = _place(attachment)
    probe, script = probe_script(plan, subject)
    samples = _FIO.parse(probe, run_measured(place, script, attachment.watch)).samples
    shown = sum(sample.value for sample in samples if sample.metric == "iops")
    emulated = context.accelerator is not None and context.accelerator.is_emulation
    rate = load_windows.default_rate(shown, emulated=emulated)
    # an emulated guest's CPUs have the file system to run, too
    return rate // 2 if emulated and not subject.is_device else rate


def _timeline(
    attachment: AttachedDisk,
    running: RunningOperation,
    timing: program.Timing,
    limit: float,
) -> _Timeline:
    """Waits through the three windows, and does the operation.

    Raises OperationError for an operation that fails, or does not end within `limit` seconds.
    """
    monitor = _place(attachment).machine.monitor
    monitor.pause(timing.ramp)
    begin, first = time.time(), attachment.counters.snapshot()
    monitor.pause(timing.runtime)
    second, ordered = attachment.counters.snapshot(), time.time()
    try:
        running.start()
        while not running.ready():
            if time.time() - ordered > limit:
                raise _not_ended(running, limit)
            monitor.pause(_LOOK_SECONDS)
        running.finish()
    except BaseException:
        # a QEMU that does not answer is killed, and what it had open with it
        with suppress(GuestError):
            running.undo()
        raise
    ended = time.time()
    monitor.pause(max(0.0, ordered + timing.runtime - ended))
    settled, third = time.time(), attachment.counters.snapshot()
    monitor.pause(timing.runtime)
    end = time.time()
    fourth = attachment.counters.snapshot()
    return _Timeline(begin, ordered, ended, settled, end, (first, second, third, fourth))


def _not_ended(running: RunningOperation, limit: float) -> OperationError:
    order = running.order
    copied = "" if running.copied is None else f", having copied {format_bytes(running.copied)}"
    speed = order.option("speed") if "speed" in order.kind.options else None
    if speed is not None:
        way = f", or a larger speed= than {format_bytes(int(speed))} a second"
    elif order.kind.follows:
        way = (
            "; if it copies more slowly than the guest writes, it never ends: choose a smaller "
            "--load or faster storage for the copy"
        )
    elif order.kind.copies:
        way = ", or a faster place for the copy (--to)"
    else:
        way = ", or a smaller --load"
    return OperationError(
        f"the {order.in_words} did not end within {limit:g} s{copied}; the disk has "
        f"{format_bytes(running.disk.size)}",
        hint=f"choose a longer --during-limit{way}",
    )


def _operation_samples(
    running: RunningOperation,
    timeline: _Timeline,
    pauses: list[tuple[str, float]],
    images: NewImages,
) -> Iterator[model.Sample]:
    none = model.Direction.NONE
    yield model.Sample("duration", none, timeline.ended - timeline.ordered)
    yield model.Sample("paused", none, _paused(pauses, timeline))
    if running.copied is not None:
        yield model.Sample("copied", none, float(running.copied))
    _, before, after, _ = timeline.counted
    if before.allocated is not None and after.allocated is not None:
        made = sum(file.stat().st_blocks * 512 for file in images.files if file.exists())
        grown = max(0, after.allocated - before.allocated) + made
        yield model.Sample("allocated", none, float(grown))


def _paused(pauses: list[tuple[str, float]], timeline: _Timeline) -> float:
    """The seconds in which QEMU had stopped the guest, by the events of its monitor."""
    total, since = 0.0, None
    for event, moment in pauses:
        if event == "STOP":
            since = moment
        elif since is not None:
            total, since = total + moment - since, None
    return total + (0.0 if since is None else max(0.0, timeline.end - since))


def _over_time(requests: open_load.GuestRequests, timeline: _Timeline) -> model.Series:
    """The longest latency of each interval from the start of the first window on."""
    counted = tuple(request for request in requests.requests if request.due >= timeline.begin)
    return load_windows.latencies_over_time(
        open_load.GuestRequests(timeline.begin, timeline.end, requests.is_open, counted)
    )


def _resize(attachment: AttachedDisk, size: int) -> None:
    _place(attachment).machine.monitor.perform(resize_command(_disk(attachment), size))


def _use_node(attachment: AttachedDisk, node: str) -> None:
    """Gives the guest's device another block node, while it runs (QEMU 6.2 and later)."""
    _place(attachment).machine.monitor.perform(use_node_command(_disk(attachment), node))

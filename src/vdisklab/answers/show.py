"""`show`: everything that is stored about one run, and a script that repeats it by hand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.analysis.diagnostics.recorded import evidence_diagnostics
from vdisklab.analysis.guest_groups import jain
from vdisklab.analysis.sums import sums_of, times_of
from vdisklab.answers.caveats import caveats_with_remedy
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.guest.systems import FIND_DISK, FIND_SECONDS, LOAD_DRIVERS
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import PageCache
from vdisklab.results import model
from vdisklab.sanitise import sanitise_line
from vdisklab.storage.image_commands import create_command, fill_command
from vdisklab.value import HIDDEN, Value

_WORK = "@WORK@"
_CHANNELS = re.compile(r"socket,id=(agent|monitor|steps),fd=\d+")
_SITE = re.compile(r"(/[^\s,\"']*/vdisklab-[0-9a-f]{8})/")
"""The directory of a run; see `open_site`."""


class ShownCheck(Value):
    """A property that was set and read back."""

    name: str
    requested: Annotated[str | None, "null when the state is only recorded"]
    observed: str
    confirmed: bool


class ShownSample(Value):
    """One number that a program reported."""

    run: str
    measurement: str
    direction: model.Direction
    metric: str
    value: float
    unit: Annotated[str, "empty for a metric that a newer version stored"]


class LatencyParts(Value):
    """Where the mean time of a request was spent, in seconds; each includes the next."""

    direction: model.Direction
    guest: Annotated[float | None, "as the program in the guest saw it"]
    qemu: Annotated[float | None, "from QEMU's device to its answer"]
    device: Annotated[float | None, "in the host's device; null for a server"]
    network: Annotated[float | None, "a round trip on the connection to the server"]


class ShownMeasurement(Value):
    """One measurement of a run."""

    name: str
    program: str
    command: str
    started: datetime
    wall_seconds: float | None
    measured_seconds: float | None
    samples: tuple[ShownSample, ...]
    evidence: model.Evidence
    host_cpu_seconds_per_operation: float | None
    latency: Annotated[tuple[LatencyParts, ...], "empty where only the program took the time"]
    group: Annotated[model.GuestGroup | None, "the guests, if several ran at once"]
    fairness: Annotated[float | None, "Jain's index of these guests' IOPS"]
    raw: Annotated[str | None, "what the program printed, with `--raw`"]


class ShowAnswer(Answer):
    """`vdisklab show RUN`: the run as it is stored."""

    FORMAT = "vdisklab.run/2"

    id: str
    campaign: str
    cell: MeasuredCell
    path: str
    page_cache: PageCache
    round: int
    position: Annotated[int, "position in the round"]
    origin: model.Origin
    started: datetime
    wall_seconds: Annotated[float | None, "null for an imported run"]
    accelerator: Annotated[str | None, "`kvm` or `tcg`; null on the host itself"]
    emulated: Annotated[bool, "true under TCG, and in a host that is emulated itself"]
    ran_under: Annotated[model.RanUnder | None, HIDDEN]
    caveats: Caveats
    medium: Annotated[str | None, "the device under the image"]
    checks: tuple[ShownCheck, ...]
    commands: tuple[str, ...]
    measurements: tuple[ShownMeasurement, ...]
    failure: model.Failure | None
    findings: Annotated[tuple[Diagnostic, ...], "what limits the numbers"]


def answer_run(run: model.Run, *, raw: bool, campaign: model.Campaign | None = None) -> ShowAnswer:
    """The run of a campaign, if that is known; with `raw` also what the programs printed."""
    return ShowAnswer(
        id=run.id,
        campaign=run.campaign,
        cell=run.measured_cell,
        path=run.path,
        page_cache=run.page_cache,
        round=run.round,
        position=run.position,
        origin=run.origin,
        started=run.started,
        wall_seconds=run.wall_seconds,
        accelerator=run.accelerator,
        emulated=run.is_emulated,
        ran_under=run.ran_under,
        caveats=caveats_with_remedy(
            (run,), () if campaign is None else (campaign,), guest_arch=run.guest_arch
        ),
        medium=run.medium,
        checks=tuple(
            ShownCheck(check.name, check.requested, check.observed, check.confirmed)
            for check in run.checks
        ),
        commands=run.commands,
        measurements=tuple(
            shown_measurement(run.id, measurement, raw=raw, round_trip=_round_trip(run))
            for measurement in run.measurements
        ),
        failure=run.failure,
        findings=_findings(run),
    )


def _round_trip(run: model.Run) -> float | None:
    """Seconds of a round trip to the server of the run's target; None without one.

    The least, because a server that answers late makes the mean longer; old runs have no other.
    """
    seen = {check.name: check.observed for check in run.checks}
    delay = seen.get("net.least_round_trip_ms", seen.get("net.round_trip_ms"))
    return None if delay is None else float(delay) / 1000


def _latency(measured: model.Measurement, round_trip: float | None) -> Iterator[LatencyParts]:
    evidence = measured.evidence
    for number, direction in enumerate((model.Direction.READ, model.Direction.WRITE)):
        qemu, device = (
            None if counted is None else counted.mean_seconds[number]
            for counted in (evidence.qemu, evidence.device)
        )
        means = (
            sample.value
            for sample in measured.samples
            if (sample.metric, sample.direction) == ("latency_mean", direction)
        )
        if qemu is not None or device is not None:
            yield LatencyParts(direction, next(means, None), qemu, device, round_trip)


def shown_measurement(
    run: str, measured: model.Measurement, *, raw: bool = False, round_trip: float | None = None
) -> ShownMeasurement:
    """A measurement of the run with this id."""
    group = measured.group
    return ShownMeasurement(
        name=measured.name,
        program=measured.program,
        command=measured.command,
        started=measured.started,
        wall_seconds=measured.wall_seconds,
        measured_seconds=measured.measured_seconds,
        samples=tuple(
            ShownSample(
                run, measured.name, sample.direction, sample.metric, sample.value,
                model.METRICS[sample.metric].unit if sample.metric in model.METRICS else "",
            )
            for sample in measured.samples
        ),
        evidence=measured.evidence,
        host_cpu_seconds_per_operation=_cpu_per_operation(measured.evidence),
        latency=tuple(_latency(measured, round_trip)),
        group=group,
        fairness=None if group is None else jain([member.iops for member in group.members]),
        raw=measured.raw if raw else None,
    )  # fmt: skip


def _findings(run: model.Run) -> tuple[Diagnostic, ...]:
    if run.failure is not None:
        return ()
    reported = {
        (measurement.name, sample.direction)
        for measurement in run.measurements
        for sample in measurement.samples
    }
    cells = {run.cell: run.measured_cell}
    return evidence_diagnostics(sums_of(run), times_of(run), cells, reported, None)


def _cpu_per_operation(evidence: model.Evidence) -> float | None:
    """Host CPU seconds for each read, write and flush.

    Operations are counted by QEMU, or by the program itself where no guest took part. None where
    the CPU time or the operations are not known.
    """
    counted = evidence.qemu or evidence.guest
    if counted is None or evidence.host_cpu_seconds is None:
        return None
    flushes = counted.flush_operations or 0
    operations = counted.read_operations + counted.write_operations + flushes
    return evidence.host_cpu_seconds / operations if operations else None


def repeat_script(run: model.Run, campaign: model.Campaign) -> str:
    """The script. Raises PlanError for a run that needs more than an image and one guest."""
    path = run.measured_cell.path
    said = "\n".join(run.commands)
    lines = [line for line in run.commands if _CHANNELS.search(line)]
    sites = dict.fromkeys(_SITE.findall(said))
    images = dict.fromkeys(re.findall(r"/vdisklab-[0-9a-f]{8}/(image[^\s,\"']*)", said))
    serials = re.findall(r"serial\W+(vdl[0-9a-f]+)", said)
    reason = "its name is no disk path" if path is None else _too_much(run, path)
    if not reason and not (len(lines) == len(sites) == len(images) == 1 and serials):
        reason = "it had several guests or images, or vdisklab did not start its QEMU"
    if reason or path is None or path.image is None:
        raise PlanError(
            f"no script repeats run {run.id}: {reason}",
            hint=f"`vdisklab show {run.id}` has its commands",
        )
    (site,), (image,) = sites, images
    qemu = _CHANNELS.sub(rf"socket,id=\1,path={_WORK}/\1,server=on,wait=off", lines[0])
    plug = [json.loads(line) for line in run.commands if line.startswith("{")]
    programs = [measured.command for measured in run.measurements]
    size = int(campaign.plan["size_bytes"])
    place = Path(_WORK) / image
    make = (
        create_command(path.image, place, size),
        fill_command(
            path.image.driver,
            Path(_WORK) / "random",
            place,
            thin=path.image.is_thin,
            compressed=path.image.compressed,
        ),
    )
    argv = shlex.split(qemu)
    values = {
        "what": sanitise_line(f"Repeats run {run.id} of vdisklab by hand: {run.measured_cell}."),
        "directory": sanitise_line(str(Path(site).parent)),
        "files": shlex.join(
            [word for word in argv if word.startswith("/")]
            + re.findall(r"file,filename=(/[^,]*),node-name=system", qemu)
        ),
        "size": str(size),
        "image": "\n".join(map(_in_shell, make)),
        "qemu": _in_shell(argv, site),
        "plug": repr(plug).replace(site, _WORK),
        "programs": repr([shlex.split(program) for program in programs]),
        "rest": repr(
            (
                image,
                str(run.page_cache),
                [LOAD_DRIVERS, "240"],
                [FIND_DISK, serials[0], str(int(FIND_SECONDS) * 4)],
            )
        ),
    }
    script = files("vdisklab.answers").joinpath("repeat.sh").read_text("utf-8")
    for name, value in values.items():
        script = script.replace(f"@{name}@", value)
    return script


def _too_much(run: model.Run, path: DiskPath) -> str:
    """The parts of a run that the script cannot build; empty if there are none."""
    image = path.image
    if run.origin is not model.Origin.GUEST or not run.measurements:
        return "nothing was measured in a guest on this host"
    if path.layers or image is None or path.shares_directory:
        return "it needs host layers or a device"
    if image.encrypted or image.has_data_file or image.snapshots or image.bitmaps:
        return "its image is encrypted, in two files, or has snapshots or bitmaps"
    if image.backing:
        return "its image has a backing file"
    served = path.attachment.bus.is_served
    return "its disk is served by another program" if served else ""


def _in_shell(argv: list[str] | tuple[str, ...], site: str = _WORK) -> str:
    """A command whose words may have the work directory in them, which the script chooses."""
    spelled = (shlex.quote(word.replace(site, _WORK)) for word in argv)
    return " ".join(
        re.sub(_WORK, "'\"$work\"'", word) if "'" in word else word.replace(_WORK, '"$work"')
        for word in spelled
    )

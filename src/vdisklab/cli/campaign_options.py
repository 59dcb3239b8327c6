"""What `run` and `plan` share: the options of a campaign, and the way from them to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vdisklab.campaign.estimate import device_bytes_needed, planned_script
from vdisklab.campaign.survey import find_qemus, survey
from vdisklab.campaign.user_guest import asked_guest
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Ledger
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.segments import HOST
from vdisklab.plan.build import backing_of, build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, QemuCapabilities
from vdisklab.plan.guest import AcceleratorChoice, Firmware, SystemBus
from vdisklab.plan.load import parse_request
from vdisklab.plan.matrix import expand_matrix
from vdisklab.plan.profile import Profile
from vdisklab.plan.profiles import parse_profile
from vdisklab.plan.qemu import parse_qemu
from vdisklab.plan.request import GuestRequest, Request, merge
from vdisklab.progress import Progress
from vdisklab.storage.device import require_usable
from vdisklab.units import parse_duration, parse_size
from vdisklab.workload.fiojob import job_profile
from vdisklab.workload.registry import (
    DEFAULT_PROFILE,
    OURS_ALONE,
    builtin_profile_text,
    workload_for,
)

_A_TEXT_FILE = "name a file that can be read, in UTF-8"

PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATHS...",
        help="Disk paths, such as ext4/qcow2/none; braces make a matrix: "
        "{ext4,xfs}/{raw,qcow2}/{none,writeback}.",
    ),
]
PlanFileOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="A plan file in TOML.")
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="What each cell runs: one that `vdisklab profiles` lists, or a file: your own "
        "profile (.toml), or any job file of fio (.fio).",
        show_default=DEFAULT_PROFILE,
    ),
]
BlocksOption = Annotated[
    int | None,
    typer.Option("--blocks", help="How often each cell is measured.", show_default="5"),
]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime", metavar="SECONDS", help="How long each measurement runs.", show_default="5"
    ),
]
RampOption = Annotated[
    str | None,
    typer.Option(
        "--ramp", metavar="SECONDS", help="Time before it that does not count.", show_default="0.5"
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option("--size", metavar="SIZE", help="Size of the guest's disk.", show_default="1G"),
]
DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="The work directory.", show_default="the current directory"
    ),
]
DirsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="The work directory; with --here it may be given again, to see several side by side.",
        show_default="the current directory",
    ),
]
OnOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--on",
        metavar="DEVICE",
        help="Build on this whole block device instead of the work directory; several for lvm, "
        "md and ZFS, others take the first. It must be idle and empty, and is left empty.",
    ),
]
DestroyOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--destroy", metavar="DEVICE", help="What is on this device, named by --on, may be lost."
    ),
]
DisksOption = Annotated[
    int | None,
    typer.Option(
        "--disks",
        metavar="N",
        help="How many disks lvm, md and ZFS get.",
        show_default="as few as they need, or all of --on",
    ),
]
ArcOption = Annotated[
    str | None,
    typer.Option(
        "--arc", metavar="SIZE", help="Limit ZFS's cache while measuring.", show_default="as it is"
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help="Decides the order of cells.", show_default="from the plan"),
]
PageCacheOption = Annotated[
    PageCacheChoice | None,
    typer.Option(
        "--page-cache",
        help="State of the host's page cache before each measurement, where QEMU uses it.",
        show_default="both",
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="PATH",
        help="The path that scores relate to; `none` leaves it out.",
        show_default="the first path on the host, else `host`",
    ),
]
LabelOption = Annotated[str | None, typer.Option("--label", help="A name to find the campaign by.")]
ScaleOption = Annotated[
    float | None,
    typer.Option(
        "--scale",
        metavar="SHARE",
        help="Share of the totals of measurements that are not timed, such as 0.1.",
        show_default="1",
    ),
]
AcceleratorOption = Annotated[
    AcceleratorChoice | None,
    typer.Option("--accelerator", help="Who runs the guest.", show_default="auto: KVM if it works"),
]
CpusOption = Annotated[
    int | None, typer.Option("--guest-cpus", help="Virtual CPUs.", show_default="2")
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--guest-memory", metavar="SIZE", help="The guest's memory.", show_default="1G"),
]
GuestOption = Annotated[
    Path | None,
    typer.Option(
        "--guest",
        metavar="IMAGE",
        help="Measure in a guest of your own: a disk image with the QEMU guest agent in it. It is "
        "never written to.",
        show_default="a micro guest made from this host's programs",
    ),
]
FirmwareOption = Annotated[
    Firmware | None,
    typer.Option("--guest-firmware", help="What boots your own guest.", show_default="bios"),
]
SystemBusOption = Annotated[
    SystemBus | None,
    typer.Option(
        "--guest-bus", help="How your own guest sees the disk it boots from.", show_default="virtio"
    ),
]
BootOption = Annotated[
    str | None,
    typer.Option(
        "--guest-boot",
        metavar="TIME",
        help="How long your own guest may take until its agent answers.",
        show_default="5m, 15m under emulation",
    ),
]
DiskspdOption = Annotated[
    Path | None,
    typer.Option(
        "--diskspd",
        metavar="FILE",
        help="Microsoft's DISKSPD (amd64/diskspd.exe), which measures in a Windows guest.",
    ),
]
QemuOption = Annotated[
    list[str] | None,
    typer.Option(
        "--qemu",
        metavar="[NAME=]BIN",
        help="Measure each path with this QEMU; may be given again, to set old against new.",
        show_default="the installed one",
    ),
]


def ask(
    *,
    paths: list[str] | None = None,
    plan_file: Path | None = None,
    profile: str | None = None,
    blocks: int | None = None,
    runtime: str | None = None,
    ramp: str | None = None,
    size: str | None = None,
    directory: Path | None = None,
    on: list[Path] | None = None,
    destroy: list[Path] | None = None,
    disks: int | None = None,
    arc: str | None = None,
    seed: int | None = None,
    page_cache: PageCacheChoice | None = None,
    baseline: str | None = None,
    label: str | None = None,
    accelerator: AcceleratorChoice | None = None,
    cpus: int | None = None,
    memory: str | None = None,
    scale: float | None = None,
    qemu: list[str] | None = None,
    guest: Path | None = None,
    firmware: Firmware | None = None,
    system_bus: SystemBus | None = None,
    boot: str | None = None,
    diskspd: Path | None = None,
    db: str | None = None,
) -> Request:
    """The plan file's request, if there is one, under the command line's. Raises PlanError."""
    said = Request(
        paths=tuple(paths or ()),
        profile=profile,
        blocks=blocks,
        runtime=None if runtime is None else parse_duration(runtime),
        ramp=None if ramp is None else parse_duration(ramp),
        size_bytes=None if size is None else parse_size(size),
        directory=directory,
        devices=tuple(on or ()),
        destroy=tuple(destroy or ()),
        disks=disks,
        arc_bytes=None if arc is None else parse_size(arc),
        db=db,
        seed=seed,
        page_cache=page_cache,
        baseline=baseline,
        label=label,
        scale=scale,
        qemu=tuple(map(parse_qemu, qemu or ())),
        guest=GuestRequest(
            cpus=cpus,
            memory_bytes=None if memory is None else parse_size(memory),
            accelerator=accelerator,
            image=guest,
            firmware=firmware,
            system_bus=system_bus,
            boot_seconds=None if boot is None else parse_duration(boot),
            diskspd=diskspd,
        ),
    )
    return said if plan_file is None else merge(_read_plan_file(plan_file), said)


def _read_plan_file(file: Path) -> Request:
    try:
        return parse_request(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise PlanError(
            f"the plan file {file} cannot be read: {error.strerror}", hint=_A_TEXT_FILE
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"the plan file {file} is not UTF-8 text", hint=_A_TEXT_FILE) from error


def load_profile(name: str) -> Profile:
    """A built-in profile, or one in a file: TOML, or a job file of fio."""
    if not name.endswith((".toml", ".fio")):
        return parse_profile(builtin_profile_text(name), f"profile {name}")
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"the profile {name} cannot be read: {error.strerror}",
            hint="name a file that can be read, or one that `vdisklab profiles` lists",
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"the profile {name} is not UTF-8 text", hint=_A_TEXT_FILE) from error
    return parse_profile(text, name) if name.endswith(".toml") else job_profile(text, name)


def check_measurements(plan: CampaignPlan) -> None:
    """Raises PlanError for a setting that its program does not have, and for a guest, a disk or
    a memory that is not fit for it: before anything is built."""
    for measurement in plan.profile.measurements:
        if plan.guest.own is not None and measurement.program in OURS_ALONE:
            raise PlanError(
                f"measurement {measurement.name!r} boots or installs what our micro guest holds, "
                f"which the guest of {plan.guest.own.image} does not",
                hint="leave --guest out, or choose another profile",
            )
        workload = workload_for(measurement)
        if workload.needs_directory and measurement.filesystem is None:
            raise PlanError(
                f"measurement {measurement.name!r}: {measurement.program} works on files",
                hint='say on which file system: filesystem = "ext4"',
            )
        planned_script(plan, measurement)


def make_plan(host: Host, ledger: Ledger, request: Request, progress: Progress) -> CampaignPlan:
    """The plan that a request stands for on this host, after trying what it asks for.

    Raises PlanError for what cannot be, HostError for what cannot be had here.
    """
    profile = load_profile(request.profile or DEFAULT_PROFILE)
    backing = backing_of(request)
    qemus, able = find_qemus(host, request.qemu)
    paths = asked_paths(request, [qemu.name for qemu in qemus])
    directory = (request.directory or Path()).absolute()
    if directory.exists() and not directory.is_dir():
        raise HostError(f"the work directory {directory} is no directory", hint="name another one")
    if not directory.is_dir():
        raise HostError(
            f"the work directory {directory} does not exist", hint=f"mkdir -p {directory}"
        )
    own = asked_guest(host, request.guest)
    # What no host could measure is refused before anything is tried on this one.
    check_measurements(build_plan(request, Capabilities(qemus=able), profile, qemus, own))
    capabilities = survey(host, ledger, directory, paths, progress, backing=backing, qemus=able)
    plan = build_plan(request, capabilities, profile, qemus, own)
    require_usable(host, plan.backing, device_bytes_needed(plan))
    return plan


def asked_paths(request: Request, qemus: Sequence[str] = ()) -> tuple[DiskPath, ...]:
    """Every path that will have to be judged: the matrix's, and the host's as the baseline."""
    able = Capabilities(qemus={name: QemuCapabilities() for name in qemus})
    cells = expand_matrix(
        request.paths, capabilities=able, backing=backing_of(request), qemus=qemus
    ).cells
    paths = dict.fromkeys(cell.path for cell in cells)
    return tuple(dict.fromkeys((*paths, parse_path(HOST))))

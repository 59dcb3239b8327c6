"""`vdisklab lab`: a throw-away host in a virtual machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.rank import rank
from vdisklab.cli.tables import DbOption
from vdisklab.errors import GuestError, HostError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.kvm import try_kvm
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.lab.image import LabImage, build_image, find_image, require_same_python
from vdisklab.lab.machine import (
    LABEL,
    LabConfig,
    LabEnd,
    LabFiles,
    lab_files,
    run_job,
    run_shell,
    take_result,
)
from vdisklab.lab.payload import payload_disk
from vdisklab.plan.guest import Accelerator, AcceleratorChoice
from vdisklab.progress import Note, Progress
from vdisklab.result.address import default_url
from vdisklab.result.model import Campaign, Origin
from vdisklab.result.store import open_store
from vdisklab.storage.site import Site, open_site
from vdisklab.units import format_duration, parse_size

_DATABASE = "lab.sqlite"

DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the lab's disks lie.", show_default="the cache"),
]
DisksOption = Annotated[
    int, typer.Option("--lab-disks", min=0, max=16, help="How many empty disks the lab has.")
]
DiskSizeOption = Annotated[
    str, typer.Option("--lab-disk-size", metavar="SIZE", help="How large each of them is.")
]
MemoryOption = Annotated[
    str, typer.Option("--lab-memory", metavar="SIZE", help="The lab's memory.")
]
CpusOption = Annotated[int, typer.Option("--lab-cpus", min=1, max=64, help="The lab's CPUs.")]
LabAcceleratorOption = Annotated[
    AcceleratorChoice,
    typer.Option("--lab-accelerator", help="Who runs the lab; auto: KVM if it works."),
]


def lab_verbs() -> typer.Typer:
    """The verbs of the lab."""
    verbs = typer.Typer(
        name="lab",
        no_args_is_help=True,
        help="A throw-away host in a virtual machine, with LVM, software RAID and ZFS.",
    )
    verbs.command()(build)
    verbs.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(run)
    verbs.command()(shell)
    return verbs


def build(
    again: Annotated[
        bool, typer.Option("--again", help="Build it although it is there already.")
    ] = False,
) -> None:
    """Build the lab's image from the distribution's packages; takes some ten minutes, once.

    It is kept by what it is made of: a newer kernel in the distribution makes a new one.

    Example: vdisklab lab build
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        image = build_image(LocalHost(), _cache(), progress, again=again)
    print(f"{image.directory} (kernel {image.kernel_release}, Python {image.python})")


def run(
    context: typer.Context,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATHS...", help="Disk paths and options of `run`.")
    ],
    db: DbOption = None,
    directory: DirOption = None,
    lab_disks: DisksOption = 4,
    lab_disk_size: DiskSizeOption = "2G",
    lab_memory: MemoryOption = "4G",
    lab_cpus: CpusOption = 2,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> int:
    """Run `vdisklab run` with these paths and options inside the lab, and keep its runs.

    The runs are marked `lab`. Empty disks are /dev/disk/by-id/virtio-disk1 and on, for --on.
    Where the lab has no nested KVM, its guests are emulated under emulation: that proves that a
    stack works, and is worthless as a speed.

    Example: vdisklab lab run {zvol/ext4,zfs,lvm}/qcow2/writeback --blocks 1 --size 64M
    """
    arguments = [*paths, *context.args]
    config = LabConfig(
        Accelerator.TCG,
        lab_cpus,
        parse_size(lab_memory),
        lab_disks,
        parse_size(lab_disk_size),
    )
    console = Console(stderr=True)
    with _lab_site(console, directory) as (site, image, progress):
        code = payload_disk(site.host, site.directory, job_script(arguments))
        config = replace(config, accelerator=_accelerator(site.host, lab_accelerator, progress))
        with lab_files(site, image, code, config) as files:
            end = run_job(site, config, files, lambda line: _say(console, line))
            console.print(
                f"the lab was up after {end.up_seconds:.0f} s and took "
                f"{format_duration(end.wall_seconds)} in all ({config.accelerator})"
            )
            url = db or default_url(state_directory())
            campaigns = _bring_back(files, url, config, image, end)
    if not campaigns:
        raise GuestError(f"the lab's job ended with {end.status} and measured nothing")
    print(f"in the lab: {LABEL}" if config.accelerator is Accelerator.TCG else "in the lab")
    rank(campaign=campaigns, db=url)
    return end.status


def shell(
    directory: DirOption = None,
    lab_disks: DisksOption = 4,
    lab_memory: MemoryOption = "4G",
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> None:
    """Open a shell in the lab; everything in it is gone when it ends.

    Example: vdisklab lab shell
    """
    with _lab_site(Console(stderr=True), directory) as (site, image, progress):
        accelerator = _accelerator(site.host, lab_accelerator, progress)
        config = LabConfig(accelerator, memory_bytes=parse_size(lab_memory), disks=lab_disks)
        code = payload_disk(site.host, site.directory, None)
        with lab_files(site, image, code, config) as files:
            run_shell(site, config, files)


def job_script(arguments: list[str]) -> str:
    """What the lab runs: the same program, with its database where the results are fetched."""
    words = ["run", *arguments, "--dir", "/work", "--db", f"/work/out/{_DATABASE}"]
    return "\n".join(
        [
            "#!/bin/sh",
            # guests under two emulators are slow to answer, not dead
            "export PYTHONUNBUFFERED=1 VDISKLAB_PATIENCE=20",
            f"exec python3 -m vdisklab {shlex.join(words)}",
            "",
        ]
    )


@contextmanager
def _lab_site(
    console: Console, directory: Path | None
) -> Iterator[tuple[Site, LabImage, Progress]]:
    host = LocalHost()
    image = find_image(host, _cache())
    if image is None:
        raise HostError("the lab is not built yet", hint="vdisklab lab build")
    require_same_python(image)
    work = (directory or _cache() / "lab").absolute()
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        progress = stack.enter_context(TerminalProgress(console))
        yield stack.enter_context(open_site(host, ledger, work)), image, progress


def _cache() -> Path:
    return state_directory() / "cache"


def _accelerator(host: Host, choice: AcceleratorChoice, progress: Progress) -> Accelerator:
    if choice.accelerator is not None:
        return choice.accelerator
    trial = try_kvm(host)
    if trial.works:
        return Accelerator.KVM
    progress(Note(f"the lab runs under emulation: {trial.tried}"))
    return Accelerator.TCG


def _say(console: Console, line: str) -> None:
    if line:
        console.print(f"lab: {line}", soft_wrap=True, highlight=False, markup=False)


def _bring_back(
    files: LabFiles, url: str, config: LabConfig, image: LabImage, end: LabEnd
) -> list[str]:
    """Puts the lab's campaigns into the user's database, marked as what they are."""
    found = take_result(files, _DATABASE, files.directory)
    if found is None:
        return []
    with open_store(f"sqlite:///{found}") as lab, open_store(url) as store:
        campaigns = lab.campaigns()
        for campaign in campaigns:
            store.add_campaign(_marked(campaign, config, image, end))
            for run in lab.runs(campaign.id):
                store.add_run(replace(run, origin=Origin.LAB))
    return [campaign.id for campaign in campaigns]


def _marked(campaign: Campaign, config: LabConfig, image: LabImage, end: LabEnd) -> Campaign:
    more = {
        **campaign.host.more,
        "lab": LABEL if config.accelerator is Accelerator.TCG else "a virtual machine",
        "lab_accelerator": config.accelerator.value,
        "lab_image": image.directory.name,
        "lab_up_seconds": f"{end.up_seconds:.1f}",
    }
    label = campaign.label or "lab"
    return replace(campaign, host=replace(campaign.host, more=more), label=label)

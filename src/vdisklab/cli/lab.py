"""`vdisklab lab`: a throw-away host in a virtual machine."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vdisklab.cli.campaign_options import build_request
from vdisklab.cli.import_lab import DATABASE, LabHost, bring_back
from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.options import DbOption, Format, FormatOption
from vdisklab.cli.output import print_overview
from vdisklab.errors import GuestError, HostError
from vdisklab.guest.accelerator import try_kvm
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.lab.image import LabImage, build_image, find_image, require_same_python
from vdisklab.lab.machine import (
    KVM_TRIAL_SECONDS,
    LABEL,
    LabConfig,
    boot_lab_kernel,
    lab_files,
    require_lab_room,
    run_job,
    run_shell,
)
from vdisklab.lab.payload import carried_files, payload_disk
from vdisklab.plan.build import backing_of
from vdisklab.plan.guest import Accelerator, AcceleratorChoice
from vdisklab.plan.matrix import expand_matrix
from vdisklab.progress import Note, Step
from vdisklab.results.store import open_store
from vdisklab.services.answers import database_url
from vdisklab.storage.site import Site, open_site
from vdisklab.units import format_duration, parse_size

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
    verbs.command()(job)
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
    form: FormatOption = Format.TABLE,
) -> int:
    """Run `vdisklab run` with these paths and options inside the lab, and keep its runs.

    The runs are marked `lab`. Empty disks are /dev/disk/by-id/virtio-disk1 and on, for --on.
    Where the lab has no nested KVM, its guests are emulated under emulation: that proves that a
    stack works, and is worthless as a speed. What it measured is lost when it is interrupted.

    Example: vdisklab lab run {zvol/ext4,zfs,lvm}/qcow2/writeback --blocks 1 --size 64M
    """
    words = [*paths, *context.args]
    _require_possible(context.find_root().command, words)
    arguments, carried = carried_files(words)
    config = LabConfig(
        Accelerator.TCG,
        lab_cpus,
        parse_size(lab_memory),
        lab_disks,
        parse_size(lab_disk_size),
    )
    console = Console(stderr=True)
    url = database_url(db)
    with open_store(url):
        pass  # a database that cannot be written is told now, not after an hour
    with _lab_site(directory) as (site, image):
        code = payload_disk(site.host, site.directory, job_script(arguments), carried)
        config = replace(config, accelerator=_accelerator(site.host, image, lab_accelerator))
        with lab_files(site, image, code, config) as files:
            try:
                end = run_job(site, config, files, _teller(console))
            except KeyboardInterrupt:
                console.print("interrupted: what the lab had measured is lost")
                raise
            took = format_duration(end.wall_seconds)
            said = f"the lab was up after {end.up_seconds:.0f} s and took {took} in all"
            console.print(f"{said} ({config.accelerator})", soft_wrap=True)
            lab = LabHost(collect_facts(site.host), config, image, end)
            campaigns = bring_back(files, url, lab)
    if not campaigns:
        raise GuestError(f"the lab's job ended with {end.status} and measured nothing")
    what = LABEL if config.accelerator is Accelerator.TCG else "a virtual machine"
    console.print(f"in the lab: {what}", soft_wrap=True)
    with open_store(url) as store:
        for campaign in campaigns:
            print_overview(store, campaign, form, console)
    return end.status


def job(
    script: Annotated[Path, typer.Argument(metavar="FILE", help="A script for /bin/sh.")],
    directory: DirOption = None,
    lab_disks: DisksOption = 4,
    lab_disk_size: DiskSizeOption = "2G",
    lab_memory: MemoryOption = "4G",
    lab_cpus: CpusOption = 2,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> int:
    """Run a script in the lab, print what it prints, and end with its status.

    `vdisklab` is there as `python3 -m vdisklab`, a work directory as /work.

    Example: vdisklab lab job check-pools.sh
    """
    text = _script_text(script)
    with _lab_site(directory) as (site, image):
        accelerator = _accelerator(site.host, image, lab_accelerator)
        config = LabConfig(
            accelerator,
            lab_cpus,
            memory_bytes=parse_size(lab_memory),
            disks=lab_disks,
            disk_bytes=parse_size(lab_disk_size),
        )
        code = payload_disk(site.host, site.directory, text)
        with lab_files(site, image, code, config) as files:
            return run_job(site, config, files, lambda line: print(line) if line else None).status


def _script_text(script: Path) -> str:
    hint = "name a script for /bin/sh, in UTF-8"
    try:
        return script.read_text(encoding="utf-8")
    except OSError as error:
        raise HostError(
            f"the script {script} cannot be read: {error.strerror}", hint=hint
        ) from error
    except UnicodeDecodeError as error:
        raise HostError(f"the script {script} is not UTF-8 text", hint=hint) from error


def shell(
    directory: DirOption = None,
    lab_disks: DisksOption = 4,
    lab_memory: MemoryOption = "4G",
    lab_cpus: CpusOption = 2,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> None:
    """Open a shell in the lab; everything in it is gone when it ends.

    Example: vdisklab lab shell
    """
    with _lab_site(directory) as (site, image):
        accelerator = _accelerator(site.host, image, lab_accelerator)
        config = LabConfig(accelerator, lab_cpus, parse_size(lab_memory), lab_disks)
        code = payload_disk(site.host, site.directory, None)
        with lab_files(site, image, code, config) as files:
            Console(stderr=True).print("the lab boots; emulated it takes a minute and more")
            run_shell(site, config, files)


def _require_possible(vdisklab: Any, words: list[str]) -> None:  # noqa: ANN401 - click's group
    """Raises what `run` would, in the lab, say of words that no host could follow.

    Told here it takes a second; told there, the minutes until the lab is up.
    """
    said = vdisklab.commands["run"].make_context("vdisklab lab run", list(words)).params
    if said["here"]:
        return  # it takes no paths, and judges the rest itself
    request = build_request(said | {"directory": None})
    if not request.qemu:  # else paths may hold names that are found by trying those programs
        expand_matrix(request.paths, backing=backing_of(request))


def job_script(arguments: list[str]) -> str:
    """What the lab runs: the same program, with its database where the results are fetched."""
    words = ["run", *arguments, "--dir", "/work", "--db", f"/work/out/{DATABASE}"]
    return "\n".join(
        [
            "#!/bin/sh",
            # guests under two emulators are slow to answer, not dead
            "export PYTHONUNBUFFERED=1 VDISKLAB_PATIENCE=20",
            # its answer does not know that it is in the lab; ours will
            f"exec python3 -m vdisklab {shlex.join(words)} >/dev/null",
            "",
        ]
    )


@contextmanager
def _lab_site(directory: Path | None) -> Iterator[tuple[Site, LabImage]]:
    host = LocalHost()
    image = find_image(host, _cache())
    if image is None:
        raise HostError("the lab is not built yet", hint="vdisklab lab build")
    require_same_python(image)
    work = (directory or _cache() / "lab").absolute()
    require_lab_room(work)
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger())
        yield stack.enter_context(open_site(host, ledger, work)), image


def _cache() -> Path:
    return state_directory() / "cache"


def _accelerator(host: Host, image: LabImage, choice: AcceleratorChoice) -> Accelerator:
    """Who runs the lab. Its progress ends here: a line that lives would spoil the lab's shell."""
    if choice.accelerator is not None:
        return choice.accelerator
    with TerminalProgress(Console(stderr=True)) as progress:
        progress(Step("trying whether the lab runs under KVM"))
        trial = try_kvm(partial(boot_lab_kernel, host, image.kernel), KVM_TRIAL_SECONDS)
        if not trial.works:
            progress(Note(f"the lab runs under emulation: {trial.tried}"))
    return Accelerator.KVM if trial.works else Accelerator.TCG


def _teller(console: Console) -> Callable[[str], None]:
    """Passes on what the lab prints, with the time since it was switched on."""
    started = time.monotonic()

    def say(line: str) -> None:
        if line:
            after = format_duration(time.monotonic() - started)
            console.print(f"lab, {after}: {line}", soft_wrap=True, highlight=False, markup=False)

    return say

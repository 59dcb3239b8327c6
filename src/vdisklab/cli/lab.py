"""`vdisklab lab`: a throw-away host in a virtual machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.actions.lab_runs import (
    Lab,
    choose_accelerator,
    describe_lab,
    measure_in_lab,
    open_lab,
    open_shell,
    run_script,
)
from vdisklab.actions.planning import require_possible_paths
from vdisklab.answers.loading import database_url
from vdisklab.campaign.guests import requested_guest
from vdisklab.cli.shell.campaign_options import parse_words
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import DbOption, Format, FormatOption
from vdisklab.cli.shell.output import print_overview
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import GuestError, HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import cache_directory
from vdisklab.host.mounts import is_visible_file
from vdisklab.lab.lab_image import build_lab_image
from vdisklab.lab.lab_machine import CARRIED, LabConfig, usable_cpus
from vdisklab.plan.guest import Accelerator, AcceleratorChoice
from vdisklab.plan.run_request import RunRequest
from vdisklab.results.store import open_store
from vdisklab.units import format_duration, format_size, parse_size

PANEL = VerbPanel.ELSEWHERE

CarryOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--carry",
        metavar="FILE",
        help=f"A file that the script finds in {CARRIED}; repeatable.",
        show_default="none",
    ),
]
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", help="The directory of the lab's disks.", show_default="the cache"),
]
DisksOption = Annotated[
    int, typer.Option("--lab-disks", min=0, max=16, help="Number of empty disks.")
]
DiskSizeOption = Annotated[
    str, typer.Option("--lab-disk-size", metavar="SIZE", help="Size of each empty disk.")
]
MemoryOption = Annotated[
    str, typer.Option("--lab-memory", metavar="SIZE", help="The lab's memory.")
]
CpusOption = Annotated[
    int, typer.Option("--lab-cpus", min=1, max=64, help="The lab's CPUs; an emulated lab has one.")
]
LabAcceleratorOption = Annotated[
    AcceleratorChoice,
    typer.Option(
        "--lab-accelerator", help="What runs the lab; auto is KVM if it works, else emulation."
    ),
]


_USUAL = LabConfig(Accelerator.TCG)
_DISK_SIZE, _MEMORY = format_size(_USUAL.disk_bytes), format_size(_USUAL.memory_bytes)


def lab() -> typer.Typer:
    """A disposable host in a virtual machine, with LVM, software RAID and ZFS."""
    verbs = typer.Typer(no_args_is_help=True)
    verbs.command()(build)
    verbs.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(run)
    verbs.command()(job)
    verbs.command()(shell)
    return verbs


def build(
    again: Annotated[bool, typer.Option("--again", help="Build it even if it exists.")] = False,
) -> None:
    """Build the lab's image from the distribution's packages; this takes about ten minutes.

    The image is cached; a newer kernel in the distribution makes a new one.

    Example: vdisklab lab build
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        image = build_lab_image(LocalHost(), cache_directory(), progress, again=again)
    print(f"{image.directory} (kernel {image.kernel_release}, Python {image.python})")


def run(
    context: typer.Context,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATHS...", help="Disk paths and options for `run`.")
    ],
    db: DbOption = None,
    directory: DirOption = None,
    lab_disks: DisksOption = _USUAL.disks,
    lab_disk_size: DiskSizeOption = _DISK_SIZE,
    lab_memory: MemoryOption = _MEMORY,
    lab_cpus: CpusOption = _USUAL.cpus,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
    form: FormatOption = Format.TABLE,
) -> int:
    """Run `vdisklab run` with these paths and options inside the lab, and keep its runs.

    The runs are marked `lab`. For --on, the empty disks are /dev/disk/by-id/virtio-disk1 and so on.
    Guests in the lab run under KVM if it works there, else under emulation; no number measured
    there is the speed of a disk. Each run is stored as soon as it is measured; the same command
    continues.

    Example: vdisklab lab run {zfs,lvm}/qcow2/none --rounds 1 --size 64M
    """
    words = [*paths, *context.args]
    _require_possible(words)
    memory, disk = parse_size(lab_memory), parse_size(lab_disk_size)
    console = Console(stderr=True)
    with (
        open_store(database_url(db, create=True)) as store,
        open_lab(LocalHost(), directory) as lab,
    ):
        accelerator = _accelerator(lab, lab_accelerator)
        config = LabConfig(accelerator, _cpus(accelerator, lab_cpus), memory, lab_disks, disk)
        try:
            imported = measure_in_lab(lab, config, words, store, _line_printer(console))
        except (KeyboardInterrupt, GuestError):
            console.print("what was measured is kept; the same command continues")
            raise
        end = imported.end
        up, wall = f"{end.up_seconds:.0f} s", format_duration(end.wall_seconds)
        console.print(
            f"the lab, {describe_lab(accelerator)}, was up after {up} and ran for {wall} in all",
            soft_wrap=True,
        )
        for campaign in imported.campaigns:
            print_overview(store, campaign, form, console)
    return end.status


def job(
    script: Annotated[Path, typer.Argument(metavar="FILE", help="A script for /bin/sh.")],
    carry: CarryOption = None,
    directory: DirOption = None,
    lab_disks: DisksOption = _USUAL.disks,
    lab_disk_size: DiskSizeOption = _DISK_SIZE,
    lab_memory: MemoryOption = _MEMORY,
    lab_cpus: CpusOption = _USUAL.cpus,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> int:
    """Run a script in the lab, print its output, and end with its exit status.

    In the lab, vdisklab is `python3 -m vdisklab`, and /work is a work directory.

    Example: vdisklab lab job check-pools.sh
    """
    text, files = _script_text(script), _files_by_name(carry or ())
    memory, disk = parse_size(lab_memory), parse_size(lab_disk_size)
    with open_lab(LocalHost(), directory) as lab:
        accelerator = _accelerator(lab, lab_accelerator)
        config = LabConfig(accelerator, _cpus(accelerator, lab_cpus), memory, lab_disks, disk)
        return run_script(lab, config, text, partial(print, flush=True), files)


def _files_by_name(files: Iterable[Path]) -> dict[str, Path]:
    """The files to carry. Raises PlanError if one is missing or two have the same name."""
    named: dict[str, Path] = {}
    for file in files:
        if not is_visible_file(file):
            raise PlanError(f"{file} is not a file", hint="--carry takes a file")
        if named.setdefault(file.name, file) != file:
            raise PlanError(f"two files to carry are called {file.name}", hint="rename one")
    return named


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
    lab_disks: DisksOption = _USUAL.disks,
    lab_memory: MemoryOption = _MEMORY,
    lab_cpus: CpusOption = _USUAL.cpus,
    lab_accelerator: LabAcceleratorOption = AcceleratorChoice.AUTO,
) -> None:
    """Open a shell in the lab; everything in it is gone when the shell ends.

    Example: vdisklab lab shell
    """
    memory = parse_size(lab_memory)
    with open_lab(LocalHost(), directory) as lab:
        accelerator = _accelerator(lab, lab_accelerator)
        slow = "; under emulation this takes a minute or more" if accelerator.is_emulation else ""
        Console(stderr=True).print(f"booting the lab{slow}")
        open_shell(lab, LabConfig(accelerator, _cpus(accelerator, lab_cpus), memory, lab_disks))


def _require_possible(words: list[str]) -> None:
    """Raises the errors that `run` would raise on any host, before the lab boots for minutes."""
    for request in parse_words(words, RunRequest, "vdisklab lab run").campaigns():
        require_possible_paths(request)
        requested_guest(LocalHost(), request)  # its image and DISKSPD, which the lab gets from here


def _accelerator(lab: Lab, choice: AcceleratorChoice) -> Accelerator:
    """The lab's accelerator. The live line of the trial must end before a shell begins."""
    with TerminalProgress(Console(stderr=True)) as progress:
        return choose_accelerator(lab, choice, progress)


def _cpus(accelerator: Accelerator, cpus: int) -> int:
    """The lab's CPUs; a note says if they are fewer than requested."""
    usable = usable_cpus(accelerator, cpus)
    if usable < cpus:
        Console(stderr=True).print(
            f"note: the lab has one CPU instead of {cpus}: QEMU cannot emulate several reliably",
            soft_wrap=True,
        )
    return usable


def _line_printer(console: Console) -> Callable[[str], None]:
    """A function that prints the lab's lines, each with the time since this call."""
    started = time.monotonic()

    def say(line: str) -> None:
        after = format_duration(time.monotonic() - started)
        console.print(f"lab, {after}: {line}", soft_wrap=True, highlight=False, markup=False)

    return say

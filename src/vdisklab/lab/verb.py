"""`vdisklab lab`: a throw-away host in a virtual machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from vdisklab.actions.planning import possible_paths
from vdisklab.answers.loading import database_url
from vdisklab.campaign.user_guest import requested_guest
from vdisklab.cli.shell.after_run import analysed, print_overview
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import (
    TEXTS,
    DbOptions,
    OutputOptions,
    argument,
    parse_words,
    takes_options,
)
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import GuestError, HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.mounts import is_visible_file
from vdisklab.host.state_directory import cache_directory
from vdisklab.lab.action import (
    Lab,
    choose_accelerator,
    describe_lab,
    measure_in_lab,
    open_lab,
    open_shell,
    run_script,
)
from vdisklab.lab.lab_image import COMPILED_LAYERS, build_lab_image
from vdisklab.lab.lab_machine import CARRIED, LabConfig, usable_cpus
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.disk_path import DiskPath
from vdisklab.plan.accelerator import Accelerator, AcceleratorChoice
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.value_kinds import ARCHITECTURE, FILE, FILES, SIZE, SWITCH, WHOLE, Limits, one_of
from vdisklab.results.store import open_store
from vdisklab.units import format_duration

PANEL = VerbPanel.ELSEWHERE

_ARCH = "The lab's architecture; another than this host's is emulated."
_USUAL = LabConfig(Accelerator.TCG)


@dataclass(frozen=True, slots=True)
class LabRequest(OptionRows):
    """The lab that a verb wants."""

    directory: Path | None = option(
        FILE, "The directory of the lab's disks.", flag="--dir", shown="the cache"
    )
    arch: str | None = option(ARCHITECTURE, _ARCH, metavar="NAME", shown="this host's")
    lab_disks: int = option(WHOLE, "Number of empty disks.", _USUAL.disks, limits=Limits(0, 16))
    lab_disk_size: int = option(SIZE, "Size of each empty disk.", _USUAL.disk_bytes, metavar="SIZE")
    lab_memory: int = option(SIZE, "The lab's memory.", _USUAL.memory_bytes, metavar="SIZE")
    lab_cpus: int = option(
        WHOLE, "The lab's CPUs; an emulated x86 lab has one.", _USUAL.cpus, limits=Limits(1, 64)
    )
    lab_accelerator: AcceleratorChoice = option(
        one_of(AcceleratorChoice),
        "What runs the lab; auto is KVM if it works, else emulation.",
        AcceleratorChoice.AUTO,
    )

    def config(self, lab: Lab) -> LabConfig:
        """The lab's configuration, after its accelerator was tried."""
        accelerator = _accelerator(lab, self.lab_accelerator)
        cpus = _cpus(accelerator, self.lab_cpus)
        return LabConfig(accelerator, cpus, self.lab_memory, self.lab_disks, self.lab_disk_size)


@dataclass(frozen=True, slots=True)
class BuildOptions(OptionRows):
    """Whether to keep an image that exists."""

    arch: str | None = option(ARCHITECTURE, _ARCH, metavar="NAME", shown="this host's")
    again: bool = option(SWITCH, "Build it even if it exists.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRunOptions(DbOptions):
    """What to measure in the lab."""

    paths: tuple[str, ...] = argument(TEXTS, "Disk paths and options for `run`.", "PATHS...")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(OptionRows):
    """What to run in the lab."""

    script: Path = argument(FILE, "A script for /bin/sh.", "FILE")
    carry: tuple[Path, ...] = option(
        FILES,
        f"A file that the script finds in {CARRIED}; repeatable.",
        metavar="FILE",
        shown="none",
    )


def lab() -> typer.Typer:
    """A disposable host in a virtual machine, with LVM, software RAID and ZFS."""
    verbs = typer.Typer(no_args_is_help=True)
    verbs.command()(build)
    verbs.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)
    verbs.command()(job)
    verbs.command()(shell)
    return verbs


@takes_options()
def build(request: BuildOptions) -> None:
    """Build the lab's image from the distribution's packages; this takes about ten minutes.

    The image is cached; a newer kernel in the distribution makes a new one.

    Example: vdisklab lab build
    """
    with TerminalProgress(Console(stderr=True)) as progress:
        image = build_lab_image(LocalHost(), cache_directory(), progress, again=request.again)
    print(f"{image.directory} (kernel {image.kernel_release}, Python {image.python})")


@takes_options()
def run(
    request: LabRequest, inner: LabRunOptions, context: typer.Context, output: OutputOptions
) -> int:
    """Run `vdisklab run` with these paths and options inside the lab, and keep its runs.

    The runs are marked `lab`. For --on, the empty disks are /dev/disk/by-id/virtio-disk1 and so on.
    Guests in the lab run under KVM if it works there, else under emulation; no number measured
    there is the speed of a disk. Each run is stored as soon as it is measured; the same command
    continues.

    Example: vdisklab lab run {zfs,lvm}/qcow2/none --rounds 1 --size 64M
    """
    argv = [*inner.paths, *context.args]
    console = Console(stderr=True)
    _require_possible(argv, console)
    with (
        open_store(database_url(inner.db, create=True)) as store,
        open_lab(LocalHost(), request.directory) as lab,
    ):
        config = request.config(lab)
        try:
            imported = measure_in_lab(lab, config, argv, store, _line_printer(console))
        except (KeyboardInterrupt, GuestError):
            continues = Caller.of_process().same_command("the same command continues")
            console.print(Text(f"all finished measurements are kept; {continues}"), soft_wrap=True)
            raise
        end = imported.end
        up, wall = f"{end.up_seconds:.0f} s", format_duration(end.wall_seconds)
        where = describe_lab(config.accelerator)
        console.print(
            f"the lab, {where}, was up after {up} and ran for {wall} in all", soft_wrap=True
        )
        for campaign in imported.campaigns:
            analysis = analysed(store, campaign, console)
            if analysis is not None:
                print_overview(analysis, output, console)
    return end.status


@takes_options()
def job(request: LabRequest, work: JobOptions) -> int:
    """Run a script in the lab, print its output, and end with its exit status.

    In the lab, vdisklab is `python3 -m vdisklab`, and /work is a work directory.

    Example: vdisklab lab job check-pools.sh
    """
    text, files = _script_text(work.script), _files_by_name(work.carry)
    with open_lab(LocalHost(), request.directory) as lab:
        return run_script(lab, request.config(lab), text, partial(print, flush=True), files)


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


@takes_options()
def shell(request: LabRequest) -> None:
    """Open a shell in the lab; everything in it is gone when the shell ends.

    Example: vdisklab lab shell
    """
    with open_lab(LocalHost(), request.directory) as lab:
        config = request.config(lab)
        emulated = config.accelerator.is_emulation
        slow = "; under emulation this takes a minute or more" if emulated else ""
        Console(stderr=True).print(f"booting the lab{slow}")
        open_shell(lab, config)


def _require_possible(argv: list[str], console: Console) -> None:
    """Raises the errors that `run` would raise on any host, before the lab boots for minutes."""
    for request in parse_words(argv, RunRequest, "vdisklab lab run").campaigns():
        paths = possible_paths(request)
        note = note_on_layers(paths) if is_foreign() else None
        if note is not None:
            console.print(note, soft_wrap=True)
        requested_guest(LocalHost(), request)  # its image and DISKSPD, which the lab gets from here


def note_on_layers(paths: Sequence[DiskPath]) -> str | None:
    """The note that a foreign lab lacks layers of some paths; None if it has all layers.

    Raises PlanError if it can have none of the paths.
    """
    lacking = [any(layer.kind in COMPILED_LAYERS for layer in path.layers) for path in paths]
    if not any(lacking):
        return None
    why = f"the lab for {GUEST.name} has no ZFS, whose kernel module would have to be compiled"
    if all(lacking):
        raise PlanError(why, hint="leave out --arch: the lab for this host's architecture has ZFS")
    return f"note: {why}; paths on it are dropped"


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

"""`vdisklab powercut`: what survives when the power fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.actions.cut_power import (
    DEFAULT_STATES,
    EXHAUSTIVE_CHANGES,
    PowerCutPlace,
    PowerCutRequest,
    judge_power_cuts,
    plan_questions,
    replay_case,
)
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.campaign_options import AcceleratorOption, DirOption, PathsArgument
from vdisklab.cli.shell.live import TerminalProgress, print_dropped
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import DbOption, Format, FormatOption
from vdisklab.cli.shell.output import emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, PlanError
from vdisklab.host.ledger import cache_directory
from vdisklab.path.durability import FailureModel
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.plan.guest import AcceleratorChoice, GuestPlan
from vdisklab.powercut.clients.block_operations import MidRunOperation
from vdisklab.powercut.cutting.cuts import TEAR_BYTES
from vdisklab.powercut.recording.logged_disk import LoggedBy
from vdisklab.powercut.recording.promises import DEFAULT_WRITES
from vdisklab.powercut.vocabulary import AccessKind, ClientKind, DriverSetting
from vdisklab.units import MIB
from vdisklab.views.cut_verdicts import (
    power_cut_document,
    power_cut_notes,
    power_cut_table,
    replay_lines,
)

PANEL = VerbPanel.MEASURE

_GUEST_MEMORY = 512 * MIB
_MOST_WRITES = 10_000
"""More prove nothing: the client has about two thousand places to write to."""


def powercut(
    context: typer.Context,
    paths: PathsArgument = None,
    client: Annotated[
        list[ClientKind] | None,
        typer.Option(
            "--client",
            help="When the client expects a write to be durable; can be repeated.",
            show_default="flushes, fua and never",
        ),
    ] = None,
    access: Annotated[
        AccessKind,
        typer.Option(
            "--access",
            help="How the client reaches the disk: through QEMU's block layer alone, in a real "
            "Linux guest on the path's bus, or through the BIOS of a guest that never flushes "
            "(buses ide and virtio).",
        ),
    ] = AccessKind.NBD,
    driver: Annotated[
        list[DriverSetting] | None,
        typer.Option(
            "--driver",
            help=(
                "How a guest first changes its disk's write cache: not at all, by `write "
                "through` in queue/write_cache or cache_type, or by hdparm -W0; may be given "
                "again."
            ),
            show_default=DriverSetting.AS_FOUND.value,
        ),
    ] = None,
    states: Annotated[
        int | None,
        typer.Option(
            "--states",
            min=1,
            metavar="N",
            help="Judge at most N states of each run.",
            show_default=str(DEFAULT_STATES),
        ),
    ] = None,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            help=(
                f"Judge every state if at most {EXHAUSTIVE_CHANGES} writes are between two flushes."
            ),
        ),
    ] = False,
    writes: Annotated[
        int, typer.Option("--writes", min=1, max=_MOST_WRITES, help="Number of writes in each run.")
    ] = DEFAULT_WRITES,
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=64, help="Number of requests in flight.")
    ] = 1,
    loop_direct_io: Annotated[
        bool,
        typer.Option(
            "--loop-direct-io/--no-loop-direct-io",
            help="Whether the loop device below the file system bypasses the page cache.",
        ),
    ] = True,
    tear: Annotated[
        int,
        typer.Option(
            "--tear",
            metavar="BYTES",
            help="The unit that a disk writes as a whole: 4096, or 512 with fsck as part of "
            "recovery; 0: no tearing.",
        ),
    ] = TEAR_BYTES,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed for the places to write to and the sampled states.")
    ] = 1,
    logged_by: Annotated[
        LoggedBy,
        typer.Option(
            "--logged-by",
            help="What logs the disk: vdisklab's own server on any kernel with FUSE, or "
            "device-mapper's log-writes where the kernel has it.",
        ),
    ] = LoggedBy.FUSE,
    model: Annotated[
        list[FailureModel] | None,
        typer.Option(
            "--model",
            help="What dies: the power of a disk with a volatile cache (power) or with power-loss "
            "protection (plp), the host's kernel (host-crash), QEMU (qemu-killed), the guest "
            "alone (guest-reset); can be repeated.",
            show_default=FailureModel.POWER.value,
        ),
    ] = None,
    during: Annotated[
        list[MidRunOperation] | None,
        typer.Option(
            "--during",
            help="Do this to the disk in the middle of each run, as QEMU's monitor does it: a "
            "snapshot, a commit of the overlay, a mirror to another file, or a resize to twice its "
            "size; can be repeated.",
            show_default="nothing",
        ),
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEED",
            help=needs_help("Judge only paths that meet this need by the rules"),
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option("--replay", metavar="CASE", help="Rebuild one state and mount it."),
    ] = None,
    accelerator: AcceleratorOption = None,
    directory: DirOption = None,
    new: Annotated[
        bool, typer.Option("--new", help="Judge again what was already judged on this host.")
    ] = False,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> int:
    """Cut the power at every moment of a recorded run, and check that promised data survives.

    Needs root, FUSE and about 2 GiB of memory; nothing is written to a disk. Controls run first:
    broken disks must fail, and intact ones must pass. The same command continues an interrupted
    campaign. Exit status: 0 even if a path loses data, 8 if a path could not be judged.

    Examples:

      vdisklab powercut {ext4,xfs}/{raw,qcow2}/{none,unsafe}

      vdisklab powercut ext4/raw/none --client never --states 200

      vdisklab powercut ext4/raw/none/{virtio,ide} --access guest --driver queue

      vdisklab powercut ext4/raw/none --access guest --client sqlite-wal

      vdisklab powercut ext4/raw/{none,writeback} --model plp --model qemu-killed

      vdisklab powercut ext4/qcow2/none --during snapshot --client flushes

      vdisklab powercut --replay 3f2a9c01/12-3f
    """
    work = (directory or Path()).absolute()
    if replay is not None:
        _refuse_ignored(context, "replay", "directory")
        return _replay(work, replay)
    planned = plan_questions(
        PowerCutRequest(
            paths=paths or (),
            clients=client or (),
            access=access,
            drivers=driver or (),
            needs=parse_needs(need),
            states=states,
            exhaustive=exhaustive,
            tear=tear,
            writes=writes,
            depth=depth,
            seed=seed,
            direct_io=loop_direct_io,
            logged_by=logged_by,
            models=model or (),
            during=tuple(dict.fromkeys(during or ())),
        )
    )
    console = Console(stderr=True)
    print_dropped(console, planned.dropped)
    choice = accelerator or AcceleratorChoice.AUTO
    place = PowerCutPlace(
        work=work,
        database=database_url(db, create=True),
        guest=GuestPlan(memory_bytes=_GUEST_MEMORY, accelerator=choice.accelerator),
        guest_cache=cache_directory(),
    )
    with TerminalProgress(console) as progress:
        answer = judge_power_cuts(planned.questions, place, progress, new=new)
    if answer.interrupted:
        console.print("interrupted: all verdicts so far are stored; the same command continues")
    emit(
        form,
        [power_cut_table(answer.verdicts, power_cut_notes(answer))],
        lambda: power_cut_document(answer),
        Named.of(db),
    )
    if answer.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if answer.any_failed else 0


def _refuse_ignored(context: typer.Context, *used: str) -> None:
    """Raises PlanError for an option of the command line that has no effect with --replay."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in used:
            option = "PATHS" if parameter.name == "paths" else parameter.opts[0]
            raise PlanError(f"{option} has no effect with --replay", hint="leave one of them out")


def _replay(work: Path, case: str) -> int:
    with replay_case(work, case) as replayed:
        for line in replay_lines(replayed):
            print(line)
        if sys.stdin.isatty():
            input("Press Enter to unmount and remove it. ")
    return 0

"""`vdisklab powercut`: what survives when the power fails."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.live import TerminalProgress, print_dropped
from vdisklab.cli.shell.options import OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, PlanError
from vdisklab.host.state_directory import cache_directory
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.action import JudgingSetup, judge_power_cuts, replay_case
from vdisklab.powercut.request import PowercutRequest, plan_questions
from vdisklab.units import MIB
from vdisklab.value import replace
from vdisklab.views import powercut as view

PANEL = VerbPanel.MEASURE

_GUEST_MEMORY = 512 * MIB


@takes_options()
def powercut(request: PowercutRequest, context: typer.Context, output: OutputOptions) -> int:
    """Cut the power at every moment of a recorded run, and check that acknowledged writes survive.

    Needs root, FUSE and about 2 GiB of memory; nothing is written to a disk. Controls run first:
    broken disks must fail, and intact ones must pass. The same command continues an interrupted
    campaign. Exit status: 0 even if a path loses data, 8 if a path could not be judged.

    Examples:

      vdisklab powercut {ext4,xfs}/{raw,qcow2}/{none,unsafe}

      vdisklab powercut ext4/raw/none --client never --states 200

      vdisklab powercut ext4/raw/none/{virtio,ide} --access guest --driver queue

      vdisklab powercut ext4/raw/none --access guest --client sqlite-wal

      vdisklab powercut {ext4,xfs}/raw/none --access guest --client postgresql

      vdisklab powercut ext4/raw/{none,writeback} --model plp --model qemu-killed

      vdisklab powercut ext4/qcow2/none --during snapshot --client flushes

      vdisklab powercut raw/none/virtio:werror={report,stop} --model storage-error

      vdisklab powercut --replay 3f2a9c01/12-3f
    """
    work = (request.directory or Path()).resolve()
    if request.replay is not None:
        _refuse_ignored(context, "replay", "directory")
        return _replay(work, request.replay)
    # Imported late: it knows all platforms.
    from vdisklab.answers.export import stored_targets  # noqa: PLC0415

    named = [target for path in request.paths for target in stored_targets(request.db, path)]
    planned = plan_questions(replace(request, target=(*request.target, *named)))
    console = Console(stderr=True)
    print_dropped(console, planned.dropped)
    choice = request.accelerator or AcceleratorChoice.AUTO
    setup = JudgingSetup(
        work=work,
        database=database_url(request.db, create=True),
        guest=GuestPlan(memory_bytes=_GUEST_MEMORY, accelerator=choice.accelerator),
        guest_cache=cache_directory(),
    )
    with TerminalProgress(console) as progress:
        judged = judge_power_cuts(planned.questions, setup, progress, new=request.new)
    answer = replace(judged, left_out=planned.left_out)
    if answer.interrupted:
        continues = Caller.of_process().same_command("the same command continues")
        console.print(
            Text(f"interrupted: all verdicts so far are stored; {continues}"), soft_wrap=True
        )
    print_answer(answer, view.tables(answer), output, request)
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
        for line in view.replay_lines(replayed):
            print(line)
        if sys.stdin.isatty():
            input("Press Enter to unmount and remove it. ")
    return 0

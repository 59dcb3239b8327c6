"""`vdisklab plan`: what `run` would do."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from vdisklab.actions.planning import make_plan
from vdisklab.answers.plan import PlanAnswer, answer_plan
from vdisklab.answers.race import as_race, can_race
from vdisklab.cli.shell.live import TerminalProgress, print_dropped, warning_line
from vdisklab.cli.shell.options import Format, OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.run_request import RaceTerms
from vdisklab.plan.settings import OptionRows, Request, option
from vdisklab.plan.value_kinds import SWITCH
from vdisklab.sanitise import sanitise
from vdisklab.views.plan import tables

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class PlanOptions(OptionRows):
    """What else to show."""

    commands: bool = option(
        SWITCH, "Print the exact qemu, QMP and measuring commands of each cell."
    )


@takes_options()
def plan(request: Request, shown: PlanOptions, output: OutputOptions) -> None:
    """Show the cells that `run` would measure, those dropped and why, the order, and how long.

    Each host stack is built once, small, to find out what it can serve; nothing is measured.

    Examples:

        vdisklab plan '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab plan raw/none/nvme --commands
    """
    host = LocalHost()
    with open_ledger() as ledger, TerminalProgress(Console(stderr=True)) as progress:
        planned = make_plan(host, ledger, request, progress)
        if request.rounds is None and can_race(planned, RaceTerms()):
            planned = as_race(planned, RaceTerms())
        answer = answer_plan(planned, host if shown.commands else None)
    print_answer(answer, tables(answer), output)
    if output.form is not Format.JSON:
        _print_beside(answer, Console(stderr=output.form is Format.CSV))
    if output.form is Format.TABLE:
        _print_commands(answer, Console())


def _print_beside(answer: PlanAnswer, console: Console) -> None:
    """Prints the parts of the answer that the table has no rows for."""
    print_dropped(console, answer.dropped)
    for sentence in answer.warnings:
        console.print(warning_line(sentence), soft_wrap=True)


def _print_commands(answer: PlanAnswer, console: Console) -> None:
    if answer.kvm_assumed:
        console.print("`run` tests whether KVM works here; these commands assume that it does")
    for cell, commands in answer.commands.items():
        console.print(Text(f"\n# {cell.label}", style="bold"))
        qemu = () if commands.qemu is None else (commands.qemu,)
        for line in (*commands.host, *qemu, *commands.qmp, *commands.measurements):
            console.print(Text(sanitise(line)), soft_wrap=True)

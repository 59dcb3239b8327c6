"""What `plan` does: plans each campaign of a request, and prints what `run` would do."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import groupby

from rich.console import Console
from rich.text import Text

from vdisklab.actions.again import repeated
from vdisklab.actions.find_best import make_search
from vdisklab.actions.planning import plan_request
from vdisklab.answers.begun import MeasuringHost
from vdisklab.answers.effort import so_far_of
from vdisklab.answers.loading import open_results
from vdisklab.answers.plan import PlanAnswer, answer_plan
from vdisklab.cli.shell.live import TerminalProgress, print_dropped, warning_line
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.errors import EXIT_CELLS_FAILED, NoDatabaseError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.run_request import RunRequest
from vdisklab.results.store import Store
from vdisklab.sanitise import sanitise
from vdisklab.views.plan import tables


def plan_campaigns(request: RunRequest, output: OutputOptions, *, commands: bool) -> int:
    """Plans the campaigns of a request and prints their plans, with each cell's `commands` if these
    are wanted; returns the exit status."""
    host = LocalHost()
    with ExitStack() as stack:
        store = _results(stack, request)
        if request.again is not None and store is not None:
            request = repeated(store, request)
        ledger = stack.enter_context(open_ledger())
        progress = stack.enter_context(TerminalProgress(Console(stderr=True)))
        answers = []
        campaigns = request.campaigns()
        if len(campaigns) > 1 and output.form is Format.JSON:
            raise PlanError(
                "JSON holds one plan, and each --dir has its own", hint="name one --dir"
            )
        for campaign in campaigns:
            planned = plan_request(
                store,
                host,
                ledger,
                campaign,
                progress,
                new=request.new,
                search=make_search(request),
            )
            for event in planned.events:
                progress(event)
            so_far = so_far_of(
                store,
                MeasuringHost.of(planned.facts),
                planned.plan,
                planned.verdicts,
                new=not planned.goes_on,
            )
            budget = math.inf if request.budget is None else request.budget
            of_commands = host if commands else None
            answers.append(answer_plan(planned.plan, of_commands, so_far, budget))
    for answer in answers:
        print_answer(answer, tables(answer), output, request)
        if output.form is not Format.JSON:
            _print_beside(answer, Console(stderr=output.form is Format.CSV))
        if output.form is Format.TABLE:
            _print_commands(answer, Console())
    asked_in_vain = any(dropped.asked for answer in answers for dropped in answer.dropped)
    return EXIT_CELLS_FAILED if asked_in_vain else 0


def _results(stack: ExitStack, request: RunRequest) -> Store | None:
    """The database; None if there is none and the request needs none."""
    try:
        return stack.enter_context(open_results(request.db, read_only=True))
    except NoDatabaseError:
        if request.again is not None:
            raise
        return None


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
        for (when, where), lines in groupby(
            commands.operation, lambda given: (given.when, given.where)
        ):
            console.print(Text(f"## {when}, {where}", style="bold"))
            for given in lines:
                console.print(Text(sanitise(given.command)), soft_wrap=True)

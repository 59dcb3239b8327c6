"""`vdisklab show`: everything that is stored about one run, or what a recorded load is like."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from vdisklab.answers.load import answer_load_file, load_file_named
from vdisklab.answers.loading import open_results
from vdisklab.answers.show import answer_run, repeat_script
from vdisklab.cli.shell.options import DbOptions, Format, OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import PlanError
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import SWITCH, TEXT
from vdisklab.sanitise import sanitise
from vdisklab.value import replace
from vdisklab.views.load import tables as load_tables
from vdisklab.views.show import tables

PANEL = VerbPanel.STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions(DbOptions):
    """The run, and what to show of it."""

    run: str = argument(
        TEXT, "A run's id or its first letters, or a file that `vdisklab record` made.", "RUN"
    )
    raw: bool = option(SWITCH, "Add the programs' unchanged output.")
    script: bool = option(SWITCH, "Print a shell script that repeats the run by hand.")


@takes_options()
def show(request: ShowOptions, output: OutputOptions) -> None:
    """Show one run, with its evidence and exact commands; or what a recorded load is like.

    With --format csv: one sample per line. `vdisklab runs CAMPAIGN` lists the ids.

    Of a recorded load: what the guest asks of its disk, in one sentence, and in figures.

    Examples:

      vdisklab show 3f2a

      vdisklab show 3f2a --raw --format json

      vdisklab show 3f2a --script > repeat.sh

      vdisklab show web01-vda.load
    """
    load = load_file_named(request.run)
    if load is not None:
        if request.raw or request.script:
            raise PlanError(f"{load} is a load, not a run", hint="leave out --raw and --script")
        found = answer_load_file(load)
        print_answer(found, load_tables(found), replace(output, why=True), request)
        return
    with open_results(request.db) as results:
        stored = results.run(request.run)
        if request.script:
            sys.stdout.write(repeat_script(stored, results.campaign(stored.campaign)))
            return
        campaign = results.campaign(stored.campaign)
        answer = answer_run(stored, raw=request.raw, campaign=campaign)
    print_answer(answer, tables(answer), replace(output, why=True, wide=True), request)
    if output.form is Format.TABLE:
        for measurement in answer.measurements if request.raw else ():
            sys.stdout.write(
                f"\n# {sanitise(measurement.name)}\n{sanitise(measurement.raw or '')}\n"
            )

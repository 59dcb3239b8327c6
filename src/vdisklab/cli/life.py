"""`vdisklab life`: what disks made from a template cost, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.answers.life import stored_lives
from vdisklab.answers.loading import open_results
from vdisklab.cli.shell.options import DbOptions, OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import TEXT
from vdisklab.views.life import tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOptions(DbOptions):
    """The campaign to answer from."""

    campaign: str | None = option(
        TEXT, "A campaign's id or its first letters.", metavar="ID", shown="the newest"
    )


@takes_options()
def life(request: LifeOptions, output: OutputOptions) -> None:
    """Show what it costs to make disks from a template, use them once, reset and delete them.

    `vdisklab run PATHS --profile life` measures it, with `--from` for a template of your own. For
    each path and way of making a disk: the time of each step, the bytes that the device read and
    wrote, what waited in the host's memory at the first flush, and what deleting gave back. Without
    a template of yours disks are half random data, a quarter that compresses, a quarter zeros.

    Examples:

      vdisklab run {xfs,btrfs}/raw/none --profile life --from golden.qcow2

      vdisklab run xfs/raw/none --made reflink --guests 1,10 --profile life-host

      vdisklab life

      vdisklab life --campaign 3f2a --format json
    """
    with open_results(request.db) as results:
        answer = stored_lives(results, request.campaign)
        print_answer(answer, tables(answer), output, request, verb="vdisklab life")

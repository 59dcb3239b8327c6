"""`vdisklab plan`: what `run` would do."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.cli.shell.options import OutputOptions, takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.value_kinds import SWITCH

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class PlanOptions(OptionRows):
    """What else to show."""

    commands: bool = option(
        SWITCH, "Print the exact qemu, QMP and measuring commands of each cell."
    )


@takes_options()
def plan(request: RunRequest, shown: PlanOptions, output: OutputOptions) -> int:
    """Show the cells that `run` would measure, those dropped and why, the order, and how long.

    Each host stack is built once, small, to find out what it can serve; nothing is measured. It
    takes every option of `run`. With --budget it says how much of a race fits. Of a campaign that
    `run` would go on with, only what is left counts. The exit status is 8 if a path that you named
    cannot be measured, as that of `run`.

    Examples:

        vdisklab plan '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab plan raw/none/nvme --commands

        vdisklab plan '{raw,qcow2}/{none,writeback}' --find best --budget 30m
    """
    # Imported late: `plan --help`, and an option that is wrong, need none of what plans.
    from vdisklab.cli.shell.plan_campaigns import plan_campaigns  # noqa: PLC0415

    return plan_campaigns(request, output, commands=shown.commands)

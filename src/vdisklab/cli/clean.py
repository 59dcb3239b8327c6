"""`vdisklab clean`: removes what an interrupted run left, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.actions.clean import list_leftovers, remove_leftovers
from vdisklab.cli.shell.options import takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.plan.settings import OptionRows, option
from vdisklab.plan.value_kinds import SWITCH

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class CleanOptions(OptionRows):
    """Whether to remove anything."""

    dry_run: bool = option(SWITCH, "List what would be removed.")


@takes_options()
def clean(request: CleanOptions) -> None:
    """Remove what an interrupted run left: mounts, loop devices, processes, files.

    Only entries of ledgers are removed; runs that are still going are left alone.

    Example: vdisklab clean --dry-run
    """
    count = 0
    for entry in list_leftovers() if request.dry_run else remove_leftovers(LocalHost()):
        print(f"{'would remove' if request.dry_run else 'removed'} {entry}")
        count += 1
    if not count:
        print("there is nothing to remove")

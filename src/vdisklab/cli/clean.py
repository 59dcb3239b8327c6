"""`vdisklab clean`: removes what an interrupted run left, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.actions.clean import forget_leftovers, list_leftovers, remove_leftovers
from vdisklab.cli.shell.options import takes_options
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost
from vdisklab.host.plan_locks import lock_directory, unheld_locks
from vdisklab.plan.option_rows import OptionRows, option
from vdisklab.plan.value_kinds import SWITCH, several

PANEL = VerbPanel.PREPARE


@dataclass(frozen=True, slots=True)
class CleanOptions(OptionRows):
    """Whether to remove anything, and where not to try."""

    dry_run: bool = option(SWITCH, "List what would be removed.")
    forget: tuple[str, ...] = option(
        several(str, str),
        "Forget what is left on this target, whose server will never answer again, and say what "
        "that is. Can be repeated.",
        metavar="PLACE",
    )


@takes_options()
def clean(request: CleanOptions) -> None:
    """Remove what an interrupted run left: mounts, loop devices, processes, files.

    Only entries of ledgers are removed; runs that are still going are left alone.

    Examples:

        vdisklab clean --dry-run

        vdisklab clean --forget iscsi://10.0.0.5/iqn.x:disk/1
    """
    count = 0
    for place in request.forget:
        for entry, left in forget_leftovers(place, dry_run=request.dry_run):
            forgot = "would forget" if request.dry_run else "forgot"
            print(f"{forgot} {entry}: {left}")
            count += 1
    for entry in list_leftovers() if request.dry_run else remove_leftovers(LocalHost()):
        print(f"{'would remove' if request.dry_run else 'removed'} {entry}")
        count += 1
    for file in unheld_locks(lock_directory(), remove=not request.dry_run):
        print(f"{'would remove' if request.dry_run else 'removed'} {file}, a killed run's lock")
        count += 1
    if not count:
        print("there is nothing to remove")

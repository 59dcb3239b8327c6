"""`vdisklab clean`: removes what an interrupted run left, and nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.actions.clean import list_leftovers, remove_leftovers
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.host.command import LocalHost

PANEL = VerbPanel.PREPARE


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed.")] = False,
) -> None:
    """Remove what an interrupted run left: mounts, loop devices, processes, files.

    Only entries of ledgers are removed; runs that are still going are left alone.

    Example: vdisklab clean --dry-run
    """
    count = 0
    for entry in list_leftovers() if dry_run else remove_leftovers(LocalHost()):
        print(f"{'would remove' if dry_run else 'removed'} {entry}")
        count += 1
    if not count:
        print("there is nothing to remove")

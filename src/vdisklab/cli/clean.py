"""`vdisklab clean`: removes what an interrupted run left, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.ledger import Entry, Leftover, leftovers

Undo = Callable[[Host, Entry], None]
"""Removes one thing; does nothing when it is gone already, raises VdisklabError when it stays."""


def clean_verb(undo: Mapping[str, Undo]) -> Callable[[bool], None]:
    """The verb over a mapping from kind of thing to the function that removes it."""

    def clean(
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="List what would be removed.")
        ] = False,
    ) -> None:
        """Remove what an interrupted run left: mounts, loop devices, processes, files.

        Only what a ledger names is touched; runs that are still going are left alone.

        Example: vdisklab clean --dry-run
        """
        remove_leftovers(LocalHost(), undo, say=print, dry_run=dry_run)

    return clean


def remove_leftovers(
    host: Host,
    undo: Mapping[str, Undo],
    *,
    say: Callable[[str], None],
    directory: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Undoes each dead process's entries, newest first, and removes ledgers with none left.

    What cannot be removed does not keep the rest from it; all of it is named in one
    DirtyHostError at the end, and stays in its ledger.
    """
    failed: list[str] = []
    count = 0
    with leftovers(directory) as found:
        for leftover in found:
            count += len(leftover.entries)
            if dry_run:
                for entry in leftover.entries:
                    say(f"would remove {_describe(entry)}")
            else:
                failed += _undo_one(host, undo, leftover, say)
    if failed:
        raise DirtyHostError(
            f"not everything could be removed: {'; '.join(failed)}",
            hint="end what uses it (fuser -vm shows it), then run `vdisklab clean` again",
        )
    if not count:
        say("nothing is left to remove")


def _undo_one(
    host: Host, undo: Mapping[str, Undo], leftover: Leftover, say: Callable[[str], None]
) -> list[str]:
    """Works through one ledger; returns what could not be removed and why."""
    failed = []
    for entry in leftover.entries:
        function = undo.get(entry.kind)
        if function is None:
            failed.append(f"{_describe(entry)} (this version does not know how)")
            continue
        try:
            function(host, entry)
        except (VdisklabError, OSError) as error:
            failed.append(f"{_describe(entry)} ({error})")
            continue
        leftover.strike(entry)
        say(f"removed {_describe(entry)}")
    if not failed:
        leftover.path.unlink()
    return failed


def _describe(entry: Entry) -> str:
    return f"{entry.kind} {entry.name}"

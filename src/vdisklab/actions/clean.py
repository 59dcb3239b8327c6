"""Removes what interrupted runs left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.host.command import Host
from vdisklab.host.ledger import PROGRAM_MARK, Entry, Leftover, leftovers
from vdisklab.storage.stack import UNDO
from vdisklab.storage.undo import Undo, await_programs


def list_leftovers(directory: Path | None = None) -> list[Entry]:
    """What `remove_leftovers` would remove, in its order."""
    with leftovers(directory) as ledgers:
        return [entry for ledger in ledgers for entry in ledger.entries]


def remove_leftovers(
    host: Host, undo: Mapping[str, Undo] = UNDO, directory: Path | None = None
) -> Iterator[Entry]:
    """Removes the entries of all ledgers without a process, newest first, and yields each one.

    Raises DirtyHostError at the end, naming everything that could not be removed; it stays in its
    ledger. Ledgers without entries are deleted.
    """
    failed: list[str] = []
    with leftovers(directory) as ledgers:
        for ledger in ledgers:
            failures: list[str] = []
            yield from _undo_entries(host, undo, ledger, failures)
            if not failures:
                ledger.path.unlink()
            failed += failures
    if failed:
        raise DirtyHostError(
            f"not everything could be removed: {'; '.join(failed)}",
            hint="stop the program that uses it (fuser -vm shows it), then run `vdisklab clean` "
            "again",
        )


def _undo_entries(
    host: Host, undo: Mapping[str, Undo], ledger: Leftover, failures: list[str]
) -> Iterator[Entry]:
    """Yields the removed entries of one ledger, and appends to `failures` what stays and why."""
    building = True
    for entry in ledger.entries:
        if building and not entry.name.startswith(PROGRAM_MARK):
            building = False
            await_programs(ledger.path.stem, ledger.entries)
        function = undo.get(entry.kind)
        if function is None:
            failures.append(f"{entry} (this version cannot remove it)")
            continue
        try:
            function(host, entry)
        except (VdisklabError, OSError) as error:
            failures.append(f"{entry} ({error})")
            continue
        ledger.strike(entry)
        yield entry

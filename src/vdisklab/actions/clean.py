"""Removes what interrupted runs left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vdisklab.errors import DirtyHostError, VdisklabError
from vdisklab.host.command import Host
from vdisklab.host.ledger import PROGRAM_MARK, Entry, Leftover, leftovers, order_of_removal
from vdisklab.storage.stack import UNDO
from vdisklab.storage.undo import Undo, await_programs


def list_leftovers(directory: Path | None = None) -> list[Entry]:
    """The things that `remove_leftovers` would remove, in its order."""
    with leftovers(directory) as ledgers:
        return [entry for _, entry in _in_order(ledgers)]


def remove_leftovers(
    host: Host, undo: Mapping[str, Undo] = UNDO, directory: Path | None = None
) -> Iterator[Entry]:
    """Removes the entries of all ledgers without a process, newest first, and yields each one.

    Raises DirtyHostError at the end, naming everything that could not be removed; it stays in its
    ledger. Ledgers without entries are deleted.
    """
    failures: dict[str, str] = {}
    with leftovers(directory) as ledgers:
        kept = {ledger.path: len(ledger.entries) for ledger in ledgers}
        building = True
        for ledger, entry in _in_order(ledgers):
            if building and not entry.name.startswith(PROGRAM_MARK):
                building = False
                for each in ledgers:
                    await_programs(each.path.stem, each.entries)
            function = undo.get(entry.kind)
            if function is None:
                failures[f"{entry} (this version cannot remove it)"] = (
                    "run `vdisklab clean` of the version that made it"
                )
                continue
            try:
                function(host, entry)
            except (VdisklabError, OSError) as error:
                failures[f"{entry} ({error})"] = _way_out(error)
                continue
            ledger.strike(entry)
            kept[ledger.path] -= 1
            yield entry
        for path, count in kept.items():
            if not count:
                path.unlink()
    if failures:
        raise DirtyHostError(
            f"not everything could be removed: {'; '.join(failures)}",
            hint="; ".join(dict.fromkeys(failures.values())),
        )


def _in_order(ledgers: Sequence[Leftover]) -> list[tuple[Leftover, Entry]]:
    """The entries of all ledgers: a command may have opened one on what another one names."""
    pairs = [(ledger, entry) for ledger in ledgers for entry in ledger.entries]
    return sorted(pairs, key=lambda pair: order_of_removal(pair[1]))


def _way_out(error: VdisklabError | OSError) -> str:
    """The hint for a thing that could not be removed; not all of them are in use by a program."""
    if isinstance(error, PermissionError):
        return "run `vdisklab clean` as root"
    mend = "fix the cause given in brackets, then run `vdisklab clean` again"
    return getattr(error, "hint", None) or mend

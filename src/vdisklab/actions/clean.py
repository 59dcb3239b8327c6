"""Removes what interrupted runs left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vdisklab.errors import DirtyHostError, PlanError, VdisklabError
from vdisklab.host.answering import answered
from vdisklab.host.command import Host
from vdisklab.host.ledger import (
    NEEDED,
    NUMBERS,
    PROGRAM_MARK,
    Entry,
    Kind,
    Leftover,
    leftovers,
    order_of_removal,
)
from vdisklab.recording.block_device import BLKTRACE, stop_blktrace
from vdisklab.recording.tracing import TRACE, stop_tracing
from vdisklab.storage.remote import DISK, FILE
from vdisklab.storage.stack import UNDO
from vdisklab.storage.undo import (
    Undo,
    await_programs,
    noted_directories,
    processes_marked,
    undo_where_it_is,
)
from vdisklab.units import format_bytes
from vdisklab.value import replace

_UNDO: Mapping[str, Undo] = {**UNDO, TRACE: stop_tracing, BLKTRACE: stop_blktrace}
_ON_TARGETS = frozenset({DISK.kind, FILE.kind, Kind.DIRECTORY, Kind.FILE})


def list_leftovers(directory: Path | None = None) -> list[Entry]:
    """The things that `remove_leftovers` would remove, in its order."""
    with leftovers(directory) as ledgers:
        return [_found(entry) for _, entry in _in_order(ledgers)]


def remove_leftovers(
    host: Host, undo: Mapping[str, Undo] = _UNDO, directory: Path | None = None
) -> Iterator[Entry]:
    """Removes the entries of all ledgers without a process, newest first, and yields each one.

    Raises DirtyHostError at the end, naming everything that could not be removed; it stays in its
    ledger, with the files that removing it needs. Ledgers without entries are deleted.
    """
    failures: dict[str, str] = {}
    needed: list[Path] = []
    with leftovers(directory) as ledgers:
        kept = {ledger.path: len(ledger.entries) for ledger in ledgers}
        directories = noted_directories(entry for each in ledgers for entry in each.entries)
        building = True
        for ledger, noted in _in_order(ledgers):
            entry = _found(noted)
            if building and not entry.name.startswith(PROGRAM_MARK):
                building = False
                for each in ledgers:
                    await_programs(each.path.stem, each.entries)
            function = undo.get(entry.kind)
            if any(Path(entry.name) in file.parents for file in needed):
                continue
            if function is None:
                failures[f"{entry} (this version cannot remove it)"] = (
                    "run `vdisklab clean` of the version that made it"
                )
                continue
            try:
                undo_where_it_is(host, entry, function, directories)
            except (VdisklabError, OSError) as error:
                failures[f"{entry} ({error})"] = _way_out(error)
                needed += map(Path, filter(None, [entry.detail.get(NEEDED)]))
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


def _found(entry: Entry) -> Entry:
    """The entry; of a process that still runs with its number."""
    if entry.kind != Kind.PROCESS or entry.name.startswith(PROGRAM_MARK):
        return entry
    numbers = ", ".join(map(str, processes_marked(entry.name)))
    return replace(entry, detail={**entry.detail, NUMBERS: numbers}) if numbers else entry


def forget_leftovers(
    place: str, directory: Path | None = None, *, dry_run: bool = False
) -> Iterator[tuple[Entry, str]]:
    """Strikes what is left on a target from its ledger, and yields it and what is still there, or
    may be.

    Nothing is removed, and no server asked, as it may never answer again; what has a name on this
    host is looked at. `place` is that of `--target`, or the name of one thing. Raises PlanError if
    nothing is left on it.
    """
    base, _, query = place.partition("?")
    with leftovers(directory) as ledgers:
        found = [
            (ledger, entry)
            for ledger, entry in _in_order(ledgers)
            if entry.kind in _ON_TARGETS
            and (entry.name == place or _is_below(base, query, *entry.name.partition("?")[::2]))
        ]
        if not found:
            raise PlanError(
                f"nothing is left on {place}",
                hint="name the target as `vdisklab clean --dry-run` does",
            )
        for ledger, entry in found:
            if not dry_run:
                ledger.strike(entry)
            yield entry, _still_there(entry)


def _still_there(entry: Entry) -> str:
    """What of a forgotten thing is there, as a clause; of a server's only what may be."""
    size = entry.detail.get("bytes")
    what = "it" if size is None else f"data in its first {format_bytes(int(size))}"
    if entry.kind not in (Kind.FILE, Kind.DIRECTORY):
        return f"{what} may still be there"
    name = Path(entry.name)
    try:
        answered(name.parent, name.lstat)
    except (FileNotFoundError, NotADirectoryError):
        return "it is not there now"
    except (VdisklabError, OSError):  # its server does not answer
        return f"{what} may still be there"
    return "it is still there"


def _is_below(base: str, query: str, name: str, own_query: str) -> bool:
    return query == own_query and name.startswith(f"{base.rstrip('/')}/vdisklab-")


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

"""Where a stack is built: the host, the ledger, and a private directory in the work directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import DirtyHostError, HostError, VdisklabError
from vdisklab.host.command import Completed, Host, PathArg
from vdisklab.host.interrupts import interrupts_held
from vdisklab.host.ledger import Entry, Kind, Ledger
from vdisklab.storage.undo import UNDO


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that a layer needs to build; `directory` is ours alone and removed at the end."""

    host: Host
    ledger: Ledger
    directory: Path

    @property
    def label(self) -> str:
        """What our file systems are called: 12 characters, the most that XFS takes."""
        return f"vdl-{self.ledger.run_id}"

    def unique(self, name: str) -> str:
        """A name for a group, pool or array that nobody else has: it carries the run's id."""
        return f"vdl_{self.ledger.run_id}_{name.replace('-', '_')}"

    @contextmanager
    def tracked(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Iterator[Entry]:
        """Holds a thing: noted before it is made in the block, undone however the block ends.

        Raises DirtyHostError when it cannot be undone; then the ledger keeps it for `clean`. It
        also stays, in the ledger too, when something inside the block could not be undone, because
        that may stand on it: the file of a device that is still mounted must not be removed.
        """
        entry = self.ledger.add(kind, name, **detail)
        try:
            yield entry
        except DirtyHostError:
            raise
        except BaseException:
            self._undo(entry)
            raise
        self._undo(entry)

    def run_uninterrupted(self, *argv: PathArg, timeout: float = 60.0) -> Completed:
        """Runs a program whose work others do (a daemon, device-mapper) to its end; see `Host.run`.

        Whoever asks us to end meanwhile is heard afterwards: killed half-way, such a program
        leaves what it ordered to be made by those others, maybe only after it was looked for.
        """
        with interrupts_held():
            return self.host.run(*argv, timeout=timeout)

    def _undo(self, entry: Entry) -> None:
        """Takes a thing down and strikes it, whoever asks us to end meanwhile.

        What is half taken down when an interrupt comes would be neither there nor in the ledger.
        """
        with interrupts_held():
            try:
                UNDO[entry.kind](self.host, entry)
            except DirtyHostError:
                raise
            except (VdisklabError, OSError) as error:
                raise DirtyHostError(
                    f"the {entry.kind} {entry.name} cannot be taken down: {error}",
                    hint="run `vdisklab clean`",
                ) from error
            self.ledger.strike(entry)


@contextmanager
def open_site(host: Host, ledger: Ledger, work: Path) -> Iterator[Site]:
    """A site in the work directory `work`, which must exist and be writable."""
    directory = work / f"vdisklab-{ledger.run_id}"
    site = Site(host, ledger, directory)
    with site.tracked(Kind.DIRECTORY, directory):
        try:
            directory.mkdir(mode=0o700)
        except OSError as error:
            raise HostError(
                f"the work directory {work} cannot be used: {error.strerror}",
                hint="name another with --dir",
            ) from error
        yield site

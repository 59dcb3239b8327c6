"""Where stacks are built, and what one layer hands to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import DirtyHostError, HostError, VdisklabError
from vdisklab.host.command import Completed, Host, PathArg
from vdisklab.host.ledger import Entry, Kind, Ledger
from vdisklab.host.waiting import interrupts_held
from vdisklab.storage.undo import UNDO

_Seen = TypeVar("_Seen")

NO_PROPERTIES: Mapping[str, str] = {}
"""What a plan has read back of a layer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A directory or a block device, valid while the context that made it is open.

    `properties` were read back from the system, named `layer.option`, such as `xfs.reflink`.
    `cached_below` are files further down whose pages a layer keeps in the host's page cache:
    emptying the cache means emptying theirs too. `disks` are all devices side by side at the
    bottom of a stack; `path` is the first of them.
    """

    path: Path
    is_block: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    cached_below: tuple[Path, ...] = ()
    disks: tuple[Path, ...] = ()

    @property
    def members(self) -> tuple[Path, ...]:
        """The devices that a layer which takes several may use; at least `path`."""
        return self.disks or (self.path,)

    def above(self, path: Path, *, is_block: bool, **properties: str) -> Target:
        """The next layer's target: everything known so far, and the properties that it adds.

        Properties are given as `layer__option`, because a keyword cannot contain a dot.
        """
        added = {name.replace("__", "."): value for name, value in properties.items()}
        known = {**self.properties, **added}
        return replace(self, path=path, is_block=is_block, properties=known, disks=())


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that a layer needs to build. `directory` is private and removed at the end.

    Layers change the host through `run` and `run_uninterrupted`, and look at it through `observe`.
    So a `PlannedSite` can record what a build would run.
    """

    host: Host
    ledger: Ledger
    directory: Path

    @property
    def label(self) -> str:
        """The label of our file systems: 12 characters, the most that XFS takes."""
        return f"vdl-{self.ledger.run_id}"

    def unique(self, name: str) -> str:
        """A name for a group, pool or array that is unique on this host: it has the run's id."""
        return f"vdl_{self.ledger.run_id}_{name.replace('-', '_')}"

    @contextmanager
    def tracked(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Iterator[Entry]:
        """Notes a thing in the ledger before the body creates it, and removes it at the end.

        Raises DirtyHostError when it cannot be removed; then the ledger keeps it for `clean`. If
        something inside the body could not be removed, this stays too, because that may depend on
        it: the file below a device that is still mounted must not be removed.
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

    def run(self, *argv: PathArg, timeout: float = 60.0) -> Completed:
        """Runs a program that changes this host; see `Host.run`."""
        return self.host.run(*argv, timeout=timeout)

    def run_uninterrupted(self, *argv: PathArg, timeout: float = 60.0) -> Completed:
        """Runs a program with signals blocked; see `Host.run`.

        If it were killed half-way, its daemon could create objects after our cleanup has looked.
        """
        with interrupts_held():
            return self.host.run(*argv, timeout=timeout)

    def observe(self, look: Callable[[], _Seen], *, planned: _Seen) -> _Seen:  # noqa: ARG002
        """What `look()` returns; it leaves nothing on this host. `planned` is for `PlannedSite`."""
        return look()

    def _undo(self, entry: Entry) -> None:
        """Removes a thing and strikes its line, with signals blocked.

        If an interrupt came half-way, the thing could be neither usable nor in the ledger.
        """
        with interrupts_held():
            try:
                UNDO[entry.kind](self.host, entry)
            except DirtyHostError:
                raise
            except (VdisklabError, OSError) as error:
                raise DirtyHostError(
                    f"the {entry.kind} {entry.name} cannot be removed: {error}",
                    hint="run `vdisklab clean`",
                ) from error
            self.ledger.strike(entry)


@dataclass(frozen=True, slots=True)
class PlannedSite(Site):
    """A site on which nothing is built: `host` records the programs, and nothing is looked at."""

    @contextmanager
    def tracked(self, kind: str, name: str | os.PathLike[str], **detail: str) -> Iterator[Entry]:
        """An entry that no ledger holds."""
        yield Entry(0, kind, os.fspath(name), detail)

    def observe(self, look: Callable[[], _Seen], *, planned: _Seen) -> _Seen:  # noqa: ARG002
        """`planned`: there is nothing to look at."""
        return planned


@contextmanager
def open_site(host: Host, ledger: Ledger, work: Path) -> Iterator[Site]:
    """A site in the work directory `work`, which must exist and be writable."""
    directory = site_directory(work, ledger.run_id)
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


def site_directory(work: Path, run_id: str) -> Path:
    """The private directory of one run."""
    return work / f"vdisklab-{run_id}"

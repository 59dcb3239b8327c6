"""What every platform can do with a disk: the interface of its file in this room.

A platform reads its configurations, writes a disk path as one, and changes an existing disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Protocol

from vdisklab.documents import RARE
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Aio, Bus, CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText, Tree
from vdisklab.platforms.request import ExportRequest
from vdisklab.value import HIDDEN, Value, field

Reader = Callable[[GuestText], Iterable[ConfiguredDisk]]
"""Returns the disks of all guests in a text. Raises PlanError for a broken one."""

HOST_DEVICES = "passed-through devices, which may hold disks"
"""A kind of `left_out`."""


class Gap(Value):
    """One option that a platform cannot express, and what the guest gets instead."""

    option: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option} cannot be expressed here: {self.instead}"


class Configuration(Value):
    """The text of a configuration; its comments name gaps and requirements too.

    `requirements` are sentences that say what must be set elsewhere for it to work. `settings` are
    what a disk that a guest already has needs of it, in the form's words; empty where the form has
    no such part.
    """

    text: str
    gaps: tuple[Gap, ...] = ()
    requirements: tuple[str, ...] = ()
    settings: str = ""


Writer = Callable[[ExportRequest], Configuration]
"""Returns the configuration. Raises PlanError if the platform has nothing equivalent."""


class Form(Value):
    """One form of a platform's configuration, under the name that `export --to` knows.

    `write` is for disks, `write_share` for host directories, where the platform shares any. `title`
    heads it in a report, which leaves out a form without a title, and shows one that `leads` first.
    `absolute` is True where a source must be an absolute path, `relative` where it may be one from
    the current directory; in other forms such a text names a volume or a claim. A form that is a
    whole guest names the form that is one `disk`.
    """

    name: str
    write: Writer
    write_share: Writer | None = None
    title: str = ""
    leads: bool = False
    absolute: bool = False
    relative: bool = False
    disk: str = ""


class Change(Value):
    """One line that changes the settings from the guest's next start on, and one that undoes it."""

    paste: str
    undo: str
    node: Annotated[
        str | None, RARE, "the node of a cluster on which both are run, if that matters"
    ] = None
    forward: Annotated[tuple[Mapping[str, object], ...], HIDDEN] = ()
    """The operations of the line, where all of one guest must be in one line."""
    back: Annotated[tuple[Mapping[str, object], ...], HIDDEN] = ()
    """The operations of the line that undoes it."""


class NotChangeableError(PlanError):
    """The platform cannot give the disk these settings without touching image, bus or guest."""


def lacks(platform: Platform, what: str) -> NotChangeableError:
    """The error for a setting that the platform does not have."""
    return NotChangeableError(f"{platform.full_name} has no {what}", hint="choose another path")


def unchanged() -> NotChangeableError:
    """The error for a path that the disk has already."""
    return NotChangeableError("the disk has these settings already", hint="choose another path")


def still_refused(refused: tuple[str, str]) -> NotChangeableError:
    """The error for a change that leaves what the platform refuses."""
    return NotChangeableError(refused[0], hint=refused[1])


Changer = Callable[[ConfiguredDisk, DiskPath, DiskPath], Change]
"""The change of a disk from one path to another. Raises NotChangeableError."""


class CommandRunner(Protocol):
    """Runs a command, and returns its standard output."""

    def __call__(self, *argv: str) -> str:
        """Raises CommandError if it fails, HostError if it is missing or takes too long."""
        ...


class Location(Value):
    """Where a host keeps a platform's configurations, beside the directory in the platform's row.

    `printed` returns what the row's program prints; the files in the directory are read if there is
    no program, or if it fails. `printed_at` does it for an address that the user names. `users` are
    those as which the platform starts QEMU, beside root.
    """

    printed: Callable[[CommandRunner], Iterator[GuestText]] | None = None
    users: tuple[str, ...] = ()
    printed_at: Callable[[CommandRunner, str], Iterator[GuestText]] | None = None


def _never(_text: object) -> bool:
    return False


def _nothing_known(_text: GuestText) -> DisklessGuest | None:
    return None


class Dialect(Value, kw_only=True):
    """How a platform describes a disk."""

    cache_modes: tuple[CacheMode, ...]
    change: Changer
    forms: tuple[Form, ...] = ()
    reader: Callable[[Sequence[GuestText], Sequence[Tree]], Reader]
    """Gets all texts, and the documents of those that are YAML, because a guest's disks may need
    another text; returns what reads one text.
    """
    recognises: Callable[[GuestText], bool] = _never
    """True for a text of the platform, asked before the text is read as YAML."""
    recognises_document: Callable[[Tree], bool] = _never
    """True for a YAML document of the platform."""
    beside: tuple[str, ...] = ()
    """Names of files that belong to the guests' files in the same directory, or in one below."""
    below: tuple[str, ...] = ()
    """Patterns of directories with guests' files, in a copy of the platform's own directory."""
    location: Location = field(default_factory=Location)
    aio_of: Callable[[ConfiguredDisk, CacheMode], Aio] | None = None
    """Set where the aio mode follows the cache mode, and no I/O thread can be set."""
    buses: tuple[Bus, ...] = tuple(Bus)
    """The buses of its guests' disks and directories: no change leads to another one."""
    other_buses: tuple[Bus, ...] = ()
    """Buses that one line gives a disk, and whose drivers the platform expects in every guest."""
    without_disk: Callable[[GuestText], DisklessGuest | None] = _nothing_known
    """Why the guest of a text has no hard disk; asked if none was found."""
    changes_on_node: bool = False
    """True if the line that changes a guest is run on the guest's own node."""
    together: Callable[[str, Sequence[Change]], Change] | None = None
    """Set where one line must have all changes to a guest: it gets the platform's name for the
    guest."""
    must_be_stopped: bool = False
    """True if the line takes a running guest's disk out, and puts it in anew."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """A search pattern for each kind of data holder that is no hard disk; what its group `device`
    finds is named.
    """

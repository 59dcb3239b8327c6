"""Reads each guest apart: one that cannot be read never hides the others.

This is an edge, as the one of the command line is: readers raise typed errors for what they refuse,
and an error that nobody thought of costs one guest, which says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vdisklab.errors import VdisklabError
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import Value

BUG = "this is a bug in vdisklab"
"""In the problem of a guest whose reader failed without a typed error."""

ReadDisks = Callable[[], Iterable[ConfiguredDisk]]


class ReadGuest(Value):
    """A guest's disks as far as they were read, and the error that ended the reading."""

    disks: tuple[ConfiguredDisk, ...]
    error: Exception | None = None

    def all(self, name: str, platform: Platform) -> tuple[ConfiguredDisk, ...]:
        """The disks, and if the guest was not read to its end one that says why."""
        if self.error is None:
            return self.disks
        problem = f"its guest cannot be read: {self.error}"
        if not isinstance(self.error, VdisklabError):
            said = f"{type(self.error).__name__}: {self.error}"[:200]
            problem = f"its guest cannot be read: {BUG} ({said}), which you can report"
        unread = ConfiguredDisk(
            name, "?", None, None, problem=problem, platform=platform, guest=name
        )
        return (*self.disks, unread)


def read_apart(read: ReadDisks) -> ReadGuest:
    """The guest's disks; an error ends the reading of this guest alone."""
    disks: list[ConfiguredDisk] = []
    try:
        disks.extend(read())
    except VdisklabError as error:
        return ReadGuest(tuple(disks), error)
    except Exception as error:  # noqa: BLE001 - one guest's bug must not hide the others
        return ReadGuest(tuple(disks), error)
    return ReadGuest(tuple(disks))


def read_each(
    platform: Platform, guests: Iterable[tuple[str, ReadDisks]]
) -> Iterator[ConfiguredDisk]:
    """The disks of all guests of a text, by name. Of a guest alone the errors are the text's."""
    listed = tuple(guests)
    for name, read in listed:
        yield from read() if len(listed) == 1 else read_apart(read).all(name, platform)

"""With whose rights root writes: the caller's, where the caller of sudo or doas can change names.

Who can change a directory can at any time put links into it, move it, or lay a journal beside a
database, in which SQLite finds the name of a file to remove. No look at a name before it is opened
prevents that. So wherever the caller could change what a name leads to, root gives up its rights
over files for each call that uses the name, as a server of NFS does for its clients (setfsuid(2)).
Whatever the caller puts there, root can then do no more than the caller could.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.safe_places import caller, followed, name_of_user, require_safe
from vdisklab.value import Value


class Rights(Value):
    """The rights over files of a user: of the user's number, group and further groups."""

    user: int
    group: int
    groups: tuple[int, ...]

    @property
    def name(self) -> str:
        """The user's name."""
        return name_of_user(self.user)


class Writable(Value):
    """A name that may be written to with `rights`; None are the rights of this process.

    Without `rights`, root alone can change where the name leads, and no link is left in it.
    """

    place: Path
    rights: Rights | None = None


def writable(place: Path, what: str, way: str, *, replaced: bool = False) -> Writable:
    """The name as it must be written to. Raises HostError as `require_safe` does.

    `replaced`: what has the name now does not matter, because another file takes its place.
    """
    if os.geteuid() != 0:
        return Writable(place)
    reached, found = followed(place, frozenset({0}), replaced=replaced)
    if found is None:
        return Writable(reached)
    require_safe(place, what, way, replaced=replaced)
    user = caller()
    if user is None:  # it became safe just now
        raise HostError(f"{place} was changed by another user meanwhile", hint=way)
    return Writable(place, _rights_of(user))


def _rights_of(user: int) -> Rights:
    try:
        account = pwd.getpwuid(user)
    except KeyError:  # in a container: a number without a name has no further groups
        return Rights(user, user, ())
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return Rights(user, account.pw_gid, tuple(groups))


@contextmanager
def acting(rights: Rights | None) -> Iterator[None]:
    """This thread has only these rights over files while the context is open.

    None changes nothing; nor does anything in a process that is root no more. Raises HostError if
    the rights cannot be given up.
    """
    if rights is None or os.geteuid() != 0:
        yield
        return
    from vdisklab.host import syscalls  # noqa: PLC0415 - loads ctypes, which few commands need

    former = os.getgroups()
    try:
        try:
            syscalls.set_file_rights(rights.user, rights.group, rights.groups)
        except OSError as error:
            raise HostError(
                f"root cannot act as {rights.name} here: {error.strerror}",
                hint=f"name a place that only root can change, or run the command as {rights.name}",
            ) from error
        yield
    finally:
        syscalls.set_file_rights(0, os.getegid(), former)


def own_temporary_directory() -> None:
    """As root, forgets the variables that name a directory of temporary files which others could
    change: a file that is made there could be led away before a program opens it by its name."""
    if os.geteuid() != 0:
        return
    for name in ("TMPDIR", "TEMP", "TMP", "SQLITE_TMPDIR"):
        directory = os.environ.get(name)
        if directory and followed(Path(directory), frozenset({0}))[1] is not None:
            del os.environ[name]

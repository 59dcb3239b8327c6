"""The private directory of a run, which programs reach whatever becomes of its name.

Root may work in a directory of the caller of sudo. The caller can rename the private directory
there at any time, and put a directory full of links in its place. So root opens its private
directory once and mounts what it has opened in a place of root's own (mount(2), MS_BIND). There
every program, image header and daemon finds the same files under names that root alone can change.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host import syscalls
from vdisklab.host.safe_places import is_roots_alone, name_of_user
from vdisklab.value import Value

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MS_BIND, _MS_PRIVATE = 1 << 12, 1 << 18
"""linux/mount.h"""
_ROOTS = (Path("/run"), Path("/var/lib"), Path("/tmp"))  # noqa: S108 - where links are not followed
"""Where a place of root's own is made: in the first of these directories that is root's alone."""


class PrivateDirectory(Value):
    """A directory of one run, open while the run lasts, so that it is known whatever its name is.

    `path` is its name when it was made.
    """

    path: Path
    descriptor: int

    @property
    def place(self) -> Path | None:
        """Where the directory is now; None if it was removed."""
        now = os.readlink(f"/proc/self/fd/{self.descriptor}")  # noqa: PTH115 - no file's name
        return Path(now) if os.fstat(self.descriptor).st_nlink else None

    def is_at(self, name: Path) -> bool:
        """True if this name leads to the directory, behind no link."""
        try:
            return os.path.samestat(name.lstat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def moved(self) -> str | None:
        """What happened to the directory, as a sentence; None if it is where it was made."""
        if self.is_at(self.path):
            return None
        now = self.place
        where = "was removed" if now is None else f"was moved: {self.path} is {now} now"
        return f"the work directory {where}"

    def require_in_place(self) -> None:
        """Raises HostError if the directory was moved or replaced."""
        said = self.moved()
        if said is not None:
            raise HostError(said, hint="leave it alone while vdisklab runs; `vdisklab clean`")

    @property
    def roots_place(self) -> Path | None:
        """The name of a directory, to be made, under which root should use this one; None if its
        own name will do: root alone can change it, or the user is not root.

        Raises HostError if this host has no directory of root's alone.
        """
        if os.geteuid() != 0 or is_roots_alone(self.path):
            return None
        for above in _ROOTS:
            if above.is_dir() and is_roots_alone(above):
                return above / self.path.name
        raise HostError(
            f"the user who called sudo could move {self.path}, and this host has no directory of "
            "root's to hold it in",
            hint="chmod go-w /run",
        )

    def mount_at(self, place: Path) -> None:
        """Mounts the directory in an empty one. Raises OSError.

        The mount is private: what is mounted in it shows nowhere else.
        """
        syscalls.mount(f"/proc/self/fd/{self.descriptor}", place, "", flags=_MS_BIND)
        syscalls.mount("", place, "", flags=_MS_PRIVATE)
        if not self.is_at(place):
            raise OSError(errno.ESTALE, "another directory was mounted there", str(place))


@contextmanager
def opened_private(path: Path) -> Iterator[PrivateDirectory]:
    """A directory that was just made, for its owner alone; open, but not removed, in the context.

    Raises OSError, also if another directory has taken its place.
    """
    descriptor = os.open(path, _OPEN)
    try:
        seen = os.fstat(descriptor)
        if os.geteuid() == 0 and seen.st_uid != 0:
            raise OSError(errno.EPERM, f"it belongs to {name_of_user(seen.st_uid)}", str(path))
        if os.listdir(descriptor):  # noqa: PTH208 - it has no name
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        os.fchmod(descriptor, 0o700)
        yield PrivateDirectory(path, descriptor)
    finally:
        os.close(descriptor)

"""Mounted file systems and their free space, and what kind of file a path names.

Paths are tested with os.path, which returns False where pathlib raises OSError: if a directory
above may not be searched, or the name is too long for the file system.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.machine import read_text
from vdisklab.host.safe_places import require_safe_work
from vdisklab.path import mount_options
from vdisklab.value import Value

_TABLE = Path("/proc/self/mountinfo")
# The kernel writes blanks and backslashes as octal numbers.
_ESCAPE = re.compile(r"\\([0-7]{3})")

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
"""File systems whose files live in the page cache alone (tmpfs(5))."""

_ZFS_WITHOUT_FLUSHES = ("zfs_nocacheflush", "zil_nocacheflush")
"""Parameters of ZFS's kernel module for all pools: zfs(4)."""


class HeldElsewhereError(HostError):
    """Something that was unmounted here is still mounted in another mount namespace."""


_OF_SERVERS = ("nfs", "nfs4", "cifs", "smb3")
"""File systems that show in mountinfo whether their requests wait for the server."""


class Mount(Value):
    """One line of /proc/self/mountinfo; `options` are of the mount and of its super block.

    `number` is the mount's own on this machine until it is unmounted, `device` is MAJOR:MINOR, and
    `root` the directory of the file system that is mounted.
    """

    mountpoint: Path
    filesystem: str
    source: str
    options: frozenset[str]
    number: int = 0
    device: str = ""
    root: str = "/"

    @property
    def identity(self) -> dict[str, str]:
        """What tells it from all other mounts wherever its directory is moved.

        The kernel gives number and device of a mount that is gone to a new one.
        """
        return {
            "number": str(self.number), "device": self.device,
            "filesystem": self.filesystem, "source": self.source,
        }  # fmt: skip

    def is_noted(self, noted: Mapping[str, str]) -> bool:
        """True for the mount whose identity was noted, and in this boot still exists."""
        return "number" in noted and all(
            noted.get(key, value) == value for key, value in self.identity.items()
        )


def read_mounts(table: Path = _TABLE) -> tuple[Mount, ...]:
    """All mounts in the order of mounting; proc(5) describes the format of `mountinfo`."""
    return tuple(_parse(line) for line in table.read_text(errors="surrogateescape").splitlines())


def mount_at(mountpoint: Path) -> Mount | None:
    """The topmost mount at exactly this directory, or None."""
    place = _as_mounted(mountpoint)
    mounts = [mount for mount in read_mounts() if mount.mountpoint == place]
    return mounts[-1] if mounts else None


def lies_in_memory(directory: Path) -> bool:
    """True for a directory on tmpfs, whose files live in the page cache alone."""
    mount = mount_of(directory)
    return mount is not None and mount.filesystem == "tmpfs"


def mount_of(path: Path, table: Path = _TABLE) -> Mount | None:
    """The mount that a file or directory is on: the deepest one, and of several the topmost."""
    path = path.resolve()
    above = [mount for mount in read_mounts(table) if path.is_relative_to(mount.mountpoint)]
    return max(reversed(above), key=lambda mount: len(mount.mountpoint.parts), default=None)


def is_of_server(directory: Path, place: str | None) -> bool:
    """True for a directory that is mounted from a server's directory above a place there, such as
    `nas:/export/web.img`, as mountinfo spells it."""
    mount = mount_of(directory)
    if mount is None or place is None or ":" not in mount.source:
        return False
    return place.startswith(f"{mount.source.rstrip('/')}/")


def without_flushes(mount: Mount | None, root: Path = Path("/")) -> str | None:
    """Why a file system sends no flushes to its disk, as a clause; None if it does."""
    if mount is None:
        return None
    if mount.filesystem == "zfs":
        return zfs_without_flushes(root)
    option = mount_options.without_flushes(mount.options)
    return option and f"{mount.filesystem} is mounted with {option}, so no flush reaches the disk"


def soft_mount(mount: Mount | None) -> str | None:
    """How a server's directory is mounted, as a sentence begins, if its requests fail once the
    server does not answer in time; None if they wait for the server (nfs(5), mount.cifs(8))."""
    if mount is None or mount.filesystem not in _OF_SERVERS:
        return None
    option = next((word for word in ("soft", "softerr") if word in mount.options), None)
    return option and f"{mount.mountpoint} is {mount.filesystem} mounted with `{option}`"


def zfs_without_flushes(root: Path = Path("/")) -> str | None:
    """Why ZFS sends no flushes to the disks of its pools, as a clause; None if it does."""
    for name in _ZFS_WITHOUT_FLUSHES:
        if (read_text(root / "sys/module/zfs/parameters" / name) or "0") != "0":
            return f"ZFS's module parameter {name} is on, so no flush reaches the disk"
    return None


def free_bytes(directory: Path) -> int:
    """The free space in a directory's file system, as df shows it. Raises OSError.

    Blocks that the file system reserves for one user, mostly root, are not counted: that user may
    be another one (ext4's resuid), and the reserve keeps a full host working.
    """
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def mounts_below(directory: Path) -> tuple[Mount, ...]:
    """Mounts strictly inside a directory."""
    place = _as_mounted(directory)
    return tuple(mount for mount in read_mounts() if place in mount.mountpoint.parents)


def _as_mounted(directory: Path) -> Path:
    """A directory as the kernel's table spells it: without symbolic links and `..`.

    The directory itself is not looked at, which would hang on a server that is gone.
    """
    return Path(os.path.realpath(directory.parent), directory.name)


def mounted_elsewhere(source: str, processes: Path = Path("/proc")) -> tuple[str, ...]:
    """Processes in other mount namespaces that still have `source` mounted, as `NAME (PID)`.

    A new namespace gets copies of all mounts (mount_namespaces(7)). Unless mounts are shared, such
    a copy stays when the original is unmounted: the device is in use until that namespace ends,
    and nothing in our namespace shows it.
    """
    visited = {_namespace(processes / "self"), None}
    users: list[str] = []
    for process in processes.glob("[0-9]*"):
        if (namespace := _namespace(process)) in visited:
            continue
        visited.add(namespace)
        try:
            mounts = read_mounts(process / "mountinfo")
            name = (process / "comm").read_text(errors="replace").strip()
        except OSError:
            continue  # the process has just ended
        if any(mount.source == source for mount in mounts):
            users.append(f"{name} ({process.name})")
    return tuple(users)


def still_mounted(what: str, source: str) -> HeldElsewhereError | None:
    """The error if other mount namespaces keep `what` (mounted from `source`) busy; else None."""
    holders = mounted_elsewhere(source)
    if not holders:
        return None
    return HeldElsewhereError(
        f"another mount namespace (processes {', '.join(holders)}) was created while {what} was "
        "mounted, and keeps it busy",
        hint="run the same command again; start no container meanwhile, and nothing with "
        "`unshare --mount`",
    )


def is_held_elsewhere(error: BaseException | None) -> bool:
    """True if a mount in another namespace caused the error, directly or not."""
    while error is not None and not isinstance(error, HeldElsewhereError):
        error = error.__cause__ or error.__context__
    return error is not None


def _namespace(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns" / "mnt")  # noqa: PTH115 - the link names no path
    except OSError:
        return None


def _parse(line: str) -> Mount:
    fixed, _, rest = line.partition(" - ")
    fields = fixed.split(" ")
    filesystem, source, super_options = rest.split(" ", 2)
    options = frozenset(fields[5].split(",")) | frozenset(super_options.split(","))
    return Mount(
        Path(_unescape(fields[4])),
        filesystem,
        _unescape(source),
        options,
        int(fields[0]),
        fields[2],
        _unescape(fields[3]),
    )


def holders_of_mount(noted: Mapping[str, str], processes: Path = Path("/proc")) -> tuple[str, ...]:
    """Processes in whose mount namespace the mount with this identity is, as `NAME (PID)`; its
    number is unique among all namespaces."""
    holders = []
    for process in processes.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if any(mount.is_noted(noted) for mount in read_mounts(process / "mountinfo")):
                name = (process / "comm").read_text(errors="replace").strip()
                holders.append(f"{name} ({process.name})")
    return tuple(holders)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def is_visible_file(path: Path) -> bool:
    """True for a regular file that this user can find."""
    return os.path.isfile(path)  # noqa: PTH113


def is_surely_absent(path: Path) -> bool:
    """True for a name that nothing has; false where this user may not look."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero byte
        return True
    except OSError:
        return False
    return False


def is_out_of_sight(path: Path) -> bool:
    """True where this user may not look: nobody can say whether something has the name."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):  # ValueError: a zero byte
        return False
    return False


def _way_to(directory: Path) -> str:
    """How to name or make a directory that does not exist."""
    create = f"mkdir -p {shlex.quote(str(directory))}"
    parent = next(parent for parent in directory.parents if parent.is_dir())
    wanted = directory.relative_to(parent).parts[0]
    with suppress(OSError):
        beside = [place.name for place in parent.iterdir() if place.is_dir()]
        for name in difflib.get_close_matches(wanted, beside, n=1, cutoff=0.75):
            return f"did you mean {parent / name}? Else: {create}"
    return create


def require_copy_directory(directory: Path) -> None:
    """Raises HostError unless the path of --to is a directory that this user may write to."""
    if not directory.exists():
        raise HostError(
            f"--to {directory} does not exist, and copies go to a directory",
            hint=_way_to(directory),
        )
    if is_visible_device(directory):
        raise HostError(
            f"--to {directory} is a block device, and copies go to a directory",
            hint=f"name the device: --target copy={directory} --to copy/raw --destroy copy "
            "(overwrites it)",
        )
    if not directory.is_dir():
        raise HostError(
            f"--to {directory} is not a directory, and copies go to one",
            hint=f"name its directory: --to {directory.parent}",
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise HostError(
            f"--to {directory} lets this user create no file there",
            hint="name another directory, or export and mount it read-write for this user "
            "(NFS: no_root_squash for root)",
        )


def require_work_directory(directory: Path) -> None:
    """Raises HostError unless the path is a directory that this user may search, and root may
    write to."""
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError as error:
        raise HostError(
            f"the work directory {directory} does not exist", hint=_way_to(directory)
        ) from error
    except OSError as error:
        raise HostError(
            f"the work directory {directory} cannot be used: {error.strerror}",
            hint="name another one",
        ) from error
    if not stat.S_ISDIR(mode):
        raise HostError(
            f"the work directory {directory} is not a directory", hint="name another one"
        )
    require_safe_work(directory)


def is_visible_directory(path: Path) -> bool:
    """True for a directory that this user can find."""
    return os.path.isdir(path)  # noqa: PTH112


def may_measure_in(directory: Path) -> bool:
    """False for a directory in which this user may not make files, or not find them."""
    rights = os.W_OK | os.X_OK
    return not is_visible_directory(directory) or os.access(directory, rights, effective_ids=True)


def is_visible_device(path: Path) -> bool:
    """True for a block device that this user can find."""
    try:
        return path.is_block_device()
    except OSError:
        return False

"""Where a directory is that was moved since it was made, and whether it was seen to be gone.

That its name is not there says nothing: whoever renames a directory leaves all that lies on its
files. So a directory is known by its inode and its file handle (name_to_handle_at(2)), which finds
it under any name, and whose refusal as stale says that it is gone.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import DirtyHostError
from vdisklab.host.machine import read_text
from vdisklab.host.mounts import IN_MEMORY, Mount, mount_of, read_mounts

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_AT_EMPTY_PATH = 0x1000
_HANDLE_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class _Handle(ctypes.Structure):
    _fields_ = (
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * _HANDLE_BYTES),
    )


def boot_id() -> str:
    """A random number of this boot; empty where the kernel does not say it."""
    return read_text(_BOOT) or ""


def inode_of(seen: os.stat_result) -> str:
    """A file of this boot, as `DEVICE INODE`: `8:1 1234`."""
    return f"{os.major(seen.st_dev)}:{os.minor(seen.st_dev)} {seen.st_ino}"


def inode_noted(file: Path) -> dict[str, str]:
    """What tells a file of this boot under any name, for the ledger; nothing if it is not there."""
    with suppress(OSError):
        return {"backing": inode_of(file.stat()), "boot": boot_id()}
    return {}


def whereabouts(directory: Path, descriptor: int) -> str:
    """What finds this open directory again: text for the ledger. Raises OSError."""
    mount = mount_of(directory)
    identity = {
        "inode": inode_of(os.fstat(descriptor)),
        "boot": boot_id(),
        "filesystem": "" if mount is None else mount.filesystem,
        "handle": _handle_of(descriptor),
    }
    return json.dumps(identity)


def is_noted(seen: os.stat_result, noted: str) -> bool:
    """True if this is the directory that `whereabouts` noted."""
    identity = json.loads(noted)
    return _is_it(seen, identity["inode"], same_boot=identity["boot"] == boot_id())


def place_of(name: Path, noted: str) -> Path | None:
    """Where the directory is now that was noted as `name`; None if it was seen to be gone.

    Raises DirtyHostError if neither can be seen: its file system is not mounted, or cannot say.
    """
    identity = json.loads(noted)
    same_boot = identity["boot"] == boot_id()
    with suppress(OSError):
        if _is_it(name.lstat(), identity["inode"], same_boot=same_boot):
            return name
    mounts = _candidates(identity, same_boot=same_boot)
    if identity["filesystem"] in IN_MEMORY and not (same_boot and mounts):
        return None  # its contents went with it
    if identity["handle"] and os.geteuid() == 0:
        for mount in mounts:
            with suppress(_UnknownError):
                return _by_handle(mount.mountpoint, identity["handle"], identity["inode"])
    elif (beside := _beside(name, identity, same_boot=same_boot)) is not None:
        return beside[0] if beside else None
    raise DirtyHostError(
        f"{name} is not there, and whether it was moved or removed cannot be seen",
        hint="mount its file system again; or, if you removed it, `vdisklab clean --forget "
        f"{name}`",
    )


class _UnknownError(Exception):
    """This mount does not say where the directory is."""


def _is_it(seen: os.stat_result, inode: str, *, same_boot: bool) -> bool:
    now = inode_of(seen)
    return stat.S_ISDIR(seen.st_mode) and (
        now == inode if same_boot else now.split()[1] == inode.split()[1]
    )


def _handle_of(descriptor: int) -> str:
    """The file handle as `TYPE HEX`; empty where the file system has none, as overlayfs."""
    handle = _Handle(handle_bytes=_HANDLE_BYTES)
    mount = ctypes.c_int()
    done = _libc.name_to_handle_at(
        descriptor, b"", ctypes.byref(handle), ctypes.byref(mount), _AT_EMPTY_PATH
    )
    if done != 0:
        return ""
    return f"{handle.handle_type} {bytes(handle.f_handle[: handle.handle_bytes]).hex()}"


def _candidates(identity: dict[str, str], *, same_boot: bool) -> list[Mount]:
    """Mounts of the directory's file system, those of the whole of it first."""
    device = identity["inode"].split()[0]
    mounts = [
        mount
        for mount in read_mounts()
        if mount.filesystem == identity["filesystem"]
        and (mount.device == device or not same_boot or identity["filesystem"] == "btrfs")
    ]
    return sorted(mounts, key=lambda mount: mount.root != "/")


def _by_handle(mountpoint: Path, text: str, inode: str) -> Path | None:
    """Raises _UnknownError if the handle is not of this file system, as far as can be seen."""
    kind, _, content = text.partition(" ")
    number = bytes.fromhex(content)
    handle = _Handle(handle_bytes=len(number), handle_type=int(kind))
    handle.f_handle[: len(number)] = list(number)
    try:
        above = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _UnknownError from error
    try:
        found = _libc.open_by_handle_at(above, ctypes.byref(handle), os.O_PATH | os.O_CLOEXEC)
        failed = ctypes.get_errno()
        same = inode_of(os.fstat(above)).split()[0] == inode.split(maxsplit=1)[0]
    finally:
        os.close(above)
    if found < 0:
        if failed in (errno.ESTALE, errno.ENOENT) and same:
            return None
        raise _UnknownError
    try:
        seen = os.fstat(found)
        if not _is_it(seen, inode, same_boot=False):
            raise _UnknownError
        place = Path(os.readlink(f"/proc/self/fd/{found}"))  # noqa: PTH115 - no file's name
        if not seen.st_nlink:
            return None
        with suppress(OSError):
            if os.path.samestat(place.lstat(), seen):
                return place
        raise _UnknownError  # it is below another mount's root
    finally:
        os.close(found)


def _beside(name: Path, identity: dict[str, str], *, same_boot: bool) -> list[Path] | None:
    """The directory beside its old name, or nothing if it is not there; None if the directory above
    is not the one that it was made in. This is all that can be seen without a handle.
    """
    mount = mount_of(name.parent) if name.parent.is_dir() else None
    if mount is None or mount.filesystem != identity["filesystem"]:
        return None
    return [
        each
        for each in name.parent.iterdir()
        if not each.is_symlink() and _is_it(each.stat(), identity["inode"], same_boot=same_boot)
    ]

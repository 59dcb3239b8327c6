"""Removes what vdisklab creates: at the end of a run, or for `clean` after a crash.

Things that only one layer creates are removed in that layer's file.

Every function is idempotent: it does nothing if the thing was seen to be gone. It raises HostError,
OSError or DirtyHostError if the thing cannot be removed, or if it cannot be seen whether it is
gone; callers name the thing. A directory that was moved is found by `relocated`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host.answering import answered
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry, Kind
from vdisklab.host.loops import Loop, attached_loops
from vdisklab.host.mounts import (
    Mount,
    holders_of_mount,
    mount_at,
    mount_of,
    mounts_below,
    read_mounts,
    still_mounted,
)
from vdisklab.host.waiting import wait_until
from vdisklab.host.whereabouts import boot_id, inode_of, is_noted, place_of
from vdisklab.value import Value, replace

Undo = Callable[[Host, Entry], None]
"""Removes one thing if it is there. Raises VdisklabError or OSError when it cannot."""

_BUSY_SECONDS = 15.0
_RETRY_SECONDS = 20.0
_KILL_SECONDS = 10.0
_BROKEN_FILE_SYSTEM = (errno.EROFS, errno.EIO, errno.EUCLEAN, errno.ESHUTDOWN)
_OURS = re.compile(r"vdisklab-[0-9a-f]{8}")
"""The directory of one run; see `open_site`."""


WHEREABOUTS = "whereabouts"
"""The detail of a run's own directory that finds it under any name; see `host.whereabouts`."""

NOT_SEEN_YET: Mapping[str, str] = {WHEREABOUTS: ""}
"""The detail of a run's own directory that is about to be made in a directory of the user's: what
has that name may be somebody else's, so it is removed only if it is empty."""


def noted_directories(entries: Iterable[Entry]) -> list[Entry]:
    """The directories that are found under any name, the outermost first."""
    noted = (entry for entry in entries if entry.detail.get(WHEREABOUTS))
    return sorted(noted, key=lambda entry: len(entry.name))


def relocated(entry: Entry, directories: Iterable[Entry]) -> Entry | None:
    """The entry under the name that it has now; None if its directory was seen to be gone.

    `directories` are those of `noted_directories` in which it may lie. Raises DirtyHostError if it
    cannot be seen where one is: what is no name stays as it is, as a mount and a loop device are
    found without it.
    """
    now = Path(entry.name)
    moved: list[tuple[Path, Path]] = []
    for directory in directories:
        before = Path(directory.name)
        if not Path(entry.name).is_relative_to(before):
            continue
        named = before
        for old, new in moved:
            named = new / named.relative_to(old) if named.is_relative_to(old) else named
        place = _place_of(named, directory.detail[WHEREABOUTS])
        if place is None:
            return None
        if place != before:
            moved.append((before, place))
            now = place / Path(entry.name).relative_to(before)
    return replace(entry, name=os.fspath(now)) if moved else entry


def _place_of(name: Path, noted: str) -> Path | None:
    return answered(name.parent, lambda: place_of(name, noted))


def undo_where_it_is(host: Host, entry: Entry, undo: Undo, directories: Iterable[Entry]) -> None:
    """Removes a thing under the name that it has now; see `relocated`.

    Nothing is done for what is a name alone, if its directory was seen to be gone. A mount and a
    loop device are found without their names, so they are looked for in any case.
    """
    unseen = None
    try:
        found = relocated(entry, directories)
    except DirtyHostError as error:
        found, unseen = entry, error
    if entry.kind in (Kind.FILE, Kind.DIRECTORY):
        if unseen is not None:
            raise unseen
        if found is not None:
            undo(host, found)
        return
    undo(host, found or entry)


def remove_file(_host: Host, entry: Entry) -> None:
    """Unlinks one file, unless it is still attached to a loop device.

    On a file system that has become read-only, unlink(2) fails with EROFS even for a file that does
    not exist. That is not an error, and neither is a file on a file system that vdisklab created,
    because it goes away with the disk.
    """
    file = Path(entry.name)
    answered(file.parent, lambda: _remove_file(file))


def _remove_file(file: Path) -> None:
    if _is_loop(file):
        raise DirtyHostError(f"{file} is not removed: a loop device is still attached to it")
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        stays = os.path.lexists(file) and not _goes_with_its_mount(file)
        if error.errno not in _BROKEN_FILE_SYSTEM or stays:
            raise


def _goes_with_its_mount(file: Path) -> bool:
    """True if a file is on a file system that is mounted below a run's directory."""
    mount = mount_of(file)
    return mount is not None and any(map(_OURS.fullmatch, mount.mountpoint.parts))


def remove_directory(_host: Host, entry: Entry) -> None:
    """Removes a directory with its contents, unless something is still mounted inside, or a loop
    device stands on a file in it: a pool in another mount namespace may use that."""
    directory, noted = Path(entry.name), entry.detail.get(WHEREABOUTS)
    answered(directory.parent, lambda: _remove_directory(directory, noted))


def _remove_directory(directory: Path, noted: str | None) -> None:
    if not directory.exists():
        return
    mounted = mounts_below(directory) or (() if mount_at(directory) is None else (directory,))
    if mounted:
        raise DirtyHostError(f"{directory} is not removed: something is still mounted in it")
    loops = _loops_inside(directory)
    if loops:
        raise DirtyHostError(
            f"{directory} is not removed: it holds the file of {' and of '.join(loops)}",
            hint="end what uses them (`fuser -v` names it), then run `vdisklab clean`",
        )
    if noted == NOT_SEEN_YET[WHEREABOUTS]:
        with contextlib.suppress(OSError):
            directory.rmdir()
        return
    _empty(directory, noted)
    directory.rmdir()


def _empty(directory: Path, noted: str | None) -> None:
    """Removes what is in a directory, through its descriptor: who owns the one above could put
    another in its place meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if noted is not None and not is_noted(os.fstat(descriptor), noted):
            raise DirtyHostError(f"{directory} is not removed: another directory is in its place")
        with os.scandir(descriptor) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    shutil.rmtree(each.name, dir_fd=descriptor)
                else:
                    os.unlink(each.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _is_loop(file: Path) -> bool:
    """True if a loop device is attached to a file."""
    return bool(_loops_on(file))


def _loops_inside(directory: Path) -> list[str]:
    """The loop devices on files in a directory."""
    inside = Path(os.path.realpath(directory))
    loops = attached_loops()
    devices = {loop.device for loop in loops if loop.file and inside in loop.file.parents}
    unnamed = {loop.inode: loop.device for loop in loops if loop.file is None}
    if unnamed:  # sysfs is hidden
        for above, _, files in os.walk(inside):
            for name in files:
                with contextlib.suppress(OSError):
                    inode = inode_of(Path(above, name).lstat())
                    devices |= {unnamed[inode]} if inode in unnamed else set()
    return sorted(devices)


def loops_of(host: Host, file: Path, noted: Mapping[str, str] | None = None) -> list[str]:
    """The loop devices that are attached to a file, or to what was noted as one.

    `noted` has the file's inode, and in which boot the inode was noted. A file that was renamed or
    deleted is found by its inode. Its device must still show the file's name, because another file
    may have got the inode. losetup(8), which attaches files, is asked too.
    """
    devices = {loop.device for loop in _loops_on(file, noted)}
    if _is_there(file) and host.which("losetup") is not None:
        asked = ("losetup", "--json", "--list", "--output", "NAME,BACK-FILE", "--associated", file)
        text = host.run(*asked).stdout
        rows = json.loads(text)["loopdevices"] if text.strip() else []
        devices |= {str(row["name"]) for row in rows}
    return sorted(devices)


def _is_there(file: Path) -> bool:
    """True also for a file whose FUSE server has died: it may back a device."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _loops_on(file: Path, noted: Mapping[str, str] | None = None) -> list[Loop]:
    place, noted = Path(os.path.realpath(file)), noted or {}
    inode = None
    with contextlib.suppress(OSError):
        inode = inode_of(place.stat())
    earlier = noted.get("backing") if noted.get("boot") == boot_id() else None
    return [
        loop
        for loop in attached_loops()
        if loop.file == place
        or (loop.inode is not None and loop.inode == inode)
        or (
            loop.inode is not None
            and loop.inode == earlier
            and (loop.file is None or loop.file.name == place.name)
        )
    ]


def detach_loop(host: Host, entry: Entry) -> None:
    """Detaches every loop device of a file, and waits: the kernel detaches with the last opener.

    Also of a file that was renamed or deleted.
    """
    file, devices = Path(entry.name), list[str]()
    try:
        devices = loops_of(host, file, entry.detail)
        for device in devices:
            # The kernel would postpone the detach until after the unmount.
            if any(mount.source == device for mount in read_mounts()):
                raise HostError(f"{device} is still mounted")
            host.run("losetup", "--detach", device)
        wait_until(
            lambda: not loops_of(host, file, entry.detail),
            timeout=_BUSY_SECONDS,
            what=f"release of the loop device on {entry.name}",
        )
    except HostError as error:
        held = (still_mounted(f"the file system on {device}", device) for device in devices)
        reason = next(filter(None, held), error)
        raise DirtyHostError(
            f"the loop device on {entry.name} cannot be detached: {reason}"
        ) from reason


def unmount(host: Host, entry: Entry) -> None:
    """Unmounts a directory, never lazily: a busy mount means that a measurement still runs."""
    noted = entry.detail if entry.detail.get("boot") == boot_id() else {}
    moved = _mount_noted(noted)
    mountpoint = Path(entry.name) if moved is None else moved.mountpoint

    def gone() -> bool:
        if mount_at(mountpoint) is None:
            return True
        host.run("umount", mountpoint, timeout=300, allowed=(0, 32))
        return mount_at(mountpoint) is None

    if moved is None and mount_at(mountpoint) is None:
        _require_not_elsewhere(mountpoint, noted)

    try:
        wait_until(gone, timeout=_BUSY_SECONDS, what=f"unmounting of {mountpoint}", interval=0.05)
    except CommandError as error:
        raise DirtyHostError(
            f"{mountpoint} cannot be unmounted: {error}", hint="run `vdisklab clean`"
        ) from error
    except HostError as error:
        users = ", ".join(_users_of(mountpoint))
        raise DirtyHostError(
            f"{mountpoint} cannot be unmounted; it is in use by {users or 'an unknown process'}",
            hint="end these processes, then run `vdisklab clean`"
            if users
            else f"`fuser -vm {mountpoint}` or `losetup --list` may show what uses it; when it is "
            "free, run `vdisklab clean`",
        ) from error


def _mount_noted(noted: Mapping[str, str]) -> Mount | None:
    """The mount that was noted in this boot, wherever its directory is by now."""
    for mount in read_mounts():
        if mount.is_noted(noted):
            return mount
    return None


def _require_not_elsewhere(mountpoint: Path, noted: Mapping[str, str]) -> None:
    """Raises DirtyHostError for a mount that only another mount namespace has."""
    holders = holders_of_mount(noted) if noted else ()
    if holders:
        pid = holders[0].rpartition("(")[2].rstrip(")")
        raise DirtyHostError(
            f"{mountpoint} is mounted in another mount namespace: that of {', '.join(holders)}",
            hint=f"nsenter --mount --target {pid} vdisklab clean",
        )


def _users_of(mountpoint: Path) -> list[str]:
    """Loop devices on a file below a mount point, and processes with their working directory or an
    open file there."""
    users = [
        Path(loop.device).name
        for loop in attached_loops()
        if loop.file and mountpoint in (loop.file, *loop.file.parents)
    ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [process / "cwd", process / "root", *(process / "fd").iterdir()]
            name = (process / "comm").read_text().strip()
        except OSError:
            continue  # it has ended, or vdisklab may not inspect it
        if any(_leads_below(link, mountpoint) for link in links):
            users.append(f"{name} ({process.name})")
    return users


def openers_of(devices: Collection[Path], processes: Path = Path("/proc")) -> list[str]:
    """The processes that have one of these devices open, as `NAME (PID)`."""
    names = {os.fspath(device) for device in devices}
    openers: list[str] = []
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or vdisklab may not inspect it
            opened = {os.readlink(link) for link in (process / "fd").iterdir()}  # noqa: PTH115
            if opened & names:
                name = (process / "comm").read_text(errors="replace").strip()
                openers.append(f"{name} ({process.name})")
    return openers


def _leads_below(link: Path, directory: Path) -> bool:
    try:
        target = Path(os.readlink(link))  # noqa: PTH115 - the target may not be a path
    except OSError:
        return False  # closed meanwhile; the other files of the process still count
    return directory == target or directory in target.parents


def kill_process(_host: Host, entry: Entry) -> None:
    """Kills the processes with the unique marker in their arguments or environment.

    Processes are found by the marker, not by number: the ledger is written before the process
    exists, and the kernel reuses numbers.
    """
    first = processes_marked(entry.name)
    await_starting()

    def gone() -> bool:
        # Repeatedly: a process may have forked between being found and being killed.
        marked = processes_marked(entry.name)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not marked

    wait_until(
        gone,
        timeout=_KILL_SECONDS,
        what=f"end of the processes {first} ({entry.name})",
        error=DirtyHostError,
    )


def retried(host: Host, command: tuple[str, ...]) -> None:
    """Repeats a command until it succeeds, because udev may briefly hold a device open."""
    last: list[CommandError] = []

    def done() -> bool:
        try:
            host.run(*command, timeout=120)
        except CommandError as error:
            last[:] = [error]
            return False
        return True

    try:
        wait_until(done, timeout=_RETRY_SECONDS, what=f"end of `{command[0]}`", interval=0.1)
    except HostError as error:
        raise (last[0] if last else error) from None


def processes_marked(word: str) -> list[int]:
    """Processes, without zombies, with `word` in an argument or a variable of their environment.

    Children inherit the environment, whatever their arguments are.
    """
    return [pid for pid, texts in _process_texts() if any(word.encode() in text for text in texts)]


def await_starting(proc: Path = Path("/proc")) -> None:
    """Waits until the processes that are starting show their arguments and environment.

    In execve(2) the kernel closes the files of the old program, which frees our ledger, before it
    stores the arguments of the new one (begin_new_exec() in fs/exec.c, create_elf_tables() in
    fs/binfmt_elf.c). A process without arguments at the deadline is not ours, and is ignored.
    """
    starting = set(_starting(proc))
    _wait_for_end(lambda: not starting.intersection(_starting(proc)))


def await_programs(run_id: str, entries: Collection[Entry], proc: Path = Path("/proc")) -> None:
    """Waits for programs that a dead vdisklab has left behind, and that still build or remove
    something.

    SIGKILL of vdisklab does not end them. A killed `zpool create` leaves disks without a label that
    names their owner; one that goes on makes its pool after the search for pools. They have the
    run's id in their arguments. Programs named by `entries` are killed instead. At the deadline the
    wait ends without an error: a user's `tail` on a file of the run has the id, too.
    """
    killed = [entry.name.encode() for entry in entries if entry.kind == Kind.PROCESS]
    await_starting(proc)

    def ended() -> bool:
        return not any(
            run_id.encode() in texts[0] and not any(name in texts[0] for name in killed)
            for _, texts in _process_texts(proc)
        )

    _wait_for_end(ended)


def _wait_for_end(condition: Callable[[], bool]) -> None:
    with contextlib.suppress(HostError):
        wait_until(condition, timeout=_KILL_SECONDS, what="end of other programs")


def _starting(proc: Path) -> Iterator[int]:
    """Processes without arguments and environment; the kernel's own threads have no program."""
    for pid, texts in _process_texts(proc):
        if not any(texts):
            with contextlib.suppress(OSError):
                (proc / str(pid) / "exe").readlink()
                yield pid


def _process_texts(proc: Path = Path("/proc")) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """The arguments and the environment of each other process that can be read.

    Each end of a program waits for it, often several times: paths as texts take half the time.
    """
    for name in os.listdir(proc):  # noqa: PTH208 - a Path takes as long again
        if not "0" <= name[0] <= "9" or int(name) == os.getpid():
            continue
        try:
            texts = _content(f"{proc}/{name}/cmdline"), _content(f"{proc}/{name}/environ")
        except OSError:
            continue  # it has ended, or belongs to another user
        yield int(name), texts


def _content(file: str) -> bytes:
    with open(file, "rb", buffering=0) as opened:  # noqa: PTH123 - as above
        return opened.read()


def require_sysfs(block: Path = Path("/sys/block")) -> None:
    """Raises DirtyHostError where sysfs shows no block devices: then none was seen to be gone."""
    mount = mount_of(block)
    if mount is None or mount.filesystem != "sysfs":
        raise DirtyHostError(
            f"{block} is hidden, so the devices of this host cannot be seen",
            hint="run `vdisklab clean` outside of this container or namespace",
        )


def remove_mapped(host: Host, entry: Entry) -> None:
    """Removes one of vdisklab's device-mapper devices."""
    asked = host.run("dmsetup", "ls", allowed=range(256))
    if entry.name not in (line.split("\t")[0] for line in asked.stdout.splitlines()):
        # Without device-mapper in the kernel, dmsetup fails, and there is none.
        if asked.status and "device-mapper" in Path("/proc/devices").read_text():
            raise CommandError(asked.argv, asked.status, asked.stderr)
        return
    host.run("dmsetup", "remove", "--retry", entry.name)


class Removable(Value):
    """A kind of thing that a layer creates, as the ledger names it, and how one is removed."""

    kind: str
    undo: Undo


SIMPLE_UNDO: Mapping[str, Undo] = {
    Kind.PROCESS: kill_process,
    Kind.FILE: remove_file,
    Kind.DIRECTORY: remove_directory,
    Kind.LOOP: detach_loop,
    Kind.MOUNT: unmount,
    Kind.MAPPED: remove_mapped,
}
"""The things that belong to no single layer; `storage.stack.UNDO` has all."""

"""Where root may write: names that no other user can change, and files made without following any.

A program of root's that writes to a name in another user's directory can be led anywhere: that user
renames the directory, and puts one of links there. So as root every place is looked at first, from
`/` down; what is created is created exclusively, behind no link, with a mode of its own. An
ordinary user has no more rights than who may change a name, so nothing is refused there.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.value import Value

_MOST_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""
_SHARED = stat.S_IWGRP | stat.S_IWOTH


STATE_WAY = (
    "leave VDISKLAB_STATE out, for /var/lib/vdisklab, or set it to a directory that only root can "
    "change"
)


class Distrust(Value):
    """Who else can change what a name leads to: `place` is on the way there, `reason` and `way` are
    clauses, such as "belongs to eve" and "have eve run it with sudo"."""

    place: Path
    reason: str
    way: str


def trusted_users() -> frozenset[int]:
    """The users who may change what this process writes to: root, and the caller of sudo or doas.

    Only root can set who called, so the answer is trusted.
    """
    return frozenset({0, os.geteuid(), caller() or 0})


def caller() -> int | None:
    """The user who called sudo(8) or doas(1), as SUDO_UID or DOAS_USER say; None if root did."""
    users = []
    with suppress(KeyError, ValueError):
        users.append(int(os.environ["SUDO_UID"]))
    with suppress(KeyError):
        users.append(pwd.getpwnam(os.environ["DOAS_USER"]).pw_uid)
    return next((user for user in users if user > 0), None)


def distrust(place: Path) -> Distrust | None:
    """Why root must not write to this name; None if only trusted users can change where it leads.

    Every directory and link on the way is looked at; what does not exist yet is no danger. None
    for an ordinary user.
    """
    return followed(place, trusted_users())[1] if os.geteuid() == 0 else None


def is_roots_alone(place: Path) -> bool:
    """True if root alone can change where this name leads: not even the caller of sudo or doas."""
    return followed(place, frozenset({0}))[1] is None


def require_safe(place: Path, what: str, way: str, *, replaced: bool = False) -> None:
    """Raises HostError if as root another user can change where the name of `what` leads.

    For `replaced` see `followed`.
    """
    if os.geteuid() != 0:
        return
    found = followed(place, trusted_users(), replaced=replaced)[1]
    if found is not None:
        raise _refusal(place, found, what, f"{way}; or {found.way}")


def _refusal(place: Path, found: Distrust, what: str, hint: str) -> HostError:
    culprit = "it" if found.place == place else str(found.place)
    return HostError(
        f"root does not write to {what} {place}: {culprit} {found.reason}, who could put links "
        "there",
        hint=hint,
    )


def is_shared(directory: Path) -> bool:
    """True for a directory such as /tmp, in which as root others may create files."""
    try:
        return os.geteuid() == 0 and bool(directory.stat().st_mode & _SHARED)
    except OSError:
        return False


def require_safe_work(directory: Path) -> None:
    """Raises HostError for a work directory that root must not write to."""
    require_safe(directory, "the work directory", "name another with --dir, such as /var/tmp")


def require_safe_state(directory: Path) -> None:
    """Raises HostError for a directory of ledgers or caches that root must not use.

    Root removes what a ledger names and boots what a cache holds, so not even the caller of sudo
    may change them.
    """
    if os.geteuid() != 0:
        return
    found = followed(directory, frozenset({0}))[1]
    if found is not None:
        raise _refusal(directory, found, "the state directory", STATE_WAY)


def make_state_directory(directory: Path, mode: int = 0o755) -> None:
    """Makes a directory of vdisklab's own state, with its parents; see `make_directory`.

    Raises HostError as `require_safe_state` does.
    """
    require_safe_state(directory)
    make_directory(directory, "the state directory", STATE_WAY, mode)
    require_safe_state(directory)


def followed(
    place: Path, trusted: frozenset[int], *, replaced: bool = False
) -> tuple[Path, Distrust | None]:
    """Where a name leads, each link read once, and who besides the `trusted` can change that.

    The rest of a name that does not exist stays as it is, and so does a link of /proc to an open
    file. `replaced`: a file that has the name does not count, only who could put another there.
    """
    # With its `..`: behind a link that is not the directory in which the link lies.
    pending = list(reversed(place.absolute().parts[1:]))
    reached, links = Path("/"), 0
    found = _of_directory(reached, reached.stat(), trusted)
    while found is None and pending:
        name = pending.pop()
        if name == "..":
            reached = reached.parent
            continue
        above, reached = reached, reached / name
        try:
            seen = reached.lstat()
            is_link = stat.S_ISLNK(seen.st_mode)
            target = Path(os.readlink(reached) if is_link else "")  # noqa: PTH115 - part by part
            is_trap = is_link and seen.st_uid not in trusted and above.stat().st_mode & _SHARED
        except OSError:
            break  # it does not exist, or root may not look there: then it may not write
        if is_link:
            links += 1
            if links > _MOST_LINKS:
                break  # no name: the kernel refuses it, too
            if is_trap:
                found = _owned(reached, seen.st_uid, "is a link and belongs to")
                break
            if is_open_file(reached):
                break  # leads to an open file, whatever its name is by now
            reached = Path("/") if target.is_absolute() else above
            pending += [part for part in reversed(target.parts) if part != "/"]
        elif stat.S_ISDIR(seen.st_mode):
            found = _of_directory(reached, seen, trusted)
        elif not replaced:
            found = _of_file(reached, seen, trusted)
    return reached.joinpath(*reversed(pending)), found


def is_open_file(link: Path) -> bool:
    """True for a link of /proc such as /proc/self/fd/1, which is followed without a name."""
    return link.parts[1:2] == ("proc",) and "fd" in link.parts


def _of_directory(place: Path, seen: os.stat_result, trusted: frozenset[int]) -> Distrust | None:
    if seen.st_uid not in trusted:
        return _owned(place, seen.st_uid, "belongs to")
    return None if seen.st_mode & stat.S_ISVTX else _of_writers(place, seen, trusted)


def _of_file(place: Path, seen: os.stat_result, trusted: frozenset[int]) -> Distrust | None:
    if not stat.S_ISREG(seen.st_mode):
        return None  # a device or pipe is written to as it is
    if seen.st_uid not in trusted:
        return _owned(place, seen.st_uid, "belongs to")
    return _of_writers(place, seen, trusted)


def _of_writers(place: Path, seen: os.stat_result, trusted: frozenset[int]) -> Distrust | None:
    """An ACL cannot grant more than the group's bits, which show its mask (acl(5))."""
    if seen.st_mode & stat.S_IWOTH:
        return Distrust(place, "can be written by every user", f"run `chmod o-w {place}`")
    if seen.st_mode & stat.S_IWGRP and (others := _others_in(seen.st_gid, trusted)):
        reason = f"can be written by {', '.join(others)}"
        return Distrust(place, reason, f"run `chmod g-w {place}`")
    return None


def _owned(place: Path, user: int, verb: str) -> Distrust:
    # Not `chown root`: it may be the user's home directory. Who calls sudo is trusted.
    owner = name_of_user(user)
    return Distrust(place, f"{verb} {owner}", f"have {owner} run it with sudo")


def name_of_user(user: int) -> str:
    """A user's name; its number if this host has none for it."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _others_in(group: int, trusted: frozenset[int]) -> list[str]:
    """The members of a group who are not trusted; the group itself if it is not known here."""
    if group == 0:
        return []
    try:
        found_group = grp.getgrgid(group)
    except KeyError:
        return [f"group {group}"]
    members = {account.pw_name for account in pwd.getpwall() if account.pw_gid == group} | set(
        found_group.gr_mem
    )
    mine = set()
    for user in trusted:
        with suppress(KeyError):
            mine.add(pwd.getpwuid(user).pw_name)
    return sorted(members - mine)


def make_directory(place: Path, what: str, way: str, mode: int = 0o755) -> None:
    """Makes a directory and its parents, as far as they are missing. Raises OSError and HostError.

    As root, new directories get exactly this mode, whatever the umask is, and existing directories
    must be safe.
    """
    root = os.geteuid() == 0
    if root:
        require_safe(place, what, way)
    for directory in [*reversed(place.parents), place]:
        if directory.is_dir():
            continue
        try:
            directory.mkdir(mode=mode)
        except FileExistsError:
            if not directory.is_dir():
                raise
            continue
        if root:
            _set_mode(directory, mode)
    if root:
        require_safe(place, what, way)  # also what another process has made meanwhile


def _set_mode(directory: Path, mode: int) -> None:
    """Behind no link."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def open_file(file: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a regular file behind no link, made with exactly this mode as root.

    Raises OSError; as root also for a file that another user owns, may write, or has a second name
    for.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    root = os.geteuid() == 0
    created = False
    try:
        if flags & os.O_CREAT and not flags & os.O_EXCL:
            try:
                descriptor = os.open(file, flags | os.O_EXCL, mode)
                created = True
            except FileExistsError:
                descriptor = os.open(file, flags & ~(os.O_CREAT | os.O_TRUNC))
        else:
            descriptor = os.open(file, flags & ~(0 if flags & os.O_CREAT else os.O_TRUNC), mode)
            created = bool(flags & os.O_CREAT)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", str(file)) from error
        raise
    try:
        if created and root:
            os.fchmod(descriptor, mode)
        _require_plain(descriptor, file)
        if flags & os.O_TRUNC and not created:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_plain(descriptor: int, file: Path) -> None:
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    if os.geteuid() != 0:
        return
    found = _of_file(file, seen, trusted_users())
    if found is not None:
        raise OSError(errno.EPERM, f"it {found.reason}", str(file))
    if seen.st_nlink > 1:
        raise OSError(errno.EPERM, "it has a second name", str(file))

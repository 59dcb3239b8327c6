"""Commands beside the guests' that give the host a device, a directory or a target which is memory,
or which sends no flushes.

losetup(8), mount(8), tgtadm(8), ln(1), `sync` in zfsprops(7); nbd-client(8) says which server is
behind a device.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from vdisklab.path.memory_names import memory_by_name
from vdisklab.path.mount_options import without_flushes
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import Value

PROGRAMS = ("nbd-client", "losetup", "tgtadm", "mount", "zfs", "ln")
HERE = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104 - read, not bound

Command = tuple[str, Sequence[str]]
"""The name of a program, and the words after it."""

_LOSETUP_VALUES = ("-o", "--offset", "--sizelimit", "-b", "--sector-size", "--loop-ref")
_IN_PLACE = re.compile(r"\$\((?:sudo\s+)?(?:\S*/)?losetup\s(?P<argv>[^()]*)\)")
"""A command whose output, a device's name, stands in its place."""

_NO_SYNC = "sync=disabled"
_MEMORY_TYPES = ("tmpfs", "ramfs")


class Lossy(Value):
    """What loses a guest's disk: that at the device `device`, below the `directory`, or with
    `target`, the end of an iSCSI URL. `loss` says why, and `instead` what to write in its place,
    as for an NBD server."""

    program: str
    loss: str
    instead: str
    device: str | None = None
    directory: str | None = None
    target: str | None = None

    def serves(self, _disk: ConfiguredDisk, place: str) -> bool:
        """True if a guest's disk, which is at `place`, is in it."""
        if self.device is not None:
            return re.fullmatch(rf"{re.escape(self.device)}(p[0-9]+)?", place) is not None
        if self.directory is not None:
            return posixpath.normpath(place).startswith(f"{self.directory}/")
        return self._host_at(place) in HERE

    def serves_if_on(self, place: str) -> str:
        """The host that a guest's address names, if this target has the disk as soon as it runs
        there; empty if it has not."""
        return self._host_at(place) or ""

    def _host_at(self, place: str) -> str | None:
        """The host of an address of this target; None for another address."""
        url = url_of(place)
        is_this = url is not None and url.scheme == "iscsi" and url.path == f"/{self.target}"
        return (url.hostname or "") if url is not None and self.target and is_this else None


def url_of(place: str) -> SplitResult | None:
    """The parts of an address; None for a text that is none, or whose port is no number."""
    try:
        url = urlsplit(place)
        _ = url.port
    except ValueError:
        return None
    return url


def lossy(commands: Iterable[Command]) -> Iterator[Lossy]:
    """What these commands make of memory, or of what sends no flushes."""
    targets: dict[str, str] = {}
    for program, argv in commands:
        match program:
            case "losetup":
                yield from _of_losetup(argv)
            case "mount":
                yield from _of_mount(argv)
            case "zfs":
                yield from _of_zfs(argv)
            case "ln":
                yield from _of_link(argv)
            case "tgtadm":
                yield from _of_tgtadm(argv, targets)
            case _:
                pass


def memory_in_place(source: str) -> str | None:
    """Why a disk loses all, whose device is the output of `losetup --show FILE` in its place; None
    if the name of the file does not say that it is memory."""
    match = _IN_PLACE.search(source.replace("␣", " "))
    files = [] if match is None else _losetup_words(match["argv"].split())
    memory = memory_by_name(files[-1]) if files else None
    return None if memory is None else f"{files[-1]} is memory ({memory})"


def clients(commands: Iterable[Command]) -> Mapping[str, str]:
    """The URL of the disk behind each device that an `nbd-client` in these commands connects."""
    found: dict[str, str] = {}
    for program, argv in commands:
        if program != "nbd-client":
            continue
        rest = [*argv]
        name = _taken(rest, "-N", "-name", "--name")
        socket = _taken(rest, "-u", "-unix", "--unix")
        plain = [word for word in rest if not word.startswith("-")]
        device = next((word for word in plain if word.startswith("/dev/")), None)
        if device is None:
            continue
        before = plain[: plain.index(device)]
        if socket is not None:
            found[device] = f"nbd+unix:///{name or ''}?socket={socket}"
        elif before:
            host = f"[{before[0]}]" if ":" in before[0] else before[0]
            port = f":{before[1]}" if len(before) > 1 else ""
            found[device] = f"nbd://{host}{port}" + (f"/{name}" if name else "")
    return found


def _taken(rest: list[str], *names: str) -> str | None:
    """The value of an option, which is taken out of the words with its name."""
    for number, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option not in names:
            continue
        end = number + (1 if equals else 2)
        value = value if equals else " ".join(rest[number + 1 : end])
        del rest[number:end]
        return value
    return None


def _losetup_words(argv: Sequence[str]) -> list[str]:
    rest = [*argv]
    for name in _LOSETUP_VALUES:
        _taken(rest, name)
    return [word for word in rest if not word.startswith("-")]


def _of_losetup(argv: Sequence[str]) -> Iterator[Lossy]:
    match _losetup_words(argv):
        case [device, file] if device.startswith("/dev/") and memory_by_name(file):
            loss = f"{device} has {file}, which is memory ({memory_by_name(file)})"
            yield Lossy("losetup", loss, "give losetup a file on a disk", device=device)
        case _:
            pass


def _of_mount(argv: Sequence[str]) -> Iterator[Lossy]:
    rest = [*argv]
    kind = _taken(rest, "-t", "--types")
    options = (_taken(rest, "-o", "--options") or "").split(",")
    places = [word for word in rest if not word.startswith("-")]
    if kind in _MEMORY_TYPES and places:
        directory = posixpath.normpath(places[-1])
        instead = f"mount a file system of a disk at {directory}"
        yield Lossy("mount", f"{directory} is memory ({kind})", instead, directory=directory)
    elif len(places) > 1 and (memory := memory_by_name(places[-2])):
        directory = posixpath.normpath(places[-1])
        instead = f"mount a file system of a disk at {directory}"
        loss = f"{directory} is on {places[-2]}, which is memory ({memory})"
        yield Lossy("mount", loss, instead, directory=directory)
    elif places and (option := without_flushes(options)):
        directory = posixpath.normpath(places[-1])
        loss = f"{directory} is mounted with `{option}`, so no flush reaches the disk"
        yield Lossy("mount", loss, f"leave {option} out of mount's options", directory=directory)


def _of_link(argv: Sequence[str]) -> Iterator[Lossy]:
    """A file or directory that is a link to memory: ln(1)."""
    places = [word for word in argv if not word.startswith("-")]
    memory = memory_by_name(places[0]) if len(places) > 1 else None
    if memory is None:
        return
    link = posixpath.normpath(places[1])
    loss = f"{link} is a link to {places[0]}, which is memory ({memory})"
    inside = f"{link}/{posixpath.basename(places[0])}"  # in a directory the link has its name
    for device in (link, inside):
        yield Lossy("ln", loss, "link it to a place on a disk", device=device)
    yield Lossy("ln", loss, "link it to a place on a disk", directory=link)


def _of_zfs(argv: Sequence[str]) -> Iterator[Lossy]:
    """A dataset that calls each flush done at once, where its files and volumes usually are."""
    if argv[:1] not in (["set"], ("set",), ["create"], ("create",)) or _NO_SYNC not in argv:
        return
    loss = f"{argv[-1]} has {_NO_SYNC}, so ZFS calls a flush done at once"
    instead = f"write sync=standard in place of {_NO_SYNC}"
    volumes = f"/dev/zvol/{argv[-1]}"
    yield Lossy("zfs", loss, instead, device=volumes)
    for directory in (f"/{argv[-1]}", volumes):
        yield Lossy("zfs", loss, instead, directory=directory)


def _of_tgtadm(argv: Sequence[str], targets: dict[str, str]) -> Iterator[Lossy]:
    """The targets that are memory, or nothing; `targets` gets the names by their numbers."""
    rest = [*argv]
    number = _taken(rest, "-t", "--tid") or ""
    file = _taken(rest, "-b", "--backing-store")
    unit, kind = _taken(rest, "-l", "--lun"), _taken(rest, "-E", "--bstype")
    name = _taken(rest, "-T", "--targetname")
    if name is not None:
        targets[number] = name
    if file is None or number not in targets:
        return
    target = f"{targets[number]}/{unit or 0}"
    if kind == "null":
        loss = "tgtd serves it: its backing store type null keeps nothing"
        yield Lossy("tgtadm", loss, "leave out --bstype null", target=target)
    elif memory := memory_by_name(file):
        loss = f"tgtd serves it: {file} is memory ({memory})"
        yield Lossy("tgtadm", loss, "serve a file or device on a disk", target=target)

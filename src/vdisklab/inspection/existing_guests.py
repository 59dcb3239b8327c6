"""Finds existing guests: in named files and directories, in a libvirt, or all of this host.

The disks of running QEMUs come from their command lines, and from QMP what they are now. QMP gets
one command, `query-block`, which changes nothing.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from vdisklab.errors import GuestError, HostError, PlanError
from vdisklab.guest.qemu.block_nodes import DAEMON, VIRTIOFSD
from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel
from vdisklab.host.command import Host
from vdisklab.host.image_file import OpenFiles, header_format, seen_file
from vdisklab.host.mounts import is_visible_directory, is_visible_file
from vdisklab.host.processes import (
    Process,
    Stranger,
    callers,
    numbers_of,
    processes_of,
    user_name,
)
from vdisklab.path.disk_path import Image
from vdisklab.path.platforms import NEW_GUEST_DISKS, PRINTED, Platform
from vdisklab.path.segments import ImageFormat
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import Location
from vdisklab.platforms.guest_edge import read_apart
from vdisklab.platforms.qemu import as_running, monitor_of
from vdisklab.platforms.reading import DisklessGuest, GuestText, without_fsync
from vdisklab.platforms.registry import dialects, read_guests
from vdisklab.platforms.storage_pools import is_pool_file, pools_of
from vdisklab.platforms.text_form import files_named
from vdisklab.platforms.told_apart import told_apart
from vdisklab.units import named
from vdisklab.value import Value, replace

LARGEST = 32 << 20
"""Maximum number of characters of one file."""

_ENDINGS = (
    ".xml", ".conf", ".yaml", ".yml", ".json", ".cmdline", ".sh", ".service", ".container", ".tf",
    ".hcl",
)  # fmt: skip


_HAS_VOLUMES = re.compile(r"<disk\b[^>]{0,200}\btype=['\"]volume['\"]")
_POOL_NAME = re.compile(r"\bpool=['\"]([^'\"]{1,200})")
_FIRST = " ".join(tuple(NEW_GUEST_DISKS)[:2])
DEADLINE = 2.0
"""Seconds for the whole answer: a monitor serves one client, and may have one already."""

_DAEMONS = re.compile(f"{DAEMON}|{VIRTIOFSD}")
_PROGRAMS = re.compile(rf"qemu-system-\w+|qemu-kvm|kvm|\.qemu-\S+-wrapped|{_DAEMONS.pattern}")
_WRAPPED = re.compile(r"\.(.+)-wrapped")
"""The name of a program of NixOS's behind the script that starts it."""

_OURS = re.compile(r"(guest=)?(vdl|vdisklab-(lab|[0-9a-f]{8})-)")
"""The names of vdisklab's own guests."""

_NO_FORMAT = (
    "its configuration names no format, so QEMU looks into the file, which cannot be read here: "
    "add the format, such as format=qcow2"
)


class ExistingGuests(Value):
    """The disks of all guests that were found; `notes` say what could not be read."""

    disks: tuple[ConfiguredDisk, ...]
    notes: tuple[str, ...] = ()


def read_disks(host: Host, files: Iterable[Path], uri: str | None) -> ExistingGuests:
    """The disks of the guests in files and directories, and of all guests of libvirt at `uri`.

    A name without a file may be a guest's name, on this host or in libvirt. In a directory, files
    that do not describe a guest are skipped with a note. Raises PlanError if a named file
    cannot be read or no guest has a disk, HostError if libvirt does not answer.
    """
    texts: list[GuestText] = []
    notes: list[str] = []
    guests, files = _guests_or_files(files)
    of_names: list[ConfiguredDisk] = []
    if guests:
        of_names += _disks_of_names(host, guests, uri, notes)
        uri = None
    for file in files:
        if is_visible_directory(file):
            found = _directory(file, notes)
            texts += found
            if all(text.required for text in found):  # no guest's
                endings = ", ".join(_ENDINGS)
                notes.append(f"{file} holds no configuration of a guest ({endings}).")
        else:
            texts.append(_text(file))
            names = {text.file_name for text in texts}
            beside = () if str(file) == "-" else _beside(file.absolute().parent)
            texts += (text for text in beside if text.file_name not in names)
    if uri is not None:
        texts += _texts_at(host, uri)
    elif not texts and not notes and not guests:
        raise PlanError("no guest is named", hint=f"name files: {PRINTED}; or --libvirt URI")
    texts += _pools_near(texts)
    texts = list(map(_with_files, texts))
    diskless: list[DisklessGuest] = []
    of_texts = read_guests(_each_once(texts), notes, diskless) if texts else ()
    disks = (*of_names, *map(as_probed, map(_at_home, of_texts)))
    if not disks and diskless:
        ways = list(dict.fromkeys(guest.instead for guest in diskless))
        raise PlanError("; ".join(_clauses(diskless)), hint="; or ".join(ways[:2]))
    if not disks:
        why = f" ({'; '.join(note.rstrip('.') for note in notes[-2:])})" if notes else ""
        read = f" in {named([text.origin for text in texts])}" if texts else ""
        raise PlanError(
            f"there is no guest with a hard disk{read}{why}", hint=f"name other guests: {PRINTED}"
        )
    notes += (f"{clause}." for clause in _clauses(diskless))
    return ExistingGuests(told_apart(disks), tuple(notes))


def _clauses(diskless: Iterable[DisklessGuest]) -> Iterator[str]:
    """Why there is nothing to judge, with the names of the guests of which it is true."""
    names: dict[str, list[str]] = {}
    for guest in diskless:
        names.setdefault(guest.why, []).append(guest.name)
    yield from (f"{named(guests)}: {why}" for why, guests in names.items())


def _guests_or_files(named_by_user: Iterable[Path]) -> tuple[list[str], list[Path]]:
    """The names that can only be guests' names, and the files."""
    names: list[str] = []
    files: list[Path] = []
    for name in named_by_user:
        is_file = len(name.parts) != 1 or name.suffix in _ENDINGS or str(name) == "-"
        if not (is_file or is_visible_file(name) or is_visible_directory(name)):
            names.append(str(name))
        else:
            files.append(name)
    return names, files


def _disks_of_names(
    host: Host, names: Sequence[str], uri: str | None, notes: list[str]
) -> Iterator[ConfiguredDisk]:
    """The disks of the guests of these names. Raises PlanError for a name that no guest has."""
    if uri is None:
        try:
            found = read_host(host)
        except PlanError as error:
            raise PlanError(f"{names[0]} is not a file, and {error}", hint=error.hint) from error
        notes += found.notes
        disks = found.disks
    else:
        disks = tuple(map(as_probed, read_guests(tuple(_texts_at(host, uri)), notes)))
    for name in names:
        chosen = [disk for disk in disks if name in (disk.guest, disk.domain)]
        if not chosen:
            guests = sorted({disk.guest or disk.domain for disk in disks})
            raise PlanError(
                f"there is no file {name}, and no guest of that name with a hard disk",
                hint=f"the guests are {named(guests)}; or name a file: {PRINTED}",
            )
        yield from chosen


def _each_once(texts: Iterable[GuestText]) -> tuple[GuestText, ...]:
    """The texts without a file that was found twice: by its name, and beside another one."""
    by_place: dict[object, GuestText] = {}
    for text in texts:
        file = Path(text.origin)
        place = file.resolve() if is_visible_file(file) else (text.origin, len(by_place))
        by_place.setdefault(place, text)
    return tuple(by_place.values())


def _texts_at(host: Host, uri: str) -> Iterator[GuestText]:
    """The guests of the libvirt at an address. Raises HostError if it does not answer."""
    for dialect in dialects().values():
        if dialect.location.printed_at is not None:
            yield from dialect.location.printed_at(partial(_output, host), uri)


def read_host(host: Host, root: Path = Path("/")) -> ExistingGuests:
    """The disks of this host's guests: of each platform, and of other running QEMUs.

    `root` has the platforms' directories and /proc. Raises PlanError if there is no guest.
    """
    notes: list[str] = []
    disks: list[ConfiguredDisk] = []
    for platform, dialect in dialects().items():
        disks += map(_at_home, _guests_of(host, platform, dialect.location, root, notes))
    names = {name for disk in disks for name in (disk.domain, disk.guest)}
    disks += [disk for disk in running_disks(root / "proc", notes) if disk.guest not in names]
    if not disks:
        why = f" ({'; '.join(note.rstrip('.') for note in notes[-2:])})" if notes else ""
        raise PlanError(
            f"no guest was found on this host{why}",
            hint=f"`vdisklab run {_FIRST} raw/none` shows the best path for a first guest; a guest "
            "of another host is read from its configuration: `vdisklab advise FILE`, such as what "
            "`virsh dumpxml GUEST` prints (docs/platforms.md lists all)",
        )
    return ExistingGuests(told_apart(disks), tuple(notes))


def _guests_of(
    host: Host, platform: Platform, location: Location, root: Path, notes: list[str]
) -> Iterable[ConfiguredDisk]:
    """A platform's guests as its program prints them; as its files say if that fails."""
    place = platform.on_host
    directory = root / place.directory.lstrip("/")
    has_files = bool(place.directory) and is_visible_directory(directory)
    if location.printed is not None and host.which(place.program) is not None:
        try:
            return read_guests(tuple(location.printed(partial(_output, host))))
        except (HostError, PlanError) as error:
            if has_files:
                notes.append(f"{error}; its files in {directory} are read instead.")
            elif not place.directory:
                notes.append(f"{platform.full_name} does not answer: {error}.")
    try:
        return read_guests(_directory(directory, notes), notes) if has_files else ()
    except PlanError as error:
        notes.append(f"{error}: skipped.")
        return ()


def _output(host: Host, *argv: str) -> str:
    return host.run(*argv).stdout


def _directory(directory: Path, notes: list[str]) -> list[GuestText]:
    """The guests' configurations in a directory, and the files that they refer to, there or in the
    directory above."""
    texts = list(_beside(directory))
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in _ENDINGS)
        files += (file for file in _below(directory) if file.suffix in _ENDINGS)
    except OSError as error:
        raise PlanError(
            f"{directory} cannot be read: {error.strerror}", hint="name files, or be root"
        ) from error
    found: set[tuple[str, str]] = set()
    for file in files:
        try:
            text = replace(_text_in_directory(file), required=False)
        except PlanError as error:
            notes.append(f"{error}: skipped.")
            continue
        # A cluster's directory has a guest twice: with its node, and by a link or a copy.
        if file.parent == directory or (file.name, text.text) not in found:
            texts.append(text)
        found.add((file.name, text.text))
    return texts


def _below(directory: Path) -> Iterator[Path]:
    """The files in a directory's own directories that hold guests."""
    for place in (place for dialect in dialects().values() for place in dialect.below):
        yield from sorted(directory.glob(f"{place}/*"))


def _beside(directory: Path) -> Iterator[GuestText]:
    """The other files that a directory's guests need: from that directory, its parent, or the one
    in which a platform has that directory."""
    below = (place for dialect in dialects().values() for place in dialect.below)
    tops = [directory.parents[place.count("/")] for place in below if directory.match(place)]
    for name in (name for dialect in dialects().values() for name in dialect.beside):
        places = [above / name for above in (directory, directory.parent, *tops)]
        yield from map(_text_in_directory, list(filter(is_visible_file, places))[:1])


def _pools_near(texts: Sequence[GuestText]) -> Iterator[GuestText]:
    """The pools of libvirt's that these guests have volumes of: /etc/libvirt/storage has them, and
    /etc/libvirt/qemu the guests."""
    having = [text for text in texts if _HAS_VOLUMES.search(text.text)]
    names = {name for text in having for name in _POOL_NAME.findall(text.text)}
    places = {Path(text.place or text.origin).absolute().parent for text in having}
    above = dict.fromkeys(each for place in sorted(places) for each in (place, place.parent))
    for file in (file for each in above for file in sorted(each.glob("storage/*.xml"))):
        with suppress(PlanError):
            text = _text_in_directory(file)
            if is_pool_file(text) and any(pool.name in names for pool in pools_of(text)):
                yield text


def _text(file: Path, name: str | None = None) -> GuestText:
    """The text of a file that the user named, who may name a pipe; it is shown as `name`."""
    place = os.path.realpath(name or file)
    name = name or str(file)
    if str(file) == "-":
        return GuestText(_checked(sys.stdin.read(LARGEST + 1), name), "stdin")
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            return GuestText(_checked(stream.read(LARGEST + 1), name), name, place=place)
    except OSError as error:
        raise PlanError(
            f"{name} cannot be read: {error.strerror}", hint=f"name other files: {PRINTED}"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{name} is not UTF-8 text", hint=f"name text: {PRINTED}") from error


def _text_in_directory(file: Path) -> GuestText:
    """The text of a regular file, which nobody named: anything else might hang its reader."""
    with seen_file(file) as seen:
        if seen is None or not seen.is_regular:
            raise PlanError(f"{file} is not a regular file", hint="name other files")
        if seen.descriptor is None:
            raise PlanError(f"{file} cannot be read: permission denied", hint="be root")
        return _text(Path(f"/proc/self/fd/{seen.descriptor}"), str(file))


def _with_files(text: GuestText) -> GuestText:
    """The text of a file with the texts of the files that it names, as far as they can be read."""
    if not text.place:
        return text
    files: dict[str, str] = {}
    directory = Path(text.place).parent
    for name in files_named(text):
        if name.startswith("*."):
            # Each file that matches is there: one that cannot be read must not count as missing.
            files |= {each.name: _text_beside(each) for each in sorted(directory.glob(name))}
            continue
        with suppress(PlanError):
            files[name] = _text_in_directory(directory / name).text
    return replace(text, files=files)


def _text_beside(file: Path) -> str:
    """The text of a file; of one that cannot be read a text of no form."""
    try:
        return _text_in_directory(file).text
    except PlanError:
        return "}"


def _checked(text: str, name: str) -> str:
    if len(text) > LARGEST:
        raise PlanError(f"{name} is larger than any guest's configuration", hint="name another")
    return text


def running_disks(processes: Path, notes: list[str] | None = None) -> Iterator[ConfiguredDisk]:
    """The disks of running QEMUs; vdisklab's own guests are left out.

    A QEMU counts if its user is root, the caller, or one as which a platform starts guests. `notes`
    gets a sentence that names the others.
    """
    believed = believed_processes(processes, notes)
    daemons = [process for process in believed if _DAEMONS.fullmatch(process.program)]
    served = list(map(_text_of, daemons))
    of_daemons: OpenFiles = frozenset().union(*map(Process.open_files, daemons))
    for process in believed:
        if process in daemons or any(map(_OURS.match, names_of(process))):
            continue
        read = partial(_disks_of_process, process, served, of_daemons)
        yield from read_apart(read).all(f"process {process.number}", Platform.QEMU)


def believed_processes(processes: Path, notes: list[str] | None = None) -> list[Process]:
    """The running QEMUs, and the daemons that serve disks, whose arguments can be believed.

    `notes` gets a sentence that names the others.
    """
    places = (dialect.location for dialect in dialects().values())
    users = callers() | {0} | numbers_of(name for place in places for name in place.users)
    found = list(processes_of(_PROGRAMS, users, processes))
    strangers = [process for process in found if isinstance(process, Stranger)]
    if strangers and notes is not None:
        notes.append(f"Not read: {named(strangers)}.")
    return [process for process in found if isinstance(process, Process)]


def names_of(process: Process) -> tuple[str, ...]:
    """What QEMU's arguments call the guest, as they spell it: `guest=web01,debug-threads=on`."""
    return tuple(name for flag, name in pairwise(process.arguments) if flag == "-name")


def _disks_of_process(
    process: Process, served: Sequence[GuestText], of_daemons: OpenFiles
) -> Iterator[ConfiguredDisk]:
    """The disks of a QEMU; `served` has the command lines of the daemons that may serve some, and
    `of_daemons` the files that those have open. Raises PlanError."""
    disks = read_guests([_text_of(process), *served])
    of_qemu = [disk for disk in disks if disk.platform is Platform.QEMU]
    monitor = monitor_of(process.arguments) if of_qemu else None
    where = process.directory / "cwd"
    answer = None if monitor is None else query_block(where / monitor, process.user)
    opened = process.open_files()
    lost = without_fsync(process.preloaded())
    for disk in of_qemu:
        outside = disk.path is not None and disk.path.attachment.bus.opened_outside_qemu
        files = of_daemons if outside else opened
        # Who is not root opens nothing that he may not open anyway, and sees no such list.
        held = replace(disk, held=files if os.geteuid() == 0 else None)
        held = replace(held, lost_below=lost or disk.lost_below)
        yield as_probed(as_running(_placed(held, where), answer))


def _text_of(process: Process) -> GuestText:
    program = _WRAPPED.sub(r"\1", process.program)
    return GuestText("\0".join((program, *process.arguments)), f"process {process.number}")


def _at_home(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk without its node's name if that is this host: its storage is here."""
    name = os.uname().nodename
    return replace(disk, node="") if disk.node in (name, name.partition(".")[0]) else disk


def _placed(disk: ConfiguredDisk, directory: Path) -> ConfiguredDisk:
    """The disk with its file's whole name: a process may name it from its working `directory`."""
    if disk.path is None or disk.source is None or disk.source.startswith("/"):
        return disk
    if disk.path.attachment.bus.opened_outside_qemu or disk.server is not None:
        return disk
    try:
        return replace(disk, source=str(directory.readlink() / disk.source))
    except OSError:  # it has ended
        return disk


def as_probed(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk, with the format probed from its file if the configuration names none."""
    if not disk.probed or disk.path is None or disk.source is None:
        return disk
    form = header_format(Path(disk.source), disk.held)
    if form is None:
        return replace(disk, path=None, problem=_NO_FORMAT)
    on_device = disk.path.image is None
    if form is ImageFormat.RAW or on_device:
        return disk
    return replace(disk, path=replace(disk.path, image=Image(form)))


def query_block(monitor: Path, user: int) -> object:
    """The answer to `query-block` of that user's QEMU; None without one in time."""
    try:
        with process_monitor(monitor, user) as channel:
            return channel.execute("query-block", timeout=DEADLINE)
    except (OSError, GuestError):
        return None


@contextmanager
def process_monitor(monitor: Path, user: int) -> Iterator[Channel]:
    """The monitor at a socket of that user's QEMU, for as long as the context is open.

    The socket belongs to that user and so does the process that listens on it: a name among a
    QEMU's arguments leads to no socket that QEMU itself could not open. Raises OSError and
    GuestError, also if nobody greets in time: a monitor serves one client.
    """
    try:
        looked_at = os.open(monitor, os.O_PATH | os.O_CLOEXEC)
    except ValueError as error:
        raise GuestError(f"{monitor} is not a socket") from error
    try:
        status = os.fstat(looked_at)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != user:
            raise GuestError(f"{monitor} is not a socket of {user_name(user)}")
        with socket.socket(socket.AF_UNIX) as end, event_loop() as loop:
            end.settimeout(DEADLINE)
            end.connect(f"/proc/self/fd/{looked_at}")
            if _listener(end) != user:
                raise GuestError(f"another user than {user_name(user)} listens at {monitor}")
            with open_channel(loop, end, "monitor", negotiate=True, timeout=DEADLINE) as channel:
                yield channel
    finally:
        os.close(looked_at)


def _listener(end: socket.socket) -> int:
    """The user of the process that listens at the other end (SO_PEERCRED in unix(7))."""
    credentials = struct.Struct("=iII")
    given = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    _, user, _ = credentials.unpack(given)
    return int(user)

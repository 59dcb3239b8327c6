"""Finds existing guests: in named files and directories, in a libvirt, or all of this host.

The disks of running QEMUs come from their command lines, and from QMP what they are now. QMP gets
one command, `query-block`, which changes nothing.
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vdisklab.errors import GuestError, HostError, PlanError
from vdisklab.guest.qemu.block_nodes import DAEMON, VIRTIOFSD
from vdisklab.guest.qemu.qmp import event_loop, open_channel
from vdisklab.host.command import Host
from vdisklab.host.mounts import header_format, is_visible_directory, is_visible_file
from vdisklab.path.disk_path import Image
from vdisklab.path.platforms import NEW_GUEST_DISKS, PRINTED, Platform
from vdisklab.path.segments import ImageFormat
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import Location
from vdisklab.platforms.libvirt import domains_of
from vdisklab.platforms.qemu import as_running, monitor_of
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import dialects, read_guests

LARGEST = 32 << 20
"""Maximum number of characters of one file."""

_ENDINGS = (".xml", ".conf", ".yaml", ".yml", ".json", ".cmdline")


@dataclass(frozen=True, slots=True)
class ExistingGuests:
    """The disks of all guests that were found; `notes` say what could not be read."""

    disks: tuple[ConfiguredDisk, ...]
    notes: tuple[str, ...] = ()


def read_disks(host: Host, files: Iterable[Path], uri: str | None) -> ExistingGuests:
    """The disks of the guests in files and directories, and of all guests of a libvirt.

    In a directory, files that do not describe a guest are skipped with a note. Raises PlanError if
    a named file cannot be read or no guest has a disk, HostError if libvirt does not answer.
    """
    texts: list[GuestText] = []
    notes: list[str] = []
    for file in files:
        if is_visible_directory(file):
            found = _directory(file, notes)
            texts += found
            if all(text.required for text in found):  # no guest's
                known = ", ".join(_ENDINGS)
                notes.append(f"{file} holds no configuration of a guest ({known}).")
        else:
            texts.append(_text(file))
            names = {text.file_name for text in texts}
            beside = () if str(file) == "-" else _beside(file.absolute().parent)
            texts += (text for text in beside if text.file_name not in names)
    if uri is not None:
        texts += domains_of(partial(_output, host), uri)
    elif not texts and not notes:
        raise PlanError("no guest is named", hint=f"name files: {PRINTED}; or --libvirt URI")
    disks = tuple(as_probed(disk) for disk in read_guests(texts, notes))
    if not disks:
        why = f" ({'; '.join(note.rstrip('.') for note in notes[-2:])})" if notes else ""
        raise PlanError(
            f"there is no guest with a hard disk{why}", hint=f"name other guests: {PRINTED}"
        )
    return ExistingGuests(disks, tuple(notes))


def read_host(host: Host, root: Path = Path("/")) -> ExistingGuests:
    """The disks of this host's guests: of each platform, and of other running QEMUs.

    `root` has the platforms' directories and /proc. Raises PlanError if there is no guest.
    """
    notes: list[str] = []
    disks: list[ConfiguredDisk] = []
    for platform, dialect in dialects().items():
        disks += _guests_of(host, platform, dialect.location, root, notes)
    known = {name for disk in disks for name in (disk.domain, disk.guest)}
    disks += [disk for disk in running_disks(root / "proc") if disk.guest not in known]
    if not disks:
        why = f" ({'; '.join(note.rstrip('.') for note in notes[-2:])})" if notes else ""
        raise PlanError(
            f"no guest was found on this host{why}",
            hint=f"name the configurations of guests: {PRINTED}. To see which disk path is best "
            f"for a first guest: `vdisklab run {_FIRST} raw/none`",
        )
    return ExistingGuests(tuple(disks), tuple(notes))


_FIRST = " ".join(tuple(NEW_GUEST_DISKS)[:2])


def _guests_of(
    host: Host, platform: Platform, location: Location, root: Path, notes: list[str]
) -> Iterable[ConfiguredDisk]:
    """A platform's guests as its program prints them; as its files say if that fails."""
    directory = root / location.directory.lstrip("/")
    has_files = bool(location.directory) and is_visible_directory(directory)
    if location.printed is not None and host.which(location.program) is not None:
        try:
            return read_guests(tuple(location.printed(partial(_output, host))))
        except (HostError, PlanError) as error:
            if has_files:
                notes.append(f"{error}; its files in {directory} are read instead.")
            elif not location.directory:
                notes.append(f"{platform.full_name} does not answer: {error}.")
    try:
        return read_guests(_directory(directory, notes), notes) if has_files else ()
    except PlanError as error:
        notes.append(f"{error}: skipped.")
        return ()


def _output(host: Host, *words: str) -> str:
    return host.run(*words).stdout


def _directory(directory: Path, notes: list[str]) -> list[GuestText]:
    """The guests' configurations in a directory, and the files that they refer to, there or in the
    directory above."""
    texts = list(_beside(directory))
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in _ENDINGS)
    except OSError as error:
        raise PlanError(
            f"{directory} cannot be read: {error.strerror}", hint="name files, or be root"
        ) from error
    for file in files:
        try:
            texts.append(replace(_text(file), required=False))
        except PlanError as error:
            notes.append(f"{error}: skipped.")
    return texts


def _beside(directory: Path) -> Iterator[GuestText]:
    """The other files that a directory's guests need, from that directory or its parent."""
    for name in (name for dialect in dialects().values() for name in dialect.beside):
        places = (directory / name, directory.parent / name)
        yield from map(_text, list(filter(is_visible_file, places))[:1])


def _text(file: Path) -> GuestText:
    try:
        if str(file) == "-":
            text = sys.stdin.read(LARGEST + 1)
        else:
            with file.open(encoding="utf-8", newline="") as stream:
                text = stream.read(LARGEST + 1)
    except OSError as error:
        raise PlanError(
            f"{file} cannot be read: {error.strerror}", hint=f"name other files: {PRINTED}"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{file} is not UTF-8 text", hint=f"name text: {PRINTED}") from error
    if len(text) > LARGEST:
        raise PlanError(f"{file} is larger than any guest's configuration", hint="name another")
    return GuestText(text, "stdin" if str(file) == "-" else str(file))


DEADLINE = 2.0
"""Seconds for the whole answer: a monitor serves one client, and may have one already."""


def running_disks(processes: Path) -> Iterator[ConfiguredDisk]:
    """The disks of running QEMUs; vdisklab's own guests are left out."""
    texts: dict[Path, str] = {}
    for file in sorted(processes.glob("[0-9]*/cmdline")):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            texts[file] = file.read_text(errors="replace")
    programs = {file: text.partition("\0")[0].rpartition("/")[2] for file, text in texts.items()}
    daemons = [
        GuestText(texts[file], f"process {file.parent.name}")
        for file, program in programs.items()
        if program in (DAEMON, VIRTIOFSD)
    ]
    for file, text in texts.items():
        own = re.search(r"\0guest=(vdl|vdisklab-(lab|[0-9a-f]{8})-)", text)
        if own or not re.fullmatch(r"qemu-system-\w+|qemu-kvm|kvm", programs[file]):
            continue
        disks = read_guests([GuestText(text, f"process {file.parent.name}"), *daemons])
        of_qemu = [disk for disk in disks if disk.platform is Platform.QEMU]
        monitor = monitor_of(text.split("\0")) if of_qemu else None
        answer = None if monitor is None else query_block(file.parent / "cwd" / monitor)
        for disk in of_qemu:
            yield as_probed(as_running(_placed(disk, file.parent / "cwd"), answer))


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


_NO_FORMAT = (
    "its configuration names no format, so QEMU looks into the file, which cannot be read here: "
    "add the format, such as format=qcow2"
)


def as_probed(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk, with the format probed from its file if the configuration names none."""
    if not disk.probed or disk.path is None or disk.source is None:
        return disk
    form = header_format(Path(disk.source))
    if form is None:
        return replace(disk, path=None, problem=_NO_FORMAT)
    on_device = disk.path.image is None
    if form is ImageFormat.RAW or on_device:
        return disk
    return replace(disk, path=replace(disk.path, image=Image(form)))


def query_block(monitor: Path) -> object:
    """The answer to `query-block`; None without one in time."""
    try:
        with socket.socket(socket.AF_UNIX) as end, event_loop() as loop:
            end.settimeout(DEADLINE)
            end.connect(str(monitor))
            with open_channel(loop, end, "monitor", negotiate=True, timeout=DEADLINE) as channel:
                return channel.execute("query-block", timeout=DEADLINE)
    except (OSError, GuestError):
        return None

"""Finds existing guests: in named files and directories, in a libvirt, or all of this host.

The disks of running QEMUs come from their command lines, and from QMP what they are now. QMP gets
one command, `query-block`, which changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.guest_texts import STORAGES, GuestText, read_guests
from vdisklab.audit.running_disk import as_running, monitor_of
from vdisklab.errors import CommandError, GuestError, HostError, PlanError
from vdisklab.guest.qemu.plugging import DAEMON, VIRTIOFSD
from vdisklab.guest.qemu.qmp import event_loop, open_channel
from vdisklab.host.command import Host
from vdisklab.host.mounts import header_format, is_visible_directory, is_visible_file
from vdisklab.path.disk_path import Image
from vdisklab.path.managers import Manager
from vdisklab.path.segments import ImageFormat

LARGEST = 32 << 20
"""Maximum number of characters of one file."""

_ENDINGS = (".xml", ".conf", ".yaml", ".yml", ".json", ".cmdline")
_DUMPED_TOGETHER = 500
"""Guests whose XML one virsh prints: a connection for each of thousands would take minutes."""

_WHAT = (
    "`virsh dumpxml`, VMID.conf of Proxmox VE, `kubectl get vm,pvc -o yaml`, `incus list "
    "--format yaml`"
)


@dataclass(frozen=True, slots=True)
class Roots:
    """Where this host keeps the configurations of its guests."""

    proxmox: Path = Path("/etc/pve")
    libvirt: Path = Path("/etc/libvirt/qemu")
    processes: Path = Path("/proc")


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
            texts += _directory(file, notes)
        else:
            texts.append(_text(file))
    if uri is not None:
        texts += _libvirt_domains(host, uri)
    elif not texts and not notes:
        raise PlanError("no guest is named", hint=f"name files: {_WHAT}; or --libvirt URI")
    disks = tuple(as_probed(disk) for disk in read_guests(texts, notes))
    if not disks:
        why = f" ({notes[0].rstrip('.')})" if notes else ""
        raise PlanError(
            f"there is no guest with a hard disk{why}", hint=f"name other guests: {_WHAT}"
        )
    return ExistingGuests(disks, tuple(notes))


def read_host(host: Host, roots: Roots | None = None) -> ExistingGuests:
    """The disks of this host's guests: Proxmox VE, libvirt, Incus, and other running QEMUs.

    Raises PlanError if there is none.
    """
    where = roots or Roots()
    notes: list[str] = []
    disks: list[ConfiguredDisk] = []
    if is_visible_directory(where.proxmox / "qemu-server"):
        disks += read_guests(_directory(where.proxmox / "qemu-server", notes), notes)
    disks += _libvirt_guests(host, where.libvirt, notes)
    if host.which("incus") is not None:
        disks += _incus_guests(host, notes)
    known = {name for disk in disks for name in (disk.domain, disk.guest)}
    disks += [disk for disk in running_disks(where.processes) if disk.guest not in known]
    if not disks:
        raise PlanError(
            "no guest was found on this host",
            hint=f"name the configurations of guests: {_WHAT}. To see which disk path is best "
            "for a first guest: `vdisklab run proxmox libvirt raw/none`",
        )
    return ExistingGuests(tuple(disks), tuple(notes))


def _directory(directory: Path, notes: list[str]) -> list[GuestText]:
    """The guests' texts of a directory, and Proxmox's storages beside or above it."""
    storages = (directory / STORAGES, directory.parent / STORAGES)
    texts = [_text(file) for file in storages if is_visible_file(file)][:1]
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
    if not files:
        notes.append(f"{directory} holds no configuration of a guest ({', '.join(_ENDINGS)}).")
    return texts


def _text(file: Path) -> GuestText:
    try:
        if str(file) == "-":
            text = sys.stdin.read(LARGEST + 1)
        else:
            with file.open(encoding="utf-8", newline="") as stream:
                text = stream.read(LARGEST + 1)
    except OSError as error:
        raise PlanError(
            f"{file} cannot be read: {error.strerror}", hint=f"name other files: {_WHAT}"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{file} is not UTF-8 text", hint=f"name text: {_WHAT}") from error
    if len(text) > LARGEST:
        raise PlanError(f"{file} is larger than any guest's configuration", hint="name another")
    return GuestText(text, "stdin" if str(file) == "-" else str(file))


def _libvirt_domains(host: Host, uri: str) -> Iterator[GuestText]:
    try:
        listed = host.run("virsh", "-q", "-c", uri, "list", "--all", "--uuid")
    except CommandError as error:
        raise HostError(
            f"libvirt at {uri} does not answer: {error}",
            hint=f"check that `virsh -c {uri} list --all` works: libvirtd must run, and you need "
            "access to it",
        ) from error
    uuids = listed.stdout.split()
    for start in range(0, len(uuids), _DUMPED_TOGETHER):
        together = uuids[start : start + _DUMPED_TOGETHER]
        commands = "; ".join(f"dumpxml --inactive {uuid}" for uuid in together)
        yield GuestText(host.run("virsh", "-q", "-c", uri, commands).stdout, uri)


def _libvirt_guests(host: Host, directory: Path, notes: list[str]) -> Iterable[ConfiguredDisk]:
    """The guests of the system's libvirt; from its files if it does not run."""
    try:
        if host.which("virsh") is not None:
            return read_guests(tuple(_libvirt_domains(host, "qemu:///system")))
    except (HostError, PlanError) as error:
        if is_visible_directory(directory):
            notes.append(f"{error}; its files in {directory} are read instead.")
    has_files = is_visible_directory(directory) and any(directory.glob("*.xml"))
    return read_guests(_directory(directory, notes), notes) if has_files else ()


def _incus_guests(host: Host, notes: list[str]) -> Iterable[ConfiguredDisk]:
    try:
        texts = [
            GuestText(host.run("incus", *words, "--format", "json", timeout=60).stdout, name)
            for name, *words in (("pools", "storage", "list"), ("instances", "list"))
        ]
        return read_guests([text for text in texts if json.loads(text.text)])
    except (HostError, PlanError, ValueError) as error:
        notes.append(f"Incus does not answer: {error}.")
        return ()


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
        of_qemu = [disk for disk in disks if disk.manager is Manager.QEMU]
        monitor = monitor_of(text.split("\0")) if of_qemu else None
        answer = None if monitor is None else query_block(file.parent / "cwd" / monitor)
        for disk in of_qemu:
            yield as_probed(as_running(_placed(disk, file.parent / "cwd"), answer))


def _placed(disk: ConfiguredDisk, directory: Path) -> ConfiguredDisk:
    """The disk of a process, whose file's name may begin at its directory."""
    if disk.path is None or disk.source is None or disk.source.startswith("/"):
        return disk
    if disk.path.attachment.bus.opened_outside_qemu:
        return disk
    try:
        return replace(disk, source=str(directory.readlink() / disk.source))
    except OSError:  # it has ended
        return disk


_NO_FORMAT = (
    "its configuration names no format, and its file, in which QEMU looks for one, cannot be read "
    "here: add the format, such as format=qcow2"
)


def as_probed(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk in the format that QEMU finds in its file, if the configuration names none."""
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

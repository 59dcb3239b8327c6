"""A QEMU started by hand: its command line, and what a running one says of its disks.

The arguments that are written are those of vdisklab's measurements. A snapshot does not change a
command line, so a running QEMU's disks are as its answer to `query-block` says.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, pairwise, takewhile
from pathlib import Path, PurePath
from typing import Any

from vdisklab.guest.qemu import block_nodes
from vdisklab.guest.qemu.keyval import keyval
from vdisklab.path.architecture import ARCHITECTURES
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import SHARED_MEMORY, Bus, CacheMode, ImageFormat, WriteCache
from vdisklab.platforms import dialect, writing
from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.drive_arguments import (
    CHANGES_IT,
    CHANGES_OTHERS,
    keyed_settings,
    options_of,
    split_arguments,
)
from vdisklab.platforms.guest_edge import ReadDisks, read_apart, read_each
from vdisklab.platforms.qemu_arguments import (
    LIMITS,
    Served,
    cache_of_arguments,
    disks_of_arguments,
    served_disks,
    shared_directories,
    throttled,
)
from vdisklab.platforms.reading import (
    BY_EACH_CALL,
    GuestText,
    Tree,
    image_of,
    shared_group,
    without_fsync,
)
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.shell_script import ShellCommand, commands_of, tells
from vdisklab.platforms.where_set import line_with, only_line
from vdisklab.storage.image_commands import data_path
from vdisklab.units import whole_number
from vdisklab.value import replace

_QEMU = re.compile(r"(?:qemu-system-(?P<arch>\w+)|qemu-kvm|kvm)")
_DAEMON = re.compile(
    r"^(?:# run this first: )?[^\s\0]*(?:(?P<storage>qemu-storage-daemon)|virtiofsd)"
    r"(?P<arguments>[ \t\0].*)",
    re.MULTILINE,
)
_NBD_SERVER = re.compile(r"(sudo )?[^\s\0]*\b(qemu-nbd|nbdkit)[ \t\0]")
_ARCHITECTURES = {
    name: machine for row in ARCHITECTURES for name, machine in row.emulator_targets.items()
}


_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*")
_BEFORE = re.compile(r"[A-Za-z_]\w*=.*|sudo|exec|env|nohup|time|nice|setsid")
_OF_YAML = ("-", "run:", "script:", "command:", "cmd:", "exec:")
"""Words before a command in lists of YAML, as those of CI services."""

_ADDERS = ("xargs", "parallel")
"""Programs that add words to those of a command."""

_MOST_BEFORE = 100
"""Words before QEMU's program: a sandbox has many options."""

_LIBVIRTS_LOG = re.compile(r"^[0-9-]+ [0-9:.+]+: starting up libvirt version", re.MULTILINE)
"""Of /var/log/libvirt/qemu/GUEST.log, where each start of the guest follows those before."""

_DISK_OPTION = re.compile(r"--?(drive|blockdev|hd[a-d])")
SERIAL = "disk0"
_NODE_PREFIX = re.compile(r"[A-Za-z][\w.-]{0,19}", re.ASCII)
"""What the names of a disk's nodes may begin with: QEMU's have at most 31 characters."""
DIRECTORY = "/var/lib/libvirt/images"


def _is_ours(text: GuestText) -> bool:
    """True for command lines of QEMU, and for those of the daemons that serve its disks."""
    served = _DAEMON.match(text.text) or _NBD_SERVER.match(text.text)
    return served is not None or bool(_commands(text))


def _commands(given: GuestText) -> Sequence[ShellCommand]:
    """Each QEMU command line, also of /proc/PID/cmdline, with the words that start it; none in any
    other text."""
    text = given.text
    is_named = re.search(r"qemu-system-|qemu-kvm|\bkvm\b", text) is not None
    if not is_named and not ("$" in text and re.search(r"\s--?(drive|blockdev|hd[a-d])\b", text)):
        return ()
    process = (ShellCommand(tuple(text.split("\0"))),)
    commands = process if "\0" in text else commands_of(text, given.files, given.first_line)
    return tuple(command for command in commands if _start(command.argv) is not None)


def _start(argv: Sequence[str]) -> int | None:
    """The place of the program among a command's words; `kvm` alone is a word of other texts.

    A variable whose value is not known is a program if arguments of QEMU's disks follow.
    """
    variables = len(list(takewhile(_VARIABLE.fullmatch, argv)))  # libvirt's log has eight
    if tells(argv):
        return None
    for index, word in islice(enumerate(argv), variables, variables + _MOST_BEFORE):
        program = PurePath(word).name.removeprefix("@")  # which make does not print
        if program.startswith("qemu-") and _QEMU.fullmatch(program):
            return index
        if program == "kvm" and all(map(_BEFORE.fullmatch, argv[:index])):
            return index
        if word.startswith("$") and any(map(_DISK_OPTION.fullmatch, argv[index + 1 :])):
            return index
        if (word.endswith(":") or word == "-") and word not in _OF_YAML:
            return None
    return None


def _taken_away(command: ShellCommand) -> str | None:
    start = _start(command.argv) or 0
    preloaded = command.environment.get("LD_PRELOAD", "")
    return without_fsync((*command.argv[:start], f"LD_PRELOAD={preloaded}"))


def _added(before: Sequence[str]) -> str:
    """That the program before QEMU adds words to its arguments, as a clause; else empty."""
    program = next((word for word in before if PurePath(word).name in _ADDERS), "")
    return program and f"{PurePath(program).name} adds arguments, which {CHANGES_IT}"


def read_command(
    argv: Sequence[str], name: str, served: Served | None = None
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of a QEMU command line; its guest has the name of `-name`, else `name`."""
    program = PurePath(argv[0]).name
    match = _QEMU.fullmatch(program)
    arch = None if match is None else match["arch"]
    values = dict(options_of(argv[1:]))
    named = re.sub(r"^guest=", "", values.get("name", "").split(",")[0]) or name
    architecture = _ARCHITECTURES.get(arch or "", arch)
    return tuple(
        replace(disk, domain=named, guest=named, architecture=architecture)
        for disk in disks_of_arguments(argv[1:], served, program)
    )


def _reader(texts: Sequence[GuestText], _documents: Sequence[Tree]) -> dialect.Reader:
    served = served_by(texts)

    def read(text: GuestText) -> Iterator[ConfiguredDisk]:
        commands = _commands(text)  # none in a daemon's
        names = _names_of(commands, text)
        each = [
            partial(_disks_of_command, command, name, served, _where_called(command, text))
            for command, name in zip(commands, names, strict=True)
        ]
        if _LIBVIRTS_LOG.search(text.text):
            yield from _last_start(each)
        else:
            yield from read_each(Platform.QEMU, zip(names, each, strict=True))

    return read


def _names_of(commands: Sequence[ShellCommand], text: GuestText) -> list[str]:
    """The names of guests without `-name`; those of a script that starts several have the line."""
    names = [_name_of(command, text) for command in commands]
    unnamed = [name for name, each in zip(names, commands, strict=True) if "-name" not in each.argv]
    lines = [
        line_with(text.text, command.argv[_start(command.argv) or 0 :]) for command in commands
    ]
    return [
        f"{name}:{line}" if line is not None and unnamed.count(name) > 1 else name
        for name, line in zip(names, lines, strict=True)
    ]


def _name_of(command: ShellCommand, text: GuestText) -> str:
    """The name of a guest without `-name`: its file, and the line of the call that starts it if a
    function does."""
    if not command.call:
        return text.name
    line = _line_of_call(command, text)
    return f"{text.name}:{line}" if line else f"{text.name}: {' '.join(command.call)[:60]}"


def _line_of_call(command: ShellCommand, text: GuestText) -> int | None:
    spelled = r"\s+".join(map(re.escape, command.call))
    return only_line(text.text, rf"(?m)^[^#\n]*?(?<![\w-]){spelled}(?![\w./-])(?!\s*\(\))")


def _where_called(command: ShellCommand, text: GuestText) -> str:
    """The place to change one guest of a function that starts several, as a noun; empty for a
    command of its own. Arguments in the function's place would be those of all its guests."""
    if not command.call:
        return ""
    line = _line_of_call(command, text)
    call = f"`{' '.join(command.call)[:60]}`"
    where = f"in line {line} of {text.origin}" if line else f"in {text.origin}"
    return f"the cache mode of the call {call} {where}"


def _last_start(starts: Sequence[ReadDisks]) -> Iterator[ConfiguredDisk]:
    """The disks of a guest's last start, which holds; those that an earlier one left unsafe say
    so."""
    unsafe = {
        (disk.target, disk.source)
        for start in starts[:-1]
        for disk in read_apart(start).disks
        if not disk.read_only and (disk.drops_flushes or loses_writes(disk))
    }
    for disk in chain.from_iterable(start() for start in starts[-1:]):
        was = (disk.target, disk.source) in unsafe and not disk.drops_flushes
        yield replace(disk, was_unsafe=was)


def _disks_of_command(
    command: ShellCommand, name: str, served: Served, where: str
) -> Iterator[ConfiguredDisk]:
    lost = _taken_away(command)
    start = _start(command.argv) or 0
    added = _added(command.argv[:start])
    disks = read_command(command.argv[start:], name, served)
    if_set = command.if_set
    others = read_command(if_set[_start(if_set) or 0 :], name, served) if if_set else ()
    doubts = _Environment(disks, others, if_set) if if_set else None
    unlocked = {name for each in command.argv if _UNLOCKED.search(each) for name in _files_in(each)}
    for read in disks:
        disk = read if command.in_function else _of_script(read)
        doubt = (
            command.doubt or added or disk.may_differ or ("" if doubts is None else doubts.of(disk))
        )
        yield replace(
            disk, lost_below=lost or disk.lost_below, may_differ=doubt,
            unlocked=disk.source in unlocked, changed_at=where,
            changed_in=f"the function `{command.call[0]}`" if where else "",
        )  # fmt: skip


_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
             "ninth")  # fmt: skip
_BY_CALL = re.compile(
    rf"(?P<word>\$\{{?(?P<number>[1-9])(?![0-9]).*), {re.escape(BY_EACH_CALL)}", re.DOTALL
)


def _of_script(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk of a command in no function, whose parameters are the script's arguments."""
    match = _BY_CALL.search(disk.problem or "")
    if match is None or disk.problem is None:
        return disk
    ordinal = _ORDINALS[whole_number(match["number"]) or 0]
    said = f"{match['word']}, which the script's {ordinal} argument gives"
    return replace(disk, problem=disk.problem.replace(match[0], said))


def _files_in(argument: str) -> list[str]:
    """The files that an argument of QEMU names."""
    return re.findall(r"""\b(?:file|filename)["']?\s*[=:]\s*["']?([^,"'\s]+)""", argument)


@dataclass
class _Environment:
    """What the environment may change of a guest's `disks`: `others` are its disks by `if_set`, its
    words with the environment's variables as they are spelled."""

    disks: Sequence[ConfiguredDisk]
    others: Sequence[ConfiguredDisk]
    if_set: Sequence[str]

    @cached_property
    def _are_alike(self) -> bool:
        """True if both have disks of the same names: QEMU counts those without, and an unreadable
        one shifts the others."""
        return {disk.target for disk in self.disks} == {other.target for other in self.others}

    def _same(self, disk: ConfiguredDisk) -> ConfiguredDisk | None:
        """The disk among the others; by its file where the names are not alike."""
        if self._are_alike:
            return next(other for other in self.others if other.target == disk.target)
        return next(
            (other for other in self.others if other.source == disk.source and other.source), None
        )

    @cached_property
    def _unread(self) -> Mapping[str, str]:
        """The problems of disks that cannot be read so, by the disk that they begin with."""
        problems = (other.problem or "" for other in self.others)
        found = ((_OF_DRIVE.match(problem), problem) for problem in problems)
        return {match[1]: problem for match, problem in found if match}

    @cached_property
    def _of_any(self) -> str:
        return _by_environment(" ".join(self.if_set))

    @cached_property
    def _of_further(self) -> str:
        """Why the environment may change every disk: it may give further arguments (-snapshot)."""
        problems = (other.problem or "" for other in self.others)
        return next((_by_environment(each) for each in problems if CHANGES_OTHERS in each), "")

    def of(self, disk: ConfiguredDisk) -> str:
        """Why it may give a disk other settings than another file; empty if it cannot."""
        same = self._same(disk)
        if same is None:
            unread = self._unread.get(disk.target, "")
            names_it = _WITH_DEFAULT.search(unread) is not None
            return _by_environment(unread) if names_it else self._of_any
        settings, set_so = (
            (
                each.path,
                each.problem,
                each.limits,
                each.ignored_errors,
                each.transient,
                each.probed,
                "" if CHANGES_IT in each.may_differ else each.may_differ,
            )
            for each in (disk, same)
        )
        return self._of_further if settings == set_so else self._of_any


def _by_environment(spelled: str) -> str:
    names = dict.fromkeys(_WITH_DEFAULT.findall(spelled))
    if not names:
        return "the environment may set variables of its arguments, which have a default here"
    shown = " and ".join(f"{name} ({value})" if value else name for name, value in names)
    return f"the environment may set {shown[:200]}, of which only the default is known here"


_OF_DRIVE = re.compile(r"-\w+ ([^\s:]+): ")
_UNLOCKED = re.compile(r"""\blocking["']?\s*[=:]\s*["']?off""")
_WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]([^}]*)")


def served_by(texts: Sequence[GuestText]) -> Served:
    """The disks that the daemons in the texts serve. An exported command names its daemon in a
    comment.
    """
    served: dict[str, ConfiguredDisk] = {}
    for text in texts:
        for match in _DAEMON.finditer(re.sub(r"\\\r?\n", " ", text.text)):
            line = match["arguments"]
            try:
                argv = line.split("\0") if "\0" in line else shlex.split(line)
            except ValueError:  # a quotation without its end
                continue
            served.update((served_disks if match["storage"] else shared_directories)(argv))
    return served


def monitor_of(argv: Sequence[str]) -> Path | None:
    """The Unix socket of a machine-protocol monitor in QEMU's arguments; None if it has none."""
    sockets: dict[str, Path] = {}
    for flag, value in pairwise(argv):
        settings = keyed_settings(value, first="backend")
        match flag.removeprefix("-").removeprefix("-"):
            case "qmp" if value.startswith("unix:"):
                return Path(str(settings.get("backend", value)).removeprefix("unix:"))
            case "chardev" if settings.get("backend") == "socket" and "path" in settings:
                sockets[str(settings.get("id"))] = Path(str(settings["path"]))
            case "mon" if settings.get("mode") == "control":
                named = sockets.get(str(settings.get("chardev", settings.get("backend"))))
                if named is not None:  # else it is a descriptor, and another one may have a file
                    return named
            case _:
                pass
    return None


def as_running(disk: ConfiguredDisk, answer: object) -> ConfiguredDisk:
    """The disk with file, format and cache mode and limits of an answer to `query-block`.

    Unchanged if the answer does not have the disk, or is none.
    """
    entries = answer if isinstance(answer, list) else []
    inserted = next(
        (
            entry["inserted"]
            for entry in entries
            if isinstance(entry, dict)
            and disk.target in (*str(entry.get("qdev")).split("/"), entry.get("device"))
            and isinstance(entry.get("inserted"), dict)
        ),
        None,
    )
    if inserted is None or disk.path is None:
        return disk
    try:
        return _limited(_updated(disk, inserted), inserted, entries)
    except ValueError as error:
        return replace(disk, path=None, problem=str(error))


def _limited(disk: ConfiguredDisk, inserted: dict[str, Any], entries: list[Any]) -> ConfiguredDisk:
    """The disk with the answer's limits in place of its -drive's. A throttle node's limits are
    kept, because the answer does not show them.
    """
    if "iops" not in inserted or disk.path is None:
        return disk
    of_all = [entry.get("inserted") for entry in entries if isinstance(entry, dict)]
    groups = Counter(str(limits.get("group")) for limits in of_all if isinstance(limits, dict))
    shared = shared_group("group", inserted.get("group"), groups)
    if inserted.get("drv") == "throttle":
        return replace(disk, limits=(*disk.limits, *LIMITS.all(inserted), *shared))
    path = throttled(disk.path, inserted)
    return replace(disk, path=path, limits=(*LIMITS.beyond(inserted), *shared))


def _updated(disk: ConfiguredDisk, inserted: dict[str, Any]) -> ConfiguredDisk:
    path = disk.path
    assert path is not None  # noqa: S101 - the caller has looked
    cache = inserted.get("cache")
    if isinstance(cache, dict):
        offered = "on" if cache.get("writeback") else "off"
        mode, write_cache = cache_of_arguments(cache, offered)
        if (mode.direct, mode.no_flush) != (path.cache.direct, path.cache.no_flush) or (
            path.offers_write_cache != bool(cache.get("writeback"))
        ):
            options = {**dict(path.attachment.options), "write_cache": write_cache.value}
            if write_cache is WriteCache.MODE:
                del options["write_cache"]
            attachment = Attachment(path.attachment.bus, tuple(options.items()))
            path = replace(path, cache=mode, attachment=attachment)
    form = str(inserted.get("drv"))
    is_image = form in tuple(ImageFormat)
    if is_image and path.image is not None and path.image.format != form:
        path = replace(path, image=image_of(ImageFormat(form), on_device=False))
    file = inserted.get("file")
    source = file if isinstance(file, str) and file.startswith("/") else disk.source
    return replace(
        disk,
        path=path,
        source=source,
        read_only=disk.read_only or inserted.get("ro") is True,
        probed=disk.probed and not is_image,
    )


def disk_of(request: ExportRequest, place: str) -> block_nodes.Disk:
    """The disk in the form that `guest.qemu` uses. QEMU finds the images of a chain by itself."""
    image, file, url = request.path.image, Path(place), request.url
    local = {"driver": "host_device" if request.on_device else "file", "filename": place}
    parts = block_nodes.ImageParts(
        data_file=str(data_path(file)) if image and image.has_data_file else None,
        key_file=str(writing.key_of(request, place)) if image and image.encrypted else None,
        format_options=block_nodes.format_options(image),
    )
    return block_nodes.Disk(
        SERIAL,
        request.size,
        local if url is None else url.node,
        request.driver,
        request.path.cache,
        request.path.attachment,
        parts,
        () if url is None else url.objects,
    )


def arguments(request: ExportRequest, place: str) -> tuple[str, ...]:
    """The disk's arguments, with the controller that a USB disk needs."""
    controller = ("-device", "qemu-xhci,id=xhci") if request.path.attachment.bus is Bus.USB else ()
    return (*controller, *block_nodes.cold_arguments(disk_of(request, place)))


def export(request: ExportRequest) -> dialect.Configuration:
    """A command line to paste; further arguments can be appended."""
    place = request.place(DIRECTORY)
    rest = arguments(request, place)
    pairs = [shlex.join(rest[index : index + 2]) for index in range(0, len(rest), 2)]
    command = " \\\n  ".join([shlex.join(machine_arguments(request)), *pairs])
    return dialect.Configuration(f"{writing.commented(_preparation(request, place))}{command}\n")


def machine_arguments(request: ExportRequest) -> tuple[str, ...]:
    """The program and the machine, with memory that the bus's daemon can map if there is one."""
    accelerator = "kvm" if request.domain_type == "kvm" else "tcg"
    guest = request.guest
    options = SHARED_MEMORY if request.path.attachment.bus.opened_outside_qemu else ""
    machine = ",".join(filter(None, (f"{request.machine}{guest.machine_options}", options)))
    cpu = () if request.cpu is None else ("-cpu", request.cpu)
    shared = ("-object", "memory-backend-memfd,id=shared,share=on,size=1024M")
    return (guest.emulator, "-machine", machine, "-accel", accelerator, *cpu, "-m", "1024",
            "-smp", "2", *(shared if options else ()))  # fmt: skip


def _preparation(request: ExportRequest, place: str) -> Iterator[str]:
    yield from writing.preparation(request, place)
    yield from _firmware(request)
    if request.path.attachment.bus.is_served:
        yield daemon_sentence(request, place)


def _firmware(request: ExportRequest) -> Iterator[str]:
    if not request.guest.has_bios:
        code, variables = request.guest.firmware.files[0]
        yield (
            "the guest boots by UEFI, from a copy of the variables of its own: append -drive "
            f"if=pflash,format=raw,readonly=on,file={code} -drive "
            f"if=pflash,format=raw,file=COPY (cp {variables} COPY)"
        )


def daemon_sentence(request: ExportRequest, place: str) -> str:
    """How the daemon that serves the disk is started."""
    argv = block_nodes.daemon_arguments(disk_of(request, place))
    return f"run this first: {block_nodes.spell_arguments(argv)}"


def _export_share(request: ExportRequest) -> dialect.Configuration:
    path, directory = request.path, writing.share_of(request)
    disk = block_nodes.Disk(
        writing.TAG, 0, {"driver": "local", "path": directory}, "", path.cache, path.attachment
    )
    share = block_nodes.share_arguments(disk)
    first: tuple[str, ...] = ()
    if not writing.is_9p(request):
        socket = f"/run/{disk.names.served}.sock"
        share = (share[0], f"socket,id={disk.names.served},path={socket}", *share[2:])
        socket_option = f"--socket-path={socket}"
        daemon = block_nodes.virtiofsd_arguments(
            block_nodes.VIRTIOFSD, directory, path.attachment, socket_option
        )
        first = (f"run this first: {block_nodes.spell_arguments(daemon)}",)
    pairs = [shlex.join(share[index : index + 2]) for index in range(0, len(share), 2)]
    command = " \\\n  ".join([shlex.join(machine_arguments(request)), *pairs])
    return dialect.Configuration(
        writing.commented((*writing.share_comments(request), *first, *_firmware(request)))
        + f"{command}\n"
    )


def _change(disk: ConfiguredDisk, now: DiskPath, wanted: DiskPath) -> dialect.Change:
    """A QEMU started by hand: the arguments of the disk, instead of those that it has."""
    if disk.limits:
        raise dialect.lacks(
            disk.platform, f"arguments here that keep its limits ({disk.limits[0]}…)"
        )
    if disk.whole is not None:
        return _change_of_whole(disk, *disk.whole, wanted)
    place = disk.source or "FILE"
    if disk.server is not None and disk.server.has_secret:
        raise dialect.lacks(disk.platform, "arguments here that keep the disk's password or key")
    paste, undo = (
        " ".join(map(_plain_word, _replacing(disk, ExportRequest(path, place), place)))
        for path in (wanted, now)
    )
    return dialect.Change(paste, undo)


def _change_of_whole(
    disk: ConfiguredDisk, command: str, whole: str, wanted: DiskPath
) -> dialect.Change:
    """The command with all arguments of the guest, in which the words of the disk's cache mode are
    others. Raises NotChangeableError unless the new arguments, read as the old ones were, are the
    path for this disk and change no other."""
    argv = split_arguments(whole)
    expected = {each.target: each.path for each in disks_of_arguments(argv)}
    expected[disk.target] = wanted
    for made in _with_cache(argv, wanted):
        if {each.target: each.path for each in disks_of_arguments(made)} == expected:
            new, old = (f"{command} {shlex.quote(each)}" for each in (shlex.join(made), whole))
            return dialect.Change(new, old, node=disk.node or None)
    raise dialect.NotChangeableError(
        f"no one word of the guest's args makes {disk.target} {wanted}",
        hint=f"change its -drive or -blockdev there: `{command}` takes all arguments",
    )


def _with_cache(argv: Sequence[str], wanted: DiskPath) -> Iterator[list[str]]:
    """The arguments with the cache mode of a path in the word of one -drive or -blockdev, or of all
    -blockdev, whose chain has it twice: without and with its aio (qemu(1))."""
    modes = (("direct", wanted.cache.direct), ("no-flush", wanted.cache.no_flush))
    of_node = [f"cache.{flag}={'on' if on else 'off'}" for flag, on in modes]
    aio = wanted.attachment.option("aio")
    of_mode = {
        place: option.lstrip("-")
        for place, option in enumerate(argv[:-1], 1)
        if option.lstrip("-") in ("drive", "blockdev") and "{" not in argv[place]
    }
    nodes = [place for place, option in of_mode.items() if option == "blockdev"]
    for more in ([], [f"aio={aio}"] if aio else []):
        for places in (*([place] for place in of_mode), nodes):
            made = list(argv)
            for place in places:
                kept = (
                    part
                    for part in made[place].split(",")
                    if not part.startswith(("cache=", "cache.", *(["aio="] if more else [])))
                )
                mode = of_node if place in nodes else [f"cache={wanted.cache}"]
                made[place] = ",".join((*kept, *mode, *more))
            yield made


def _replacing(disk: ConfiguredDisk, request: ExportRequest, place: str) -> Iterator[str]:
    """The arguments of a disk in the place of those that it has: with its name, which keeps several
    disks of one guest apart, and with its serial number, by which a guest may mount it."""
    bus = request.path.attachment.bus
    if bus.is_served or bus.shares_directory:
        yield from arguments(request, place)
        return
    name = disk.target if _NODE_PREFIX.fullmatch(disk.target) else SERIAL
    made = replace(disk_of(request, place), serial=name)
    session = {} if disk.server is None else dict(disk.server.session)
    made = replace(made, source=None if made.source is None else {**made.source, **session})
    if bus is Bus.USB:
        yield from ("-device", "qemu-xhci,id=xhci")
    for node in block_nodes.objects(made):
        # A throttle group's limits are a group of their own in JSON only (block/throttle-groups.c).
        nested = any(isinstance(value, dict) for value in node.values())
        yield from ("-object", json.dumps(node) if nested else keyval(node, "qom-type"))
    for node in block_nodes.block_nodes(made):
        yield from ("-blockdev", keyval(node))
    for device in block_nodes.devices(made, None):
        kept = {key: value for key, value in device.items() if key != "serial"}
        if "drive" in device:
            kept["id"] = name
            serial = disk.serial or (name if bus is Bus.NVME else "")  # which has to have one
            kept |= {"serial": serial} if serial else {}
        yield from ("-device", keyval(kept, "driver"))


def _plain_word(word: str) -> str:
    """A word for a shell, by backslashes: between the quotes of `sh -c '…'`, where the arguments of
    a disk may stand, quotes would end the command."""
    if "\n" in word or not word:
        return shlex.quote(word)
    return re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", word, flags=re.ASCII)


DIALECT = dialect.Dialect(
    cache_modes=tuple(CacheMode),
    change=_change,
    forms=(dialect.Form("qemu", export, _export_share, title="QEMU", relative=True),),
    reader=_reader,
    recognises=_is_ours,
    left_out={
        "EFI variables": r"\bif=pflash\b|\bpflash[0-9]",
        "TPM state": r"(^|\s|\0)-tpmdev\b",
        "CD-ROMs": r"(^|\s|\0)-cdrom\b|media=cdrom|(scsi|ide)-cd\b",
    },
)

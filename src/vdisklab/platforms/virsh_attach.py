"""`virsh attach-disk` and `virsh attach-device` (virsh(1)): disks of a guest that exists, as a
domain with these alone.

attach-disk makes a `<disk>` of its options (tools/virsh-domain.c, cmdAttachDisk); without
`--targetbus` the target's letters tell the bus (src/conf/domain_conf.c). attach-device has one in a
file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath
from xml.sax.saxutils import escape, quoteattr

from vdisklab.path.named_target import names_device
from vdisklab.platforms.reading import GuestText, UnreadDisk
from vdisklab.platforms.shell_script import ShellCommand, commands_of, tells
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import set_in

_COMMAND = re.compile(r"\bvirsh\b[^\n#]{0,200}\battach-(?:disk|device)\b")
_DISK = re.compile(r"<disk\b.*?</disk>", re.DOTALL)
_OF_DRIVER = {"subdriver": "type", "driver": "name", "cache": "cache", "io": "io",
              "discard": "discard", "iothread": "iothread"}  # fmt: skip
_FLAGS = frozenset(
    ("live", "config", "current", "persistent", "rawio", "multifunction", "print-xml", "force")
)
_BUSES = {"vd": "virtio", "hd": "ide", "sd": "scsi", "xvd": "xen"}
_LOSSY = re.compile(r"cache=['\"]unsafe|\bunsafe\b")
_MOST_FILES = 20


@dataclass(slots=True)
class _Attached:
    """The elements of a guest's disks, and those that are not understood."""

    disks: list[str] = field(default_factory=list)
    unread: list[UnreadDisk] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    doubt: str = ""


def _recognises(text: GuestText) -> bool:
    is_xml = text.text.lstrip().startswith("<")  # whose comments may name the command
    found = _COMMAND.search(text.text) is not None and not is_xml
    return found and any(True for _ in _attaching(text))


def _attaching(text: GuestText) -> Iterator[tuple[ShellCommand, str, Sequence[str]]]:
    """The commands that attach something, with their verb and the words behind it."""
    for command in commands_of(text.text, text.files, text.first_line):
        names = [PurePath(word).name for word in command.argv[:16]]
        if "virsh" not in names or tells(command.argv):
            continue
        for number, word in enumerate(names[names.index("virsh") :], names.index("virsh")):
            if word in ("attach-disk", "attach-device"):
                yield command, word, command.argv[number + 1 :]
                break


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, _Attached] = {}
    for command, verb, argv in _attaching(text):
        named, given = _options(argv)
        guest = named.get("domain") or next(iter(given), "?")
        attached = guests.setdefault(guest, _Attached())
        attached.doubt = attached.doubt or command.doubt
        if verb == "attach-disk":
            place = set_in(text, "--cache", command.line)
            _add_disk(attached, guest, named, given, place)
        else:
            file = named.get("file") or next(islice(given, 1, None), "?")
            _add_file(attached, guest, file, text)
    for guest, attached in guests.items():
        domain = (
            f"<domain type='kvm'><name>{escape(guest)}</name>"
            f"<devices>{''.join(attached.disks)}</devices></domain>"
        )
        yield GuestText(
            domain, text.origin, unread=tuple(attached.unread), changed_at=attached.places,
            doubt=attached.doubt,
        )  # fmt: skip


def _options(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options with their values, and the words that are those of none."""
    named: dict[str, str] = {}
    given: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            given.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and name not in _FLAGS and rest:
            value = rest.pop(0)
        named[name] = value
    return named, given


def _add_disk(
    attached: _Attached, guest: str, named: dict[str, str], given: list[str], place: str
) -> None:
    rest = given if "domain" in named else given[1:]
    source = named.get("source") or next(iter(rest), "?")
    target = named.get("target") or next(islice(rest, 0 if "source" in named else 1, None), "?")
    bus = named.get("targetbus") or _BUSES.get(target[:2], "virtio")
    device = named.get("type", "disk")
    if device in ("cdrom", "floppy"):
        return
    attached.places[target] = place
    if bus == "scsi":
        why = (
            "its controller is not known, as `virsh attach-disk` gives it to a guest that exists: "
            f"run `virsh dumpxml {shlex.quote(guest)}` on its host and name what it prints"
        )
        row = UnreadDisk(guest, target, why, drops_flushes=named.get("cache") == "unsafe")
        attached.unread.append(row)
        return
    on_device = named.get("sourcetype", "block" if names_device(source) else "file") == "block"
    driver = {_OF_DRIVER[key]: value for key, value in named.items() if key in _OF_DRIVER}
    mode = named.get("mode")
    inside = (
        _element("driver", {"name": "qemu", **driver}),
        _element("source", {"dev" if on_device else "file": source}),
        _element("target", {"dev": target, "bus": bus}),
        f"<{mode}/>" if mode in ("readonly", "shareable") else "",
    )
    kind = "block" if on_device else "file"
    attached.disks.append(
        f"<disk type='{kind}' device={quoteattr(device)}>{''.join(inside)}</disk>"
    )


def _element(tag: str, attributes: Mapping[str, str]) -> str:
    pairs = (f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return f"<{tag}{''.join(pairs)}/>"


def _add_file(attached: _Attached, guest: str, file: str, text: GuestText) -> None:
    """The disk of attach-device, in a file beside the text or in the text itself."""
    body = text.files.get(file)
    if body is None and (file == "/dev/stdin" or file in text.text.partition("<disk")[0]):
        body = "".join(_DISK.findall(text.text)) or None
    if body is None:
        why = (
            f"what virsh attaches from {file[:200]} is not read, and may be a disk: name what "
            f"`virsh dumpxml {shlex.quote(guest)}` prints on its host"
        )
        attached.unread.append(UnreadDisk(guest, PurePath(file).name, why))
        return
    for disk in _DISK.findall(body):
        if "$" not in disk:
            attached.disks.append(disk)
            continue
        why = f"the disk in {file[:200]} has variables of the script"
        lossy = _LOSSY.search(disk) is not None
        attached.unread.append(UnreadDisk(guest, PurePath(file).name, why, drops_flushes=lossy))


def _names(text: GuestText) -> Iterator[str]:
    if _COMMAND.search(text.text) is None:
        return
    for _, verb, argv in islice(_attaching(text), _MOST_FILES):
        named, given = _options(argv)
        file = named.get("file") or next(islice(given, 1, None), "")
        if verb == "attach-device" and file and "$" not in file:
            yield file


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, names=_names, shares=True,
    changed_in="the script's virsh command",
)  # fmt: skip

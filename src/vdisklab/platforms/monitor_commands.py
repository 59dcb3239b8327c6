"""Disks that commands of QEMU's monitor add to a running guest, as a command line of QEMU.

`drive_add`, `device_add` and `object_add` are human commands (hmp-commands.hx), whose options are
those of -drive, -device and -object; `blockdev-add`, `device_add` and `object-add` are QMP's, whose
arguments are the JSON of -blockdev, -device and -object (qapi/block-core.json, qapi/qdev.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from vdisklab.platforms.drive_arguments import json_object, settings_of
from vdisklab.platforms.reading import GuestText, UnreadDisk
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import NO_FLUSH, set_in
from vdisklab.value import Value

ADDS = re.compile(r"\b(?:drive_add|blockdev-add)\b")
_COMMENT = re.compile(r"^\s*(?:#|//)")
_HUMAN = re.compile(
    r"\b(?P<verb>drive_add|device_add|object_add)[ \t]+(?:-n[ \t]+)?"
    r"(?P<given>(?:\\\"[^\"\\]*\\\"|[^\s'\"|;\\])+(?:[ \t]+[^\s'\"|;\\]+)?)"
)
_OPTION = {"drive_add": "-drive", "device_add": "-device", "object_add": "-object"}
_QMP = {"blockdev-add": "-blockdev", "device_add": "-device", "object-add": "-object"}
_OBJECT = re.compile(r"\{\s*\\?\"(?:execute|arguments|id)\\?\"\s*:")
_BRACE_OR_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|[{}]", re.DOTALL)
_OF_GUEST = re.compile(
    r"\bqemu-monitor-command\b(?:[ \t]+--\w+)*[ \t]+(?:--domain[ \t]+)?([\w.-]+)"
)
_LOSSY = re.compile(r"cache=unsafe|no-flush\\?['\"]?\s*[:=]\s*(?:true|on)\b")
_OF_DRIVE_ADD = 2
"""Words that it has: a place on the PCI bus, which is not used, and the options."""

_LONGEST, _MOST = 20_000, 500


@dataclass(slots=True)
class _Added:
    """The arguments of QEMU that a guest gets, and the lines that are not understood."""

    argv: list[str] = field(default_factory=list)
    unread: list[UnreadDisk] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)


def _recognises(text: GuestText) -> bool:
    is_xml = text.text.lstrip().startswith("<")
    return not is_xml and any(True for _ in _lines(text))


def _lines(text: GuestText) -> Iterator[tuple[int, str]]:
    """The numbers of the lines that add disks, and the lines."""
    for number, line in enumerate(text.text.splitlines(), text.first_line):
        if ADDS.search(line) and not _COMMENT.match(line):
            yield number, line


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, _Added] = {}
    read: set[int] = set()
    body = re.sub(r"(?m)^[ \t]*(?:#|//).*", "", text.text)
    for command in islice(_commands(body), _MOST):
        first = text.first_line + body.count("\n", 0, command.start)
        read |= set(range(first, first + body.count("\n", command.start, command.end) + 1))
        added = guests.setdefault(command.guest or text.name, _Added())
        added.argv += [command.option, command.value]
        if command.option in ("-drive", "-blockdev"):
            name = NO_FLUSH if command.option == "-blockdev" else "cache"
            added.places[""] = set_in(text, name, first)
    for number, line in _lines(text):
        if number in read:
            continue
        match = _OF_GUEST.search(line)
        guest = match[1] if match else text.name
        why = (
            f"a disk that QEMU's monitor adds (line {number} of {text.origin}) is not read: while "
            "its guest runs, `vdisklab audit` on the host reads it"
        )
        row = UnreadDisk(guest, "?", why, drops_flushes=_LOSSY.search(line) is not None)
        guests.setdefault(guest, _Added()).unread.append(row)
    for guest, added in guests.items():
        argv = "\0".join(("qemu-kvm", "-name", guest, *added.argv))
        yield GuestText(argv, text.origin, unread=tuple(added.unread), changed_at=added.places)


class _MonitorCommand(Value):
    """A command in a text: its place there, the guest that it names, and QEMU's argument for it."""

    start: int
    end: int
    guest: str
    option: str
    value: str


def _commands(text: str) -> Iterator[_MonitorCommand]:
    for match in _HUMAN.finditer(text):
        given = match["given"].split()
        if match["verb"] == "drive_add" and len(given) < _OF_DRIVE_ADD:
            continue
        value = given[-1] if match["verb"] == "drive_add" else given[0]
        guest, option = _guest_of(text, match.start()), _OPTION[match["verb"]]
        yield _MonitorCommand(match.start(), match.end(), guest, option, value)
    for match in _OBJECT.finditer(text):
        spelled = _whole(text, match.start())
        command = json_object(spelled) or json_object(spelled.replace('\\"', '"')) or {}
        of_qmp = _QMP.get(str(command.get("execute")))
        if of_qmp is not None:
            value = json.dumps(settings_of(command.get("arguments")))
            guest, end = _guest_of(text, match.start()), match.start() + len(spelled)
            yield _MonitorCommand(match.start(), end, guest, of_qmp, value)


def _guest_of(text: str, place: int) -> str:
    """The guest that `virsh qemu-monitor-command` names before a place in its line; else empty."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    match = _OF_GUEST.search(line)
    return "" if match is None else match[1]


def _whole(text: str, start: int) -> str:
    """A JSON object from its brace to that which closes it; what there is of one without an end."""
    depth = 0
    spelled = text[start : start + _LONGEST]
    plain = spelled.replace('\\"', '""') if re.match(r"\{\s*\\\"", spelled) else spelled
    for match in _BRACE_OR_TEXT.finditer(plain):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return spelled[: match.end()]
    return spelled


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, shares=True,
    changed_in="a command of QEMU's monitor",
)  # fmt: skip

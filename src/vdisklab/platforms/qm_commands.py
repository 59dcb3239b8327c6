"""`qm create` and `qm set` of Proxmox VE (qm(1)), also as `pvesh`: the lines of VMID.conf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from vdisklab.path.platforms import Platform
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import ShellCommand, commands_of, tells
from vdisklab.platforms.text_form import TextForm

_COMMAND = re.compile(r"\bqm\s+(?:create|set)\b|\bpvesh\s+(?:create|set)\s+\S*/qemu\b")
_NEW = re.compile(r"^(?P<storage>[\w.-]+):(?P<size>[0-9]+(?:\.[0-9]+)?)(?=,|$)")
_DISK = re.compile(r"(?:scsi|virtio|sata|ide)[0-9]+")


def _recognises(text: GuestText) -> bool:
    return _COMMAND.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, dict[str, str]] = {}
    for command in commands_of(text.text):
        vmid, options = _of_command(command)
        if vmid is None:
            continue
        settings = guests.setdefault(vmid, {})
        for key, value in options.items():
            settings[key] = with_volume(vmid, key, value)
        for gone in re.split("[ ,;]+", settings.pop("delete", "")):
            settings.pop(gone, None)
    for vmid, settings in guests.items():
        yield as_conf(settings, f"{text.origin}/{PurePath(vmid).name}.conf")


def as_conf(settings: Mapping[str, str], origin: str) -> GuestText:
    """A VMID.conf of these settings."""
    lines = (f"{key}: {' '.join(value.split())}\n" for key, value in settings.items())
    return GuestText("".join(("memory: 512\n", *lines)), origin, of=Platform.PROXMOX)


def with_volume(vmid: str, slot: str, value: str) -> str:
    """A disk's settings with the volume that `STORAGE:SIZE` makes (qm(1), "Create a new disk")."""
    match = _NEW.match(value)
    if match is None or not _DISK.fullmatch(slot):
        return value
    form = re.search(r"(?:^|,)format=(\w+)", value)
    ending = f".{form[1]}" if form and form[1] != "raw" else ""
    return f"{match['storage']}:vm-{vmid}-disk-{slot}{ending}{value[match.end() :]}"


def _of_command(command: ShellCommand) -> tuple[str | None, Mapping[str, str]]:
    """The VMID that a command creates or changes, and its options; None for another command."""
    argv = [*command.argv]
    names = [PurePath(word).name for word in argv]
    if tells(argv):
        return None, {}
    for number, name in enumerate(names[:8]):
        rest = argv[number + 1 :]
        if name == "qm" and rest[:1] in (["create"], ["set"]) and len(rest) > 1:
            return rest[1], _options(rest[2:])
        if name == "pvesh" and rest[:1] in (["create"], ["set"]) and "/qemu" in "".join(rest[1:2]):
            options = dict(_options(rest[2:]))
            place = re.search(r"/qemu/([0-9]+)", rest[1])
            return (place[1] if place else options.pop("vmid", "VMID")), options
    return None, {}


def _options(argv: Sequence[str]) -> Mapping[str, str]:
    options: dict[str, str] = {}
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if not equals and rest and not re.match(r"--?[a-z]", rest[0]):
            value = rest.pop(0)
        if re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            options[name] = value
    return options


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, shares=True)

"""Ansible's modules proxmox_kvm and proxmox_disk (community.general, community.proxmox)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vdisklab.platforms.qm_commands import as_conf, with_volume
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.text_form import TextForm

_MODULE = re.compile(r"^[ \t-]*['\"]?(?:[\w.]+\.)?proxmox_(?:kvm|disk)['\"]?\s*:\s*$", re.MULTILINE)
_BUSES = ("scsi", "virtio", "sata", "ide")
_OF_DISK = ("aio", "cache", "detect_zeroes", "discard", "iops", "iops_max", "iops_rd", "iops_wr",
            "iothread", "mbps", "mbps_rd", "mbps_wr", "rerror", "werror", "ro", "scsiblock",
            "shared", "snapshot")  # fmt: skip
_MOST_VALUES = 200_000


def _recognises(text: GuestText) -> bool:
    return _MODULE.search(text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, dict[str, str]] = {}
    for module, values in _modules(list(text.documents)):
        guest = str(values.get("vmid", values.get("name", values.get("newid", text.name))))
        settings = guests.setdefault(re.sub(r"[^\w-]+", "_", guest)[:100] or "guest", {})
        if module == "kvm":
            _of_kvm(settings, guest, values)
        else:
            _of_disk(settings, guest, values)
    for guest, settings in guests.items():
        yield as_conf(settings, f"{text.origin}/{guest}.conf")


def _modules(rest: list[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The modules in plays, blocks and roles, in the order of the text."""
    rest.reverse()
    seen = 0
    while rest and seen < _MOST_VALUES:
        value, seen = rest.pop(), seen + 1
        if isinstance(value, list):
            rest += reversed(value)
        elif isinstance(value, dict):
            for key, inner in value.items():
                match = re.fullmatch(r"(?:[\w.]+\.)?proxmox_(kvm|disk)", str(key))
                if match and isinstance(inner, dict):
                    yield match[1], inner
            rest += reversed([each for each in value.values() if isinstance(each, dict | list)])


def _of_kvm(settings: dict[str, str], guest: str, values: Mapping[str, Any]) -> None:
    for key in ("scsihw", "args", "name"):
        if isinstance(values.get(key), str):
            settings[key] = _without_template(values[key])
    for bus in _BUSES:
        disks = values.get(bus)
        for slot, line in disks.items() if isinstance(disks, dict) else ():
            named = f"{bus}{slot}" if re.fullmatch("[0-9]{1,3}", str(slot)) else str(slot)
            settings[named] = with_volume(guest, named, _without_template(str(line)))


def _without_template(text: str) -> str:
    """The text with `$NAME` for `{{ NAME }}`, which a line of Proxmox VE cannot begin with."""
    return re.sub(r"\{\{\s*([^{}]{0,200}?)\s*\}\}", lambda match: f"${match[1]}", text)


def _of_disk(settings: dict[str, str], guest: str, values: Mapping[str, Any]) -> None:
    slot = str(values.get("disk", "?"))
    if str(values.get("state", "present")) in ("absent", "detached"):
        settings.pop(slot, None)
        return
    if values.get("media") == "cdrom":
        return
    before = settings.get(slot, "")
    volume = before.partition(",")[0] or f"{values.get('storage', '?')}:{values.get('size', 1)}"
    form = f",format={values['format']}" if "format" in values else ""
    options = [f"{key}={_word(key, values[key])}" for key in _OF_DISK if key in values]
    settings[slot] = with_volume(guest, slot, ",".join((f"{volume}{form}", *options)))


def _word(key: str, value: object) -> str:
    if isinstance(value, bool):
        return ("on" if value else "ignore") if key == "discard" else str(int(value))
    return str(value)


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, changed_in="Ansible")

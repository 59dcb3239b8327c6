"""Parses QEMU's older arguments: `key=value,…`, and `-drive`, which becomes block nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vdisklab.guest.qemu.block_nodes import FORMAT_MEMBERS
from vdisklab.path.segments import CacheMode, WriteCache

_SWITCHES = {"on": True, "off": False, "true": True, "false": False}


def keyed_settings(text: str, first: str) -> dict[str, Any]:
    """`driver,key=value,a.b=on` as nested settings; a value without a key is that of `first`.

    Two commas stand for one (qemu-option.c).
    """
    settings: dict[str, Any] = {}
    for number, part in enumerate(_parts(text)):
        key, equals, value = part.partition("=")
        if not equals:
            if number:
                settings[key] = True
                continue
            key, value = first, part
        *above, last = key.split(".")
        inner = settings
        for name in above:
            below = inner.setdefault(name, {})
            if not isinstance(below, dict):  # `cache=none,cache.direct=off`
                inner[name] = below = {"": below}
            inner = below
        setting = _SWITCHES.get(value, value) if last in _BOOLEAN else value
        if isinstance(inner.get(last), dict):
            inner[last][""] = setting
        else:
            inner[last] = setting
    return settings


_BOOLEAN = ("direct", "no-flush", "writeback", "read-only", "snapshot")


def _parts(text: str) -> Iterator[str]:
    start = at = 0
    while (at := text.find(",", at)) >= 0:
        if text.startswith(",,", at):
            at += 2
            continue
        yield text[start:at].replace(",,", ",")
        at += 1
        start = at
    yield text[start:].replace(",,", ",")


def names_device(filename: str) -> bool:
    """True for the name of a block device, as opposed to an image's (/dev/shm has images)."""
    return filename.startswith("/dev/") and not filename.startswith("/dev/shm/")  # noqa: S108 - a name


@dataclass(frozen=True, slots=True)
class Drive:
    """What a `-drive` stands for: its node, the write cache of its device, and that device.

    `device` is empty with if=none, whose device has an argument of its own.
    """

    node: Mapping[str, Any]
    write_cache: str | None
    device: Mapping[str, Any]


_INTERFACES = {
    "virtio": {"driver": "virtio-blk-pci"},
    "ide": {"driver": "ide-hd", "unit": "0"},
    "scsi": {"driver": "scsi-hd"},
}


def drives_of_arguments(words: Sequence[str]) -> Iterator[Drive]:
    """The disks of `-drive` and `-hda`…`-hdd`; CD-ROMs, floppies and firmware are left out."""
    machine = " ".join(value for word, value in pairwise(words) if word in _MACHINE)
    ide = {"driver": "ide-hd"} if "q35" in machine else _INTERFACES["ide"]  # AHCI has no units
    for number, (word, following) in enumerate(pairwise(words)):
        flag = f"-{word.lstrip('-')}"
        if flag in ("-hda", "-hdb", "-hdc", "-hdd"):
            yield _drive({"file": following, "if": "ide"}, f"drive-{number}", ide)
        elif flag == "-drive":
            options = keyed_settings(following, first="file")
            interface = str(options.get("if", "ide"))
            if options.get("media", "disk") == "disk" and interface in ("none", *_INTERFACES):
                device = ide if interface == "ide" else _INTERFACES.get(interface, {})
                yield _drive(options, f"drive-{number}", device)


_MACHINE = ("-machine", "--machine", "-M")


def _drive(options: Mapping[str, Any], name: str, implied: Mapping[str, str]) -> Drive:
    """The nodes that blockdev_init() makes (blockdev.c); without format= QEMU looks at the file,
    so `probed` is True."""
    node_name = str(options.get("id", name))
    throttling = options.get("throttling")
    group = throttling.get("group") if isinstance(throttling, dict) else options.get("group")
    filename = options.get("file")
    if isinstance(filename, dict):
        filename = filename.get("filename")
    filename = str(options.get("filename", filename))
    cache, write_cache = _cache_of(options.get("cache"))
    protocol = re.match(r"([a-z0-9+]+):", filename)
    driver = "host_device" if names_device(filename) else "file"
    node: dict[str, Any] = {
        "node-name": node_name,
        "driver": str(options.get("format", "raw")),
        "probed": "format" not in options,
        "discard": {"on": "unmap", "off": "ignore"}.get(
            str(options.get("discard", "off")), str(options.get("discard"))
        ),
        "detect-zeroes": str(options.get("detect-zeroes", "off")),
        **{name: options[name] for name in FORMAT_MEMBERS.values() if name in options},
        "encrypt": options.get("encrypt"),
        "limits": options,
        "group": group,
        "snapshot": options.get("snapshot"),
        "read-only": options.get("read-only") is True or options.get("readonly") == "on",
        "file": {
            "driver": protocol[1] if protocol else driver,
            "filename": filename,
            "aio": str(options.get("aio", "threads")),
        },
    }
    if cache is not None:
        node["cache"] = cache
    device = {**implied, "drive": node_name, "id": node_name} if implied else {}
    if device and write_cache is not None:
        device["write-cache"] = write_cache
    return Drive(node, write_cache, device)


def _cache_of(setting: object) -> tuple[dict[str, bool] | None, str | None]:
    """The flags of a drive's node and its device's write cache, from `cache=` and `cache.*`.

    Both are None where nothing is set. `cache=off` is `none` (bdrv_parse_cache_mode).
    """
    flags = setting if isinstance(setting, dict) else {} if setting is None else {"": setting}
    word = {"off": "none"}.get(str(flags.get("", "")), str(flags.get("", "")))
    mode = CacheMode(word) if word in set(CacheMode) else CacheMode.DEFAULT
    named = {name: flags[name] is True for name in ("direct", "no-flush") if name in flags}
    if mode is CacheMode.DEFAULT and not named and "writeback" not in flags:
        return None, None
    write_cache = WriteCache.MODE.qemu_property(mode.spelled_out)
    if "writeback" in flags:
        write_cache = WriteCache.ON if flags["writeback"] is True else WriteCache.OFF
    cache = {"direct": mode.direct, "no-flush": mode.no_flush, **named}
    return cache, None if write_cache is None else write_cache.value

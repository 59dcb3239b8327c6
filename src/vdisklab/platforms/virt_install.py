"""virt-install(1): its `--disk`, `--controller` and `--filesystem` as a domain's XML; virt-xml(1),
which adds and changes disks of a guest that exists.

Defaults are those of virt-manager 5.1 (virtinst/devices/disk.py, set_defaults): discard=unmap; on a
block device cache=none and io=native. Without `bus=` a guest with a known system gets virtio.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import PurePath

from vdisklab.path.architecture import X86_64, architecture_of
from vdisklab.path.named_target import names_device
from vdisklab.platforms.reading import GuestText, UnreadDisk
from vdisklab.platforms.shell_script import commands_of, tells
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.unknown_words import parts_of, unknown_in

_DRIVER = {
    "cache": "cache", "io": "io", "discard": "discard", "detect_zeroes": "detect_zeroes",
    "error_policy": "error_policy", "driver.iothread": "iothread", "driver.queues": "queues",
    "driver.type": "type", "driver_type": "type", "format": "type",
}  # fmt: skip
_PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd"}


def _recognises(text: GuestText) -> bool:
    return re.search(r"\bvirt-(?:install|xml)\b[^\n]*(?:\\\r?\n[^\n]*)*", text.text) is not None


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    for command in commands_of(text.text, text.files, text.first_line):
        names = [PurePath(word).name for word in command.argv[:8]]
        if "virt-install" in names and not tells(command.argv):
            argv = command.argv[names.index("virt-install") + 1 :]
            yield GuestText(_domain(argv, text.name), text.origin, doubt=command.doubt)
        elif "virt-xml" in names and not tells(command.argv):
            argv = command.argv[names.index("virt-xml") + 1 :]
            yield from _of_virt_xml(argv, text, command.doubt)


def _of_virt_xml(argv: Sequence[str], text: GuestText, doubt: str) -> Iterator[GuestText]:
    """The disk that `--add-device` adds, and a row for one that `--edit` changes, of which the rest
    is the guest's."""
    rest = [*argv]
    for name in ("-c", "--connect"):
        if name in rest[:-1]:
            del rest[rest.index(name) : rest.index(name) + 2]
    guest = next((word for word in rest if not word.startswith("-")), "?")
    options = [*_options([word for word in rest if word != guest])]
    names = {name for name, _ in options}
    for option, value in options:
        parts = _parts(value, "path")
        bus = parts.get("bus", parts.get("target.bus", "virtio"))
        if option != "disk" or "remove-device" in names:
            continue
        if "edit" in names or bus == "scsi":
            edited = dict(options).get("edit", "")
            target = edited.partition("=")[2] or parts.get("target.dev", parts.get("target", "?"))
            verb = "changes" if "edit" in names else "adds"
            why = (
                f"virt-xml {verb} it ({value[:100]}), and the rest is in its guest: name what "
                f"`virsh dumpxml {shlex.quote(guest)}` prints on its host"
            )
            lossy = parts.get("cache", parts.get("driver.cache")) == "unsafe"
            row = UnreadDisk(guest, target, why, drops_flushes=lossy)
            yield GuestText(_domain(("--name", guest), guest), text.origin, unread=(row,))
        else:
            domain = _domain(("--name", guest, "--disk", value), guest)
            yield GuestText(domain, text.origin, doubt=doubt)


def _domain(argv: Sequence[str], name: str) -> str:
    options = [*_options(argv)]
    first = dict(reversed(options))
    domain = ET.Element("domain", {"type": first.get("virt-type", "kvm")})
    ET.SubElement(domain, "name").text = first.get("name", first.get("n", name))
    if "iothreads" in first:
        ET.SubElement(domain, "iothreads").text = first["iothreads"].partition("=")[2] or "1"
    arch = first.get("arch", X86_64.name)
    row = architecture_of(arch) or X86_64
    system = {"arch": arch, "machine": first.get("machine", row.machines["virtio"])}
    ET.SubElement(ET.SubElement(domain, "os"), "type", system).text = "hvm"
    devices = ET.SubElement(domain, "devices")
    numbers = count()
    for option, value in options:
        if option == "disk" and value != "none":
            _add_disk(devices, _parts(value, "path"), next(numbers))
        elif option == "controller":
            parts = _parts(value, "type")
            kept = {key: parts[key] for key in ("type", "model", "index") if key in parts}
            controller = ET.SubElement(devices, "controller", {"index": "0", **kept})
            driver = {
                key.removeprefix("driver."): text
                for key, text in parts.items()
                if key.startswith("driver.")
            }
            ET.SubElement(controller, "driver", driver)
        elif option == "filesystem":
            _add_share(devices, _parts(value, "source"))
    if not devices.findall("controller[@type='scsi']"):  # virt-install adds virtio-scsi
        ET.SubElement(devices, "controller", {"type": "scsi", "index": "0", "model": "virtio-scsi"})
    return ET.tostring(domain, encoding="unicode")


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and rest and not re.match(r"--?[a-z]", rest[0]):
            value = rest.pop(0)
        yield name, value


def _parts(text: str, first: str) -> Mapping[str, str]:
    """The options of a list; a word that may be further options is the cache mode, which it may
    set."""
    found: dict[str, str] = {}
    unknown = ""
    for number, spelled in enumerate(parts_of(text)):
        word, part = unknown_in(spelled, is_first=number == 0)
        unknown = unknown or word
        name, equals, value = part.partition("=")
        if part:
            found[name if equals or number else first] = value if equals or number else name
    return found | ({"cache": unknown} if unknown else {})


def _add_disk(devices: ET.Element, parts: Mapping[str, str], number: int) -> None:
    path = parts.get("path", parts.get("source.file", parts.get("source.dev", "")))
    on_device = names_device(path) or "source.dev" in parts
    kind = "block" if on_device else "volume" if "vol" in parts else "file"
    device = parts.get("device", "disk")
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": device})
    usual = {"type": _format(path, parts), "discard": "unmap"}
    usual |= {"cache": "none", "io": "native"} if on_device else {}
    given = {_DRIVER[key]: value for key, value in parts.items() if key in _DRIVER}
    attributes = {
        key.removeprefix("driver."): value
        for key, value in parts.items()
        if key.startswith("driver.") and key not in _DRIVER
    }
    ET.SubElement(disk, "driver", {**usual, **given, **attributes})
    if "vol" in parts:
        pool, _, volume = parts["vol"].partition("/")
        ET.SubElement(disk, "source", {"pool": pool, "volume": volume})
    elif path:
        ET.SubElement(disk, "source", {"dev" if on_device else "file": path})
    bus = parts.get("bus", parts.get("target.bus", "virtio"))
    letter = chr(ord("a") + number % 26)
    target = parts.get("target.dev", parts.get("target", f"{_PREFIXES.get(bus, 'vd')}{letter}"))
    ET.SubElement(disk, "target", {"dev": target, "bus": bus})
    for tag, keys in (
        ("readonly", ("readonly",)), ("shareable", ("shareable",)), ("transient", ("transient",)),
    ):  # fmt: skip
        if any(parts.get(key) in ("on", "yes") for key in keys) or parts.get("perms") == {
            "readonly": "ro", "shareable": "sh"
        }.get(tag, ""):  # fmt: skip
            ET.SubElement(disk, tag)


def _format(path: str, parts: Mapping[str, str]) -> str:
    """The format: of a file that has to be made qcow2, of another one by its name."""
    ending = path.rpartition(".")[2]
    if ending in ("raw", "img", "iso"):
        return "raw"
    if ending in ("qcow2", "vmdk", "vdi", "qed"):
        return ending
    return "raw" if names_device(path) else "qcow2" if "size" in parts else "raw"


def _add_share(devices: ET.Element, parts: Mapping[str, str]) -> None:
    share = ET.SubElement(devices, "filesystem", {"type": "mount"})
    driver = parts.get("driver.type", parts.get("driver"))
    ET.SubElement(share, "driver", {"type": driver} if driver else {})
    ET.SubElement(share, "source", {"dir": parts.get("source.dir", parts.get("source", "?"))})
    ET.SubElement(share, "target", {"dir": parts.get("target.dir", parts.get("target", "?"))})


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, shares=True)

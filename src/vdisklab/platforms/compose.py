"""Compose files of the images that run QEMU in a container: qemus/qemu, dockur/windows.

Their variables and defaults are those of src/disk.sh of qemus/qemu: DISK_CACHE none, DISK_IO
native, DISK_TYPE scsi, DISK_FMT raw, DISK_DISCARD on, each disk with an I/O thread and
detect-zeroes=on; dockur/macos has blk (its src/entry.sh).

Compose puts values of the environment in place of `$NAME` and `${NAME:-default}`
(docs.docker.com/reference/compose-file/interpolation). Without a value of its own a variable has
its default here, which a note says; one without a default stays as written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from vdisklab.path.architecture import AARCH64, X86_64, Architecture
from vdisklab.path.platforms import Platform
from vdisklab.platforms.reading import (
    GuestText,
    UnreadDisk,
    is_deep,
    is_variable,
    refused_word,
    tree,
)
from vdisklab.platforms.text_form import TextForm

_IMAGE = re.compile(r"(?:^|/)(?:qemux?|qemus|dockurr?)/(?P<name>qemu|windows|macos)(?P<kind>-arm)?")
_SCSI = "virtio-scsi-pci,id={0}b,iothread=io2 -device scsi-hd,drive={0},bus={0}b.0"
_BLK = "virtio-blk-pci,drive={0},iothread=io2"
_AHCI = "ich9-ahci,id={0}a -device ide-hd,drive={0},bus={0}a.0"
_DEVICES = {
    "scsi": _SCSI, "virtio-scsi": _SCSI, "blk": _BLK, "virtio-blk": _BLK, "ide": _AHCI,
    "sata": _AHCI, "nvme": "nvme,drive={0},serial={0}", "usb": "usb-storage,drive={0}",
    "auto": "ide-hd,drive={0}",
}  # fmt: skip
_NOT_KNOWN = "DISK_TYPE-of-the-environment,drive={0}"
_ACCEPTED = {
    "DISK_TYPE": (*(kind for kind in _DEVICES if not kind.startswith("virtio")),),
    "DISK_FMT": ("raw", "qcow2"),
}
"""The words with which the container starts (src/disk.sh); those with `virtio-` are in newer ones
only."""


_EXPRESSION = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<rule>:?[-?+])(?P<word>(?:[^{}]|\$\{[^{}]*\})*))?\})"
)
_DEEPEST = 4
_INSIDE = re.compile(r"(?:/dev)?/disk[1-6]?")
_DEVICE = re.compile(
    r"/dev/(?:sd|vd|xvd|hd|nvme|mapper/|dm-|disk/|md|loop|zd|zvol/|rbd|nbd|mmcblk|ram|zram)"
)
"""Names of the host's block devices (Documentation/admin-guide/devices.txt)."""
_IMAGE_FILE = re.compile(r"\.(?:img|raw|qcow2|vmdk|vdi|vhdx?)$", re.IGNORECASE)


def _recognises(text: GuestText) -> bool:
    return "services:" in text.text and any(
        _IMAGE.search(_interpolated(found, {}, 0))
        for found in re.findall(r"\bimage:\s*['\"]?([^\s'\"]{1,200})", text.text)
    )


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    for document in text.documents:
        for name, written in tree(document, "services").items():
            assumed: dict[str, str] = {}
            service = _filled(written, assumed) if isinstance(written, dict) else {}
            match = _IMAGE.search(str(service.get("image", "")))
            if match is not None:
                row = AARCH64 if match["kind"] else X86_64
                argv = _command(str(name), service, match["name"], row)
                refused = _refused(_variables(service.get("environment")))
                yield GuestText(
                    "\0".join(argv), f"{text.origin}/{name}", refused=refused, of=Platform.QEMU,
                    unread=tuple(_not_read(str(name), service)), note=_note(text.origin, assumed),
                )  # fmt: skip


def _filled(service: Mapping[str, Any], assumed: dict[str, str]) -> dict[str, Any]:
    """The service with the defaults of its variables, which `assumed` gets by name."""

    def put(value: Any) -> Any:  # noqa: ANN401 - any value of YAML
        if isinstance(value, str):
            return _interpolated(value, assumed, 0)
        if isinstance(value, list):
            return [put(each) for each in value]
        if isinstance(value, dict):
            return {key: put(each) for key, each in value.items()}
        return value

    keys = ("environment", "devices", "volumes", "image")
    given = {key: service.get(key) for key in keys}
    return {**service, **{key: put(each) for key, each in given.items() if not is_deep(each)}}


def _interpolated(text: str, assumed: dict[str, str], depth: int) -> str:
    """The text as compose writes it where the environment sets no variable."""

    def put(match: re.Match[str]) -> str:
        name, rule = match["name"], match["rule"] or ""
        if match["escaped"]:
            return "$"
        if not name or not rule.endswith("-"):
            return match[0]
        word = str(match["word"])
        word = word if depth > _DEEPEST else _interpolated(word, assumed, depth + 1)
        assumed[name] = word
        return word

    return _EXPRESSION.sub(put, text)


def _note(origin: str, assumed: Mapping[str, str]) -> str:
    """What was taken for the variables that have a default; empty without any."""
    if not assumed:
        return ""
    named = ", ".join(f"{name}={word[:40]}" for name, word in list(assumed.items())[:4])
    return (
        f"{origin} is read with its defaults ({named}), which the environment or .env may change."
    )


def _not_read(name: str, service: Mapping[str, Any]) -> Iterator[UnreadDisk]:
    """What looks like a disk where the image looks for none, or where no device may be opened."""
    for key in ("devices", "volumes"):
        listed = service.get(key)
        for entry in listed if isinstance(listed, list) else []:
            place, inside = _places(entry)
            if key == "devices" and _INSIDE.fullmatch(inside):
                continue
            is_disk = _DEVICE.match(place) or (key == "volumes" and _IMAGE_FILE.search(place))
            if not is_disk or inside in _variables(service.get("environment")).values():
                continue
            why = f"{place} stands under {key}: at {inside}, where vdisklab does not read it"
            if key == "volumes" and _DEVICE.match(place):
                why = f"{place} stands under volumes:, where a container may not open a device"
            yield UnreadDisk(name, inside, why)


def _places(entry: object) -> tuple[str, str]:
    """The place on the host of a device or volume, and the one inside the container."""
    if isinstance(entry, dict):
        place, inside = str(entry.get("source", "")), str(entry.get("target", ""))
    else:
        place, _, rest = str(entry).partition(":")
        inside = rest.partition(":")[0]
    return place, inside or place


def _refused(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """Why the container ends instead of starting the guest, and the way out."""
    kind = variables.get("DISK_TYPE", "").lower().removeprefix("virtio-")
    written = {"DISK_TYPE": kind or None, "DISK_FMT": variables.get("DISK_FMT", "").lower() or None}
    return refused_word("the container", _ACCEPTED, written)


def _command(name: str, service: Mapping[str, Any], image: str, row: Architecture) -> Iterator[str]:
    variables = _variables(service.get("environment"))
    usual = {"macos": "blk"}.get(image, "scsi")
    kind = variables.get("DISK_TYPE", "").lower() or usual
    yield from (
        row.emulator,
        "-name",
        name,
        "-machine",
        row.machines["virtio"],
        "-object",
        "iothread,id=io2",
    )
    form = variables.get("DISK_FMT", "").lower() or "raw"
    file = variables.get("DISK_NAME") or "data"
    ending = {"raw": "img"}.get(form, form)
    disks = []
    for suffix in ("", *map(str, range(2, 7))):
        inside = f"/storage{suffix}"
        place = _mounted(service, inside)
        if device := variables.get(f"DEVICE{suffix}") or _device(service, suffix):
            disks.append((device, "raw"))
        elif not suffix or variables.get(f"DISK{suffix}_SIZE") or place != inside:
            disks.append((f"{place}/{file}{suffix}.{ending}", form))
    for number, (place, driver) in enumerate(disks, 1):
        node = f"data{number}"
        settings = {
            "file": place, "id": node, "format": driver, "if": "none",
            "cache": variables.get("DISK_CACHE") or "none",
            "aio": variables.get("DISK_IO") or "native",
            "discard": variables.get("DISK_DISCARD") or "on", "detect-zeroes": "on",
        }  # fmt: skip
        yield "-drive"
        yield ",".join(f"{key}={value.replace(',', ',,')}" for key, value in settings.items())
        yield "-device"
        # Of a kind that the container refuses, which is said, the disk is read as the usual one.
        device = _NOT_KNOWN if is_variable(kind) else _DEVICES.get(kind, _DEVICES[usual])
        yield from device.format(node).split(" ")
    try:
        yield from shlex.split(variables.get("ARGUMENTS", ""))
    except ValueError:
        yield variables["ARGUMENTS"]


def _variables(environment: object) -> Mapping[str, str]:
    """The service's variables, of a mapping or of a list of NAME=VALUE; one without a value has
    that of the environment."""
    if isinstance(environment, dict):
        return {
            str(key): f"${{{key}}}" if value is None else str(value)
            for key, value in environment.items()
        }
    listed = environment if isinstance(environment, list) else []
    pairs = (str(entry).partition("=") for entry in listed)
    return {name: value if equals else f"${{{name}}}" for name, equals, value in pairs}


def _device(service: Mapping[str, Any], suffix: str) -> str | None:
    """The host's device that takes the place of this disk: /disk, /disk1, /disk2 … inside."""
    inside = {f"{top}/disk{number}" for top in ("", "/dev") for number in (suffix or "1", suffix)}
    devices = service.get("devices")
    for device in devices if isinstance(devices, list) else []:
        place, _, rest = str(device).partition(":")
        if rest.partition(":")[0] in inside:
            return place
    return None


def _mounted(service: Mapping[str, Any], inside: str) -> str:
    """The host's directory that is mounted there, or the place inside the container."""
    volumes = service.get("volumes")
    for volume in volumes if isinstance(volumes, list) else []:
        if isinstance(volume, dict):
            if volume.get("target") == inside and volume.get("type") == "bind":
                return str(volume.get("source", inside))
        else:
            place, _, rest = str(volume).partition(":")
            if rest.partition(":")[0] == inside and place.startswith("/"):
                return place
    return inside


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, changed_in="the compose file")

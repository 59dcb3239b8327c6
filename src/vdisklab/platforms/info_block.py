"""`info block` of QEMU's human monitor: print_block_info in block/monitor/block-hmp-cmds.c."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from vdisklab.path.architecture import X86_64
from vdisklab.path.named_target import names_device
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.text_form import TextForm

_DRIVE = re.compile(
    r"^(?P<name>[\w.#:/-]+)(?: \((?P<node>[^()\n]*)\))?: (?P<file>[^\n]*) "
    r"\((?P<format>[\w-]+)(?P<flags>(?:, [\w -]+)*)\)\n(?P<more>(?:[ \t]+\S[^\n]*\n?)+)",
    re.MULTILINE,
)
_BUSES = (
    ("virtio-scsi|scsi", "scsi-hd"), ("nvme", "nvme"), ("usb", "usb-storage"),
    ("ide|sata|ahci", "ide-hd"), ("virtio", "virtio-blk-pci"),
)  # fmt: skip
"""QEMU's device by a word in the place where it is attached, or in the drive's name."""


def _recognises(text: GuestText) -> bool:
    return any("Cache mode:" in match["more"] for match in _DRIVE.finditer(text.text))


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    """A QEMU with these drives; what the monitor does not show is named as a setting."""
    argv = [X86_64.emulator, "-device", "virtio-scsi-pci,id=scsi0"]
    for match in _DRIVE.finditer(text.text):
        pairs = (line.partition(":") for line in match["more"].splitlines())
        lines = {name.strip(): value.strip() for name, _, value in pairs}
        if "Cache mode" in lines and "Removable device" not in lines:
            argv += _arguments(match, lines)
    yield GuestText("\0".join(argv), text.origin)


def _arguments(match: re.Match[str], lines: dict[str, str]) -> Iterator[str]:
    modes = lines["Cache mode"].split(", ")
    file, name = match["file"], match["name"]
    below = re.search(r"\(chain depth: ([0-9]{1,3})\)", lines.get("Backing file", ""))
    node: dict[str, Any] = {
        "driver": match["format"],
        "node-name": name,
        "file": {"driver": "host_device" if names_device(file) else "file", "filename": file},
        "cache": {"direct": "direct" in modes, "no-flush": "ignore flushes" in modes},
        "read-only": "read-only" in match["flags"],
        "aio and discard": "not shown by `info block`",
    }
    if zeroes := lines.get("Detect zeroes"):
        node["detect-zeroes"] = zeroes
    for depth in range(int(below[1]) if below else 0):
        node = {
            **node,
            "backing": {"driver": "raw", **({"backing": node["backing"]} if depth else {})},
        }
    place = f"{lines.get('Attached to', '')} {name}"
    device = next((driver for sign, driver in _BUSES if re.search(sign, place)), "unknown")
    write_cache = "off" if "writethrough" in modes else "on"
    yield from ("-blockdev", json.dumps(node))
    bus = ",bus=scsi0.0" if device == "scsi-hd" else ""
    yield from ("-device", f"{device},drive={name},id={name},write-cache={write_cache}{bus}")


FORM = TextForm(recognises=_recognises, rewritten=_rewritten)

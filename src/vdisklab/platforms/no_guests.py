"""Texts that stand beside guests and have no guest's disk: a container, and what cloud-init reads.

cloud-init's "User-data formats" and "NoCloud" (user-data, meta-data, network-config); pct.conf(5)
of Proxmox VE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vdisklab.path.platforms import PRINTED
from vdisklab.platforms.reading import DisklessGuest, GuestText

CONTAINER = "a container, which runs on the host's kernel and has no disk of a virtual machine"
OTHERS = f"name the file of a virtual machine: {PRINTED}"

_USER_DATA = re.compile(
    r"\s*(## template: *jinja\s*)?#(cloud-config|cloud-boothook|include)\b"
    r"|Content-Type: multipart/mixed"
)
_META_DATA = re.compile(r"^(instance-id|local-hostname):", re.MULTILINE)
_NETWORK = re.compile(r"^version: *[12]\s*$.*^(ethernets|config|bonds):", re.MULTILINE | re.DOTALL)
_OTHER_KEYS = re.compile(r"^(kind|devices|services|driver):", re.MULTILINE)
_LXC = re.compile(r"^rootfs: ", re.MULTILINE)
_LXC_KEYS = re.compile(r"^(ostype|arch|unprivileged|swap): ", re.MULTILINE)
_MOST_NAMED = 3


def beside_guests(text: GuestText, *clauses: str, guest: str = "GUEST.xml") -> DisklessGuest:
    """A text that is read with guests and has none: what it says, and to name a guest with it."""
    instead = f"name a guest's file beside it: `vdisklab audit {guest} {text.origin}`"
    return DisklessGuest(text.file_name, "; ".join(clauses), instead)


def first_of(clauses: Sequence[str]) -> list[str]:
    """The first of many clauses, and how many more there are."""
    more = len(clauses) - _MOST_NAMED
    return [*clauses[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def said(text: GuestText) -> DisklessGuest | None:
    """Why a text has no guest's disk, and what to name instead; None for another text."""
    body = text.text
    if _LXC.search(body) and _LXC_KEYS.search(body):
        return DisklessGuest(text.file_name, CONTAINER, OTHERS)
    kind = None
    if _USER_DATA.match(body):
        kind = "user data"
    elif not _OTHER_KEYS.search(body[:65536]):
        kind = "meta data" if len(set(_META_DATA.findall(body))) == 2 else None
        kind = "network configuration" if _NETWORK.search(body[:65536]) else kind
    if kind is None:
        return None
    why = f"{kind} of cloud-init, which sets up a guest from the inside and has no guest's disk"
    return DisklessGuest(text.file_name, why, OTHERS)

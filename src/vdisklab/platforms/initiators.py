"""/etc/iscsi/initiatorname.iscsi of a guest's host: the name by which a target knows it, so that
the ACL of this name says which LUNs its devices are (open-iscsi's README, iscsid(8))."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vdisklab.platforms.no_guests import beside_guests
from vdisklab.platforms.reading import DisklessGuest, GuestText

_LINE = re.compile(r"[ \t]*InitiatorName[ \t]*=[ \t]*(?P<name>[^\s#]+)[ \t]*(?:#.*)?")


def _names(text: GuestText) -> list[str]:
    """The names in a text of such lines and comments alone; none of another text."""
    lines = [line for line in text.text.splitlines() if line.strip() and line.strip()[0] != "#"]
    found = [_LINE.fullmatch(line) for line in lines]
    return [match["name"].lower() for match in found if match] if all(found) else []


def is_initiator_file(text: GuestText) -> bool:
    """True for a file with an initiator's name and nothing else."""
    return bool(_names(text))


def initiator_of(texts: Iterable[GuestText]) -> str:
    """The name of the guests' host, in small letters; empty if no text or several say one."""
    names = {name for text in texts for name in _names(text)}
    return names.pop() if len(names) == 1 else ""


def said(text: GuestText) -> DisklessGuest:
    """What such a file says, and what to name with it."""
    names = ", ".join(_names(text))
    return beside_guests(text, f"the name of a host to its iSCSI targets, {names}")

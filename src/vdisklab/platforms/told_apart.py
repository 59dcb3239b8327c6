"""Guests of one name: each gets a name that tells it from the others.

A table shows a guest by its name alone. Two machines of a cluster, two namespaces, or two files may
each have one called `web`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.value import replace

_Guest = tuple[str, str]
"""Its platform's name for it, and the file that has it."""


def told_apart(disks: Iterable[ConfiguredDisk]) -> tuple[ConfiguredDisk, ...]:
    """The disks. Guests of one name that have a disk of one name are named by what else differs:
    their platform's name for them, such as a VMID, or their file."""
    found = tuple(disks)
    guests: dict[str, dict[_Guest, set[str]]] = {}
    for disk in found:
        guests.setdefault(disk.domain, {}).setdefault(_guest_of(disk), set()).add(disk.target)
    names = {domain: _names_of(domain, alike) for domain, alike in guests.items()}
    return tuple(_named(disk, names[disk.domain].get(_guest_of(disk))) for disk in found)


def _named(disk: ConfiguredDisk, name: str | None) -> ConfiguredDisk:
    if name is None:
        return disk
    return replace(disk, domain=name, guest=disk.guest or disk.domain)


def _guest_of(disk: ConfiguredDisk) -> _Guest:
    return disk.guest, disk.origin


def _names_of(domain: str, alike: dict[_Guest, set[str]]) -> dict[_Guest, str]:
    """The new names of guests of one name; none if no two of them have a disk of one name."""
    targets = [target for each in alike.values() for target in each]
    if len(targets) == len(set(targets)):
        return {}
    by_guest = {guest for guest, _ in alike}
    if len(by_guest) == len(alike):
        return {each: _with(domain, each[0]) for each in alike}
    parts = {each: PurePath(each[1].removesuffix(f"/{domain}")).parts for each in alike}
    for end in (-1, -2):
        last = {each: names[end] for each, names in parts.items() if len(names) >= -end}
        if len(set(last.values())) == len(alike):
            return {each: _with(domain, name) for each, name in last.items()}
    return {each: _with(domain, each[1]) for each in alike}


def _with(domain: str, other: str) -> str:
    """`web (101)`; what has the name in it, as `prod/web` has, stands alone."""
    return other if other.endswith(f"/{domain}") else f"{domain} ({other})"

"""Lines of scripts that change disks in ways that no configuration shows: the write cache that the
kernel believes in, and disks that are changed by QEMU's monitor.

"write through" in queue/write_cache makes the kernel send no flushes to a disk, whatever cache the
disk has (the kernel's Documentation/ABI/stable/sysfs-block; block/blk-flush.c). What adds a disk is
read by `monitor_commands` and `virsh_attach`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.no_guests import beside_guests
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.value import Value, replace

_TOLD = re.compile(
    r"write through['\"]?[^\n#]{0,80}/sys/(?:class/)?block/(?P<name>[^/\s'\"]{1,60})"
    r"/queue/write_cache"
)
_CHANGED = re.compile(r"\bblockdev-reopen\b|\breopen\s+[^\n]{0,80}?-[crow]\b")
"""QMP's command, and that of qemu-io, which QEMU's monitor has, too: `reopen -c unsafe`."""

_LOSSY = re.compile(
    r"cache=unsafe|--cache[ =]['\"]?unsafe|-c\s+unsafe|no-flush['\"]?\s*[:=]\s*(?:true|on)\b"
)
_COMMENT = re.compile(r"^\s*#")
_DEVICE = re.compile(
    r"/dev/(?P<name>(?:sd|vd|hd|xvd)[a-z]+|nvme[0-9]+n[0-9]+|mmcblk[0-9]+)(?:p?[0-9]+)?"
)
_MOST_NAMED = 3


class _HostLine(Value):
    number: int
    text: str
    name: str = ""
    """The disk that the line is about, as the text spells it."""


def _lines(text: GuestText, pattern: re.Pattern[str]) -> Iterator[_HostLine]:
    if pattern.search(text.text) is None:
        return
    for number, line in enumerate(text.text.splitlines(), 1):
        match = pattern.search(line)
        if match is not None and not _COMMENT.match(line):
            yield _HostLine(number, line, match.groupdict().get("name") or "")


def with_told_caches(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText]
) -> tuple[ConfiguredDisk, ...]:
    """The disks. One that is a device of which a line says that it has no cache is in doubt."""
    told = [(line, text) for text in texts for line in _lines(text, _TOLD)]
    return tuple(_in_doubt(disk, told) for disk in disks) if told else tuple(disks)


def _in_doubt(disk: ConfiguredDisk, told: Iterable[tuple[_HostLine, GuestText]]) -> ConfiguredDisk:
    match = _DEVICE.fullmatch(disk.source or "")
    if match is None or disk.lost_below is not None or disk.lost_if is not None:
        return disk
    for line, text in told:
        if "$" not in line.name and "*" not in line.name and line.name != match["name"]:
            continue
        where = f"line {line.number} of {text.origin}"
        why = (
            f"if {match['name']} has a volatile write cache, flushed data is lost, as {where} "
            "tells the kernel that it has none"
        )
        return replace(disk, lost_if=(why, f"Leave {where} out"))
    return disk


def with_changes(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText]
) -> tuple[ConfiguredDisk, ...]:
    """The disks. Those of a text that changes a disk by QEMU's monitor are in doubt."""
    first = {text.origin: next(_lines(text, _CHANGED), None) for text in texts}
    changed = {
        origin: f"line {line.number} of {origin} changes a disk by QEMU's monitor"
        for origin, line in first.items()
        if line is not None
    }
    return tuple(
        replace(disk, may_differ=changed[disk.origin])
        if disk.origin in changed and not disk.may_differ
        else disk
        for disk in disks
    )


def notes_on(text: GuestText) -> Iterator[str]:
    """A sentence for each kind of these lines in a text."""
    told = [*_lines(text, _TOLD)]
    if told:
        disks = ", ".join(dict.fromkeys(line.name for line in told[:_MOST_NAMED]))
        yield (
            f"{text.origin}: the kernel is told that {disks} has no write cache "
            f"({_numbers(told)}), so it sends no flush. If the disk has such a cache, a power cut "
            "loses what a guest has flushed."
        )
    changed = [*_lines(text, _CHANGED)]
    if changed:
        lossy = [line for line in changed if _LOSSY.search(line.text)]
        loss = f", and drops flushes with cache=unsafe ({_numbers(lossy)})" if lossy else ""
        yield (
            f"{text.origin}: a disk that is changed by QEMU's monitor ({_numbers(changed)}) is not "
            f"read{loss}: while its guest runs, `vdisklab audit` on the host reads it."
        )


def said(text: GuestText) -> DisklessGuest | None:
    """What a text says that has such lines and no guest; None for another text."""
    found = [note.partition(": ")[2].rstrip(".") for note in notes_on(text)]
    return beside_guests(text, *found) if found else None


def _numbers(lines: Sequence[_HostLine]) -> str:
    numbers = ", ".join(str(line.number) for line in lines[:_MOST_NAMED])
    more = ", …" if len(lines) > _MOST_NAMED else ""
    return f"line{'' if len(lines) == 1 else 's'} {numbers}{more}"

"""The options of a path's bus, taken away and added: the same disk under other conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.segments import BUS_OPTIONS
from vdisklab.value import replace

IN_THE_GUEST = ("guest_scheduler", "guest_fs", "guest_mount")
"""Options of a bus that are set inside the guest, not in its configuration."""

GUESTS = "guests"
"""The option of a bus that says how many guests are measured at once."""


def with_each(path: DiskPath, option: str, values: Iterable[str]) -> tuple[DiskPath, ...]:
    """The path with each value of an option of its bus in turn.

    Unchanged without a guest, without values, if it has the option itself, or if its bus lacks it.
    """
    alternatives = tuple(values)
    bus, options = path.attachment.bus, path.attachment.options
    if (
        path.on_host
        or option not in BUS_OPTIONS[bus]
        or option in dict(options)
        or not alternatives
    ):
        return (path,)
    return tuple(
        replace(path, attachment=Attachment(bus, (*options, (option, word))))
        for word in alternatives
    )


def without_options(path: DiskPath, names: Collection[str]) -> DiskPath:
    """The path without these options of its bus."""
    attachment = path.attachment
    options = tuple(option for option in attachment.options if option[0] not in names)
    return replace(path, attachment=Attachment(attachment.bus, options))


def without_qemu(path: DiskPath) -> DiskPath:
    """The path without the options that choose a QEMU and a number of guests."""
    return without_options(path, ("qemu", GUESTS))

"""qemu-img convert: a copy of the template's data into another image or onto a block device."""

from __future__ import annotations

from vdisklab.operations.making import (
    Command,
    NewDisk,
    Template,
    TemplateForm,
    Way,
    WayKind,
    created,
    needs_plain,
)
from vdisklab.path.options import Number, Switch

_MOST_WORKERS = 16
"""qemu-img's own limit (qemu-img.c, MAX_COROUTINES)."""


def _converted(way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    workers, zeroed = way.option("workers"), bool(way.option("zeroed"))
    # A device has no header of another format that could be written into.
    onto = zeroed or (disk.is_device and disk.driver == "raw")
    convert: Command = (
        "qemu-img", "convert", "-q",
        *(("-W",) if way.option("unordered") else ()),
        *(() if workers is None else ("-m", str(workers))),
        *(("-n",) if onto else ()),
        *(("--target-is-zero",) if zeroed else ()),
        "-f", template.driver, "-O", disk.driver,
        *(() if onto else disk.format_options),
        str(template.file), str(disk.place),
    )  # fmt: skip
    if disk.is_device or disk.size == template.size:
        return (convert,)
    grow = ("qemu-img", "resize", "-q", "-f", disk.driver, str(disk.place), str(disk.size))
    return (convert, grow)


def _zeroed(way: Way, template: Template, disk: NewDisk) -> tuple[Command, ...]:
    """With `zeroed`, qemu-img is told that the target holds zeros: here it is made so."""
    if not way.option("zeroed"):
        return ()
    if disk.is_device and disk.driver == "raw":
        return (("blkdiscard", "--zeroout", "--force", str(disk.place)),)
    return (created(disk, template.size),)


CONVERT = WayKind(
    "convert",
    "qemu-img convert; workers=8 is -m 8, unordered=on is -W, zeroed=on is -n --target-is-zero",
    _converted,
    needs_plain,
    TemplateForm.GIVEN,
    {"workers": Number(1, _MOST_WORKERS), "unordered": Switch(), "zeroed": Switch()},
    before=_zeroed,
    copies=True,
    first_write="what qemu-img wrote is still in the host's memory, and the first flush writes it",
)

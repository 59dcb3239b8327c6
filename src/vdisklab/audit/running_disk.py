"""A disk as a running QEMU has it now: a snapshot does not change a command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from vdisklab.audit.configured_disk import ConfiguredDisk
from vdisklab.audit.drive_arguments import keyed_settings
from vdisklab.audit.limit_words import QEMU, shared_group
from vdisklab.audit.qemu_arguments import cache_of_arguments, image_of, throttled
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import ImageFormat, WriteCache


def monitor_of(words: Sequence[str]) -> Path | None:
    """The Unix socket of a machine-protocol monitor in QEMU's arguments; None if it has none."""
    sockets: dict[str, Path] = {}
    for flag, value in pairwise(words):
        settings = keyed_settings(value, first="backend")
        match flag.removeprefix("-").removeprefix("-"):
            case "qmp" if value.startswith("unix:"):
                return Path(str(settings["backend"]).removeprefix("unix:"))
            case "chardev" if settings.get("backend") == "socket" and "path" in settings:
                sockets[str(settings.get("id"))] = Path(str(settings["path"]))
            case "mon" if settings.get("mode") == "control":
                return sockets.get(str(settings.get("chardev", settings.get("backend"))))
            case _:
                pass
    return None


def as_running(disk: ConfiguredDisk, answer: object) -> ConfiguredDisk:
    """The disk with file, format and cache mode and limits of an answer to `query-block`.

    Unchanged if the answer does not have the disk, or is none.
    """
    entries = answer if isinstance(answer, list) else []
    inserted = next(
        (
            entry["inserted"]
            for entry in entries
            if isinstance(entry, dict)
            and disk.target in (*str(entry.get("qdev")).split("/"), entry.get("device"))
            and isinstance(entry.get("inserted"), dict)
        ),
        None,
    )
    if inserted is None or disk.path is None:
        return disk
    try:
        return _limited(_updated(disk, inserted), inserted, entries)
    except ValueError as error:
        return replace(disk, path=None, problem=str(error))


def _limited(disk: ConfiguredDisk, inserted: dict[str, Any], entries: list[Any]) -> ConfiguredDisk:
    """The disk with the limits of the answer, instead of a -drive's; those of a throttle node,
    which the answer does not tell, are kept.
    """
    if "iops" not in inserted or disk.path is None:
        return disk
    of_all = [entry.get("inserted") for entry in entries if isinstance(entry, dict)]
    groups = [limits.get("group") for limits in of_all if isinstance(limits, dict)]
    shared = shared_group("group", inserted.get("group"), groups)
    if inserted.get("drv") == "throttle":
        return replace(disk, limits=(*disk.limits, *QEMU.all(inserted), *shared))
    path = throttled(disk.path, inserted)
    return replace(disk, path=path, limits=(*QEMU.beyond(inserted), *shared))


def _updated(disk: ConfiguredDisk, inserted: dict[str, Any]) -> ConfiguredDisk:
    path = disk.path
    assert path is not None  # noqa: S101 - the caller has looked
    cache = inserted.get("cache")
    if isinstance(cache, dict):
        offered = "on" if cache.get("writeback") else "off"
        mode, write_cache = cache_of_arguments(cache, offered)
        if (mode.direct, mode.no_flush) != (path.cache.direct, path.cache.no_flush) or (
            path.offers_write_cache != bool(cache.get("writeback"))
        ):
            options = {**dict(path.attachment.options), "write_cache": write_cache.value}
            if write_cache is WriteCache.MODE:
                del options["write_cache"]
            attachment = Attachment(path.attachment.bus, tuple(options.items()))
            path = replace(path, cache=mode, attachment=attachment)
    form = str(inserted.get("drv"))
    known = form in tuple(ImageFormat)
    if known and path.image is not None and path.image.format != form:
        path = replace(path, image=image_of(ImageFormat(form), on_device=False))
    file = inserted.get("file")
    source = file if isinstance(file, str) and file.startswith("/") else disk.source
    return replace(
        disk,
        path=path,
        source=source,
        read_only=disk.read_only or inserted.get("ro") is True,
        probed=disk.probed and not known,
    )

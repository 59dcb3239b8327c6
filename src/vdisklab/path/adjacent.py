"""Paths that differ from a given one in a single segment, and the order of paths by simplicity.

Where measurements show no difference, the simplest path is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from vdisklab.path import backing, durability, rules
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.segments import BUS_OPTIONS, Aio, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.value import replace

_OTHER_FORMAT = {ImageFormat.QCOW2: ImageFormat.RAW, ImageFormat.RAW: ImageFormat.QCOW2}


_CACHES = (CacheMode.NONE, CacheMode.WRITEBACK)
_SIMPLEST_FORMATS = (ImageFormat.RAW, None, ImageFormat.QCOW2)
_SIMPLEST_CACHES = (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.DEFAULT, CacheMode.DIRECTSYNC,
           CacheMode.WRITETHROUGH)  # fmt: skip

_CHANGEABLE = ("aio", "iothread")

_SIMPLEST_BUSES = (Bus.VIRTIO, Bus.SCSI)
RULE = (
    "The simplest path has the fewest host layers; then raw before no image format, qcow2 and "
    "other formats; cache none before writeback, QEMU's default, directsync, writethrough and "
    "the unsafe modes; virtio before scsi and other buses; the fewest options."
)
"""The order of `simplicity`, for people."""

Simplicity = tuple[int, int, int, int, int, tuple[int, ...], str]


def adjacent_paths(
    path: DiskPath, aio_of: Callable[[CacheMode], Aio] | None = None
) -> tuple[DiskPath, ...]:
    """The possible paths that differ from this one in one segment and keep flushed data.

    A shared directory has none: no setting turns it into a disk.

    Settings that need no conversion come first: cache mode, aio, I/O thread; then format and bus.
    A cache mode without O_DIRECT excludes aio=native, which becomes aio=threads. QEMU's default is
    writeback, so neither is adjacent to the other. With `aio_of`, the platform derives the aio mode
    from the cache mode, and chooses the threads: only the cache mode is varied.
    """
    settings = _settings(path) if aio_of is None else _cache_settings(path, aio_of)
    varied = () if path.shares_directory else (*settings, *_rebuilt(path))
    return tuple(
        other
        for other in dict.fromkeys(varied)
        if other != path
        and rules.impossible(other, backing.backing_below(other)) is None
        and not durability.dropped_flushes(other)
    )


def _cache_settings(path: DiskPath, aio_of: Callable[[CacheMode], Aio]) -> Iterator[DiskPath]:
    for cache in _CACHES:
        attachment = path.attachment
        if not path.opened_by_qemu:
            attachment = _with(attachment, aio=aio_of(cache).value)
        yield replace(path, cache=cache, attachment=attachment)


def _settings(path: DiskPath) -> Iterator[DiskPath]:
    synchronous = (CacheMode.DIRECTSYNC, CacheMode.WRITETHROUGH)
    attachment = path.attachment
    for cache in _CACHES if path.offers_write_cache else synchronous:
        if cache is path.cache.spelled_out:
            continue
        needs_direct = attachment.aio in _only_direct(path) and not cache.direct
        yield replace(
            path,
            cache=cache,
            attachment=_with(attachment, aio=Aio.THREADS.value) if needs_direct else attachment,
        )
    for aio in Aio:
        yield replace(path, attachment=_with(attachment, aio=aio.value))
    if "iothread" in BUS_OPTIONS[attachment.bus] and attachment.iothreads is None:
        yield replace(path, attachment=_with(attachment, iothread=not attachment.iothread))


def _only_direct(path: DiskPath) -> tuple[Aio, ...]:
    """The aio modes that need O_DIRECT; io_uring hung in the page cache of krbd (qemu-server,
    storage_allows_io_uring_default)."""
    mapped = any(layer.kind is LayerKind.KRBD for layer in path.layers[-1:])
    return (Aio.NATIVE, Aio.IO_URING) if mapped else (Aio.NATIVE,)


def _rebuilt(path: DiskPath) -> Iterator[DiskPath]:
    if path.image is not None and path.image.format in _OTHER_FORMAT:
        yield replace(path, image=Image(_OTHER_FORMAT[path.image.format]))
    for bus in (Bus.VIRTIO, Bus.SCSI):
        options = tuple(item for item in path.attachment.options if item[0] in BUS_OPTIONS[bus])
        yield replace(path, attachment=Attachment(bus, options))


def _with(attachment: Attachment, **options: str | bool) -> Attachment:
    return Attachment(attachment.bus, tuple((dict(attachment.options) | options).items()))


def same_image_and_bus(path: DiskPath, other: DiskPath) -> bool:
    """True for two paths that differ only in settings that a change can make."""
    return _fixed(path) == _fixed(other)


def _fixed(path: DiskPath) -> DiskPath:
    kept = tuple(option for option in path.attachment.options if option[0] not in _CHANGEABLE)
    attachment = Attachment(path.attachment.bus, kept)
    return replace(path, cache=CacheMode.NONE, attachment=attachment)


def nearest_settings(path: DiskPath, cells: Mapping[MeasuredCell, DiskPath]) -> MeasuredCell | None:
    """The cell that only settings tell from a path, with the simplest cache mode, and then with as
    few other changes as there are; None without one."""

    def changes(cell: MeasuredCell) -> tuple[int, int, Simplicity]:
        other = cells[cell]
        changed = set(path.attachment.options) ^ set(other.attachment.options)
        return _place(other.cache, _SIMPLEST_CACHES), len(changed), simplicity(other)

    alike = [cell for cell, other in cells.items() if same_image_and_bus(path, other)]
    return min(alike, key=changes, default=None)


def simplicity(path: DiskPath) -> Simplicity:
    """A key to sort by, the simplest path first; no two paths have the same key."""
    form = None if path.image is None else path.image.format
    options = sum(
        len(part.options)
        for part in (*path.layers, path.image, path.attachment)
        if part is not None
    )
    return (
        len(path.layers),
        _place(form, _SIMPLEST_FORMATS),
        _place(path.cache, _SIMPLEST_CACHES),
        _place(path.attachment.bus, _SIMPLEST_BUSES),
        options,
        tuple(tuple(LayerKind).index(layer.kind) for layer in path.layers),
        path.canonical,
    )


def _place(value: object, order: tuple[object, ...]) -> int:
    return order.index(value) if value in order else len(order)

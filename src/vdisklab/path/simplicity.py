"""Which of several paths is the simplest: the one to take where measurements show no difference."""

from __future__ import annotations

from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind

_FORMATS = (ImageFormat.RAW, None, ImageFormat.QCOW2)
_CACHES = (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.DEFAULT, CacheMode.DIRECTSYNC,
           CacheMode.WRITETHROUGH)  # fmt: skip
_BUSES = (Bus.VIRTIO, Bus.SCSI)

RULE = (
    "The simplest path has the fewest host layers; then raw before no image format, qcow2 and "
    "other formats; cache none before writeback, QEMU's default, directsync, writethrough and "
    "the unsafe modes; virtio before scsi and other buses; the fewest options."
)
"""The order of `simplicity`, for people."""


Simplicity = tuple[int, int, int, int, int, tuple[int, ...], str]


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
        _place(form, _FORMATS),
        _place(path.cache, _CACHES),
        _place(path.attachment.bus, _BUSES),
        options,
        tuple(tuple(LayerKind).index(layer.kind) for layer in path.layers),
        path.canonical,
    )


def _place(value: object, order: tuple[object, ...]) -> int:
    return order.index(value) if value in order else len(order)

"""Reads sectors of an image file, as a guest would see them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vdisklab.powercut.judging.qcow2 import BadImageError, Metadata, read_metadata
from vdisklab.powercut.sectors import SECTOR, Bytes, Extent, Numbers, extents_of

__all__ = ["OWN_FORMATS", "BadImageError", "Contents", "read_image"]

OWN_FORMATS = ("raw", "qcow2")
"""Formats that we read ourselves."""

_BRIDGE_SECTORS = 128


@dataclass(frozen=True, slots=True)
class Contents:
    """The sectors that were asked for; of qcow2 also what its check found."""

    sectors: Bytes
    problems: tuple[str, ...] = ()
    leaked: int = 0
    dirty: bool = False


def read_image(path: Path, image_format: str, numbers: Numbers) -> Contents:
    """The sectors with these sorted numbers. Raises OSError and BadImageError.

    What lies behind the end of the file reads as zeros, as QEMU does it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if image_format == "raw":
            return Contents(_pick(descriptor, numbers * SECTOR, numbers))
        metadata = read_metadata(descriptor)
        return Contents(
            _pick(descriptor, *_located(metadata, numbers)),
            metadata.problems,
            metadata.leaked,
            metadata.header.dirty,
        )
    finally:
        os.close(descriptor)


def _located(metadata: Metadata, numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Where each sector is in the file (-1: it reads as zeros), and its number."""
    bits = metadata.header.cluster_bits
    guest = numbers * SECTOR
    clusters = metadata.mapping[guest >> bits]
    return np.where(clusters < 0, -1, clusters + (guest & ((1 << bits) - 1))), numbers


def _pick(descriptor: int, places: Numbers, numbers: Numbers) -> Bytes:
    found = np.zeros((len(numbers), SECTOR), dtype=np.uint8)
    order = np.argsort(places, kind="stable")
    ordered = order[places[order] >= 0]
    slots = places[ordered] // SECTOR
    for extent in extents_of(slots, _BRIDGE_SECTORS):
        begin, end = np.searchsorted(slots, (extent.first, extent.first + extent.count))
        rows = _read(descriptor, extent)
        found[ordered[begin:end]] = rows[slots[begin:end] - extent.first]
    return found.reshape(-1)


def _read(descriptor: int, extent: Extent) -> Bytes:
    length = extent.count * SECTOR
    raw = os.pread(descriptor, length, extent.first * SECTOR)
    return np.frombuffer(raw.ljust(length, b"\0"), dtype=np.uint8).reshape(-1, SECTOR)

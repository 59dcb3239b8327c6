"""What a user cannot do without, as a judgement of paths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import Verdicts, durability
from vdisklab.path.segments import Bus, ImageFormat, LayerKind


class NeedKind(StrEnum):
    """The needs, as they are written; `format` takes a value."""

    DURABLE = "durable"
    NO_FLUSH_SAFE = "no-flush-safe"
    SNAPSHOTS = "snapshots"
    DISCARD = "discard"
    LIVE_MIGRATION = "live-migration"
    FORMAT = "format"


MEANING = {
    NeedKind.DURABLE: "flushed data survives a power cut, as far as is known",
    NeedKind.NO_FLUSH_SAFE: "written data survives a power cut even if the guest never flushes",
    NeedKind.SNAPSHOTS: "qcow2, or a host layer that makes snapshots",
    NeedKind.DISCARD: "the guest's discards free room on the host",
    NeedKind.LIVE_MIGRATION: "the host's page cache holds nothing, and the device can migrate",
    NeedKind.FORMAT: "this image format",
}

_SNAPSHOT_LAYERS = (LayerKind.BTRFS, LayerKind.ZFS, LayerKind.ZVOL, LayerKind.LVMTHIN,
                    LayerKind.LVM)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """One need; `format` is set for FORMAT."""

    kind: NeedKind
    format: ImageFormat | None = None

    def __str__(self) -> str:
        return self.kind.value if self.format is None else f"format={self.format}"


def parse_need(text: str) -> Need:
    """The need that is spelled so. Raises PlanError with what may be written."""
    name, equals, value = text.partition("=")
    try:
        kind = NeedKind(name)
        form = ImageFormat(value) if kind is NeedKind.FORMAT else None
    except ValueError:
        kind, form = NeedKind.DURABLE, None
        known = False
    else:
        known = bool(equals) == (kind is NeedKind.FORMAT)
    if not known:
        names = ", ".join(each for each in NeedKind if each is not NeedKind.FORMAT)
        forms = "|".join(form for form in ImageFormat if form.is_file)
        raise PlanError(f"{text!r} is no need", hint=f"write one of {names}, format={forms}")
    return Need(kind, form)


def meets(path: DiskPath, need: Need, verdicts: Verdicts) -> bool:
    """True when the path has what is needed. What is not tested counts as durable so far."""
    match need.kind:
        case NeedKind.DURABLE:
            return durability(path, verdicts).keeping.acceptable
        case NeedKind.NO_FLUSH_SAFE:
            found = durability(path, verdicts)
            return found.keeping.acceptable and found.flush_free
        case NeedKind.SNAPSHOTS:
            qcow2 = path.image is not None and path.image.format is ImageFormat.QCOW2
            return qcow2 or any(layer.kind in _SNAPSHOT_LAYERS for layer in path.layers)
        case NeedKind.DISCARD:
            return path.attachment.option("discard") == "unmap"
        case NeedKind.LIVE_MIGRATION:
            # libvirt calls others unsafe to migrate; QEMU marks its NVMe device unmigratable.
            return path.cache.direct and path.attachment.bus is not Bus.NVME
        case NeedKind.FORMAT:
            return path.image is not None and path.image.format is need.format


def example_of(needs: Sequence[Need]) -> str | None:
    """A path that meets all of these, to be measured; None where no simple one does."""
    forms = [need.format for need in needs if need.format is not None]
    made = itertools.product(
        ("ext4", "btrfs"),
        forms[:1] or (ImageFormat.QCOW2, ImageFormat.RAW),
        ("none", "directsync"),
        ("", "/virtio:discard=unmap"),
    )
    for layer, form, cache, bus in made:
        path = parse_path(f"{layer}/{form}/{cache}{bus}")
        if all(meets(path, need, {}) for need in needs):
            return str(path)
    return None

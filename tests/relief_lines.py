"""All lines to paste that an answer about operations may show."""

from __future__ import annotations

from vdisklab.operations.operation import DiskOperation
from vdisklab.operations.registry import OPERATIONS, parse_operation
from vdisklab.operations.relief import Relief
from vdisklab.path.disk_path import parse_path

SCRUBBED = ("btrfs/raw/none", "zfs/raw/none", "zvol/none", "md/ext4/raw/none")
PATHS = {"scrub": SCRUBBED}
VARIANTS = ("backup:workers=1:speed=32M", "mirror:copy-mode=write-blocking:speed=8M")


def ways(order: DiskOperation, path: str, rate: float | None = None) -> tuple[Relief, ...]:
    return order.relief(parse_path(path), rate)


def every_way() -> list[tuple[str, Relief]]:
    """(operation, way) for each row and some variants."""
    orders = [*map(DiskOperation, OPERATIONS), *map(parse_operation, VARIANTS)]
    return [
        (str(order), way)
        for order in orders
        for path in PATHS.get(order.kind.name, ("qcow2/none",))
        for way in ways(order, path)
    ]


def every_line() -> list[str]:
    return sorted({way.line for _, way in every_way() if way.line})

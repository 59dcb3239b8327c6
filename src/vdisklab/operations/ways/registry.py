"""All ways of making a disk from a template, one row each."""

from __future__ import annotations

from vdisklab.operations.making import Way, WayKind
from vdisklab.operations.spelling import parse_spelled
from vdisklab.operations.ways.btrfs_snapshot import BTRFS_SNAPSHOT
from vdisklab.operations.ways.convert import CONVERT
from vdisklab.operations.ways.copy import CP, DD, SPARSE
from vdisklab.operations.ways.create import CREATE
from vdisklab.operations.ways.overlay import OVERLAY
from vdisklab.operations.ways.reflink import REFLINK
from vdisklab.operations.ways.unpack import UNPACK
from vdisklab.operations.ways.volumes import THIN_SNAPSHOT, ZFS_CLONE, ZVOL_CLONE

WAYS: tuple[WayKind, ...] = (
    CP,
    DD,
    SPARSE,
    REFLINK,
    OVERLAY,
    CONVERT,
    BTRFS_SNAPSHOT,
    CREATE,
    UNPACK,
    THIN_SNAPSHOT,
    ZVOL_CLONE,
    ZFS_CLONE,
)


def parse_way(text: str) -> Way:
    """The way that a user writes as `convert:workers=8`. Raises PlanError."""
    return Way(*parse_spelled(text, WAYS, "way of making a disk"))


def spelled_way(text: str) -> str:
    """The canonical spelling of a way. Raises PlanError."""
    return str(parse_way(text))

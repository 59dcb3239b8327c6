"""All operations, one row each."""

from __future__ import annotations

from collections.abc import Collection

from vdisklab.operations.backup import BACKUP, FLEECING
from vdisklab.operations.commit import COMMIT
from vdisklab.operations.control import NOTHING, STALL
from vdisklab.operations.host_layers import DELETE_HOST_SNAPSHOT, HOST_SNAPSHOT, REFLINK, SCRUB
from vdisklab.operations.incremental import INCREMENTAL
from vdisklab.operations.internal_snapshot import DELETE_INTERNAL, INTERNAL
from vdisklab.operations.mirror import MIRROR
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.resize import RESIZE
from vdisklab.operations.snapshot import SNAPSHOT
from vdisklab.operations.spelling import parse_spelled
from vdisklab.operations.stream import STREAM
from vdisklab.operations.trim import TRIM
from vdisklab.operations.zfs_send import ZFS_SEND
from vdisklab.path.platforms import Platform

OPERATIONS: tuple[OperationKind, ...] = (
    SNAPSHOT,
    COMMIT,
    MIRROR,
    RESIZE,
    BACKUP,
    INCREMENTAL,
    FLEECING,
    STREAM,
    INTERNAL,
    DELETE_INTERNAL,
    TRIM,
    HOST_SNAPSHOT,
    DELETE_HOST_SNAPSHOT,
    REFLINK,
    SCRUB,
    ZFS_SEND,
    NOTHING,
    STALL,
)


def parse_operation(text: str) -> DiskOperation:
    """The operation that a user writes as `backup:workers=1`. Raises PlanError."""
    return DiskOperation(*parse_spelled(text, OPERATIONS, "operation"))


def spelled_order(text: str) -> str:
    """The canonical spelling of an operation. Raises PlanError."""
    return str(parse_operation(text))


def as_platforms_do(text: str, platforms: Collection[Platform]) -> tuple[str, ...]:
    """An order as each of the platforms does it, each once; the order itself without platforms."""
    order = parse_operation(text)
    variants = [order.of_platform(platform) for platform in platforms] or [order]
    return tuple(dict.fromkeys(map(str, variants)))


def judged_operations() -> tuple[OperationKind, ...]:
    """The operations in whose middle a power cut can be judged."""
    return tuple(row for row in OPERATIONS if row.judging is not None)


def judged_names() -> str:
    """Their names, as in a sentence."""
    *names, last = (row.name for row in judged_operations())
    return f"{', '.join(names)} and {last}" if names else last

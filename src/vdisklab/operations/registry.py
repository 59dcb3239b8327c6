"""All operations, one row each."""

from __future__ import annotations

from vdisklab.operations.backup import BACKUP, FLEECING
from vdisklab.operations.commit import COMMIT
from vdisklab.operations.control import NOTHING, STALL
from vdisklab.operations.internal_snapshot import DELETE_INTERNAL, INTERNAL
from vdisklab.operations.mirror import MIRROR
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.resize import RESIZE
from vdisklab.operations.snapshot import SNAPSHOT
from vdisklab.operations.spelling import parse_spelled
from vdisklab.operations.stream import STREAM

OPERATIONS: tuple[OperationKind, ...] = (
    SNAPSHOT,
    COMMIT,
    MIRROR,
    RESIZE,
    BACKUP,
    FLEECING,
    STREAM,
    INTERNAL,
    DELETE_INTERNAL,
    NOTHING,
    STALL,
)


def parse_operation(text: str) -> DiskOperation:
    """The operation that a user writes as `backup:workers=1`. Raises PlanError."""
    return DiskOperation(*parse_spelled(text, OPERATIONS, "operation"))


def spelled_order(text: str) -> str:
    """The canonical spelling of an operation. Raises PlanError."""
    return str(parse_operation(text))


def judged_operations() -> tuple[OperationKind, ...]:
    """The operations in whose middle a power cut can be judged."""
    return tuple(row for row in OPERATIONS if row.judging is not None)

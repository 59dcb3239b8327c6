"""All operations, one row each."""

from __future__ import annotations

from vdisklab.errors import PlanError
from vdisklab.operations.backup import BACKUP, FLEECING
from vdisklab.operations.commit import COMMIT
from vdisklab.operations.control import NOTHING, STALL
from vdisklab.operations.internal_snapshot import DELETE_INTERNAL, INTERNAL
from vdisklab.operations.mirror import MIRROR
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.resize import RESIZE
from vdisklab.operations.snapshot import SNAPSHOT
from vdisklab.operations.stream import STREAM
from vdisklab.path.options import OptionValue

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
    rows = [row for row in OPERATIONS if f"{text}:".startswith(f"{row.name}:")]
    if not rows:
        names = ", ".join(row.name for row in OPERATIONS)
        raise PlanError(f"{text!r} is no operation", hint=f"write one of {names}")
    row = max(rows, key=lambda row: len(row.name))
    values: dict[str, OptionValue] = {}
    for word in text.removeprefix(row.name).split(":")[1:]:
        name, _, value = word.partition("=")
        if name not in row.options or name in values:
            problem = "twice" if name in values else "unknown to it"
            options = ", ".join(row.options) or "it has none"
            raise PlanError(
                f"{text!r}: the option {name!r} is {problem}", hint=f"options: {options}"
            )
        try:
            values[name] = row.options[name].parse(value)
        except ValueError as error:
            raise PlanError(
                f"{text!r}: {value!r} is no value of {name}", hint=f"write {error}"
            ) from error
    return DiskOperation(row, tuple(sorted(values.items())))


def spelled_order(text: str) -> str:
    """The canonical spelling of an operation. Raises PlanError."""
    return str(parse_operation(text))


def judged_operations() -> tuple[OperationKind, ...]:
    """The operations in whose middle a power cut can be judged."""
    return tuple(row for row in OPERATIONS if row.judging is not None)

"""QEMU's block jobs: how far one is, and how the guest is made to use what it has copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vdisklab.errors import OperationError
from vdisklab.host.waiting import wait_until
from vdisklab.operations.operation import Monitor

JOB = "during"
"""The id of an operation's job: a QEMU does one operation at a time."""

_JOB_SECONDS = 60.0


def pivot(monitor: Monitor, what: str) -> None:
    """Waits until the job has copied everything, and lets it switch over.

    Raises OperationError, which names `what`, if the job fails or ends early.
    """
    errors: list[object] = []

    def ours(data: Mapping[str, Any]) -> bool:
        errors.append(data.get("error"))
        return data.get("device") == JOB

    def ready() -> bool:
        jobs = monitor.execute("query-block-jobs")
        if not jobs:
            raise OperationError(f"the {what} ended before it had copied everything")
        return bool(jobs[0].get("ready"))

    wait_until(ready, timeout=_JOB_SECONDS, what=f"end of copying for the {what}")
    with monitor.expecting("BLOCK_JOB_COMPLETED", ours) as wait:
        monitor.execute("block-job-complete", {"device": JOB})
        wait(_JOB_SECONDS)
    if any(errors):
        raise OperationError(f"the {what} failed: {errors[-1]}")

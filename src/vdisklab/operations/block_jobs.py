"""QEMU's block jobs: how far one is, and how the guest is made to use what it has copied."""

from __future__ import annotations

from contextlib import suppress

from vdisklab.errors import OperationError, RefusedError
from vdisklab.host.waiting import wait_until
from vdisklab.operations.operation import DiskOperation, RunningOperation

JOB = "during"
"""The id of an operation's job: a QEMU does one operation at a time."""

_JOB_SECONDS = 60.0
_FULL = "No space left on device"


class JobOperation(RunningOperation):
    """An operation that is a job of QEMU, which stays until it is dismissed.

    QEMU forgets a job that has ended, with its error, unless it is asked to wait (auto-dismiss).
    """

    pivots = False
    """True if the job copies new writes, too, until it is told to move the guest to the copy."""

    _copied: int | None = None

    @property
    def copied(self) -> int | None:
        """The offset of its job, as of the last look."""
        return self._copied

    def ready(self) -> bool:
        """Looks at the job. Raises OperationError if it has ended with an error."""
        jobs = [job for job in self.monitor.execute("query-block-jobs") if job["device"] == JOB]
        if not jobs:
            raise OperationError(f"the {self.order.in_words} ended before it had copied everything")
        (job,) = jobs
        self._copied = int(job["offset"])
        if "error" in job:
            self._dismiss()
            raise _failed(self.order, str(job["error"]))
        return bool(job["ready"]) if self.pivots else job["status"] == "concluded"

    def finish(self) -> None:
        """Waits for the end of the job, which switches the guest over if it `pivots`."""
        wait_until(
            self.ready, timeout=_JOB_SECONDS, what=f"end of copying for the {self.order.in_words}"
        )
        if self.pivots:
            self.monitor.execute("block-job-complete", {"device": JOB})
            self.pivots = False
            wait_until(self.ready, timeout=_JOB_SECONDS, what=f"end of the {self.order.in_words}")
        self._dismiss()

    def undo(self) -> None:
        """Cancels a job that still runs."""
        if not self.monitor.execute("query-block-jobs"):
            return
        with suppress(RefusedError):  # it has ended meanwhile
            self.monitor.execute("block-job-cancel", {"device": JOB, "force": True})
        wait_until(
            self._ended, timeout=_JOB_SECONDS, what=f"end of the cancelled {self.order.in_words}"
        )
        self._dismiss()

    def _ended(self) -> bool:
        jobs = self.monitor.execute("query-block-jobs")
        return not jobs or jobs[0]["status"] == "concluded"

    def _dismiss(self) -> None:
        if self.monitor.execute("query-block-jobs"):
            self.monitor.execute("job-dismiss", {"id": JOB})


def _failed(order: DiskOperation, reason: str) -> OperationError:
    """The error of a job that QEMU ended."""
    if _FULL in reason:
        hint = "free some space where the copy goes: it may need as much as the disk has"
    elif order.kind.copies:
        hint = "look at what the copy goes to: the log of its server, or `dmesg`"
    else:
        hint = "look at `dmesg` for errors of the disk"
    return OperationError(f"the {order.in_words} failed: {reason}", hint=hint)

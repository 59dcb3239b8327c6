"""Two operations of known cost, with which the measurement itself is tried."""

from __future__ import annotations

import time

from vdisklab.operations.operation import OperationKind, RunningOperation
from vdisklab.operations.relief import none
from vdisklab.path.options import Number


class Nothing(RunningOperation):
    """Nothing is done."""

    def finish(self) -> None:
        """Nothing."""


class Stall(RunningOperation):
    """No request is answered for some seconds.

    QEMU's throttling lets one request pass a limit of a byte a second, and holds all after it until
    the limit is lifted (util/throttle.c).
    """

    _begun: float | None = None

    def start(self) -> None:
        """Holds all requests."""
        self._limit(1)
        self._begun = time.monotonic()

    def ready(self) -> bool:
        """True when the time is over."""
        wanted = self.order.option("seconds")
        begun = self._begun
        return begun is not None and time.monotonic() - begun >= float(wanted or 0)

    def finish(self) -> None:
        """Lets all requests pass."""
        self._limit(0)

    def undo(self) -> None:
        """The same, if it was ended early."""
        self._limit(0)

    def _limit(self, bytes_per_second: int) -> None:
        none = dict.fromkeys(("bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)
        limit = {"id": self.access.device, "bps": bytes_per_second}
        self.monitor.execute("block_set_io_throttle", {**none, **limit})


NOTHING = OperationKind("nothing", "nothing, as a control", Nothing, relief=none("a control"))
STALL = OperationKind(
    "stall",
    "no request is answered for some seconds, as a control",
    Stall,
    options={"seconds": Number(1, 60, default=2)},
    relief=none("a control"),
)

"""An operation on the disk in the middle of a recorded run; `operations/` says what it does."""

from __future__ import annotations

from vdisklab.errors import PlanError, PowercutError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon
from vdisklab.guest.qemu.open_disk import open_disk
from vdisklab.operations.operation import DiskAccess, DiskOperation, RunningOperation
from vdisklab.operations.registry import OPERATIONS, judged_operations, parse_operation
from vdisklab.operations.spelling import parse_spelled
from vdisklab.powercut.client import ClientDisk
from vdisklab.powercut.nbd import NbdDisk
from vdisklab.units import SECTOR
from vdisklab.value import Value


def parse_judged(text: str) -> DiskOperation:
    """The operation of that name, if a power cut can be judged in its middle. Raises PlanError."""
    if not any(f"{text}:".startswith(f"{row.name}:") for row in OPERATIONS):
        parse_spelled(text, judged_operations(), "operation")  # its hint names those alone
    operation = parse_operation(text)
    if operation.kind.judging is None:
        names = ", ".join(row.name for row in judged_operations())
        raise PlanError(
            f"no power cut is judged in the middle of the operation {operation}",
            hint=f"write one of {names}",
        )
    return operation


class OperationInMidRun(Value):
    """An operation on the disk of a client; see `client.MidRun`."""

    daemon: StorageDaemon
    disk: Disk
    client: ClientDisk
    running: RunningOperation

    @property
    def added_sectors(self) -> int:
        """The number of sectors by which it makes the disk larger."""
        return ((self.running.size_after or self.disk.size) - self.disk.size) // SECTOR

    def start(self) -> None:
        """Begins it."""
        self.running.start()

    def finish(self) -> None:
        """Ends it, and returns when it has ended and the client can go on."""
        self.running.finish()


def in_mid_run(
    operation: DiskOperation, daemon: StorageDaemon, disk: Disk, client: ClientDisk
) -> OperationInMidRun:
    """The operation on a client's disk; nothing is done yet."""

    def resize(size: int) -> None:
        if not isinstance(client, NbdDisk):
            raise PowercutError(f"--during {operation} needs a client on NBD")
        daemon.resize(disk, size)
        client.go_on_with(daemon.connect(), disk.serial)

    access = DiskAccess(daemon.monitor, resize)
    return OperationInMidRun(daemon, disk, client, operation.on(open_disk(disk), access))

"""A disk that qemu-storage-daemon serves to a guest (vhost-user-blk), while a context is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import GuestError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.plugging import DAEMON
from vdisklab.guest.qemu.read_back import ServingDaemon, read_daemon
from vdisklab.guest.qemu.storage_daemon import start_storage_daemon
from vdisklab.host.ledger import Ledger


@contextmanager
def served(ledger: Ledger, directory: Path, disk: Disk) -> Iterator[ServingDaemon | None]:
    """The daemon with the disk open; None for a disk that QEMU opens itself.

    If the daemon ends before the context does, an error of the body says so.
    """
    if not disk.attachment.bus.is_served:
        yield None
        return
    with start_storage_daemon(ledger, directory, disk.serial) as daemon:
        at_start = read_daemon(daemon)
        try:
            with daemon.export(disk):
                yield ServingDaemon(daemon, at_start)
        except VdisklabError as error:
            if daemon.alive():
                raise
            raise ended(DAEMON) from error


def ended(program: str) -> GuestError:
    """The error for a daemon that is gone."""
    return GuestError(
        f"{program}, which serves the guest, has ended",
        hint="`dmesg` says whether the kernel killed it because memory ran out",
    )

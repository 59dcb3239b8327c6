"""The client on QEMU's block layer alone: requests over NBD, no guest; for screening."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.qemu.storagedaemon import StorageDaemon
from vdisklab.powercut.clients.nbd import NbdClient, open_nbd
from vdisklab.powercut.sectors import SECTOR, make_sectors


@dataclass(frozen=True, slots=True)
class NbdDisk:
    """A `PromisingDisk` over NBD."""

    client: NbdClient

    @property
    def seen(self) -> Mapping[str, str]:
        """See `PromisingDisk.seen`."""
        return {}

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """See `PromisingDisk.write`."""
        return self.client.write(first * SECTOR, make_sectors(first, count, version), fua=fua)

    def flush(self) -> int:
        """See `PromisingDisk.flush`."""
        return self.client.flush()

    def await_one(self) -> int:
        """See `PromisingDisk.await_one`."""
        return self.client.await_one()[0]


@contextmanager
def nbd_disk(daemon: StorageDaemon, disk: Disk) -> Iterator[NbdDisk]:
    """A disk that QEMU's storage daemon opens for us, and serves until the block ends."""
    with daemon.export(disk), closing(daemon.connect()) as connection:
        client = open_nbd(connection, disk.serial)
        yield NbdDisk(client)
        client.disconnect()

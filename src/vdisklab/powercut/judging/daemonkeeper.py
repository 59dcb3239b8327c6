"""A storage daemon for many states: one that ends is started again, and its end is told apart.

QEMU may die of an image, which is a verdict, or be killed, which is none: so an image on which the
daemon ended is opened once more by a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vdisklab.errors import GuestError
from vdisklab.guest.qemu.blockdev import Disk
from vdisklab.guest.qemu.storagedaemon import StorageDaemon, start_storage_daemon
from vdisklab.host.ledger import Ledger
from vdisklab.powercut.clients.blocklayer import NbdDisk, nbd_disk
from vdisklab.powercut.judging.imagereader import BadImageError

_GRACE_SECONDS = 0.05
"""From the end of a connection to the end of its process."""

T = TypeVar("T")


@dataclass(slots=True)
class DaemonKeeper:
    """Starts a daemon when one is wanted, and again when it has ended."""

    ledger: Ledger
    directory: Path
    name: str
    _running: StorageDaemon | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    def daemon(self) -> StorageDaemon:
        """A daemon that runs. Raises GuestError when it does not start."""
        if self._running is None or not self._running.alive():
            self.end()
            self._started += 1
            name = f"{self.name}-{self._started}"
            self._running = self._stack.enter_context(
                start_storage_daemon(self.ledger, self.directory, name)
            )
        return self._running

    def with_disk(self, disk: Disk, use: Callable[[NbdDisk], T]) -> T:
        """What `use` makes of an opened disk.

        Raises BadImageError when QEMU refuses the image, or ends on it twice.
        """
        for last in (False, True):
            daemon = self.daemon()
            try:
                with nbd_disk(daemon, disk) as opened:
                    return use(opened)
            except GuestError as error:
                if daemon.alive(grace=_GRACE_SECONDS):
                    raise BadImageError(f"QEMU cannot go on with the image: {error}") from error
                if last:
                    raise BadImageError(f"QEMU ends on the image, twice: {error}") from error
        raise AssertionError

    def end(self) -> None:
        """Ends the daemon, if there is one."""
        self._running = None
        self._stack.close()


@contextmanager
def keep_daemon(ledger: Ledger, directory: Path, name: str) -> Iterator[DaemonKeeper]:
    """A keeper whose daemon ends with the block; `name` must be unique among running ones."""
    keeper = DaemonKeeper(ledger, directory, name)
    try:
        yield keeper
    finally:
        keeper.end()

"""A disk whose guest is reset again and again while it writes; QEMU goes on.

Without a guest the connection breaks off without a flush, as a reset ends a guest's requests. A
real guest is reset by QMP's `system_reset`. In both cases the client then reads everything back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon
from vdisklab.powercut.client import ReadableDisk
from vdisklab.powercut.crash_states import DueVersions, JudgedState, judge_sectors
from vdisklab.powercut.image_reader import read_image
from vdisklab.powercut.nbd import nbd_disk, read_through
from vdisklab.powercut.sectors import Bytes, Extent, Numbers, read_versions
from vdisklab.value import Value


class ResettableDisk(Value):
    """A client's disk; `reset` resets its guest, and returns when the disk can be used again."""

    disk: ReadableDisk
    reset: Callable[[], None]


ResettableAccess = Callable[[Disk], AbstractContextManager[ResettableDisk]]
"""Opens the disk for a client that can be reset: over NBD, or in a guest."""


@dataclass(slots=True)
class ResetDisk:
    """A `ClientDisk` whose guest is reset after every `every`-th answer, if nothing is in flight.

    `states` gets one judged state for each reset. Every acknowledged write counts as durable,
    because QEMU and the host survive. `past_qemu`: what is read is the image's file.
    """

    client: ResettableDisk
    image: Disk
    every: int
    past_qemu: bool
    states: list[JudgedState]
    _in_flight: dict[int, tuple[Extent, int] | None] = field(default_factory=dict)
    _versions: dict[int, int] = field(default_factory=dict)
    _answers: int = 0

    @property
    def observed(self) -> Mapping[str, str]:
        """The data that the client read back."""
        return self.client.disk.observed

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; see `ClientDisk`."""
        request = self.client.disk.write(first, count, version, fua=fua)
        self._in_flight[request] = Extent(first, count), version
        return request

    def flush(self) -> int:
        """Sends a flush; see `ClientDisk`."""
        request = self.client.disk.flush()
        self._in_flight[request] = None
        return request

    def await_one(self) -> int:
        """The number of the next answered request; then the guest may be reset."""
        request = self.client.disk.await_one()
        write = self._in_flight.pop(request)
        if write is not None:
            extent, version = write
            sectors = range(extent.first, extent.first + extent.count)
            self._versions |= dict.fromkeys(sectors, version)
        self._answers += 1
        if self._answers % self.every == 0 and not self._in_flight:
            self._reset()
        return request

    def _reset(self) -> None:
        self.client.reset()
        numbers = np.array(sorted(self._versions), dtype=np.int64)
        due = np.array([self._versions[number] for number in numbers.tolist()], dtype=np.int64)
        versions = read_versions(self._read(numbers), numbers)
        judged = judge_sectors(numbers, versions, DueVersions(due, due))
        self.states.append(JudgedState(f"reset{self._answers}", *judged))

    def _read(self, numbers: Numbers) -> Bytes:
        if not self.past_qemu:
            return read_through(self.client.disk, numbers)
        return read_image(Path(str(self.image.filename)), self.image.driver, numbers).content


@contextmanager
def resettable_nbd(daemon: StorageDaemon, image: Disk) -> Iterator[ResettableDisk]:
    """A disk of QEMU's block layer, whose client's connection can break off."""
    with nbd_disk(daemon, image) as disk:
        yield ResettableDisk(disk, lambda: disk.go_on_with(daemon.connect(), image.serial))


@contextmanager
def reset_disk(
    access: ResettableAccess, image: Disk, states: list[JudgedState], *, every: int, past_qemu: bool
) -> Iterator[ResetDisk]:
    """A disk whose guest is reset while the context is open; see `ResetDisk`."""
    with access(image) as client:
        yield ResetDisk(client, image, every, past_qemu, states)

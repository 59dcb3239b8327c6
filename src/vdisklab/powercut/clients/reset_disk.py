"""A disk whose guest is reset again and again while it writes; QEMU goes on.

The guest's connection breaks off without a flush, as QMP's `system_reset` ends a guest's requests.
The next one reads everything back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.storage_daemon import StorageDaemon
from vdisklab.powercut.clients.nbd import NbdDisk, connect_disk, read_through
from vdisklab.powercut.judging.image_reader import read_image
from vdisklab.powercut.judging.outcomes import DueVersions, JudgedState, broken_promise
from vdisklab.powercut.sectors import Bytes, Extent, Numbers, read_versions
from vdisklab.powercut.vocabulary import StateOutcome


@dataclass(slots=True)
class ResetDisk:
    """A `ClientDisk` whose guest is reset after every `every`-th answer, if nothing is in flight.

    `states` gets one judged state for each reset. Every acknowledged write counts as promised,
    because QEMU and the host survive. `past_qemu`: what is read is the image's file.
    """

    daemon: StorageDaemon
    image: Disk
    every: int
    past_qemu: bool
    states: list[JudgedState]
    opened: ExitStack
    disk: NbdDisk
    _in_flight: dict[int, tuple[Extent, int] | None] = field(default_factory=dict)
    _versions: dict[int, int] = field(default_factory=dict)
    _answers: int = 0

    @property
    def seen(self) -> Mapping[str, str]:
        """Empty: nothing is read back."""
        return {}

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; see `ClientDisk`."""
        request = self.disk.write(first, count, version, fua=fua)
        self._in_flight[request] = Extent(first, count), version
        return request

    def flush(self) -> int:
        """Sends a flush; see `ClientDisk`."""
        request = self.disk.flush()
        self._in_flight[request] = None
        return request

    def await_one(self) -> int:
        """The number of the next answered request; then the guest may be reset."""
        request = self.disk.await_one()
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
        self.opened.close()
        self.disk = self.opened.enter_context(_connection(self.daemon, self.image))
        numbers = np.array(sorted(self._versions), dtype=np.int64)
        promised = np.array([self._versions[number] for number in numbers.tolist()], dtype=np.int64)
        versions = read_versions(self._read(numbers), numbers)
        broken = broken_promise(numbers, versions, DueVersions(promised, promised))
        outcome, detail = (
            (StateOutcome.KEPT, "") if broken is None else (broken.outcome, str(broken))
        )
        self.states.append(JudgedState(f"reset{self._answers}", outcome, detail))

    def _read(self, numbers: Numbers) -> Bytes:
        if not self.past_qemu:
            return read_through(self.disk, numbers)
        return read_image(Path(str(self.image.filename)), self.image.driver, numbers).content


@contextmanager
def _connection(daemon: StorageDaemon, image: Disk) -> Iterator[NbdDisk]:
    with closing(daemon.connect()) as connection:
        yield connect_disk(connection, image.serial)


@contextmanager
def reset_disk(
    daemon: StorageDaemon, image: Disk, states: list[JudgedState], *, every: int, past_qemu: bool
) -> Iterator[ResetDisk]:
    """A disk of QEMU's block layer; see `ResetDisk`."""
    with daemon.export(image), ExitStack() as opened:
        disk = opened.enter_context(_connection(daemon, image))
        yield ResetDisk(daemon, image, every, past_qemu, states, opened, disk)

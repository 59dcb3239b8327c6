"""Guests in waiting: booted once a block, frozen while another one is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from vdisklab.guest.blockdev import Disk
from vdisklab.guest.disk import await_drivers
from vdisklab.guest.machine import Machine
from vdisklab.guest.observe import QemuProcess, read_process
from vdisklab.plan.segments import Aio, Bus
from vdisklab.progress import Progress, Step


@dataclass(frozen=True, slots=True)
class GuestKey:
    """Cells that may share a guest agree in this.

    The aio mode is part of it because QEMU keeps the context of an aio mode for as long as it
    lives, so a second mode in the same process could not be told from the first.
    """

    machine: str
    aio: Aio


@dataclass(frozen=True, slots=True)
class PooledGuest:
    """A running guest, and what its QEMU looked like before its first disk."""

    machine: Machine
    at_start: QemuProcess


StartGuest = Callable[[str, tuple[Disk, ...]], AbstractContextManager[Machine]]
"""(machine type, disks that are there from the start) -> a running guest, as a block."""


class GuestPool:
    """Keeps one guest for each key; used as a context manager, which ends them all."""

    def __init__(self, start: StartGuest, progress: Progress) -> None:
        self._start = start
        self._progress = progress
        self._guests: dict[GuestKey, tuple[PooledGuest, ExitStack]] = {}

    def __enter__(self) -> GuestPool:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.renew()

    def renew(self) -> None:
        """Ends all guests, so that the next block gets freshly booted ones."""
        while self._guests:
            _, (_, stack) = self._guests.popitem()
            stack.close()

    @contextmanager
    def guest(self, key: GuestKey) -> Iterator[PooledGuest]:
        """A running guest for a hot-plugged disk; one that fails is ended and never used again."""
        try:
            pooled = self._thawed(key)
            yield pooled
            pooled.machine.freeze()
        except BaseException as error:
            if key in self._guests:
                _, stack = self._guests.pop(key)
                # The machine must see the error: it adds what the guest's console said last.
                stack.__exit__(type(error), error, error.__traceback__)
            raise

    def _thawed(self, key: GuestKey) -> PooledGuest:
        if key in self._guests:
            pooled, _ = self._guests[key]
            pooled.machine.thaw()
            return pooled
        self._progress(Step(f"booting a {key.machine} guest"))
        with ExitStack() as starting:
            machine = starting.enter_context(self._start(key.machine, ()))
            await_drivers(machine)
            pooled = PooledGuest(machine, read_process(machine))
            stack = starting.pop_all()
        self._guests[key] = (pooled, stack)
        return pooled

    @contextmanager
    def own_guest(self, bus: Bus, disk: Disk) -> Iterator[PooledGuest]:
        """A guest booted for one disk, for buses that cannot be plugged."""
        before = self._before_any_disk(disk)
        self._progress(Step(f"booting a {bus.machine} guest with its {bus} disk"))
        with self._start(bus.machine, (disk,)) as machine:
            await_drivers(machine)
            yield PooledGuest(machine, before or read_process(machine))

    def _before_any_disk(self, disk: Disk) -> QemuProcess | None:
        """What QEMU looks like without the disk; needed only to tell io_uring from polling."""
        if disk.attachment.aio is not Aio.IO_URING:
            return None
        with self.guest(GuestKey(Bus.VIRTIO.machine, Aio.THREADS)) as other:
            return other.at_start

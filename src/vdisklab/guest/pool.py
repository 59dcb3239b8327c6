"""Running guests: each is booted once per round, and frozen while another guest is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from vdisklab.errors import SilentGuestError, WrongClockError
from vdisklab.guest.hotplug import attached_disk
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.read_back import QemuTraces, read_process
from vdisklab.guest.system.guest_system import GuestDisk, UnfitGuestError
from vdisklab.path.segments import Aio, Bus
from vdisklab.progress import Note, Progress, Step
from vdisklab.results.model import Check


@dataclass(frozen=True, slots=True)
class GuestKey:
    """Cells with equal keys may share a guest.

    The aio mode is included: QEMU never closes an aio context, so a second mode in the same process
    could not be distinguished from the first. `member` distinguishes guests that run at once.
    """

    machine: str
    aio: Aio
    qemu: str | None = None
    member: int = 0


@dataclass(frozen=True, slots=True)
class PooledGuest:
    """A running guest, its QEMU's traces before the first disk, and facts to store with a run."""

    machine: Machine
    at_start: QemuTraces
    facts: tuple[Check, ...] = ()


StartGuest = Callable[[str, tuple[Disk, ...], str | None], AbstractContextManager[Machine]]
"""(machine type, disks present at boot, name of the QEMU or None for the installed one) -> a
context with a running guest."""


class GuestPool:
    """Keeps one guest for each key, and ends them all when its context is closed."""

    def __init__(self, start: StartGuest, progress: Progress, programs: Sequence[str] = ()) -> None:
        """The guests must have these `programs`."""
        self._begin = start
        self._programs = tuple(programs)
        self._unfit: UnfitGuestError | None = None
        self._progress = progress
        self._guests: dict[GuestKey, tuple[PooledGuest, ExitStack]] = {}

    def __enter__(self) -> GuestPool:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.renew()

    def renew(self) -> None:
        """Ends all guests, so that the next round boots new ones."""
        for key in tuple(self._guests):
            self._end(key)

    def _end(self, key: GuestKey) -> None:
        """Ends the guest with this key, if it runs."""
        if key in self._guests:
            _, stack = self._guests.pop(key)
            stack.close()

    @contextmanager
    def _start(self, machine: str, disks: tuple[Disk, ...], qemu: str | None) -> Iterator[Machine]:
        """Starts a guest, and another if the first one stays silent or its clock is wrong.

        Both happen to emulated guests on a busy host, before anything is measured. If a guest was
        unfit before, raises the same error without another attempt.
        """
        if self._unfit is not None:
            raise UnfitGuestError(self._unfit.message, hint=self._unfit.hint)
        try:
            with ExitStack() as stack:
                begin = partial(self._begin, machine, disks, qemu)
                try:
                    started = stack.enter_context(begin())
                except (SilentGuestError, WrongClockError) as error:
                    self._progress(Note(_reason(error)))
                    started = stack.enter_context(begin())
                yield started
        except UnfitGuestError as error:
            self._unfit = error
            raise

    def _settle(self, machine: Machine) -> tuple[Check, ...]:
        """Waits until the boot is finished and the guest is idle, and checks its programs."""
        machine.await_ready()
        machine.system.require(machine.agent, self._programs)
        return machine.system.facts(machine.agent)

    @contextmanager
    def guest(self, key: GuestKey) -> Iterator[PooledGuest]:
        """A running guest for a hot-plugged disk. If the body fails, the guest is killed."""
        try:
            pooled = self._thawed(key)
            yield pooled
            pooled.machine.freeze()
        except BaseException as error:
            if key in self._guests:
                _, stack = self._guests.pop(key)
                # The machine's context must see the error, to add the last lines of the guest's
                # console.
                stack.__exit__(type(error), error, error.__traceback__)
            raise

    def _thawed(self, key: GuestKey) -> PooledGuest:
        if key in self._guests:
            pooled, _ = self._guests[key]
            pooled.machine.thaw()
            return pooled
        self._progress(Step(f"booting a {key.machine} guest"))
        with ExitStack() as starting:
            machine = starting.enter_context(self._start(key.machine, (), key.qemu))
            facts = self._settle(machine)
            pooled = PooledGuest(machine, read_process(machine), facts)
            stack = starting.pop_all()
        self._guests[key] = (pooled, stack)
        return pooled

    @contextmanager
    def plugged(
        self, disk: Disk, *, fresh: bool = False, member: int = 0
    ) -> Iterator[tuple[PooledGuest, GuestDisk]]:
        """A running guest with the disk: hot-plugged if the bus allows it, else present at boot.

        With `fresh` the guest is newly booted.
        """
        bus = disk.attachment.bus
        if bus.hot_pluggable:
            key = GuestKey(bus.machine, disk.attachment.aio, disk.attachment.qemu, member)
            if fresh:
                self._end(key)
            with self.guest(key) as pooled, attached_disk(pooled.machine, disk) as guest_disk:
                yield pooled, guest_disk
        else:
            with self.dedicated_guest(bus, disk) as pooled:
                yield pooled, pooled.machine.find_disk(disk.serial)

    @contextmanager
    def dedicated_guest(self, bus: Bus, disk: Disk) -> Iterator[PooledGuest]:
        """A guest booted with one disk or directory, for buses without hot-plug."""
        before = self.before_any_disk(disk)
        what = "directory" if bus.shares_directory else "disk"
        self._progress(Step(f"booting a {bus.machine} guest with its {bus} {what}"))
        with self._start(bus.machine, (disk,), disk.attachment.qemu) as machine:
            facts = self._settle(machine)
            yield PooledGuest(machine, before or read_process(machine), facts)

    def before_any_disk(self, disk: Disk) -> QemuTraces | None:
        """QEMU's traces without the disk, which distinguish io_uring from polling; None if not
        needed."""
        if disk.attachment.aio is not Aio.IO_URING:
            return None
        key = GuestKey(Bus.VIRTIO.machine, Aio.THREADS, disk.attachment.qemu)
        with self.guest(key) as other:
            return other.at_start


def _reason(error: SilentGuestError | WrongClockError) -> str:
    """Why another guest is booted, with the last line of the first one's console."""
    lines = "\n".join(getattr(error, "__notes__", ())).splitlines()
    last = f" (its console ends with: {lines[-1].strip()})" if lines else ""
    return f"{error}{last}; booting another guest"

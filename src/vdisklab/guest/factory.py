"""Starts guests: prepares kernel and image, chooses the accelerator, and keeps guests running.

Each guest is booted once per round (small rounds of a race share it), and frozen while another
guest is measured.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path

from vdisklab.errors import GuestError, SilentGuestError, WrongClockError
from vdisklab.guest.accelerator import (
    KvmTrial,
    device_refused,
    earlier_trial,
    kvm_error,
    remembered_trial,
    trial_key,
    try_kvm,
    untried,
)
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.hotplug import attached_disk
from vdisklab.guest.image.guest_image import WITHOUT_FIO, GuestImage, build_guest_image
from vdisklab.guest.image.kernel import is_kernel_at_hand, kernel_for
from vdisklab.guest.machine import NOTHING_PRINTED, Machine, start_machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, CarriedDisk, GuestConfig, UserBoot
from vdisklab.guest.qemu.probe import has_sandbox
from vdisklab.guest.qemu.read_back import QemuTraces, read_process
from vdisklab.guest.systems import GuestDisk, UnfitGuestError
from vdisklab.host.command import Host
from vdisklab.host.facts import QEMU
from vdisklab.host.machine import is_emulated
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.disk_path import Attachment
from vdisklab.path.segments import Aio, Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import USUAL_GUEST, GuestPlan, Qemu
from vdisklab.progress import Note, Progress, Step
from vdisklab.results.model import GUEST_ARCHITECTURE, Check
from vdisklab.value import Value, replace

UserBoots = Callable[[str], AbstractContextManager[UserBoot]]
"""(unique name of the guest) -> a context with the files that one user guest boots from."""

StartGuest = Callable[[str, tuple[Disk, ...], str | None], AbstractContextManager[Machine]]
"""(machine type, disks present at boot, name of the QEMU or None for the installed one) -> a
context with a running guest."""


def prepare_guests(
    context: GuestContext,
    guest: GuestPlan,
    buses: frozenset[Bus],
    directory: Path,
    *,
    carried: tuple[CarriedDisk, ...] = (),
    qemus: Sequence[Qemu | None] = (None,),
    user_boots: UserBoots | None = None,
    stops_are_errors: bool = True,
    fio: bool = True,
) -> tuple[Accelerator, StartGuest]:
    """Returns the accelerator of all guests, and a function that starts a guest with drivers for
    `buses`.

    With `user_boots` it starts user guests, else micro guests. Each runs under one of `qemus` and
    has the disks `carried`. The console and QEMU's errors are written below `directory`. Of
    `stops_are_errors` see `start_machine`. A micro guest that will measure nothing boots without a
    first start of fio, 1.3 s of CPU under emulation.
    """
    micro = cache(partial(_micro_guest, context, guest, buses, fio=fio))
    if user_boots is None:
        micro()
    names = (f"vdisklab-{context.ledger.run_id}-{number}" for number in itertools.count(1))
    sandboxed = cache(partial(has_sandbox, context.host))
    by_name = {None if qemu is None else qemu.name: qemu for qemu in qemus}
    tested = None if user_boots is not None and guest.accelerator is Accelerator.KVM else micro
    accelerator = _choose_accelerator(context, guest, qemus, tested, directory)
    if not accelerator.is_emulation and is_emulated():
        context.progress(
            Note("under KVM in an emulated host: proof that code works, not a measure of speed")
        )

    def start(
        machine: str, boot: BootFiles | UserBoot, disks: tuple[Disk, ...], name: str | None
    ) -> AbstractContextManager[Machine]:
        qemu = by_name[name]
        config = GuestConfig(
            binary_of(qemu), next(names), machine, accelerator, guest, boot,
            usb=Bus.USB in buses, cold_disks=disks, carried=carried,
            version=None if qemu is None else qemu.version,
            sandbox=sandboxed(binary_of(qemu)),
        )  # fmt: skip
        return start_machine(config, context.ledger, directory, stops_are_errors=stops_are_errors)

    if user_boots is None:
        return accelerator, lambda machine, disks, name: start(machine, micro(), disks, name)
    boots = user_boots

    @contextmanager
    def start_user_guest(
        machine: str, disks: tuple[Disk, ...], name: str | None
    ) -> Iterator[Machine]:
        with (
            boots(f"system-{secrets.token_hex(4)}") as boot,
            _answering(start(machine, boot, disks, name), guest) as running,
        ):
            yield running

    return accelerator, start_user_guest


@contextmanager
def _answering(opened: AbstractContextManager[Machine], guest: GuestPlan) -> Iterator[Machine]:
    """Starts the guest. Raises UnfitGuestError if it does not come up: retrying would not help."""
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(opened)
        except (UnfitGuestError, WrongClockError):
            raise
        except GuestError as error:
            user = guest.user
            what = "the image" if user is None else f"{user.image} with {user.firmware.upper()}"
            unfit = UnfitGuestError(
                f"the guest of {what} does not start: {error}",
                hint="check --guest-firmware, --guest-bus, and that the guest starts the QEMU "
                "guest agent; --guest-boot allows more time",
            )
            for note in getattr(error, "__notes__", ()):
                unfit.add_note(note)
            raise unfit from error
        yield machine


def binary_of(qemu: Qemu | None) -> str:
    """The QEMU program of that name; None means the installed one."""
    return QEMU if qemu is None else str(qemu.binary)


def _micro_guest(
    context: GuestContext, guest: GuestPlan, buses: frozenset[Bus], *, fio: bool
) -> BootFiles:
    context.progress(Step("preparing the guest's kernel and image"))
    boot = boot_files(context.host, context.cache, buses, guest)
    return boot if fio else replace(boot, append=f"{boot.append} {WITHOUT_FIO}")


def boot_files(
    host: Host, cache: Path, buses: frozenset[Bus], guest: GuestPlan = USUAL_GUEST
) -> BootFiles:
    """The micro guest with drivers for these buses, from the cache or newly built.

    Raises HostError.
    """
    return files_of(build_guest_image(host, cache, kernel_for(host, cache, buses, guest)))


def files_of(image: GuestImage) -> BootFiles:
    """The files of a built image that QEMU boots."""
    return BootFiles(image.kernel, image.initrd, image.root, image.append)


def _choose_accelerator(
    context: GuestContext,
    guest: GuestPlan,
    qemus: Sequence[Qemu | None],
    micro: Callable[[], BootFiles] | None,
    directory: Path,
) -> Accelerator:
    """The requested accelerator; else KVM if every QEMU boots the micro guest under it, else TCG.

    Raises GuestError if KVM was requested and does not work. Without `micro` only the device is
    tested: a user's system needs no micro guest.
    """
    if guest.accelerator is Accelerator.TCG:
        # A campaign that goes on names the accelerator that its first guests had.
        context.progress(Note("under emulation (TCG), as requested or as in the runs before"))
        return Accelerator.TCG
    for qemu in qemus:
        if micro is None:
            trial = device_refused()
        else:
            trial = _kvm_trial(context, guest, qemu, micro(), directory)
        if trial is not None and not trial.works:
            if guest.accelerator is Accelerator.KVM:
                raise kvm_error(trial)
            remedy = f"; {trial.remedy}" if trial.remedy else ""
            context.progress(Note(f"under emulation (TCG): {trial.tried}{remedy}"))
            return Accelerator.TCG
    return Accelerator.KVM


def _kvm_trial(
    context: GuestContext, guest: GuestPlan, qemu: Qemu | None, boot: BootFiles, directory: Path
) -> KvmTrial:
    """Tests whether the micro guest boots under KVM with this QEMU; the cache keeps the result."""

    def start(seconds: float) -> None:
        marker = f"vdisklab-{context.ledger.run_id}-kvm"
        machine = Bus.VIRTIO.machine
        config = GuestConfig(
            binary_of(qemu), marker, machine, Accelerator.KVM, guest, boot,
            sandbox=has_sandbox(context.host, binary_of(qemu)),
        )  # fmt: skip
        with start_machine(config, context.ledger, directory, timeout=seconds):
            pass

    def trial() -> KvmTrial:
        context.progress(Step("testing whether a guest runs under KVM"))
        return try_kvm(start)

    return remembered_trial(*_trial_place(context.host, context.cache, qemu, boot), trial)


def _trial_place(host: Host, cache: Path, qemu: Qemu | None, boot: BootFiles) -> tuple[Path, str]:
    """The file with the trial's result, and the key of all that the result depends on."""
    version = host.run(binary_of(qemu), "--version").stdout.splitlines()[0]
    name = "accelerator" if qemu is None else f"accelerator-{qemu.name}"
    return cache / f"{name}.json", trial_key(version, f"{boot.kernel} {boot.root}")


def known_accelerator(
    host: Host, cache: Path, guest: GuestPlan, qemus: Sequence[Qemu | None], boot: BootFiles | None
) -> Accelerator | None:
    """The accelerator that a campaign will use, as far as it is known without a new trial."""
    if guest.accelerator is not None:
        return guest.accelerator
    if device_refused() is not None:
        return Accelerator.TCG
    if boot is None:
        return None
    trials = [earlier_trial(*_trial_place(host, cache, qemu, boot)) for qemu in qemus]
    if any(trial is not None and not trial.works for trial in trials):
        return Accelerator.TCG
    return Accelerator.KVM if None not in trials else None


def try_kvm_without_download(context: GuestContext, directory: Path) -> KvmTrial:
    """Makes the same KVM trial as a campaign, if a kernel is installed or cached; the cache keeps
    the result. The guest's sockets lie in `directory`.

    `works` is None without a kernel. Raises HostError when the guest cannot be built.
    """
    buses = frozenset({Bus.VIRTIO})
    refused = device_refused()
    if refused is not None:
        return refused
    if not is_kernel_at_hand(context.cache, buses):
        return untried(
            "not tested further, because no guest kernel is installed or cached yet",
            "`vdisklab run raw/none` downloads a kernel and tests KVM",
        )
    boot = boot_files(context.host, context.cache, buses)
    return _kvm_trial(context, GuestPlan(), None, boot, directory)


class GuestKey(Value):
    """Cells with equal keys may share a guest.

    The aio mode is included: QEMU never closes an aio context, so a second mode in the same process
    could not be distinguished from the first. `member` distinguishes guests that run at once.
    """

    machine: str
    aio: Aio
    qemu: str | None = None
    member: int = 0


class PooledGuest(Value):
    """A running guest, its QEMU's traces before the first disk, and facts to store with a run."""

    machine: Machine
    at_start: QemuTraces
    facts: tuple[Check, ...] = ()


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

        Both happen to emulated guests on a busy host, before anything is measured. Raises the same
        error at once if an earlier guest was unfit too.
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
        return (*_machine_facts(machine), *machine.system.facts(machine.agent))

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
        self._progress(Step(f"booting a {_plain(key.machine)} guest"))
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

    def make_ready(self, attachment: Attachment, member: int = 0) -> None:
        """Boots the guest that a disk will be plugged into, unless it runs already. Does nothing
        for buses without hot-plug."""
        bus = attachment.bus
        if bus.hot_pluggable:
            with self.guest(GuestKey(bus.machine, attachment.aio, attachment.qemu, member)):
                pass

    @contextmanager
    def dedicated_guest(self, bus: Bus, disk: Disk) -> Iterator[PooledGuest]:
        """A guest booted with one disk or directory, for buses without hot-plug."""
        before = self.before_any_disk(disk)
        what = "directory" if bus.shares_directory else "disk"
        self._progress(Step(f"booting a {_plain(bus.machine)} guest with its {bus} {what}"))
        with self._start(bus.machine, (disk,), disk.attachment.qemu) as machine:
            facts = self._settle(machine)
            yield PooledGuest(machine, before or read_process(machine), facts)

    def before_any_disk(self, disk: Disk) -> QemuTraces | None:
        """QEMU's traces before any disk, which tell io_uring from polling; None if not needed."""
        if disk.attachment.aio is not Aio.IO_URING:
            return None
        key = GuestKey(Bus.VIRTIO.machine, Aio.THREADS, disk.attachment.qemu)
        with self.guest(key) as other:
            return other.at_start


def _plain(machine: str) -> str:
    """QEMU's machine without its options."""
    return machine.partition(",")[0]


def _machine_facts(machine: Machine) -> Iterator[Check]:
    """The guest's architecture, if it is not this host's, and what QEMU chose for its machine."""
    if is_foreign():
        yield Check(GUEST_ARCHITECTURE, None, GUEST.name)
    name = GUEST.interrupts
    if name:
        value = machine.monitor.execute("qom-get", {"path": "/machine", "property": name})
        yield Check(f"guest.{name}", None, str(value))


def _reason(error: SilentGuestError | WrongClockError) -> str:
    """Why another guest is booted, with the last line of the first one's console."""
    lines = "\n".join(getattr(error, "__notes__", ())).splitlines()
    last = lines[-1].strip() if lines else ""
    if last and last != NOTHING_PRINTED:
        last = f"(its console ends with: {last})"
    return f"{error}{f' {last}' if last else ''}; booting another guest"

"""Builds QEMU's command line for a guest. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vdisklab.guest.qemu.block_nodes import HOTPLUG_PORTS, Disk, cold_arguments
from vdisklab.path.architecture import GUEST
from vdisklab.path.segments import SHARED_MEMORY, Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan, SystemBus
from vdisklab.units import MIB
from vdisklab.value import Value

SYSTEM_SERIAL = "vdisklab-system"
"""Serial number of the disk that a user guest boots from."""


SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
"""What libvirt gives its guests, too: QEMU starts no program and gains no rights (seccomp)."""


class BootFiles(Value):
    """The files that the micro guest boots, and its kernel command line.

    `root` is None if the system is on the measured disk.
    """

    kernel: Path
    initrd: Path
    root: Path | None
    append: str


class FirmwareFiles(Value):
    """UEFI firmware: its read-only code, and a writable copy of its variables."""

    code: Path
    variables: Path


class UserBoot(Value):
    """The disk that a user guest boots: a qcow2 overlay on the user's image.

    `firmware` None means BIOS. `seconds` is the deadline for its boot, None for the default.
    """

    overlay: Path
    bus: SystemBus
    firmware: FirmwareFiles | None = None
    seconds: float | None = None
    diskspd: Path | None = None


class CarriedDisk(Value):
    """A read-only raw virtio disk that is present at boot; the guest finds it by `serial`."""

    serial: str
    path: Path


class GuestConfig(Value):
    """One QEMU process."""

    binary: str
    marker: str
    """Unique among the processes of this host: `clean` finds the process by it."""
    machine: str
    accelerator: Accelerator
    plan: GuestPlan
    boot: BootFiles | UserBoot
    """The kernel and image of the micro guest, or the user's own guest."""
    usb: bool = False
    """True if the machine has a USB controller."""
    cold_disks: tuple[Disk, ...] = ()
    """Disks on buses without hot-plug, which are there when the machine starts."""
    version: str | None = None
    """The expected QEMU version; None accepts any."""
    carried: tuple[CarriedDisk, ...] = ()
    """Archives of packages and prepared files that the guest reads."""
    sandbox: bool = True
    """False for a QEMU, or a host, without seccomp."""


class Channels(Value):
    """File descriptors that QEMU inherits, and the file for the guest's console.

    `steps` belongs to the port of programs that run in steps, which only the micro guest has.
    """

    monitor: int
    agent: int
    steps: int
    console: Path


def build_argv(config: GuestConfig, channels: Channels) -> tuple[str, ...]:
    """The whole command line."""
    plan, is_kvm = config.plan, config.accelerator is Accelerator.KVM
    return (
        config.binary,
        "-name", f"guest={config.marker},debug-threads=on",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        *(("-sandbox", SANDBOX) if config.sandbox else ()),
        "-machine", _machine(config),
        "-accel", "kvm" if is_kvm else "tcg,thread=multi",
        "-cpu", "host" if is_kvm else GUEST.emulated_cpu,
        "-smp", str(plan.cpus),
        *_memory(config),
        *_boot(config.boot),
        *_flatten(_read_only(disk.path, disk.serial, disk.serial) for disk in config.carried),
        "-serial", f"file:{channels.console}",
        *_channels(channels),
        *(_steps(channels) if isinstance(config.boot, BootFiles) else ()),
        *_ports(config),
        *_flatten(cold_arguments(disk) for disk in config.cold_disks),
    )  # fmt: skip


def _memory(config: GuestConfig) -> tuple[str, ...]:
    """The size of the memory, and the object that another process can map."""
    size = str(config.plan.memory_bytes // MIB)
    if SHARED_MEMORY not in config.machine:
        return ("-m", size)
    shared = f"memory-backend-memfd,id=shared,share=on,size={size}M"
    return ("-m", size, "-object", shared)


def _machine(config: GuestConfig) -> str:
    """The machine type with the options for the firmware of a user guest."""
    boot, machine = config.boot, f"{config.machine}{GUEST.machine_options}"
    if isinstance(boot, BootFiles):
        return machine
    if boot.firmware is None:
        # SeaBIOS then writes to the serial port (etc/sercon-port), including why it cannot boot.
        return f"{machine},graphics=off"
    return f"{machine},pflash0=firmware,pflash1=variables"


def _boot(boot: BootFiles | UserBoot) -> tuple[str, ...]:
    if isinstance(boot, UserBoot):
        return (*_firmware(boot.firmware), *_system_disk(boot))
    return (
        "-kernel", str(boot.kernel),
        "-initrd", str(boot.initrd),
        "-append", boot.append,
        *(() if boot.root is None else _read_only(boot.root, "system", "vdisklab-image")),
    )  # fmt: skip


def _read_only(image: Path, node: str, serial: str) -> tuple[str, ...]:
    return (
        "-blockdev", f"driver=file,filename={_escape(image)},node-name={node},read-only=on",
        "-device", f"virtio-blk-pci,drive={node},serial={serial},romfile=",
    )  # fmt: skip


def _firmware(files: FirmwareFiles | None) -> tuple[str, ...]:
    if files is None:
        return ()
    code, variables = _escape(files.code), _escape(files.variables)
    return (
        "-blockdev", f"driver=file,filename={code},node-name=firmware,read-only=on",
        "-blockdev", f"driver=file,filename={variables},node-name=variables",
    )  # fmt: skip


def _system_disk(boot: UserBoot) -> tuple[str, ...]:
    """The overlay. It is discarded, so its flushes to the host's disk are skipped.

    On SATA the first port stays free for a measured disk. Windows needs a display to boot.
    """
    shared = f"drive=system,serial={SYSTEM_SERIAL},bootindex=0"
    device = {
        SystemBus.VIRTIO: f"virtio-blk-pci,{shared}",
        SystemBus.SATA: f"ide-hd,bus=ide.1,{shared}",
        SystemBus.NVME: f"nvme,{shared}",
    }[boot.bus]
    file = f"file.driver=file,file.cache.no-flush=on,file.filename={_escape(boot.overlay)}"
    return (
        "-blockdev", f"driver=qcow2,node-name=system,cache.no-flush=on,{file}",
        "-device", device,
        *GUEST.display,
    )  # fmt: skip


def _escape(path: Path) -> str:
    """In QEMU's options a comma within a value is written twice."""
    return str(path).replace(",", ",,")


def _channels(channels: Channels) -> tuple[str, ...]:
    return (
        "-device", "virtio-serial-pci,romfile=",
        "-chardev", f"socket,id=agent,fd={channels.agent}",
        "-device", "virtserialport,id=agent-port,chardev=agent,name=org.qemu.guest_agent.0",
        "-chardev", f"socket,id=monitor,fd={channels.monitor}",
        "-mon", "chardev=monitor,mode=control",
        "-device", "virtio-rng-pci,romfile=",
    )  # fmt: skip


def _steps(channels: Channels) -> tuple[str, ...]:
    return (
        "-chardev", f"socket,id=steps,fd={channels.steps}",
        "-device", "virtserialport,chardev=steps,name=vdisklab.steps",
    )  # fmt: skip


def _ports(config: GuestConfig) -> tuple[str, ...]:
    if config.machine == GUEST.machines.get(Bus.IDE):
        return ()
    arguments: list[str] = []
    for number, port in enumerate(HOTPLUG_PORTS):
        arguments += ("-device", f"pcie-root-port,id={port},chassis={number + 1},slot={number + 1}")
    if config.usb:
        arguments += ("-device", "qemu-xhci,id=xhci")
    return tuple(arguments)


def _flatten(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(argument for group in groups for argument in group)

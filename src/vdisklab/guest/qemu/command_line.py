"""QEMU's command line for a guest. Pure: it is tested without QEMU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vdisklab.guest.qemu.block_nodes import Disk, cold_arguments
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import Accelerator, GuestPlan, SystemBus
from vdisklab.units import MIB

SYSTEM_SERIAL = "vdisklab-system"
"""Serial number of the disk that a user guest boots from."""

HOTPLUG_PORTS = ("hp0", "hp1", "hp2")
"""Empty PCI Express root ports of q35. A SCSI controller and its disk take one."""


@dataclass(frozen=True, slots=True)
class BootFiles:
    """What the micro guest boots: kernel, initrd, read-only root image, kernel command line.

    `root` is None where the system is on the measured disk.
    """

    kernel: Path
    initrd: Path
    root: Path | None
    append: str


@dataclass(frozen=True, slots=True)
class FirmwareFiles:
    """UEFI: its read-only code, and a copy of its variables, which it writes."""

    code: Path
    variables: Path


@dataclass(frozen=True, slots=True)
class UserBoot:
    """What a user guest boots: a qcow2 overlay on its image.

    `firmware` None is BIOS. `seconds` is the deadline of its boot, None for the default.
    """

    overlay: Path
    bus: SystemBus
    firmware: FirmwareFiles | None = None
    seconds: float | None = None
    diskspd: Path | None = None


@dataclass(frozen=True, slots=True)
class CarriedDisk:
    """A read-only raw virtio disk that is there from the start; the guest finds it by `serial`."""

    serial: str
    path: Path


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """One QEMU process. `clean` finds it by the unique `marker`. `version` is the expected version,
    None for any."""

    binary: str
    marker: str
    machine: str
    accelerator: Accelerator
    plan: GuestPlan
    boot: BootFiles | UserBoot
    usb: bool = False
    cold_disks: tuple[Disk, ...] = ()
    version: str | None = None
    carried: tuple[CarriedDisk, ...] = ()


@dataclass(frozen=True, slots=True)
class Channels:
    """File descriptors that QEMU inherits, and the file for the guest's console."""

    monitor: int
    agent: int
    console: Path


def build_argv(config: GuestConfig, channels: Channels) -> tuple[str, ...]:
    """The whole command line."""
    plan = config.plan
    return (
        config.binary,
        "-name", f"guest={config.marker},debug-threads=on",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", _machine(config),
        "-accel", _accelerator(config.accelerator),
        "-cpu", "host" if config.accelerator is Accelerator.KVM else "max",
        "-smp", str(plan.cpus),
        "-m", str(plan.memory_bytes // MIB),
        *_boot(config.boot),
        *_flatten(_read_only(disk.path, disk.serial, disk.serial) for disk in config.carried),
        "-serial", f"file:{channels.console}",
        *_channels(channels),
        *_ports(config),
        *_flatten(cold_arguments(disk) for disk in config.cold_disks),
    )  # fmt: skip


def _accelerator(accelerator: Accelerator) -> str:
    return "kvm" if accelerator is Accelerator.KVM else "tcg,thread=multi"


def _machine(config: GuestConfig) -> str:
    """The machine type with the options for the firmware of a user guest."""
    boot = config.boot
    if isinstance(boot, BootFiles):
        return config.machine
    if boot.firmware is None:
        # SeaBIOS then writes to the serial port (etc/sercon-port), also why it cannot boot.
        return f"{config.machine},graphics=off"
    return f"{config.machine},pflash0=firmware,pflash1=variables"


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
    """The overlay. It is thrown away, so nothing is flushed to the host's disk for it.

    On SATA the first port is left to a measured disk. Windows needs a screen to boot.
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
        "-vga", "std",
    )  # fmt: skip


def _escape(path: Path) -> str:
    """In QEMU's options a doubled comma stands for a comma."""
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


def _ports(config: GuestConfig) -> tuple[str, ...]:
    if config.machine != Bus.VIRTIO.machine:
        return ()
    arguments: list[str] = []
    for number, port in enumerate(HOTPLUG_PORTS):
        arguments += ("-device", f"pcie-root-port,id={port},chassis={number + 1},slot={number + 1}")
    if config.usb:
        arguments += ("-device", "qemu-xhci,id=xhci")
    return tuple(arguments)


def _flatten(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(argument for group in groups for argument in group)

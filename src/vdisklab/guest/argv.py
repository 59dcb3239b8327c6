"""QEMU's command line for a guest. Pure: every combination is tested without QEMU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vdisklab.guest.blockdev import Disk, cold_arguments
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.plan.segments import Bus
from vdisklab.units import MIB

HOTPLUG_PORTS = ("hp0", "hp1", "hp2")
"""PCI Express root ports of q35 that start empty; a SCSI controller and its disk take one."""


@dataclass(frozen=True, slots=True)
class BootFiles:
    """What the guest boots: kernel, initrd, read-only root image, and the kernel's words."""

    kernel: Path
    initrd: Path
    root: Path
    append: str


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """One QEMU process. `marker` is the unique word by which `clean` finds it."""

    binary: str
    marker: str
    machine: str
    accelerator: Accelerator
    plan: GuestPlan
    boot: BootFiles
    usb: bool = False
    cold_disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class Channels:
    """File descriptors that QEMU inherits, and where its console is written."""

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
        "-machine", config.machine,
        "-accel", _accelerator(config.accelerator),
        "-cpu", "host" if config.accelerator is Accelerator.KVM else "max",
        "-smp", str(plan.cpus),
        "-m", str(plan.memory_bytes // MIB),
        *_boot(config.boot),
        "-serial", f"file:{channels.console}",
        *_channels(channels),
        *_ports(config),
        *_flatten(cold_arguments(disk) for disk in config.cold_disks),
    )  # fmt: skip


def _accelerator(accelerator: Accelerator) -> str:
    return "kvm" if accelerator is Accelerator.KVM else "tcg,thread=multi"


def _boot(boot: BootFiles) -> tuple[str, ...]:
    return (
        "-kernel", str(boot.kernel),
        "-initrd", str(boot.initrd),
        "-append", boot.append,
        "-blockdev", f"driver=file,filename={_escape(boot.root)},node-name=system,read-only=on",
        "-device", "virtio-blk-pci,drive=system,serial=vdisklab-image,romfile=",
    )  # fmt: skip


def _escape(path: Path) -> str:
    """QEMU's option parser takes a doubled comma for a comma."""
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

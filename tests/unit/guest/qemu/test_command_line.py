"""QEMU's whole command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.guest.image.guest_image import IMAGE_SERIAL
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.command_line import BootFiles, Channels, GuestConfig, build_argv
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan

BOOT = BootFiles(Path("/c/kernel"), Path("/c/initrd"), Path("/c/a,b/root"), "console=ttyS0 quiet")
CHANNELS = Channels(3, 4, 5, Path("/w/console"))


def argv(
    *,
    machine: str = "q35",
    accelerator: Accelerator = Accelerator.TCG,
    usb: bool = False,
    disks: tuple[Disk, ...] = (),
) -> tuple[str, ...]:
    config = GuestConfig(
        "qemu-system-x86_64", "vdisklab-1", machine, accelerator,
        GuestPlan(cpus=3, memory_bytes=512 << 20), BOOT, usb, disks,
    )  # fmt: skip
    return build_argv(config, CHANNELS)


def value_of(arguments: tuple[str, ...], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_the_guest_is_as_planned() -> None:
    arguments = argv()
    assert value_of(arguments, "-smp") == "3"
    assert value_of(arguments, "-m") == "512"
    assert value_of(arguments, "-append") == "console=ttyS0 quiet"
    assert "-nodefaults" in arguments
    assert "-no-user-config" in arguments
    assert "-no-reboot" in arguments


def test_qemu_may_start_no_program_and_gain_no_rights() -> None:
    arguments = value_of(argv(), "-sandbox").split(",")
    assert {"on", "spawn=deny", "elevateprivileges=deny"} <= set(arguments)


def test_the_marker_by_which_clean_finds_it() -> None:
    assert value_of(argv(), "-name").startswith("guest=vdisklab-1,")


@pytest.mark.parametrize(
    ("accelerator", "accel", "cpu"),
    [(Accelerator.KVM, "kvm", "host"), (Accelerator.TCG, "tcg,thread=multi", "max,-la57,-erms")],
)
def test_accelerators(accelerator: Accelerator, accel: str, cpu: str) -> None:
    arguments = argv(accelerator=accelerator)
    assert value_of(arguments, "-accel") == accel
    assert value_of(arguments, "-cpu") == cpu


def test_commas_in_paths_are_doubled() -> None:
    assert "filename=/c/a,,b/root," in value_of(argv(), "-blockdev")


def test_the_guest_finds_its_programs_by_the_serial_number_that_it_looks_for() -> None:
    assert any(f"serial={IMAGE_SERIAL}," in word for word in argv())


def test_ports_for_plugging_are_on_q35_only() -> None:
    assert sum(word.startswith("pcie-root-port") for word in argv()) == 3
    assert not [word for word in argv(machine="pc") if word.startswith("pcie-root-port")]


def test_usb_only_where_it_is_measured() -> None:
    assert "qemu-xhci,id=xhci" in argv(usb=True)
    assert not [word for word in argv() if "xhci" in word]


@pytest.mark.parametrize("bus", [Bus.IDE, Bus.SATA])
def test_a_disk_that_cannot_be_plugged_is_there_from_the_start(bus: Bus) -> None:
    path = parse_path(f"raw/none/{bus}")
    disk = Disk(
        "vdl1", 1 << 25, {"driver": "file", "filename": "/w/i"}, "raw", path.cache, path.attachment
    )
    arguments = argv(machine=bus.machine, disks=(disk,))
    assert value_of(arguments, "-machine") == ("pc" if bus is Bus.IDE else "q35")
    assert any('"driver": "ide-hd"' in word for word in arguments)

"""`plan --commands` shows what a run would do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from vdisklab.campaign.preview import CellCommands, preview_cell
from vdisklab.guest.argv import BootFiles
from vdisklab.plan.guest import Accelerator

from .plans import a_plan

BOOT = BootFiles(Path("/c/kernel"), Path("/c/initrd"), Path("/c/root"), "console=ttyS0")


def preview(path: str) -> CellCommands:
    plan = a_plan(path)
    return preview_cell(plan, plan.cells[0], BOOT, Accelerator.TCG)


def programs(commands: tuple[str, ...]) -> list[str]:
    return [shlex.split(command)[0] for command in commands]


def test_a_stack_an_image_and_a_plugged_disk() -> None:
    shown = preview("xfs/qcow2/none")
    assert programs(shown.host) == ["losetup", "mkfs.xfs", "mount", "qemu-img", "qemu-img"]
    assert shown.qemu is not None
    assert shown.qemu.startswith("qemu-system-x86_64 ")
    assert [line.split('"')[3] for line in shown.qmp] == ["blockdev-add"] * 2 + ["device_add"]
    (measurement,) = shown.measurements
    assert "--filename=/dev/vdb" in measurement


@pytest.mark.parametrize("bus", ["ide", "sata"])
def test_a_bus_that_cannot_be_plugged_is_on_the_command_line(bus: str) -> None:
    shown = preview(f"raw/none/{bus}")
    assert shown.qmp == ()
    assert shown.qemu is not None
    assert "ide-hd" in shown.qemu


@pytest.mark.parametrize(
    ("bus", "device"),
    [("virtio", "vdb"), ("scsi", "sda"), ("nvme", "nvme0n1"), ("usb", "sda"), ("ide", "sda")],
)
def test_the_device_that_fio_is_told(bus: str, device: str) -> None:
    (measurement,) = preview(f"raw/none/{bus}").measurements
    assert f"--filename=/dev/{device} " in measurement


def test_the_host_needs_no_guest() -> None:
    shown = preview("ext4/host")
    assert shown.qemu is None
    assert shown.qmp == ()
    (measurement,) = shown.measurements
    assert "--filename=/w/vdisklab-RUN/stack/image.raw" in measurement


def test_a_thin_image_is_not_filled() -> None:
    assert programs(preview("qcow2:preallocation=off/none").host) == ["qemu-img"]


def test_the_null_device_has_no_file() -> None:
    shown = preview("null")
    assert shown.host == ()
    assert "null-co" in shown.qmp[0]

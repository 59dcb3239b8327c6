"""`plan --commands` shows what a run would do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.guest.fake_qemu import RECORDED, recorded
from vdisklab.campaign.preview import CellCommands, GuestFiles, preview_cell
from vdisklab.errors import PlanError
from vdisklab.guest.image.debian_packages import PackageSet
from vdisklab.guest.image.guest_image import DiskSystem
from vdisklab.guest.qemu.command_line import BootFiles
from vdisklab.guest.systems import Family, expected_device
from vdisklab.host.command import LocalHost
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.guest import SystemBus, UserGuest
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.plan.settings import Request
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile
from vdisklab.workload.program import program_of

from .plans import a_plan

BOOT = BootFiles(Path("/c/kernel"), Path("/c/initrd"), Path("/c/root"), "console=ttyS0")
FILES = GuestFiles(BOOT)


def preview(path: str) -> CellCommands:
    plan = a_plan(path)
    return preview_cell(LocalHost(), plan, plan.cells[0], FILES, Accelerator.TCG)


def programs(commands: tuple[str, ...]) -> list[str]:
    return [program_of(tuple(shlex.split(command))) for command in commands]


def test_a_stack_an_image_and_a_plugged_disk() -> None:
    shown = preview("xfs/qcow2/none")
    assert programs(shown.host) == [
        "dd",
        "fallocate",
        "losetup",
        "mkdir",
        "mkfs.xfs",
        "mount",
        "qemu-img",
        "qemu-img",
    ]
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


@pytest.mark.parametrize("name", RECORDED)
def test_the_device_is_the_one_that_a_micro_guest_really_has(name: str) -> None:
    recording = recorded(name)
    facts = dict(line.split("=", 1) for line in recording.found.splitlines())
    bus = parse_path(recording.path).attachment.bus
    assert expected_device(Family.LINUX, bus, SystemBus.VIRTIO) == facts["device"]


def test_a_windows_guest_gets_diskspd_and_the_host_beside_it_fio() -> None:
    user = UserGuest(Path("/srv/win.qcow2"), "qcow2", "state", diskspd=Path("/srv/diskspd.exe"))
    fio = MeasurementPlan("m", "fio", {"rw": "randread", "bs": "4k"})
    for path, program, disk in (
        ("raw/none", r"C:\Windows\Temp\vdisklab-diskspd.exe", "#1"),
        ("ext4/host", "fio", ""),
    ):
        plan = a_plan(path)
        guest = replace(plan.guest, user=user)
        plan = replace(plan, profile=replace(plan.profile, measurements=(fio,)), guest=guest)
        shown = preview_cell(LocalHost(), plan, plan.cells[0], GuestFiles(), Accelerator.TCG)
        (arguments,) = map(shlex.split, shown.measurements)
        assert arguments[0] == program
        assert arguments[-1] == disk or program == "fio"


def test_the_host_needs_no_guest() -> None:
    shown = preview("ext4/host")
    assert shown.qemu is None
    assert shown.qmp == ()
    (measurement,) = shown.measurements
    assert "--filename=/w/vdisklab-RUN/stack0-0/image0.raw" in measurement


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tmpfs/raw", "dd mkdir mount qemu-img qemu-img"),
        ("lvm/none", "dd fallocate losetup vgcreate lvcreate qemu-img"),
        ("lvmthin/none", "dd fallocate losetup vgcreate lvcreate lvcreate qemu-img"),
        ("luks/none", "dd fallocate losetup cryptsetup cryptsetup qemu-img"),
        (
            "md:level=5/none",
            "dd fallocate losetup fallocate losetup fallocate losetup mdadm qemu-img",
        ),
        ("zfs/raw/writeback", "dd fallocate losetup mkdir zpool zfs qemu-img qemu-img"),
        ("zvol:raid=mirror/none", "dd fallocate losetup fallocate losetup zpool zfs qemu-img"),
        (
            "md/ext4/raw",
            "dd fallocate losetup fallocate losetup mdadm mkdir mkfs.ext4 mount qemu-img qemu-img",
        ),
    ],
)
def test_each_stack_from_the_bottom(path: str, expected: str) -> None:
    assert programs(preview(path).host) == expected.split()


@pytest.mark.parametrize(
    ("path", "top"),
    [
        ("lvm/none", "/dev/vdl_RUN_stack0_0/disk"),
        ("zvol/none", "/dev/zvol/vdl_RUN_stack0_0/disk"),
        ("luks/none", "/dev/mapper/vdl_RUN_stack0_0"),
        ("md/none", "/dev/md/vdl_RUN_stack0_0"),
        ("zfs/raw/writeback", "/w/vdisklab-RUN/stack0-0/image0.raw"),
    ],
)
def test_what_is_filled_and_plugged_is_the_top_of_the_stack(path: str, top: str) -> None:
    shown = preview(path)
    assert shlex.split(shown.host[-1])[-1] == top
    assert f'"filename": "{top}"' in shown.qmp[0]


def test_a_device_of_the_users_is_wiped_and_taken_whole() -> None:
    plan = replace(a_plan("xfs/raw/none"), backing=BackingDevices((Path("/dev/sdx"),)))
    shown = preview_cell(LocalHost(), plan, plan.cells[0], FILES, Accelerator.TCG)
    assert shown.host[1] == "wipefs --all --quiet /dev/sdx"
    assert programs(shown.host)[:5] == ["dd", "wipefs", "mkdir", "mkfs.xfs", "mount"]
    assert shlex.split(shown.host[3])[-1] == "/dev/sdx"


def test_a_measurement_on_files_makes_its_file_system_first() -> None:
    files = MeasurementPlan("m", "fio", {"rw": "read", "bs": "4k"}, filesystem="ext4")
    for path, programs_run in (
        ("raw/none", ["mkfs.ext4", "mkdir", "mount", "fio"]),
        ("ext4/host", ["fio"]),
    ):
        plan = a_plan(path)
        plan = replace(plan, profile=replace(plan.profile, measurements=(files,)))
        shown = preview_cell(LocalHost(), plan, plan.cells[0], FILES, Accelerator.TCG)
        assert programs(shown.measurements) == programs_run
        assert "--directory=" in shown.measurements[-1]


@pytest.mark.parametrize(
    ("way", "last", "used"),
    [
        ("cp", "cp --reflink=never", ["fio", "fio"]),
        ("convert", "qemu-img convert -q -f raw -O qcow2", ["fio", "fio"]),
        ("overlay", "qemu-img create -q -f qcow2 -b", ["qemu-io", "qemu-io"]),
    ],
)
def test_a_disk_is_made_from_a_template(way: str, last: str, used: list[str]) -> None:
    profile = load_profile("life" if used[0] == "fio" else "life-host")
    request = Request(paths=("xfs/qcow2/none",), made=(way,), size_bytes=64 << 20)
    plan = replace(build_plan(request, Capabilities(), profile), directory=Path("/w"))
    shown = preview_cell(LocalHost(), plan, plan.cells[0], FILES, Accelerator.TCG)
    assert shown.host[-1].startswith(last)
    assert programs(shown.measurements) == used
    assert (shown.qemu is None) == (used[0] == "qemu-io")


def test_a_thin_image_is_not_filled() -> None:
    assert programs(preview("qcow2:preallocation=off/none").host) == ["qemu-img"]


def test_the_null_device_has_no_file() -> None:
    shown = preview("null")
    assert shown.host == ()
    assert "null-co" in shown.qmp[0]


def test_each_guest_of_a_group_has_its_disk_and_they_share_one_measurement() -> None:
    shown = preview("raw/none/virtio:guests=2")
    names = [line.split("/")[-1].split()[0] for line in shown.host if "qemu-img create" in line]
    assert names == ["image0.raw", "image0-1.raw"]
    assert shown.qemu is not None
    assert "\n" not in shown.qemu
    plugged = ["blockdev-add", "blockdev-add", "device_add"]
    assert [line.split('"')[3] for line in shown.qmp] == plugged * 2
    (measurement,) = shown.measurements
    assert "--startdelay=RUN" in measurement
    assert "--write_lat_log=" in measurement


@pytest.mark.parametrize(
    ("path", "volumes"),
    [
        ("lvm/none", ["--name disk", "--name disk2", "--name disk3"]),
        ("lvmthin/qcow2/none", ["--name pool", "--name disk", "--name disk2", "--name disk3"]),
        ("zvol/none", ["/disk", "/disk2", "/disk3"]),
    ],
)
def test_each_guest_of_a_group_has_its_own_volume(path: str, volumes: list[str]) -> None:
    shown = preview(f"{path}/virtio:guests=3")
    made = [line for line in shown.host if line.startswith(("lvcreate", "zfs create"))]
    assert len(made) == len(volumes)
    for line, volume in zip(made, volumes, strict=True):
        assert f"{volume} " in f"{line} "
    disks = {f"/{name.rsplit('/', 1)[-1].split()[-1]}" for name in volumes[-3:]}
    opened = [line for line in shown.qmp if '"host_device"' in line]
    filled = [line for line in shown.host if "-n" in line.split() and "qemu-img" in line]
    assert len(opened) == 3
    for name in disks:
        assert sum(f'{name}"' in line for line in opened) == 1
        assert sum(line.rstrip("'").endswith(name) for line in filled) == 1


@pytest.mark.parametrize("layers", ["md:level=1", "md:level=0"])
def test_guests_cannot_share_one_block_device(layers: str) -> None:
    with pytest.raises(PlanError, match="the path ends on one block device"):
        a_plan(f"{layers}/none/virtio:guests=2")


def test_guests_with_disks_that_cannot_be_plugged_have_a_command_line_each() -> None:
    shown = preview("raw/none/ide:guests=2")
    assert shown.qemu is not None
    first, second = shown.qemu.splitlines()
    assert first.replace("image0.raw", "image0-1.raw") == second != first
    assert shown.qmp == ()


@pytest.mark.parametrize("path", ["raw/none", "qcow2:preallocation=off/none"])
def test_a_disk_to_boot_from_gets_its_system(path: str, tmp_path: Path) -> None:
    files = GuestFiles(BOOT, DiskSystem(tmp_path / "initrd", tmp_path / "tree"))
    plan, boots = a_plan(path), MeasurementPlan("b", "boot", {})
    plan = replace(plan, profile=replace(plan.profile, measurements=(boots,)))
    shown = preview_cell(LocalHost(), plan, plan.cells[0], files, Accelerator.TCG)
    assert programs(shown.host).count("mke2fs") == 2
    assert shown.qemu is not None
    assert "virtio-blk-pci" in shown.qemu
    assert shown.qmp == shown.measurements == ()


def test_a_disk_carries_the_packages_that_are_installed(tmp_path: Path) -> None:
    packages = PackageSet(tmp_path / "debs", tmp_path / "disk.ext4", "f", 1)
    installs = MeasurementPlan("i", "dpkg", {"system": "short"}, filesystem="ext4")
    plan = replace(a_plan("raw/none"), size_bytes=1 << 30)
    plan = replace(plan, profile=replace(plan.profile, measurements=(installs,)))
    files = GuestFiles(BOOT, packages={"short": packages})
    shown = preview_cell(LocalHost(), plan, plan.cells[0], files, Accelerator.TCG)
    assert shown.qemu is not None
    assert f"filename={packages.disk}" in shown.qemu


def test_a_way_that_one_of_the_paths_lacks_was_not_asked_for_by_name() -> None:
    """--made applies to all paths alike: `run` fails for a path that no way makes, and no other."""
    request = Request(
        paths=("raw/none", "qcow2/none"), made=("overlay", "cp"), profile="life-host", guests=("1",)
    )
    plan = build_plan(request, Capabilities(), load_profile("life-host"))
    (dropped,) = plan.dropped
    assert (dropped.path.split(":made=")[1], dropped.asked) == ("overlay", False)
    lone = replace(request, made=("overlay",))
    (asked,) = build_plan(lone, Capabilities(), load_profile("life-host")).dropped
    assert asked.asked


@pytest.mark.parametrize(
    ("profile", "written"),
    [("life-host", f" {(5 << 20) + 4096} 4096"), ("life", f"--offset={(5 << 20) + 4096} ")],
)
def test_the_first_write_is_shown_where_a_template_has_data(
    tmp_path: Path, profile: str, written: str
) -> None:
    template = tmp_path / "golden.raw"
    template.write_bytes(bytes(5 << 20) + b"x" * (64 << 10) + bytes((27 << 20) - (64 << 10)))
    request = Request(
        paths=("raw/none",), made=("cp",), profile=profile, template=template, size_bytes=32 << 20
    )
    plan = replace(build_plan(request, Capabilities(), load_profile(profile)), directory=tmp_path)
    shown = preview_cell(LocalHost(), plan, plan.cells[0], FILES, Accelerator.TCG)
    assert any(written in f"{command} " for command in shown.measurements)

"""The ways of making a disk: their commands, and the paths that they refuse."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from vdisklab.errors import PlanError
from vdisklab.operations.making import NewDisk, Template, TemplateForm
from vdisklab.operations.ways.registry import WAYS, parse_way, spelled_way
from vdisklab.path.disk_path import parse_path

TEMPLATE = Template(Path("/t/golden.raw"), "raw", 8 << 20, "vg/template")
RAW = NewDisk(Path("/d/disk.raw"), "raw", 8 << 20)
QCOW2 = NewDisk(Path("/d/disk.qcow2"), "qcow2", 8 << 20, ("cluster_size=4096",))
DEVICE = NewDisk(Path("/dev/x"), "raw", 8 << 20, is_device=True)
VOLUME = NewDisk(Path("/dev/vg/made"), "raw", 8 << 20, is_device=True, volume="vg/made")
LVM = "--quiet --config devices/use_devicesfile=0 backup/backup=0 backup/archive=0"


@pytest.mark.parametrize(
    ("way", "disk", "commands"),
    [
        ("cp", RAW, ["cp --reflink=never --sparse=never -- /t/golden.raw /d/disk.raw"]),
        ("sparse", RAW, ["cp --reflink=never --sparse=always -- /t/golden.raw /d/disk.raw"]),
        ("reflink", RAW, ["cp --reflink=always -- /t/golden.raw /d/disk.raw"]),
        ("dd", DEVICE, ["dd if=/t/golden.raw of=/dev/x bs=1M status=none"]),
        (
            "overlay:depth=2",
            QCOW2,
            [
                "qemu-img create -q -f qcow2 -o cluster_size=4096 -b /t/golden.raw -F raw "
                "/d/disk.qcow2.1 8388608",
                "qemu-img create -q -f qcow2 -o cluster_size=4096 -b /d/disk.qcow2.1 -F qcow2 "
                "/d/disk.qcow2 8388608",
            ],
        ),
        (
            "convert:workers=8:unordered=on",
            QCOW2,
            [
                "qemu-img convert -q -W -m 8 -f raw -O qcow2 -o cluster_size=4096 /t/golden.raw "
                "/d/disk.qcow2"
            ],
        ),
        (
            "convert:zeroed=on",
            DEVICE,
            ["qemu-img convert -q -n --target-is-zero -f raw -O raw /t/golden.raw /dev/x"],
        ),
        ("convert", DEVICE, ["qemu-img convert -q -n -f raw -O raw /t/golden.raw /dev/x"]),
        (
            "convert",
            NewDisk(Path("/dev/x"), "qcow2", 8 << 20, is_device=True),
            ["qemu-img convert -q -f raw -O qcow2 /t/golden.raw /dev/x"],
        ),
        ("btrfs-snapshot", RAW, ["btrfs --quiet subvolume snapshot /t /d"]),
        ("create", RAW, ["qemu-img create -q -f raw /d/disk.raw 8388608"]),
        (
            "thin-snapshot",
            VOLUME,
            [f"lvcreate {LVM} --snapshot --setactivationskip n --name made vg/template"],
        ),
        ("zvol-clone", VOLUME, ["zfs clone vg/template@golden vg/made"]),
        ("zfs-clone", VOLUME, ["zfs clone vg/template@golden vg/made"]),
    ],
)
def test_the_commands_of_a_way(way: str, disk: NewDisk, commands: list[str]) -> None:
    assert [" ".join(command) for command in parse_way(way).make(TEMPLATE, disk)] == commands


@pytest.mark.parametrize(
    ("way", "command"),
    [
        ("thin-snapshot", f"lvremove {LVM} --yes vg/made"),
        ("zvol-clone", "zfs destroy vg/made"),
        ("zfs-clone", "zfs destroy vg/made"),
        ("cp", ""),
    ],
)
def test_a_volume_is_removed_and_a_device_of_the_stack_stays(way: str, command: str) -> None:
    assert " ".join(chain(*parse_way(way).kind.delete(VOLUME))) == command


def test_a_disk_that_is_larger_than_what_was_converted_grows() -> None:
    small = Template(TEMPLATE.file, "vmdk", 1 << 20)
    assert parse_way("convert").make(small, RAW)[-1][:2] == ("qemu-img", "resize")


def test_a_device_is_zeroed_before_qemu_img_is_told_so() -> None:
    ((program, *_),) = parse_way("convert:zeroed=on").before(TEMPLATE, DEVICE)
    assert program == "blkdiscard"
    assert parse_way("convert").before(TEMPLATE, DEVICE) == ()


@pytest.mark.parametrize(
    ("path", "possible"),
    [
        ("ext4/raw/none", {"cp", "dd", "sparse", "convert", "create", "unpack"}),
        ("xfs/raw/none", {"cp", "dd", "sparse", "reflink", "convert", "create", "unpack"}),
        ("xfs/qcow2/none", {"cp", "sparse", "reflink", "overlay", "convert", "create"}),
        ("xfs:reflink=off/qcow2/none", {"cp", "sparse", "overlay", "convert", "create"}),
        ("btrfs:datacow=off/qcow2/none",
         {"cp", "sparse", "overlay", "convert", "create", "btrfs-snapshot"}),
        ("lvm/none", {"dd", "convert", "unpack"}),
        ("lvmthin/none", {"dd", "convert", "unpack", "thin-snapshot"}),
        ("lvmthin/qcow2/none", {"convert"}),
        ("zvol/none", {"dd", "convert", "unpack", "zvol-clone"}),
        ("zvol/ext4/raw/none", {"cp", "dd", "sparse", "convert", "create", "unpack"}),
        ("zfs/qcow2/none", {"cp", "sparse", "overlay", "convert", "create", "zfs-clone"}),
        ("xfs/qcow2:encrypt=luks/none", set()),
        ("xfs/qcow2:backing=1/none", set()),
    ],
)  # fmt: skip
def test_a_way_is_possible_on_these_paths_and_refused_with_a_way_out_on_others(
    path: str, possible: set[str]
) -> None:
    verdicts = {row.name: row.refusal(parse_path(path)) for row in WAYS}
    assert {name for name, verdict in verdicts.items() if verdict is None} == possible
    assert all(verdict.reason and verdict.instead for verdict in verdicts.values() if verdict)


def test_spelling() -> None:
    assert spelled_way("convert:zeroed=on:workers=8") == "convert:workers=8:zeroed=on"
    for wrong in ("clone", "cp:depth=2", "overlay:depth=0", "overlay:depth=2:depth=2"):
        with pytest.raises(PlanError):
            parse_way(wrong)


def test_every_row_says_what_it_does() -> None:
    assert len({row.name for row in WAYS}) == len(WAYS)
    assert all(row.summary for row in WAYS)
    assert {row.template for row in WAYS} == set(TemplateForm)

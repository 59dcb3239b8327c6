"""What stacks stand on: how many disks a layer gets, and what a whole device can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import impossible

ONE = BackingDevices((Path("/dev/sdx"),))


@pytest.mark.parametrize("text", ["none/virtio", "qcow2/none", "host", "ext4/raw/none"])
def test_a_device_can_be_given_as_it_is(text: str) -> None:
    assert impossible(parse_path(text), ONE) is None


def test_raw_on_a_device_is_the_device() -> None:
    verdict = impossible(parse_path("raw/none"), ONE)
    assert verdict is not None
    assert verdict.instead == "leave out the format: none"
    assert impossible(parse_path("none"), WORK_DIRECTORY) is not None


@pytest.mark.parametrize(
    ("text", "backing", "reason"),
    [
        (
            "md:level=5/none",
            BackingDevices(disks=2),
            "md:level=5 needs 3 disks, but --disks is 2",
        ),
        ("zfs:raid=raidz1/raw", ONE, "zfs:raid=raidz1 needs 3 disks, but --on names 1"),
        ("lvm/md/none", WORK_DIRECTORY, "md needs 2 disks, but lvm below it is one"),
    ],
)
def test_too_few_disks(text: str, backing: BackingDevices, reason: str) -> None:
    verdict = impossible(parse_path(text), backing)
    assert verdict is not None
    assert verdict.reason == reason


def test_each_layer_gets_as_many_disks_as_it_can_use() -> None:
    four = BackingDevices(tuple(Path(f"/dev/sd{x}") for x in "abcd"))
    assert four.disks_for(parse_path("zfs:raid=raidz1/raw").layers) == 4
    assert four.disks_for(parse_path("ext4/raw").layers) == 1
    assert WORK_DIRECTORY.disks_for(parse_path("md:level=10/none").layers) == 4
    assert BackingDevices(disks=4).disks_for(parse_path("lvm/none").layers) == 4

"""Logical volumes by the names of their devices."""

from __future__ import annotations

import pytest

from vdisklab.path.volume_names import NamedVolume, volume_by_name


@pytest.mark.parametrize(
    ("source", "group", "volume"),
    [
        ("/dev/vg0/pg", "vg0", "pg"),
        ("/dev/vg0/pg/", "vg0", "pg"),
        ("/dev/my-vg/data.1", "my-vg", "data.1"),
        ("/dev/mapper/vg0-pg", "vg0", "pg"),
        ("/dev/mapper/my--vg-a--b", "my-vg", "a-b"),
        ("/dev/mapper/pve-vm--100--disk--0", "pve", "vm-100-disk-0"),
    ],
)
def test_lvm_names_its_devices(source: str, group: str, volume: str) -> None:
    assert volume_by_name(source) == NamedVolume(group, volume)


@pytest.mark.parametrize(
    "source",
    [
        "/dev/sdb",
        "/dev/disk/by-id",
        "/dev/disk/by-id/x",
        "/dev/md/raid",
        "/dev/drbd/by-res/r0",
        "/dev/rbd/vm",
        "/dev/rbd/pool/vm",
        "/dev/zvol/tank",
        "/dev/mapper/mpatha",
        "/dev/mapper/luks-6f6a",
        "/dev/mapper/luks-6f6a-11-22",
        "/dev/mapper/a-b-c",
        "/dev/mapper/control",
        "/srv/vg0/pg",
        "vg0/pg",
        "",
    ],
)
def test_other_names_are_no_volumes(source: str) -> None:
    assert volume_by_name(source) is None

"""What differs between a directory, a device and a share is asked of the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.segments import LayerKind
from vdisklab.storage.stack import UNDO
from vdisklab.storage.targets import Device, Directory, Share, Target, bottoms

WORK, DISKS = Path("/w"), (Path("/dev/a"), Path("/dev/b"))


def test_how_qemu_opens_each() -> None:
    file = WORK / "i.raw"
    assert Directory(WORK).node(file) == {"driver": "file", "filename": "/w/i.raw"}
    device = Device(DISKS[0])
    assert device.node(device.path) == {"driver": "host_device", "filename": "/dev/a"}
    assert Share(WORK).node(WORK) == {"driver": "local", "path": "/w"}


def test_where_an_image_is_and_what_a_guest_of_a_group_gets() -> None:
    directory, device = Directory(WORK), Device(DISKS[0], volumes=DISKS)
    assert directory.image_path("i", "qcow2") == Path("/w/i.qcow2")
    assert device.image_path("i", "qcow2") == Path("/dev/a")
    assert directory.of_guest(1) is directory
    assert device.of_guest(1).path == Path("/dev/b")
    assert Device(DISKS[0]).of_guest(1).path == Path("/dev/a")


def test_a_layer_keeps_what_is_known_below() -> None:
    below = Device(DISKS[0], {"loop.direct_io": "off"}, (WORK / "s.slice",), disks=DISKS)
    above = below.file_system(WORK / "m", {"ext4.mount": "rw"})
    assert above.properties == {"loop.direct_io": "off", "ext4.mount": "rw"}
    assert above.caches == (WORK / "m", WORK / "s.slice")
    assert below.device(DISKS[1], {}).members == (DISKS[1],)
    assert below.members == DISKS


NAMED = BackingDevices(
    targets=(
        NamedTarget("nas", "/mnt/nas", LayerKind.NFS),
        NamedTarget("disk", "/dev/sdz", LayerKind.DEVICE),
        NamedTarget("far", "nbd://host/x", LayerKind.NBD),
    )
)


@pytest.mark.parametrize(
    ("path", "backing", "expected"),
    [
        ("raw/none", WORK_DIRECTORY, (Directory(WORK),)),
        ("ext4/raw/none", BackingDevices(DISKS), (Device(DISKS[0]),)),
        ("md/none", BackingDevices(DISKS), (Device(DISKS[0]), Device(DISKS[1]))),
        ("tmpfs/raw/none", BackingDevices(DISKS), ()),
        ("zram/none", WORK_DIRECTORY, ()),
        ("nfs:at=nas/raw/none", NAMED, (Directory(Path("/mnt/nas")),)),
        ("device:at=disk/ext4/raw/none", NAMED, (Device(Path("/dev/sdz")),)),
        ("nbd:at=far/raw/none", NAMED, ()),
    ],
)
def test_what_is_below_a_stack(
    path: str, backing: BackingDevices, expected: tuple[Target, ...]
) -> None:
    assert bottoms(parse_path(path).layers, backing, WORK) == expected


def test_clean_knows_every_name_that_a_ledger_may_have() -> None:
    """Ledgers of earlier versions have these names."""
    assert set(UNDO) == {
        "process", "file", "directory", "loop", "zram device", "mount", "device", "volume group",
        "logical volume", "md array", "pool", "dataset", "device-mapper device",
        "limit of ZFS's cache", "control group", "disk on a server", "file on a server",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "options", "server"),
    [
        ("nfs4", "addr=10.0.0.5,vers=4.2", ("10.0.0.5", 2049)),
        ("nfs", "addr=10.0.0.5,port=2050,vers=3", ("10.0.0.5", 2050)),
        ("cifs", "addr=10.0.0.5", ("10.0.0.5", 445)),
        ("ext4", "rw", None),
    ],
)
def test_the_server_of_a_mount(kind: str, options: str, server: tuple[str, int] | None) -> None:
    seen = {"target.filesystem": kind, "target.options": options}
    assert Directory(WORK, seen).server == server


@pytest.mark.parametrize("text", ["10.0.0.5:3260", "[fd00::5]:3260", ""])
def test_the_server_of_a_device(text: str) -> None:
    host = text.rpartition(":")[0].strip("[]")
    found = Device(DISKS[0], {"device.server": text} if text else {}).server
    assert found == ((host, 3260) if text else None)

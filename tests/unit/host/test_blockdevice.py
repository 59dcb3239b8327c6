"""The device below a directory, from the kernel's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.host.files import write
from vdisklab.host.blockdevice import _facts_of, device_of, medium_of


class FakeDisks:
    """A /sys in which the device below `directory` is what a test says."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        number = directory.stat().st_dev
        self.number = f"{os.major(number)}:{os.minor(number)}"

    def add(self, name: str, number: str, files: dict[str, str], subsystem: str = "") -> None:
        node = self.root / "sys/devices" / name
        write(node, {"dev": number, **files})
        link = self.root / "sys/dev/block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(node)
        if subsystem:
            (node / "device").mkdir(exist_ok=True)
            (self.root / "sys/bus" / subsystem).mkdir(parents=True, exist_ok=True)
            (node / "device/subsystem").symlink_to(self.root / "sys/bus" / subsystem)

    def stack(self, upper: str, lower: str) -> None:
        slaves = self.root / "sys/devices" / upper / "slaves"
        slaves.mkdir(exist_ok=True)
        (slaves / Path(lower).name).symlink_to(self.root / "sys/devices" / lower)


@pytest.fixture
def disks(tmp_path: Path) -> FakeDisks:
    return FakeDisks(tmp_path / "root", tmp_path)


SSD = {"queue/rotational": "0\n", "queue/write_cache": "write back\n"}
DISK = {"queue/rotational": "1\n", "queue/write_cache": "write through\n"}


def test_a_plain_disk(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("vda", disks.number, SSD, "virtio")
    assert medium_of(tmp_path, disks.root) == "vda virtio, non-rotational, write back"


def test_a_partition_is_its_disk(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("sda", "8:0", {**DISK, "device/model": "SPINNER 9000 \n"}, "scsi")
    disks.add("sda/sda1", disks.number, {"partition": "1\n"})
    assert medium_of(tmp_path, disks.root) == "sda scsi SPINNER 9000, rotational, write through"


def test_a_mapper_and_an_array_name_what_they_are_over(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("sda", "8:0", DISK, "scsi")
    disks.add("nvme0n1", "259:0", SSD, "nvme")
    disks.add("md0", "9:0", {"md/level": "raid1\n"})
    disks.add("dm-0", disks.number, {"dm/name": "vg-home\n"})
    disks.stack("md0", "sda")
    disks.stack("md0", "nvme0n1")
    disks.stack("dm-0", "md0")
    device = device_of(tmp_path, disks.root)
    assert device is not None
    assert [leaf.name for leaf in device.leaves()] == ["nvme0n1", "sda"]
    assert device.describe() == (
        "dm-0 (vg-home) over md0 (raid1) over nvme0n1 nvme, non-rotational, write back; "
        "sda scsi, rotational, write through"
    )


def test_a_loop_device_is_over_its_file(disks: FakeDisks, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    # The file lies on the same device as the directory, so the loop would never end.
    disks.add("loop0", disks.number, {"loop/backing_file": f"{image}\n"})
    medium = medium_of(tmp_path, disks.root)
    assert medium is not None
    assert medium.startswith("loop0 over loop0")


def test_file_systems_without_a_device_are_named(disks: FakeDisks, tmp_path: Path) -> None:
    info = "1 0 0:1 / / rw - nfs4 server:/export rw\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(tmp_path, disks.root) == "nfs4 server:/export"
    write(disks.root, {"proc/self/mountinfo": "1 0 0:1 / / rw - tmpfs tmpfs rw\n"})
    assert medium_of(tmp_path, disks.root) == "tmpfs"
    write(disks.root, {"proc/self/mountinfo": ""})
    assert medium_of(tmp_path, disks.root) is None


def test_btrfs_and_overlays_are_found_by_their_mounts(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("vdb", "254:16", SSD, "virtio")
    write(disks.root, {"sys/class/block/vdb/dev": "254:16\n"})
    info = "1 0 0:1 / / rw - ext4 /dev/vdz rw\n2 1 0:9 / {} rw - btrfs /dev/vdb rw\n"
    write(disks.root, {"proc/self/mountinfo": info.format(tmp_path)})
    assert medium_of(tmp_path, disks.root) == "vdb virtio, non-rotational, write back"
    info = "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/nowhere,workdir=/w\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(tmp_path, disks.root) is None


def test_blanks_in_mount_points_are_understood(disks: FakeDisks, tmp_path: Path) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    info = f"1 0 0:1 / {str(place).replace(' ', chr(92) + '040')} rw - tmpfs mine rw\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(place, disks.root) == "tmpfs mine"


@pytest.mark.parametrize(
    ("name", "files", "transport"),
    [
        ("platform/host3/session1/target3:0:0/3:0:0:1/block/sdb", {}, "iscsi"),
        ("pci0000:00/0000:00:02.0/rport-1:0-2/target1/block/sdc", {}, "fc"),
        ("virtual/nvme-fabrics/ctl/nvme1/nvme1n1", {"device/transport": "tcp\n"}, "nvme-tcp"),
        ("virtual/block/rbd0", {}, "rbd"),
        ("virtual/block/drbd1", {}, "drbd"),
        ("pci0000:00/0000:00:1f.2/ata1/host0/block/sda", {}, "ata"),
        ("elsewhere/sdz", {}, "unknown"),
    ],
)
def test_the_transport_is_read_from_the_place_in_sysfs(
    disks: FakeDisks, name: str, files: dict[str, str], transport: str
) -> None:
    disks.add(name, "8:16", {**files, "queue/write_cache": "write back\n"})
    node = disks.root / "sys/devices" / name
    claim = node / "device/scsi_disk/3:0:0:1/cache_type"
    claim.parent.mkdir(parents=True)
    claim.write_text("write through\n")
    assert _facts_of(node) == {
        "device.transport": transport, "device.write_cache": "write back",
        "device.cache_type": "write through",
    }  # fmt: skip


def test_an_nvme_namespace_below_native_multipath_has_its_controllers_transport(
    disks: FakeDisks,
) -> None:
    """As Debian's kernel 6.1 shows NVMe over TCP: the namespace's parent is a subsystem."""
    subsystem = "virtual/nvme-subsystem/nvme-subsys0"
    disks.add(f"{subsystem}/nvme0n1", "259:1", {"queue/write_cache": "write back\n"})
    controller = {"transport": "tcp\n", "address": "traddr=10.0.0.5,trsvcid=4420,src_addr=::1\n"}
    write(disks.root / "sys/devices" / subsystem / "nvme0n1/device/nvme0", controller)
    assert _facts_of(disks.root / "sys/devices" / subsystem / "nvme0n1") == {
        "device.transport": "nvme-tcp", "device.write_cache": "write back",
        "device.server": "10.0.0.5:4420",
    }  # fmt: skip


def test_an_iscsi_disk_says_which_server_its_session_is_with(disks: FakeDisks) -> None:
    session = "platform/host3/session1"
    name = f"{session}/target3:0:0/3:0:0:1/block/sdb"
    disks.add(name, "8:16", {})
    connection = disks.root / "sys/devices" / session / "connection1:0/iscsi_connection/it"
    write(connection, {"persistent_address": "10.0.0.5\n", "persistent_port": "3260\n"})
    seen = _facts_of(disks.root / "sys/devices" / name)
    assert seen == {"device.transport": "iscsi", "device.server": "10.0.0.5:3260"}


def test_a_multipath_device_says_over_how_many_paths_of_which_kind(disks: FakeDisks) -> None:
    disks.add("virtual/block/dm-0", "253:0", {"dm/uuid": "mpath-3600\n"})
    for number in (1, 2):
        lower = f"platform/host{number}/session{number}/block/sd{number}"
        disks.add(lower, f"8:{number}", {})
        disks.stack("virtual/block/dm-0", lower)
    seen = _facts_of(disks.root / "sys/devices/virtual/block/dm-0")
    assert seen == {"device.transport": "multipath over 2 iscsi"}

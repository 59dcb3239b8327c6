"""What a host has mounted, in a text beside the guests: what is lost below a guest's file."""

from __future__ import annotations

import pytest

from vdisklab.platforms import host_mounts
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

FSTAB = """# <file system> <mount point> <type> <options> <dump> <pass>
UUID=0a1b / ext4 errors=remount-ro 0 1
UUID=0a1c none swap sw 0 0
tmpfs /vm\\040ram tmpfs size=20G 0 0
/dev/sdb1 /fast xfs noatime,nobarrier 0 2
/dev/sdb2 /kept ext4 nobarrier,barrier 0 2
nas:/tank/vm /nas nfs4 rw,soft,timeo=50 0 0
/dev/zram1 /zram ext4 defaults
/dev/shm/vms /bound none bind 0 0
/kept/a /to-disk none bind 0 0
"""
MOUNT = """/dev/sda1 on / type ext4 (rw,relatime)
udev on /dev type devtmpfs (rw,nosuid)
tmpfs on /run type tmpfs (rw,nosuid)
tmpfs on /vm type tmpfs (rw,relatime,size=20971520k)
/dev/sdb1 on /vm/disk type ext4 (rw,relatime)
overlay on /over type overlay (rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile)
tank/vms on /vms type zfs (rw,xattr)
"""
FINDMNT = """TARGET       SOURCE     FSTYPE OPTIONS
/            /dev/sda1  ext4   rw,relatime
├─/vm        tmpfs      tmpfs  rw,relatime
│ └─/vm/disk /dev/sdb1  ext4   rw,relatime
└─/fast      /dev/sdb2  ext4   rw,nobarrier
"""
DF = """Filesystem     1K-blocks  Used Available Use% Mounted on
/dev/sda1       20511312 10000  20501312   1% /
tmpfs           20511312    12  20511300   1% /vm
"""
LSBLK = """NAME        MAJ:MIN RM  SIZE RO TYPE  MOUNTPOINTS
ram0          1:0    0   64M  0 disk
└─vg-fast   254:0    0   64M  0 lvm   /vm
zram0       252:0    0   20G  0 disk  /zram
sda           8:0    0  100G  0 disk
├─sda1        8:1    0  100G  0 part  /
│                                     /kept
"""
ZFS = """NAME      PROPERTY  VALUE     SOURCE
tank      sync      standard  default
tank/vms  sync      disabled  local
tank/vms/safe  sync      standard  local
"""
UNIT = """[Unit]
Description=fast
[Mount]
What=tmpfs
Where=/vm
Type=tmpfs
Options=size=20G
"""


def read(file: str, *texts: str) -> ConfiguredDisk:
    command = f'qemu-system-x86_64 -name g -drive "file={file},format=raw,if=virtio,cache=none"\n'
    beside = [GuestText(text, f"mounts{number}") for number, text in enumerate(texts)]
    (disk,) = read_guests([GuestText(command, "g.sh"), *beside])
    return disk


@pytest.mark.parametrize(
    ("text", "file", "loss"),
    [
        (FSTAB, "/vm ram/a.raw", "/vm ram is memory (tmpfs)"),
        (FSTAB, "/fast/a.raw", "mounted with `nobarrier`"),
        (FSTAB, "/zram/a.raw", "/zram is on /dev/zram1, which is memory"),
        (FSTAB, "/bound/a.raw", "/bound is on /dev/shm/vms"),
        (MOUNT, "/vm/a.raw", "/vm is memory (tmpfs)"),
        (f"root@kvm1:~# mount\n{MOUNT}", "/vm/a.raw", "/vm is memory (tmpfs)"),
        (MOUNT, "/over/a.raw", "`volatile`"),
        (FINDMNT, "/vm/a.raw", "/vm is memory (tmpfs)"),
        (FINDMNT, "/fast/a.raw", "mounted with `nobarrier`"),
        (DF, "/vm/a.raw", "/vm is memory (tmpfs)"),
        (LSBLK, "/vm/a.raw", "/vm is on /dev/ram0, which is memory"),
        (LSBLK, "/zram/a.raw", "/zram is on /dev/zram0, which is memory"),
        (ZFS, "/tank/vms/a.raw", "tank/vms has sync=disabled"),
        (ZFS, "/dev/zvol/tank/vms/disk1", "tank/vms has sync=disabled"),
        ("tank/vms\tsync\tdisabled\tlocal\n", "/tank/vms/b/a.raw", "tank/vms has sync=disabled"),
        ("NAME SYNC MOUNTPOINT\ntank disabled /srv\n", "/srv/a.raw", "tank has sync=disabled"),
        (UNIT, "/vm/a.raw", "/vm is memory (tmpfs)"),
    ],
)
def test_what_a_mount_loses_is_said_of_the_guests_disk(text: str, file: str, loss: str) -> None:
    disk = read(file, text)
    assert loss in (disk.lost_below or "")
    assert "mounts0" in disk.below_instead


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (FSTAB, "/srv/a.raw"), (FSTAB, "/kept/a.raw"), (FSTAB, "/to-disk/a.raw"),
        (FSTAB, "/nas/a.raw"), (FSTAB, "/vm rams/a.raw"),
        (MOUNT, "/vm/disk/a.raw"), (MOUNT, "/vms/a.raw"), (MOUNT, "/dev/sdc"),
        (FINDMNT, "/vm/disk/a.raw"), (DF, "/srv/a.raw"), (LSBLK, "/kept/a.raw"),
        (ZFS, "/tank/a.raw"), (ZFS, "/tank/vms/safe/a.raw"),
    ],
)  # fmt: skip
def test_what_a_mount_keeps_is_not_called_lost(text: str, file: str) -> None:
    assert read(file, text).lost_below is None


def test_the_sync_of_a_data_set_holds_where_it_is_mounted() -> None:
    assert "tank/vms has sync=disabled" in (read("/vms/a.raw", MOUNT, ZFS).lost_below or "")


def test_a_file_on_nfs_is_called_so_and_the_servers_exports_count() -> None:
    disk = read("/nas/a.raw", FSTAB, "/tank/vm *(rw,async)\n")
    assert str(disk.path) == "nfs/raw/none"
    assert disk.soft_mount is not None
    assert disk.soft_mount[0] == "/nas is nfs4 mounted with `soft`"
    assert disk.lost_if is not None
    assert "the NFS server exports /tank/vm with async" in disk.lost_if[0]


def test_an_nfs_storage_of_proxmox_is_matched_with_the_servers_exports() -> None:
    storages = "nfs: nas\n\texport /tank/pve\n\tserver 10.0.0.9\n\tcontent images\n"
    texts = [
        GuestText("scsi0: nas:100/vm-100-disk-0.qcow2,size=32G\n", "100.conf"),
        GuestText(storages, "storage.cfg"),
        GuestText("/tank/pve 10.0.0.0/24(rw,async)\n", "exports"),
    ]
    (disk,) = read_guests(texts)
    assert disk.lost_if is not None
    assert disk.lost_if[0].startswith("if 10.0.0.9 is the machine of exports")
    (other,) = read_guests([*texts[:2], GuestText("/tank *(rw,sync)\n", "exports")])
    assert other.lost_if is None


def test_a_text_of_mounts_alone_says_what_it_has() -> None:
    diskless: list[DisklessGuest] = []
    assert read_guests([GuestText(FSTAB, "fstab")], diskless=diskless) == ()
    assert "flushed data is lost where /vm ram is memory (tmpfs)" in diskless[0].why
    assert "and 1 more" in diskless[0].why


@pytest.mark.parametrize(
    "text",
    [
        "", "# nothing\n", "scsi0: local:100/vm-100-disk-0.qcow2\n", "/srv *(rw,async)\n",
        "#!/bin/sh\nmount -t tmpfs tmpfs /vm\n", "apiVersion: v1\nkind: List\n", "[Mount]\n",
        "NAME MAJ:MIN\nsda 8:0\n", "NAME PROPERTY\n",
    ],
)  # fmt: skip
def test_another_text_has_no_mounts(text: str) -> None:
    assert not host_mounts.is_mounts_file(GuestText(text, "other"))

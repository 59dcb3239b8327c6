"""Exports of NFS, commands of targetcli, disks of QEMU's monitor, and the caches of the kernel."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk, in_doubt
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

QEMU = "qemu-system-x86_64 -name g -drive file={},format=raw,if=virtio,cache=none\n"
EXPORTS = """# /etc/exports
/srv/vms   10.0.0.0/24(rw,async,no_root_squash) backup(ro)
/srv/safe  *(rw,sync)   # not async
"/srv/q"   -async,rw host1 \\
           host2
/home
"""
TARGETCLI = """#!/bin/sh
targetcli /backstores/fileio create d0 /srv/d0.img 10G write_back=true
targetcli /backstores/fileio create name=d1 file_or_dev=/dev/shm/d1.img size=1G
targetcli /backstores/ramdisk create r0 1G
targetcli /backstores/block create b0 /dev/sdc
targetcli /iscsi create iqn.2026-01.lab:lio
targetcli /iscsi/iqn.2026-01.lab:lio/tpg1/luns create /backstores/fileio/d0
targetcli /iscsi/iqn.2026-01.lab:lio/tpg1/luns create /backstores/fileio/d1
targetcli /iscsi/iqn.2026-01.lab:lio/tpg1/luns create /backstores/ramdisk/r0
targetcli /iscsi/iqn.2026-01.lab:lio/tpg1/luns create /backstores/block/b0 lun=7
"""
TOLD = "echo 'write through' > /sys/block/{}/queue/write_cache\n"


def read(place: str, *beside: tuple[str, str], before: str = "") -> ConfiguredDisk:
    guest = GuestText(f"#!/bin/sh\n{before}{QEMU.format(place)}", "g.sh")
    (disk,) = read_guests([guest, *(GuestText(text, name) for name, text in beside)])
    return disk


@pytest.mark.parametrize(
    ("place", "before", "line"),
    [
        ("nfs://nas/srv/vms/a.img", "", 2),
        ("nfs://10.0.0.3/srv/q/b.img", "", 4),
        ("/mnt/vms/a.img", "mount -t nfs nas:/srv/vms /mnt/vms\n", 2),
        ("/mnt/vms/x/a.img", "mount nas:/srv/vms/ /mnt/vms/\n", 2),
    ],
)
def test_a_directory_that_is_exported_async_puts_a_disk_in_doubt(
    place: str, before: str, line: int
) -> None:
    disk = read(place, ("exports", EXPORTS), before=before)
    assert f"line {line} of exports serves this disk, and flushed data is lost" in in_doubt(disk)
    assert disk.lost_below is None
    assert disk.path is not None
    assert disk.path.target is not None  # what the server keeps is never called safe


@pytest.mark.parametrize("place", ["nfs://nas/srv/safe/a.img", "nfs://nas/srv/vms2/a.img", "/a"])
def test_another_directory_is_not_in_doubt(place: str) -> None:
    assert not in_doubt(read(place, ("exports", EXPORTS)))


def test_an_export_of_this_machine_loses() -> None:
    disk = read("nfs://127.0.0.1/srv/vms/a.img", ("exports", EXPORTS))
    assert "exports /srv/vms with async" in (disk.lost_below or "")


@pytest.mark.parametrize(
    ("lun", "loss"), [(0, None), (1, "is memory"), (2, "is memory (ramdisk)"), (7, None)]
)
def test_commands_of_targetcli_are_read(lun: int, loss: str | None) -> None:
    disk = read(f"iscsi://san/iqn.2026-01.lab:lio/{lun}", ("lio.sh", TARGETCLI))
    assert (disk.lost_below is None) is (loss is None)
    assert (loss or "") in (disk.lost_below or "")


def test_a_hidden_cache_of_targetcli_is_said() -> None:
    hidden = "targetcli /backstores/fileio/d0 set attribute emulate_write_cache=0\n"
    path = "/dev/disk/by-path/ip-10.0.0.5:3260-iscsi-iqn.2026-01.lab:lio-lun-0"
    assert "reports no cache" in (read(path, ("l.sh", TARGETCLI + hidden)).lost_below or "")
    assert read(path, ("l.sh", TARGETCLI)).lost_below is None


@pytest.mark.parametrize(
    ("name", "place", "doubt"),
    [
        ("sdb", "/dev/sdb", True), ("sdb", "/dev/sdb1", True), ("*", "/dev/nvme0n1p2", True),
        ("$d", "/dev/vdc", True), ("sda", "/dev/sdb", False), ("sdb", "/srv/a.img", False),
    ],
)  # fmt: skip
def test_a_disk_whose_cache_the_kernel_is_told_away_is_in_doubt(
    name: str, place: str, doubt: bool
) -> None:
    notes: list[str] = []
    guest = GuestText(f"#!/bin/sh\n{TOLD.format(name)}{QEMU.format(place)}", "g.sh")
    (disk,) = read_guests([guest], notes)
    assert bool(in_doubt(disk)) is doubt
    assert any(f"told that {name} has no write cache (line 2)" in note for note in notes)


@pytest.mark.parametrize(
    ("line", "lossy"),
    [
        ("virsh qemu-monitor-command g --hmp 'qemu-io d \"reopen -c unsafe\"'", True),
        ("""echo '{"execute":"blockdev-reopen"}' | nc -U /q""", False),
    ],
)
def test_disks_that_are_changed_later_are_in_doubt_and_named(line: str, lossy: bool) -> None:
    notes: list[str] = []
    (disk,) = read_guests([GuestText(f"{QEMU.format('/a.img')}{line}\n", "g.sh")], notes)
    assert in_doubt(disk) == "line 2 of g.sh changes a disk by QEMU's monitor"
    (note,) = notes
    assert note.startswith("g.sh: a disk that is changed by QEMU's monitor (line 2) is not read")
    assert ("drops flushes" in note) is lossy
    alone: list[DisklessGuest] = []
    assert not read_guests([GuestText(f"#!/bin/sh\n{line}\n", "m.sh")], [], alone)
    assert alone[0].why.startswith("a disk that is changed by QEMU's monitor (line 2)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (EXPORTS, "/etc/exports of an NFS server, with 4 lines; flushed data is lost, as"),
        ("/srv *(rw,sync)\n", "with 1 line; none with async"),
        (TARGETCLI, "a file of targetcli, a server, with 4 disks"),
        (TOLD.format("sda"), "the kernel is told that sda has no write cache (line 1)"),
    ],
)
def test_each_alone_is_said_and_not_refused(text: str, why: str) -> None:
    found: list[DisklessGuest] = []
    assert not read_guests([GuestText(text, "one")], [], found)
    assert why in found[0].why


def test_a_comment_is_no_line() -> None:
    notes: list[str] = []
    read_guests([GuestText(f"# {TOLD.format('sda')}# drive_add\n{QEMU.format('/a')}", "g")], notes)
    assert not notes

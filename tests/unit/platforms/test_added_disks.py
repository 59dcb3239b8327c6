"""Disks that a script adds to a guest that runs or exists: by QEMU's monitor, virsh, `qm disk`."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import change_of, read_guests

STARTED = "qemu-system-x86_64 -name g -drive file=/a.img,format=raw,if=virtio,cache=none\n"
NODE = (
    '{"driver":"qcow2","node-name":"n1","file":{"driver":"file","filename":"/b.qcow2",'
    '"cache":{"no-flush":true}},"cache":{"no-flush":true}}'
)
DEVICE = '{"execute":"device_add","arguments":{"driver":"virtio-blk-pci","drive":"n1","id":"d1"}}'
QMP = f'{{"execute":"blockdev-add","arguments":{NODE}}}'
PRETTY = """{
  "execute": "blockdev-add",
  "arguments": {
    "node-name": "n1", "driver": "raw",
    "file": {"driver": "file", "filename": "/b.qcow2", "cache": {"no-flush": true}}
  }
}
"""


def read(
    text: str, name: str = "g.sh", files: dict[str, str] | None = None
) -> list[ConfiguredDisk]:
    return list(read_guests([GuestText(text, name, files=files or {})], []))


def is_lossy(disk: ConfiguredDisk) -> bool:
    return disk.drops_flushes or (disk.path is not None and disk.path.cache.no_flush)


@pytest.mark.parametrize(
    ("text", "guest"),
    [
        ("echo 'drive_add 0 if=none,id=n1,file=/b.qcow2,format=qcow2,cache=unsafe' | socat - /m\n"
         "echo 'device_add virtio-blk-pci,drive=n1,id=d1' | socat - /m\n", "g"),
        ("virsh qemu-monitor-command web --hmp 'drive_add 0 if=none,id=n1,file=/b.qcow2,"
         "format=qcow2,cache=unsafe'\nvirsh qemu-monitor-command web --hmp "
         "'device_add virtio-blk-pci,drive=n1,id=d1'\n", "web"),
        (f"echo '{QMP}' | nc -U /q\necho '{DEVICE}' | nc -U /q\n", "g"),
        ("virsh qemu-monitor-command web \"" + QMP.replace('"', '\\"') + '"\n'
         "virsh qemu-monitor-command web '" + DEVICE + "'\n", "web"),
        (f'{{"execute":"qmp_capabilities"}}\n{QMP}\n{DEVICE}\n', "g"),
        (f"{PRETTY}{DEVICE}\n", "g"),
    ],
)  # fmt: skip
def test_a_disk_that_the_monitor_adds_has_a_row(text: str, guest: str) -> None:
    (disk,) = read(text)
    assert (disk.guest, disk.target, disk.source) == (guest, "d1", "/b.qcow2")
    assert is_lossy(disk)
    assert disk.changed_at.endswith("of g.sh")
    assert len(read(STARTED + text)) == 2


@pytest.mark.parametrize(
    ("text", "lossy"),
    [
        ('echo "drive_add 0 $OPTS" | socat - /m\n', False),
        ("echo 'drive_add 0 '$OPTS,cache=unsafe | socat - /m\n", True),
        ("echo '" + QMP[:-1] + "' | nc -U /q\n", True),  # broken
        (f"echo '{QMP}' | nc -U /q\n", True),  # no device has it
        ("qmp.command('blockdev-add', driver='raw', cache={'no-flush': True})\n", False),
    ],
)
def test_what_is_not_understood_has_a_row_without_a_path(text: str, lossy: bool) -> None:
    (disk,) = read(f"#!/bin/sh\n{text}")
    assert disk.path is None
    assert disk.problem
    assert is_lossy(disk) is lossy


def test_a_comment_adds_no_disk() -> None:
    assert len(read(f"{STARTED}# drive_add 0 if=none,id=n1,file=/b\n")) == 1


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("virsh attach-disk web /b.img vdb --cache unsafe --live", "web vdb raw/unsafe"),
        ("sudo virsh -c qemu:///system attach-disk web /b.img vdb --subdriver qcow2",
         "web vdb qcow2/default"),
        ("G=web\nvirsh attach-disk --domain $G --source /dev/vg/b --target vdb --cache=none "
         "--io native --persistent", "web vdb none/virtio:aio=native"),
        ("if x; then virsh attach-device web new.xml; fi", "web vdc qcow2/unsafe"),
        ("virsh attach-device web --file new.xml --config", "web vdc qcow2/unsafe"),
    ],
)  # fmt: skip
def test_a_disk_that_virsh_attaches_has_a_row(line: str, found: str) -> None:
    disk_of_file = (
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='unsafe'/>"
        "<source file='/c.qcow2'/><target dev='vdc' bus='virtio'/></disk>"
    )
    (disk,) = read(f"#!/bin/sh\n{line}\n", files={"new.xml": disk_of_file})
    assert f"{disk.domain} {disk.target} {disk.path}" == found
    assert disk.path is not None
    with pytest.raises(NotChangeableError, match="the script's virsh command sets it"):
        change_of(disk, disk.path)
    heredoc = f"virsh attach-device web /dev/stdin <<EOF\n{disk_of_file}\nEOF\n"
    assert [str(each.path) for each in read(heredoc)] == ["qcow2/unsafe"]


@pytest.mark.parametrize(
    ("line", "why", "lossy"),
    [
        ("virsh attach-device web gone.xml", "what virsh attaches from gone.xml is not", False),
        ("virsh attach-disk web /b.img sdb --cache unsafe", "its controller is not known", True),
        ("virsh attach-disk web /b.img vdb --cache $C", "its cache mode is $C", False),
    ],
)  # fmt: skip
def test_a_disk_that_virsh_attaches_unseen_has_a_row(line: str, why: str, lossy: bool) -> None:
    (disk,) = read(f"{line}\n")
    assert (disk.domain, disk.path) == ("web", None)
    assert (disk.problem or "").startswith(why)
    assert disk.drops_flushes is lossy


def test_a_cd_rom_and_a_card_that_virsh_attaches_are_no_disks() -> None:
    assert not read("virsh attach-disk web /x.iso sda --type cdrom --mode readonly\n")
    assert not read("virsh attach-device web nic.xml\n", files={"nic.xml": "<interface/>"})


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("qm create 9 --virtio0 local:8,cache=unsafe\nqm move_disk 9 virtio0 thin --format raw\n",
         "9 virtio0 a new volume on thin True"),
        ("qm disk import 9 x.qcow2 local --format qcow2 --target-disk virtio1\n",
         "9 virtio1 a new volume on local False"),
        ("qm disk move 9 scsi0 thin --delete 1\n", "9 scsi0 None False"),
        ("qm importovf 9 x.ovf thin\n", "9 ? None False"),
        ("qm importdisk 9 x.qcow2 thin\nqm set 9 --virtio0 thin:vm-9-disk-0,cache=unsafe\n",
         "9 virtio0 thin:vm-9-disk-0 True"),
    ],
)  # fmt: skip
def test_a_disk_that_qm_moves_or_imports_has_a_row(script: str, found: str) -> None:
    (disk,) = read(script)
    assert disk.path is None
    assert f"{disk.domain} {disk.target} {disk.source} {loses_writes(disk) is not None}" == found


def test_a_volume_that_is_imported_only_is_attached_to_nothing() -> None:
    alone: list[DisklessGuest] = []
    for verb in ("importdisk", "disk import"):
        text = GuestText(f"qm {verb} 9 x.qcow2 thin\n", "g.sh")
        assert not read_guests([text], [], alone)
        assert alone.pop().why == (
            "`qm disk import` makes a volume on thin, which is attached to nothing"
        )
    gone = GuestText("qm create 9 --virtio0 thin:8\nqm disk unlink 9 --idlist virtio0\n", "g.sh")
    assert not read_guests([gone], [], alone)

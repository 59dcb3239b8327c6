"""Guests that are written down in no platform's own words: pastes, units, lists, commands."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.text_form import FORMS, all_forms, rewritten_texts

STORAGES = GuestText("lvmthin: thin\n\tvgname v\n\ndir: shelf\n\tpath /shelf\n", "storage.cfg")
QEMU = "qemu-system-x86_64 -name web -drive file=/vm/web.raw,format=raw,if=virtio,cache={}"
DOMAIN = (
    "<domain type='kvm'>\n  <name>{}</name>\n  <devices>\n    <disk type='file'>"
    "<driver type='raw' cache='unsafe'/>\n      <source file='/a'/><target dev='vda'/></disk>\n"
    "  </devices>\n</domain>\n"
)


def read(text: str, name: str = "note.txt") -> list[ConfiguredDisk]:
    return list(read_guests([STORAGES, GuestText(text, name)]))


def shown(text: str, name: str = "note.txt") -> list[str]:
    return [f"{disk.guest}:{disk.path}" for disk in read(text, name)]


def test_each_form_is_a_file_and_a_row() -> None:
    assert len(all_forms()) == len(FORMS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"It is slow:\n\n```sh\n$ ls\n{QEMU.format('unsafe')} \\\n  -nographic\n```\nThanks\n",
         ["web:raw/unsafe"]),
        (f"~~~\n{DOMAIN.format('a')}~~~\n\n~~~xml\n{DOMAIN.format('b')}~~~\n",
         ["a:raw/unsafe", "b:raw/unsafe"]),
        (f"Hello list,\n\n{DOMAIN.format('mail')}\n-- \nme\n", ["mail:raw/unsafe"]),
        ("> " + DOMAIN.format("quoted").replace("\n", "\n> "), ["quoted:raw/unsafe"]),
        (f"[root@kvm3 ~]# virsh dumpxml a\n{DOMAIN.format('a')}[root@kvm3 ~]# exit\n",
         ["a:raw/unsafe"]),
        ("root@pve:/etc/pve# cat qemu-server/77.conf\nmemory: 512\n"
         "virtio0: thin:vm-77-disk-0,cache=unsafe\nroot@pve:/etc/pve# \n",
         ["77:lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on"]),
        ("root@pve:~# qm config 5 --current\nboot: order=virtio0\nvirtio0: thin:vm-5-disk-0\n"
         "root@pve:~# qm config 6\nvirtio0: thin:vm-6-disk-0,cache=unsafe\n",
         ["5:lvmthin/none/virtio:aio=io_uring:detect_zeroes=on",
          "6:lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on"]),
        (f"me@desk:~$ {QEMU.format('unsafe')}\n", ["web:raw/unsafe"]),
        (f"me@desk:~/vm$ {QEMU.format('none')} \\\n>   -snapshot\nme@desk:~/vm$\n",
         ["web:raw/none"]),
    ],
)  # fmt: skip
def test_a_paste_is_read(text: str, found: list[str]) -> None:
    assert shown(text) == found


UNIT = """\
[Unit]
Description=%i

[Service]
Type=simple
Environment=MODE=unsafe "ARGS=-m 512 -nographic"
{0}
Restart=always

[Install]
WantedBy=multi-user.target
"""


@pytest.mark.parametrize(
    "line",
    [
        f"ExecStart=/usr/bin/{QEMU.format('unsafe')}",
        f"ExecStart=-/usr/bin/{QEMU.format('${MODE}')} $ARGS",
        "ExecStart=/usr/bin/qemu-system-x86_64 \\\n  -name web \\\n  # the disk\n"
        "  -drive file=/vm/web.raw,format=raw,if=virtio,cache=unsafe",
        f"ExecStartPre=/bin/mkdir -p /run/vm\nExecStart=/bin/sh -c 'exec {QEMU.format('unsafe')}'",
        f"ExecStart=/usr/bin/numactl -N 0 {QEMU.format('unsafe')}\nExecStop=/bin/kill $MAINPID",
    ],
)
def test_a_unit_is_read(line: str) -> None:
    (disk,) = read(UNIT.format(line), "web@.service")
    assert str(disk.path) == "raw/unsafe"
    with pytest.raises(NotChangeableError, match="the systemd unit sets it"):
        change_of(disk, parse_path("raw/none"))


def test_a_library_that_a_unit_preloads_drops_flushes() -> None:
    line = f"Environment=LD_PRELOAD=libeatmydata.so\nExecStart=/usr/bin/{QEMU.format('none')}"
    (disk,) = read(UNIT.format(line), "web.service")
    assert "fsync do nothing" in (disk.lost_below or "")


def test_a_variable_that_no_unit_sets_is_named() -> None:
    (disk,) = read(
        UNIT.format("EnvironmentFile=/etc/x\nExecStart=/bin/qemu-kvm $DISKS"), "a.service"
    )
    assert "$DISKS, which may describe a disk" in (disk.problem or "")


NODES = (
    '-blockdev {"driver":"file","filename":"/a.qcow2","node-name":"s","cache":{"direct":false,'
    '"no-flush":true}} -blockdev {"node-name":"f","driver":"qcow2","file":"s","cache":{"direct":'
    'false,"no-flush":true}} -device {"driver":"virtio-blk-pci","drive":"f","id":"d0"}'
)


@pytest.mark.parametrize(
    "text",
    [
        "root        1234  5.0 10.2 4194304 262144 ?  Sl   Nov27  90:12 "
        f"/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on {NODES}\n",
        "UID          PID    PPID  C STIME TTY          TIME CMD\n"
        "root           1       0  0 Nov01 ?        00:00:09 /sbin/init splash\n"
        "libvirt+    1234       1  5 Nov27 ?        01:30:12 "
        f"/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on {NODES}\n",
        "    PID TTY      STAT   TIME COMMAND\n   1234 ?        Sl    90:12 "
        f"/usr/bin/qemu-kvm -name guest=web {NODES}\n",
        f"1234 /usr/bin/kvm -name guest=web {NODES}\n",
    ],
)  # fmt: skip
def test_a_list_of_processes_is_read(text: str) -> None:
    assert shown(text, "ps.txt") == ["web:qcow2/unsafe"]


def test_an_nbd_server_in_the_list_counts() -> None:
    text = (
        "root 11 0.0 0.1 1 1 ? Ss 10:00 0:00 qemu-nbd -k /s -f raw --cache=unsafe /a\n"
        "root 12 0.0 0.1 1 1 ? Sl 10:00 0:00 qemu-system-x86_64 -name web -drive "
        "file=nbd+unix:///?socket=/s,format=raw,if=virtio,cache=none\n"
    )
    (disk,) = read(text)
    assert "cache mode unsafe" in (disk.lost_below or "")


INFO = """\
(qemu) info block
drive-virtio-disk0 (#block146): /vm/a.qcow2 (qcow2)
    Attached to:      /machine/peripheral/virtio-disk0/virtio-backend
    Cache mode:       writeback, ignore flushes
    Backing file:     /vm/base.qcow2 (chain depth: 2)

libvirt-3-format: /dev/vg/b (raw)
    Attached to:      scsi0-0-0-0
    Cache mode:       writethrough, direct
    Detect zeroes:    on

ide1-cd0: [not inserted]
    Attached to:      /machine/unattached/device[23]
    Removable device: not locked, tray closed

ide1-cd1 (#block9): /iso/x.iso (raw, read-only)
    Attached to:      ide1-cd1
    Removable device: locked, tray closed
    Cache mode:       writeback
"""


def test_info_block_is_read_as_far_as_it_goes() -> None:
    disks = {disk.source: disk for disk in read(INFO, "hmp.txt")}
    assert {source: str(disk.path) for source, disk in disks.items()} == {
        "/vm/a.qcow2": "qcow2:backing=2/unsafe", "/dev/vg/b": "directsync/scsi:detect_zeroes=on",
    }  # fmt: skip
    assert all("not shown by `info block`" in "".join(disk.limits) for disk in disks.values())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#!/bin/sh\nqm create 9000 --name base --memory 2048 --scsihw virtio-scsi-single\n"
         "qm set 9000 --scsi0 thin:0,import-from=/root/x.img,cache=unsafe,iothread=1\n",
         ["9000:lvmthin/unsafe/scsi:aio=io_uring:detect_zeroes=on:iothread=on"]),
        ("ID=12\nqm create $ID -virtio0 shelf:32,format=qcow2 -name a; qm start $ID",
         ["12:qcow2/none/virtio:aio=io_uring:detect_zeroes=on"]),
        ("ssh root@pve 'qm set 3 --virtio1=thin:8,cache=writethrough'\n",
         ["3:lvmthin/writethrough/virtio:aio=io_uring:detect_zeroes=on"]),
        ("qm set 3 --virtio0 thin:8,cache=unsafe\nqm set 3 --virtio0 thin:vm-3-disk-0,cache=none\n",
         ["3:lvmthin/none/virtio:aio=io_uring:detect_zeroes=on"]),
        ("qm set 3 --virtio0 thin:8 --virtio1 thin:9\nqm set 3 --delete virtio1",
         ["3:lvmthin/none/virtio:aio=io_uring:detect_zeroes=on"]),
        ("pvesh create /nodes/pve/qemu -vmid 4 -virtio0 thin:8,aio=native\n",
         ["4:lvmthin/none/virtio:aio=native:detect_zeroes=on"]),
        (f"qm set 3 --virtio0 thin:8\n{QEMU.format('unsafe')}\n",
         ["3:lvmthin/none/virtio:aio=io_uring:detect_zeroes=on", "web:raw/unsafe"]),
    ],
)  # fmt: skip
def test_commands_of_proxmox_are_read(text: str, found: list[str]) -> None:
    assert shown(text, "make.sh") == found


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("--disk path=/a.qcow2,format=qcow2,cache=unsafe,bus=virtio",
         "qcow2/unsafe/virtio:discard=unmap"),
        ("--disk /a.img,size=8", "raw/default/virtio:discard=unmap"),
        ("--disk size=20,cache=none,io=native", "qcow2/none/virtio:aio=native:discard=unmap"),
        ("--disk=/dev/vg/a,bus=scsi", "none/scsi:aio=native:discard=unmap"),
        ("--disk path=/dev/vg/a,bus=scsi,cache=writeback,io=threads "
         "--controller type=scsi,model=virtio-scsi,driver.queues=4",
         "writeback/scsi:discard=unmap:queues=4"),
        ("--disk source.file=/a,driver.type=raw,driver.cache=directsync,driver.discard=ignore",
         "raw/directsync"),
        ("--disk /a.vmdk,bus=sata", "vmdk/default/sata:discard=unmap"),
    ],
)  # fmt: skip
def test_virt_install_is_read(arguments: str, path: str) -> None:
    text = f"sudo virt-install --name web \\\n  --memory 512 --import \\\n  {arguments} --wait 0\n"
    assert shown(text, "vm.sh") == [f"web:{path}"]


def test_what_virt_install_does_not_make_a_disk_is_none() -> None:
    text = (
        "virt-install -n a --disk none --cdrom x.iso\n"
        "virt-install --name b --disk /x.iso,device=cdrom --disk vol=pool/b.qcow2,cache=unsafe"
    )
    (disk,) = read(text)
    assert "volume 'b.qcow2' of the pool 'pool'" in (disk.problem or "")
    assert disk.drops_flushes


def test_a_paste_without_a_guest_is_refused() -> None:
    with pytest.raises(PlanError, match=r"note\.txt"):
        read("Look:\n```\nnothing here\n```\n")


@pytest.mark.parametrize(
    "text",
    [
        "```\n" * 30_000, "a@b:~$ qm config 1\n" * 1_500, "<domain>" * 30_000,
        "[Service]\n" + "ExecStart=a \\\n" * 30_000, "1 2 qemu-kvm " * 20_000,
        "x (y): z (raw)\n" * 20_000, "qm set 1 --scsi0 a:1\n" * 5_000, "virt-install " * 30_000,
        "virt-install --disk " + "a=b," * 50_000, "1 " * 60_000, "> <domain " * 20_000,
    ],
)  # fmt: skip
def test_no_form_takes_long(text: str) -> None:
    start = time.monotonic()
    with suppress(PlanError):
        assert len(list(rewritten_texts(GuestText(text, "x")))) <= 2_000
    assert time.monotonic() - start < 10


WORDS = ["qm set 1 ", "--scsi0 ", "virt-install ", "--disk ", "```", "\n", "root@a:~# ", "<domain>",
         "</domain>", "[Service]", "ExecStart=", "Environment=", "1 2 ", "qemu-kvm -hda ", "a:1,",
         "=", "x (raw)", "    Cache mode: ", "'", '"', "\\\n", "{", "}"]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(PlanError):
        for disk in read(text):
            assert "this is a bug" not in (disk.problem or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('.encoding = "UTF-8"\nvirtualHW.version = "19"\nscsi0:0.fileName = "a.vmdk"\n', "VMware"),
        (
            '<?xml version="1.0"?>\n<VirtualBox version="1.19"><Machine/></VirtualBox>\n',
            "VirtualBox",
        ),
        ('loader="uefi"\ndisk0_type="virtio-blk"\ndisk0_name="disk0.img"\n', "bhyve"),
        ("New-VM -Name a\nAdd-VMHardDiskDrive -VMName a -Path a.vhdx\n", "Hyper-V"),
        ("name = 'a'\ndisk = ['phy:/dev/vg/a,xvda,w']\n", "Xen"),
    ],
)
def test_guests_of_other_hypervisors_are_named(text: str, name: str) -> None:
    with pytest.raises(PlanError, match=f"is a guest of {name}") as refused:
        read(text, "guest.cfg")
    assert "vdisklab run" in (refused.value.hint or "")

"""Files of servers: what each loses below a guest's disk, and what is said of one alone."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

TGT = """default-driver iscsi
<target iqn.2026-01.lab:vm1>
    direct-store /dev/sdc
    backing-store /srv/vm1.img   # LUN 1
    bs-type aio
</target>
<target iqn.2026-01.lab:vm2>
    <backing-store /srv/vm2.img>
        write-cache off
    </backing-store>
    <backing-store /dev/shm/vm3.img>
    </backing-store>
    <backing-store vms/vm4>
        bs-type rbd
    </backing-store>
</target>
"""
LIO = """{"fabric_modules": [], "storage_objects": [
 {"attributes": {"emulate_write_cache": 0}, "dev": "/srv/d0.img", "name": "d0",
  "plugin": "fileio", "size": 1073741824, "write_back": true},
 {"attributes": {"emulate_write_cache": 1}, "dev": "/srv/d1.img", "name": "d1",
  "plugin": "fileio", "write_back": true},
 {"attributes": {"emulate_write_cache": 0}, "dev": "/srv/d2.img", "name": "d2",
  "plugin": "fileio", "write_back": false},
 {"attributes": {"emulate_write_cache": 0}, "dev": "/dev/vg/d3", "name": "d3", "plugin": "block"},
 {"name": "d4", "plugin": "ramdisk", "size": 1073741824}],
 "targets": [{"fabric": "iscsi", "wwn": "iqn.2026-01.lab:lio", "tpgs": [{"enable": true, "luns": [
  {"index": 0, "storage_object": "/backstores/fileio/d0"},
  {"index": 1, "storage_object": "/backstores/fileio/d1"},
  {"index": 2, "storage_object": "/backstores/fileio/d2"},
  {"index": 3, "storage_object": "/backstores/block/d3"},
  {"index": 4, "storage_object": "/backstores/ramdisk/d4"}]}]}]}
"""
NBD = """[generic]
  user = nbd
  port = 10810
  includedir = /etc/nbd-server/conf.d
# what the guests have
[vm1]
  exportname = /srv/vm1.img
  copyonwrite = true
  flush = true
[vm2]
  exportname = /srv/vm2.img
[vm3]
  exportname = /srv/vm3.img
  flush = true
[vm4]
  exportname = /srv/vm4.img
  sync = true
[vm5]
  exportname = /srv/vm5
  temporary = true
[vm6]
  exportname = /dev/shm/vm6.img
  flush = true
"""
PATH = "/dev/disk/by-path/ip-10.0.0.5:3260-iscsi-iqn.2026-01.lab:lio-lun-{}"


def read(server: str, place: str, name: str = "server.conf") -> ConfiguredDisk:
    command = f"qemu-system-x86_64 -name g -drive file={place},format=raw,if=virtio,cache=none\n"
    (disk,) = read_guests([GuestText(command, "g.sh"), GuestText(server, name)])
    return disk


@pytest.mark.parametrize(
    ("server", "place", "loss", "line"),
    [
        (TGT, "iscsi://10.0.0.5/iqn.2026-01.lab:vm1/1", "skips flushes", 4),
        (TGT, "iscsi://10.0.0.5/iqn.2026-01.lab:vm1/2", "skips flushes", 3),
        (TGT, "iscsi://10.0.0.5/iqn.2026-01.lab:vm2/2", "vm3.img, which is memory", 11),
        (LIO, PATH.format(0), "so the initiator sends no flush", None),
        (LIO, PATH.format(4), "is memory", None),
        (LIO, "iscsi://10.0.0.5/iqn.2026-01.lab:lio/4", "is memory", None),
        (NBD, "nbd://10.0.0.5:10810/vm1", "(copyonwrite = true)", 6),
        (NBD, "nbd://10.0.0.5:10810/vm2", "offers no flush", 10),
        (NBD, "nbd://10.0.0.5:10810/vm5", "(temporary = true)", 18),
        (NBD, "nbd://10.0.0.5:10810/vm6", "which is memory", 21),
    ],
)
def test_what_a_server_loses_is_said_of_the_guests_disk(
    server: str, place: str, loss: str, line: int | None
) -> None:
    disk = read(server, place)
    assert loss in (disk.lost_below or "")
    where = "" if line is None else f"line {line} of "
    assert disk.below_instead.startswith(f"Change its server in {where}server.conf: ")


@pytest.mark.parametrize(
    ("server", "place"),
    [
        (TGT, "iscsi://10.0.0.5/iqn.2026-01.lab:vm2/1"),
        (TGT, "iscsi://10.0.0.5/iqn.2026-01.lab:other/1"),
        (LIO, "iscsi://10.0.0.5/iqn.2026-01.lab:lio/0"),  # QEMU's initiator flushes always
        (LIO, PATH.format(1)), (LIO, PATH.format(2)), (LIO, PATH.format(3)), (LIO, PATH.format(10)),
        (NBD, "nbd://10.0.0.5:10810/vm3"), (NBD, "nbd://10.0.0.5:10810/vm4"),
        (NBD, "nbd://10.0.0.5/vm1"),  # another server's port
        (LIO, "iscsi://[10.0.0.5/iqn.2026-01.lab:lio/4"),  # no address
    ],
)  # fmt: skip
def test_what_a_server_keeps_is_not_called_lost(server: str, place: str) -> None:
    assert read(server, place).lost_below is None


ACLS = LIO.replace(
    '"enable": true,',
    """"enable": true, "attributes": {"generate_node_acls": 0}, "node_acls": [
  {"node_wwn": "iqn.2026-01.lab:KVM1", "mapped_luns": [
   {"index": 1, "tpg_lun": 4, "write_protect": false},
   {"index": 4, "tpg_lun": 1, "write_protect": false},
   {"index": 5, "tpg_lun": 4, "write_protect": true}]},
  {"node_wwn": "iqn.2026-01.lab:kvm2", "mapped_luns": [{"index": 1, "tpg_lun": 3}]}],""",
)


@pytest.mark.parametrize(
    ("initiator", "lun", "is_lost"),
    [
        ("iqn.2026-01.lab:kvm1", 1, True),  # the RAM disk, which is the group's LUN 4
        ("iqn.2026-01.lab:kvm1", 4, False),
        ("iqn.2026-01.lab:kvm1", 5, False),  # nothing is written to it
        ("iqn.2026-01.lab:kvm2", 1, False),
        ("iqn.2026-01.lab:kvm3", 4, False),  # the target refuses it
        ("", 1, True),  # it may be that of kvm1
    ],
)
@pytest.mark.parametrize("has_others", [False, True])
def test_an_initiator_has_the_luns_of_its_acl(
    initiator: str, lun: int, is_lost: bool, has_others: bool
) -> None:
    place = f"iscsi://10.0.0.5/iqn.2026-01.lab:lio/{lun}"
    named = f"-iscsi initiator-name={initiator} " if initiator else ""
    guest = f"qemu-system-x86_64 -name g {named}-drive file={place},format=raw,if=virtio\n"
    server = ACLS.replace('acls": 0', 'acls": 1') if has_others else ACLS
    (disk,) = read_guests([GuestText(guest, "g.sh"), GuestText(server, "saveconfig.json")])
    group_has_it = has_others and initiator in ("iqn.2026-01.lab:kvm3", "") and lun == 4
    assert (disk.lost_below is not None) is (is_lost or group_has_it)
    if is_lost:
        assert "is memory (ramdisk) (for iqn.2026-01.lab:kvm1)" in (disk.lost_below or "")


@pytest.mark.parametrize(
    ("server", "kind", "parts"),
    [
        (TGT, "tgt", ["with 5 disks", "iqn.2026-01.lab:vm1/1 loses", "bs-type rbd is not"]),
        (
            LIO,
            "LIO",
            ["with 5 disks", "iqn.2026-01.lab:lio/0 loses flushed data if the host's kernel"],
        ),
        (NBD, "nbd-server", ["with 6 disks", "vm1 loses", "/etc/nbd-server/conf.d is included"]),
        ('{"storage_objects": [', "LIO", ["cannot be read"]),
        ("[a]\nexportname = /a\nflush = true\n", "nbd-server", ["nothing in it drops flushes"]),
    ],
)
def test_a_servers_file_alone_is_said_and_not_refused(
    server: str, kind: str, parts: list[str]
) -> None:
    found: list[DisklessGuest] = []
    assert read_guests([GuestText(server, "srv/server.conf")], [], found) == ()
    (said,) = found
    assert said.why.startswith(f"a file of {kind}, a server")
    assert all(part in said.why for part in parts)
    assert said.instead.endswith("`vdisklab audit GUEST.xml srv/server.conf`")


SCRIPT = """#!/bin/sh
qemu-nbd --fork --shared=4 --cache=unsafe -f qcow2 -x vm1 -k /run/vm1.sock /srv/vm1.qcow2
nbdkit -U /run/vm2.sock file file=/srv/vm2.img
"""
GUEST = """qemu-system-x86_64 -name vm \\
  -drive file=nbd+unix:///vm1?socket=/run/vm1.sock,format=raw,if=virtio,cache=none \\
  -drive file=nbd+unix:///?socket=/run/vm2.sock,format=raw,if=virtio,cache=none
"""


def test_a_script_of_servers_alone_is_said_and_not_refused() -> None:
    """Also beside a script with a guest, whose disk has the loss; a guest's own script is none."""
    diskless: list[DisklessGuest] = []
    texts = [GuestText(SCRIPT, "serve.sh"), GuestText(GUEST, "guest.sh")]
    lost, kept = read_guests(texts, diskless=diskless)
    assert (lost.lost_below or "").startswith("qemu-nbd serves it")
    assert kept.lost_below is None
    (said,) = diskless
    assert said.why == (
        "a script that starts 2 servers of disks and no guest; flushed data is lost, as qemu-nbd "
        "serves it: cache mode unsafe drops flushes"
    )
    alone: list[DisklessGuest] = []
    assert not read_guests([texts[0]], diskless=alone)
    assert alone == diskless
    none: list[DisklessGuest] = []
    both = read_guests([GuestText(SCRIPT + GUEST, "both.sh")], diskless=none)
    assert len(both) == 2
    assert not none


def test_servers_that_keep_all_are_not_called_safe() -> None:
    diskless: list[DisklessGuest] = []
    harmless = SCRIPT.replace("--cache=unsafe ", "")
    assert not read_guests([GuestText(harmless, "serve.sh")], diskless=diskless)
    assert diskless[0].why.endswith("no guest; nothing in it is known to drop flushes")


@pytest.mark.parametrize("name", ["terraform.tfvars", "prod.auto.tfvars.json", "ci.pkrvars.hcl"])
def test_values_of_variables_are_no_guest_and_are_not_refused(name: str) -> None:
    """A user names `vm/*`; the values are read from beside the file that uses them."""
    found: list[DisklessGuest] = []
    disks = read_guests(
        [GuestText('cache = "none"', name), GuestText(GUEST, "guest.sh")], [], found
    )
    assert len(disks) == 2
    assert found[0].why.startswith("values of variables")

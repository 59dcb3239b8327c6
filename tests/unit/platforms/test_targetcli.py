"""targetcli's own shell, here-documents and ACLs: which disk of a guest is which backstore."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

TARGET = "iqn.2026-01.lab:t"
SESSION = """targetcli shell version 2.1.53
For help on commands, type 'help'.

/> cd /backstores/fileio
/backstores/fileio> create vm1 /srv/vm1.img 20G
Created fileio vm1 with size 21474836480
/backstores/fileio> cd vm1
/backstores/fileio/vm1> set attribute emulate_write_cache=0
Parameter emulate_write_cache is now '0'.
/backstores/fileio/vm1> cd /iscsi
/iscsi> create iqn.2026-01.lab:t
Created target iqn.2026-01.lab:t.
/iscsi> cd iqn.2026-01.lab:t/tpg1/luns
/iscsi/iqn.20...:t/tpg1/luns> create /backstores/fileio/vm1
Created LUN 0.
/iscsi/iqn.20...:t/tpg1/luns> create /backstores/block/kept
/iscsi/iqn.20...:t/tpg1/luns> exit
"""
COMMANDS = """cd /backstores/ramdisk
create name=r1 size=1G
cd ../block
create name=kept dev=/dev/vg/kept
/iscsi create iqn.2026-01.lab:t
cd /iscsi/iqn.2026-01.lab:t/tpg1
luns/ create /backstores/ramdisk/r1
luns create storage_object=/backstores/block/kept lun=1
exit
"""
DOCUMENT = f"#!/bin/sh\ntargetcli <<'EOF'\n{COMMANDS}EOF\n"
ACLS = """targetcli /backstores/ramdisk create r1 1G
targetcli /backstores/block create kept /dev/vg/kept
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/luns create /backstores/ramdisk/r1
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/luns create /backstores/block/kept
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/acls create iqn.2026-01.lab:kvm1
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/acls create iqn.2026-01.lab:kvm2 add_mapped_luns=false
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/acls/iqn.2026-01.lab:kvm2 create 0 1
targetcli /iscsi/iqn.2026-01.lab:t/tpg1/acls/iqn.2026-01.lab:kvm2 create 7 lun0
"""


def read(server: str, lun: int, initiator: str = "") -> ConfiguredDisk:
    place = f"/dev/disk/by-path/ip-10.0.0.5:3260-iscsi-{TARGET}-lun-{lun}"
    command = f"qemu-system-x86_64 -name g -drive file={place},format=raw,if=virtio,cache=none\n"
    texts = [GuestText(command, "g.sh"), GuestText(server, "server.txt")]
    if initiator:
        name = f"## DO NOT EDIT OR REMOVE THIS FILE!\nInitiatorName={initiator}\n"
        texts.append(GuestText(name, "initiatorname.iscsi"))
    (disk,) = read_guests(texts)
    return disk


@pytest.mark.parametrize(
    ("server", "lun", "loss"),
    [
        (SESSION, 0, "reports no cache (emulate_write_cache=0)"), (SESSION, 1, None),
        (SESSION.replace("cache=0", "cache=1"), 0, None),
        (DOCUMENT, 0, "/backstores/ramdisk/r1 is memory"), (DOCUMENT, 1, None),
        (COMMANDS, 0, "/backstores/ramdisk/r1 is memory"), (COMMANDS, 1, None),
        (ACLS, 0, "is memory"), (ACLS, 7, "is memory"), (ACLS, 1, None),
    ],
)  # fmt: skip
def test_commands_of_targetcli_are_followed(server: str, lun: int, loss: str | None) -> None:
    found = read(server, lun).lost_below
    assert (found is None) if loss is None else (loss in (found or ""))


@pytest.mark.parametrize(
    ("initiator", "lun", "is_lost"),
    [
        ("iqn.2026-01.lab:KVM1", 0, True), ("iqn.2026-01.lab:kvm1", 7, False),
        ("iqn.2026-01.lab:kvm2", 0, False), ("iqn.2026-01.lab:kvm2", 7, True),
        ("iqn.2026-01.lab:kvm3", 0, False),
    ],
)  # fmt: skip
def test_the_name_of_the_guests_host_chooses_its_luns(
    initiator: str, lun: int, is_lost: bool
) -> None:
    assert (read(ACLS, lun, initiator).lost_below is not None) is is_lost


def test_two_names_of_hosts_choose_none() -> None:
    names = "InitiatorName=iqn.2026-01.lab:kvm2\nInitiatorName=iqn.2026-01.lab:kvm1\n"
    place = f"/dev/disk/by-path/ip-10.0.0.5:3260-iscsi-{TARGET}-lun-0"
    command = f"qemu-system-x86_64 -name g -drive file={place},format=raw,if=virtio\n"
    texts = [(command, "g.sh"), (ACLS, "t.sh"), (names, "initiatorname.iscsi")]
    (disk,) = read_guests([GuestText(text, name) for text, name in texts])
    assert disk.lost_below is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("InitiatorName=iqn.2026-01.lab:kvm2\n", "name of a host to its iSCSI targets"),
        ("#!/bin/sh\nmount -t tmpfs tmpfs /vm\n", "/vm is memory (tmpfs)"),
        ("zfs set sync=disabled tank/vms\n", "tank/vms has sync=disabled"),
        (DOCUMENT, "a file of targetcli, a server, with 2 disks"),
    ],
)
def test_a_text_without_a_guest_says_what_it_is(text: str, said: str) -> None:
    diskless: list[DisklessGuest] = []
    assert read_guests([GuestText(text, "text")], diskless=diskless) == ()
    assert said in diskless[0].why

"""Texts that may be named beside guests and have no guest's disk: each is said, none is refused."""

from __future__ import annotations

import pytest

from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

QEMU = "qemu-system-x86_64 -name g -drive file=/srv/a.img,format=raw,if=virtio,cache=none\n"
CONTAINER = "- {name: ct1, type: container, config: {}, devices: {root: {type: disk, pool: p}}}\n"
VM = (
    "- {name: vm1, type: virtual-machine, config: {}, devices: {r: {type: disk, source: /a.img}}}\n"
)
LXC = "arch: amd64\nhostname: ct\nostype: debian\nrootfs: local-lvm:vm-200-disk-0,size=8G\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("ct.yaml", CONTAINER, "a container"),
        ("ct.yaml", "name: ct1\nconfig: {image.type: squashfs}\ndevices: {}\n", "a container"),
        ("200.conf", LXC, "a container"),
        ("user-data.yaml", "#cloud-config\nusers: [{name: a}]\n", "user data of cloud-init"),
        ("user-data.yaml", "## template: jinja\n#cloud-config\n{}\n", "user data of cloud-init"),
        ("meta-data.yaml", "instance-id: i\nlocal-hostname: w\n", "meta data of cloud-init"),
        ("net.yaml", "version: 2\nethernets: {eth0: {dhcp4: true}}\n", "network configuration of"),
    ],
)
def test_a_text_without_a_guests_disk_is_said(name: str, text: str, why: str) -> None:
    alone: list[DisklessGuest] = []
    assert not read_guests([GuestText(text, name)], [], alone)
    assert alone[0].why.startswith(why)
    beside: list[DisklessGuest] = []
    assert len(read_guests([GuestText(QEMU, "g.sh"), GuestText(text, name)], [], beside)) == 1
    assert beside == alone


def test_containers_beside_machines_are_named() -> None:
    found: list[DisklessGuest] = []
    assert len(read_guests([GuestText(CONTAINER + VM, "all.yaml")], [], found)) == 1
    assert [guest.name for guest in found] == ["ct1"]


@pytest.mark.parametrize(
    "text",
    [
        VM,
        "name: vm1\nconfig: {user.user-data: '#cloud-config'}\ndevices: {r: {type: disk, "
        "source: /a.img}}\ntype: virtual-machine\n",
    ],
)
def test_a_machine_is_not_taken_for_one(text: str) -> None:
    found: list[DisklessGuest] = []
    assert len(read_guests([GuestText(text, "i.yaml")], [], found)) == 1
    assert not found

"""An image that several disks write to is said to be, and called lost without QEMU's lock."""

from __future__ import annotations

import pytest

from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow, ImageShared, VolumeShared

DRIVE = "-drive file=/vm/a.raw,format=raw,if=virtio,cache=none"
ONE = f"qemu-system-x86_64 -name one -m 1G {DRIVE}"
TWO = f"qemu-system-x86_64 -name two -m 1G {DRIVE}"
XML = """<domain type='kvm'><name>db</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw' cache='none'/><source file='/vm/./a.raw'/>
<target dev='vda' bus='virtio'/>{}</disk></devices></domain>
"""


@pytest.mark.parametrize(
    ("texts", "others"),
    [
        ([f"{ONE} {DRIVE}\n"], ["one virtio1", "one virtio0"]),
        ([f"{ONE} &\n{TWO} &\n"], ["two virtio0", "one virtio0"]),
        ([f"{ONE}\n", XML.format("")], ["db vda", "one virtio0"]),
        # QEMU 7.2 with these two: `Failed to get shared "write" lock`.
        ([f"{ONE}\n", f"{TWO},readonly=on\n"], ["two virtio0", "one virtio0"]),
        ([f"{ONE}\n", f"{TWO} -snapshot\n"], ["two virtio0", "one virtio0"]),
        ([f"{ONE},readonly=on\n", f"{TWO},readonly=on\n"], ["", ""]),
        ([f"{ONE} -snapshot\n", f"{TWO},readonly=on\n"], ["", ""]),
        ([XML.format("<shareable/>"), XML.format("<shareable/>").replace("db", "web")], ["", ""]),
        ([f"{ONE}\n", TWO.replace("/a.raw", "/b.raw") + "\n"], ["", ""]),
    ],
)
def test_an_image_of_two_writers_is_a_risk(texts: list[str], others: list[str]) -> None:
    disks = read_guests([GuestText(text, f"g{number}") for number, text in enumerate(texts)])
    assert [disk.written_by for disk in disks] == others
    assert [ImageShared(name) in risks(disk) for name, disk in zip(others, disks, strict=True)] == [
        bool(name) for name in others
    ]


@pytest.mark.parametrize(
    "unlocked",
    [
        f"{TWO},file.locking=off\n",
        "qemu-system-x86_64 -name two -blockdev driver=file,node-name=f,filename=/vm/a.raw,"
        "locking=off -blockdev driver=raw,node-name=d,file=f -device virtio-blk-pci,drive=d\n",
    ],
)
def test_two_writers_without_the_lock_lose_data(unlocked: str) -> None:
    for disk in read_guests([GuestText(f"{ONE}\n", "one"), GuestText(unlocked, "two")]):
        assert "without QEMU's lock, which corrupts it" in (disk.lost_below or "")
        assert any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk))


def volumes_of_terraform(first: str, second: str) -> str:
    domains = (
        f'resource "libvirt_domain" "{name}" {{\n name = "{name}"\n'
        f" disk {{\n  volume_id = {volume}\n }}\n}}\n"
        for name, volume in (("one", first), ("two", second))
    )
    return f'resource "libvirt_volume" "data" {{\n format = "raw"\n}}\n{"".join(domains)}'


@pytest.mark.parametrize(
    ("first", "second", "others"),
    [
        ("libvirt_volume.data.id", "libvirt_volume.data.id", ["two vda", "one vda"]),
        ("libvirt_volume.data[0].id", "libvirt_volume.data[0].id", ["two vda", "one vda"]),
        ("libvirt_volume.data[0].id", "libvirt_volume.data[1].id", ["", ""]),
        ("libvirt_volume.data[count.index].id", "libvirt_volume.data[count.index].id", ["", ""]),
        ("libvirt_volume.data.id", "libvirt_volume.other.id", ["", ""]),
    ],
)
def test_a_volume_of_terraform_is_an_image(first: str, second: str, others: list[str]) -> None:
    text = volumes_of_terraform(first, second)
    assert [disk.written_by for disk in read_guests([GuestText(text, "main.tf")])] == others


def test_volumes_of_two_files_of_terraform_are_two() -> None:
    text = volumes_of_terraform("libvirt_volume.data.id", "libvirt_volume.other.id")
    texts = [GuestText(text, "a/main.tf"), GuestText(text, "b/main.tf")]
    assert [disk.written_by for disk in read_guests(texts)] == [""] * 4


def incus(device: str, name: str, project: str = "default") -> str:
    return (
        f"name: {name}\ntype: virtual-machine\nproject: {project}\nconfig: {{}}\n"
        f"devices:\n  data: {{type: disk, {device}}}\n"
    )


POOLS = (
    "- {name: lv, driver: lvm, config: {source: vg0}}\n"
    "- {name: dirp, driver: dir, config: {source: /srv/incus}}\n"
)


@pytest.mark.parametrize("pool", ["lv", "dirp"])
@pytest.mark.parametrize(
    ("volume", "project", "others"),
    [
        ("d3", "default", ["two data", "one data"]),
        ("d4", "default", ["", ""]),
        ("d3", "other", ["", ""]),
        ("d3, readonly: true", "default", ["", ""]),
    ],
)
def test_a_volume_of_incus_has_no_lock(
    pool: str, volume: str, project: str, others: list[str]
) -> None:
    second = incus(f"pool: {pool}, source: {volume}", "two", project)
    texts = [incus(f"pool: {pool}, source: d3", "one"), second, POOLS]
    disks = read_guests([GuestText(text, f"g{number}") for number, text in enumerate(texts)])
    assert [disk.same_volume for disk in disks] == others
    assert [
        VolumeShared(name) in risks(disk) for name, disk in zip(others, disks, strict=True)
    ] == [bool(name) for name in others]
    assert not any(disk.written_by for disk in disks)


def test_incus_opens_an_image_of_the_host_without_the_lock() -> None:
    texts = [incus("source: /vm/a.raw", name) for name in ("one", "two")]
    for disk in read_guests([GuestText(text, f"g{n}") for n, text in enumerate(texts)]):
        assert "without QEMU's lock, which corrupts it" in (disk.lost_below or "")
        assert disk.below_instead == "Give each an image of its own"

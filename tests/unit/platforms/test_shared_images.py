"""An image that several disks write to is said to be, and called lost without QEMU's lock."""

from __future__ import annotations

import pytest

from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow, ImageShared

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
        ([f"{ONE}\n", f"{TWO},readonly=on\n"], ["", ""]),
        ([f"{ONE}\n", f"{TWO} -snapshot\n"], ["", ""]),
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

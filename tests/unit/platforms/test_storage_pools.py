"""libvirt's storage pools: how their directories are mounted, and what that means for a disk."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow, SoftMount

DOMAIN = """<domain type='kvm'><name>web</name><devices><disk type='{kind}' device='disk'>
<driver name='qemu' type='qcow2' cache='none'/><source {source}/><target dev='vda' bus='virtio'/>
</disk></devices></domain>
"""
POOL = """<pool type='{kind}' xmlns:fs='http://libvirt.org/schemas/storagepool/fs/1.0'>
  <name>data</name>
  <source><host name='nas'/><dir path='/export/vm'/><format type='auto'/></source>
  <target><path>/var/lib/libvirt/images/data/</path></target>
  <fs:mount_opts>{options}</fs:mount_opts>
</pool>
"""
FILE = "file='/var/lib/libvirt/images/data/web.qcow2'"
VOLUME = "pool='data' volume='web.qcow2'"


def pool(kind: str, *options: str) -> str:
    spelled = "".join(f"<fs:option name='{option}'/>" for option in options)
    return POOL.format(kind=kind, options=spelled)


def read(xml: str, source: str = FILE) -> ConfiguredDisk:
    kind = "volume" if source == VOLUME else "file"
    guest = GuestText(DOMAIN.format(kind=kind, source=source), "web.xml")
    (disk,) = read_guests([guest, GuestText(xml, "pool.xml")])
    return disk


@pytest.mark.parametrize("source", [FILE, VOLUME])
@pytest.mark.parametrize("options", [("nobarrier",), ("noatime", "barrier=0")])
def test_a_pool_that_sends_no_flushes_loses_them(source: str, options: tuple[str, ...]) -> None:
    disk = read(pool("fs", *options), source)
    assert f"`{options[-1]}`, so no flush reaches the disk" in (disk.lost_below or "")
    assert "virsh pool-edit data" in disk.below_instead
    assert any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk))


def test_a_soft_mount_of_a_pool_is_a_risk() -> None:
    disk = read(pool("netfs", "timeo=50", "soft"))
    (risk,) = (risk for risk in risks(disk) if isinstance(risk, SoftMount))
    assert risk.mount == "The pool data is mounted with `soft`"


@pytest.mark.parametrize(
    ("xml", "source"),
    [
        (pool("fs", "noatime"), FILE),
        (pool("fs", "nobarrier", "barrier"), FILE),
        (pool("netfs", "soft", "hard"), FILE),
        (pool("fs", "nobarrier"), "file='/srv/web.qcow2'"),
        (pool("fs", "nobarrier"), "file='/var/lib/libvirt/images/data2/web.qcow2'"),
    ],
)
def test_a_disk_of_a_pool_that_loses_nothing_is_as_it_was(xml: str, source: str) -> None:
    disk = read(xml, source)
    assert (disk.lost_below, disk.soft_mount) == (None, None)


@pytest.mark.parametrize(
    ("xml", "part"),
    [
        (pool("fs", "nobarrier"), "the storage pool data of libvirt (fs): the pool data is"),
        (pool("netfs", "soft"), "requests fail when the server is away"),
        (pool("dir"), "nothing in it drops flushes"),
        ("<pool><name>x</pool>", "which is not valid XML"),
    ],
)
def test_a_pool_alone_is_said(xml: str, part: str) -> None:
    found: list[DisklessGuest] = []
    assert read_guests([GuestText(xml, "pool.xml")], [], found) == ()
    assert part in found[0].why

"""libvirt's storage pools: how their directories are mounted, and what that means for a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks
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


POOLS = {
    "dir": "<target><path>/images/</path></target>",
    "netfs": "<source><host name='nas'/><dir path='/e'/><format type='nfs'/></source>"
    "<target><path>/nfs</path></target>",
    "logical": "<source><name>vg0</name></source><target><path>/dev/vg0</path></target>",
    "zfs": "<source><name>tank/vms</name></source>",
    "iscsi": "<source><host name='10.0.0.9'/><device path='iqn.t:p'/></source>"
    "<target><path>/dev/disk/by-path</path></target>",
    "iscsi-direct": "<source><host name='10.0.0.9'/><device path='iqn.t:p'/>"
    "<initiator><iqn name='iqn.me:a'/></initiator></source>",
}


def of_volume(
    kind: str, inner: str, volume: str, mode: str = "", form: str = "raw"
) -> ConfiguredDisk:
    domain = DOMAIN.replace("type='qcow2'", f"type='{form}'")
    source = f"pool='data' volume='{volume}'{mode}"
    guest = GuestText(domain.format(kind="volume", source=source), "web.xml")
    xml = f"<pool type='{kind}'><name>data</name>{inner}</pool>"
    (disk,) = read_guests([guest, GuestText(xml, "pool.xml")])
    return disk


@pytest.mark.parametrize(
    ("kind", "volume", "mode", "path", "source"),
    [
        ("dir", "a.img", "", "raw/none", "/images/a.img"),
        ("netfs", "a.img", "", "nfs/raw/none", "/nfs/a.img"),
        ("logical", "a", "", "none", "/dev/vg0/a"),
        ("zfs", "a", "", "none", "/dev/zvol/tank/vms/a"),
        ("iscsi", "unit:0:0:3", "", "none",
         "/dev/disk/by-path/ip-10.0.0.9:3260-iscsi-iqn.t:p-lun-3"),
        ("iscsi", "unit:0:0:3", " mode='direct'", "iscsi/raw/none",
         "iscsi://10.0.0.9/iqn.t:p/3"),
        ("iscsi-direct", "unit:0:0:4", "", "iscsi/raw/none", "iscsi://10.0.0.9/iqn.t:p/4"),
    ],
)  # fmt: skip
def test_a_volume_is_read_as_what_its_pool_makes_of_it(
    kind: str, volume: str, mode: str, path: str, source: str
) -> None:
    """As libvirt gives it to QEMU: virStorageTranslateDiskSourcePool."""
    disk = of_volume(kind, POOLS[kind], volume, mode)
    assert (str(disk.path), disk.source, disk.problem) == (path, source, None)
    assert disk.unseen is None
    if kind == "iscsi-direct":
        assert disk.server is not None
        assert disk.server.initiator == "iqn.me:a"
    if kind == "iscsi" and not mode:
        assert disk.on_served_device  # nobody here knows what the server keeps


def test_a_file_in_the_directory_of_an_nfs_pool_is_on_its_server() -> None:
    assert str(read(pool("netfs"), FILE).path) == "nfs/qcow2/none"


@pytest.mark.parametrize(
    ("kind", "inner", "volume", "instead"),
    [
        ("rbd", "<source><host name='m'/><name>vms</name></source>", "a",
         "write <disk type='network'> with <source protocol='rbd' name='vms/a'>"),
        ("gluster", "<source><name>vol</name></source>", "b", "protocol='gluster' name='vol/b'"),
        ("mpath", "<target><path>/dev/mapper</path></target>", "m", "/dev/mapper/NAME"),
    ],
)  # fmt: skip
def test_a_volume_that_libvirt_gives_no_guest_is_refused(
    kind: str, inner: str, volume: str, instead: str
) -> None:
    disk = of_volume(kind, inner, volume)
    assert disk.path is None
    assert disk.refused is not None
    assert f"a pool of type {kind}" in disk.refused[0]
    assert instead in disk.refused[1]


@pytest.mark.parametrize(
    ("kind", "volume"),
    [("scsi", "unit:0:0:1"), ("iscsi", "odd"), ("new-kind", "a")],
)
def test_a_volume_that_its_pool_does_not_tell_stays_unknown(kind: str, volume: str) -> None:
    disk = of_volume(kind, POOLS.get(kind, ""), volume)
    assert (disk.path, disk.refused) == (None, None)
    assert f"virsh vol-path --pool data {volume}" in (disk.unseen or "")


def test_an_unsafe_volume_stays_unsafe() -> None:
    domain = DOMAIN.replace("cache='none'", "cache='unsafe'").format(kind="volume", source=VOLUME)
    texts = [GuestText(domain, "web.xml"), GuestText(pool("netfs"), "pool.xml")]
    (disk,) = read_guests(texts)
    assert disk.path is not None
    assert disk.path.cache.no_flush


def test_pools_beside_the_guests_are_read_where_libvirt_has_them(tmp_path: Path) -> None:
    """/etc/libvirt/storage, for /etc/libvirt, /etc/libvirt/qemu and a file there."""
    for name in ("qemu", "storage"):
        (tmp_path / "libvirt" / name).mkdir(parents=True)
    guest = tmp_path / "libvirt/qemu/web.xml"
    guest.write_text(DOMAIN.format(kind="volume", source=VOLUME))
    (tmp_path / "libvirt/storage/data.xml").write_text(pool("netfs"))
    other = pool("netfs").replace(">data<", ">other<")
    (tmp_path / "libvirt/storage/other.xml").write_text(other)
    for named in (tmp_path / "libvirt", guest.parent, guest):
        found = read_disks(LocalHost(), [named], None)
        assert [str(disk.path) for disk in found.disks] == ["nfs/qcow2/none"]
        assert any("other" in note for note in found.notes) is (named == tmp_path / "libvirt")

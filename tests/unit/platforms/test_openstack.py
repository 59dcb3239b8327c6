"""OpenStack's servers are read with their images, flavours and the host's nova.conf."""

from __future__ import annotations

import json

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.guest_disks import NotExpressibleError
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, configure, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import FlushesDropped

SERVER = {
    "id": "0b7c-4a", "name": "web", "image": "debian (9e1)", "flavor": "small (4)",
    "volumes_attached": [{"id": "vol-7"}],
}  # fmt: skip
IMAGE = {
    "id": "9e1", "name": "debian", "disk_format": "qcow2", "container_format": "bare",
    "properties": {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi"},
}  # fmt: skip
FLAVOR = {
    "id": "4", "name": "small", "vcpus": 1, "ram": 512,
    "properties": {"quota:disk_total_iops_sec": "500", "quota:disk_read_bytes_sec": "1000"},
}  # fmt: skip


def read(*documents: object, host: str = "") -> list[ConfiguredDisk]:
    texts = [GuestText(json.dumps(document), f"{n}.json") for n, document in enumerate(documents)]
    disks = read_guests([*texts, *([GuestText(host, "nova.conf")] if host else [])])
    return [disk for disk in disks if disk.guest != "nova"]


def test_a_server_is_read_with_its_image_and_flavour() -> None:
    root, volume = read(SERVER, IMAGE, FLAVOR)
    assert str(root.path) == "qcow2:backing=1/none/scsi:throttle_iops=500"
    assert root.source == "/var/lib/nova/instances/0b7c-4a/disk"
    assert root.limits == ("quota:disk_read_bytes_sec=1000",)
    assert (root.platform, root.guest) == (Platform.OPENSTACK, "web")
    assert volume.target == "vol-7"
    assert "volume of Cinder" in (volume.problem or "")


@pytest.mark.parametrize(
    ("host", "path", "source"),
    [
        ("[libvirt]\ndisk_cachemodes = \"file=unsafe,block=none\"\n",
         "qcow2:backing=1/unsafe", "/var/lib/nova/instances/0b7c-4a/disk"),
        ("[DEFAULT]\ninstances_path = /srv\npreallocate_images = space\n"
         "[libvirt]\nimages_type = raw\nhw_disk_discard = unmap\n",
         "raw:preallocation=falloc/none/virtio:aio=native:discard=unmap", "/srv/0b7c-4a/disk"),
        ("[DEFAULT]\npreallocate_images = space\n"
         "[libvirt]\nimages_type = flat\ndisk_cachemodes = file=writeback\n",
         "raw:preallocation=falloc/writeback", "/var/lib/nova/instances/0b7c-4a/disk"),
        ("[libvirt]\nimages_type = lvm\nimages_volume_group = fast\n"
         "disk_cachemodes = block=directsync\n", "lvm/directsync", "/dev/fast/0b7c-4a_disk"),
        ("[DEFAULT]\nuse_cow_images = false\n[libvirt]\ndisk_cachemodes = \n",
         "raw/none", "/var/lib/nova/instances/0b7c-4a/disk"),
        ("[libvirt]\nimages_type = rbd\nimages_rbd_pool = vms\nrbd_user = nova\n"
         "images_rbd_ceph_conf = /etc/ceph/ceph.conf\ndisk_cachemodes = network=writeback\n",
         "rbd/writeback", "rbd:vms/0b7c-4a_disk@/etc/ceph/ceph.conf?id=nova"),
    ],
)  # fmt: skip
def test_the_hosts_nova_conf_decides(host: str, path: str, source: str) -> None:
    (root,) = read({**SERVER, "volumes_attached": []}, host=host)
    assert root.path == parse_path(path)
    assert root.source == source


CINDER = """[DEFAULT]
enabled_backends = ceph,nas,san
[ceph]
volume_driver = cinder.volume.drivers.rbd.RBDDriver
rbd_pool = volumes
rbd_ceph_conf = /etc/ceph/ceph.conf
rbd_user = cinder
[nas]
volume_driver = cinder.volume.drivers.nfs.NfsDriver
nfs_qcow2_volumes = True
[san]
volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver
"""


@pytest.mark.parametrize(
    ("backend", "path", "source"),
    [
        ("ceph", "rbd/writeback", "rbd:volumes/volume-vol-7@/etc/ceph/ceph.conf?id=cinder"),
        ("nas", "nfs/qcow2/none", None),
        ("san", "None", None),
        ("", "None", None),
    ],
)
def test_a_volume_lies_where_its_backend_has_it(
    backend: str, path: str, source: str | None
) -> None:
    volume = {"id": "vol-7", "os-vol-host-attr:host": f"node1@{backend}#pool"}
    server = {**SERVER, "image": "N/A (booted from volume)"}
    texts = [GuestText(json.dumps(row), f"{n}.json") for n, row in enumerate((server, volume))]
    host = GuestText("[libvirt]\ndisk_cachemodes = network=writeback\n", "nova.conf")
    disks = read_guests([*texts, host, GuestText(CINDER, "cinder.conf")])
    (disk,) = (disk for disk in disks if disk.guest == "web")
    assert (str(disk.path), disk.source) == (path, source)
    if disk.path is None:
        assert ("LVMVolumeDriver" if backend else "cinder.conf") in (disk.problem or "")


def test_each_volume_has_a_file_of_its_own() -> None:
    server = {**SERVER, "volumes_attached": [{"id": "vol-7"}, {"id": "a b"}]}
    first, second = (disk.unseen for disk in read(server, IMAGE, FLAVOR) if disk.target != "root")
    assert "`openstack volume show vol-7 -f json > volume-vol-7.json`" in (first or "")
    assert "`openstack volume show 'a b' -f json > 'volume-a b.json'`" in (second or "")


def test_what_has_no_path_says_why() -> None:
    lonely = {**SERVER, "volumes_attached": ""}
    (far,) = read(lonely, host="[libvirt]\nimages_type = ploop\n")
    assert "its images_type is ploop" in (far.problem or "")
    (odd,) = read(lonely, host="[libvirt]\ndisk_cachemodes = file=fast\n")
    assert "cache mode 'fast'" in (odd.problem or "")
    (broken,) = read(lonely, host="images_type = raw\n")
    assert "nova.conf is broken" in (broken.problem or "")
    lsi = {**IMAGE, "properties": "hw_disk_bus='scsi', hw_qemu_guest_agent='yes'"}
    (scsi,) = read(lonely, lsi)
    assert "controller 'lsilogic'" in (scsi.problem or "")


def test_a_server_booted_from_a_volume_has_no_other_disk() -> None:
    server = {**SERVER, "image": "N/A (booted from volume)", "volumes_attached": "id='vol-9'"}
    assert [disk.target for disk in read(server)] == ["vol-9"]


def test_an_unsafe_cloud_is_a_risk() -> None:
    (root,) = read(
        {**SERVER, "volumes_attached": []}, host="[libvirt]\ndisk_cachemodes=file=unsafe"
    )
    assert FlushesDropped() in risks(root)


def test_a_new_guest_of_a_host_gets_what_nova_conf_says() -> None:
    text = "[libvirt]\nimages_type = qcow2\ndisk_cachemodes = file=writethrough\n"
    (disk,) = read_guests([GuestText(text, "/etc/nova/nova.conf")])
    assert (str(disk.path), disk.source) == ("qcow2:backing=1/writethrough", None)


def test_new_guests_of_a_host_whose_directory_is_memory_lose_data() -> None:
    text = "[DEFAULT]\ninstances_path = /dev/shm/nova\n"
    (disk,) = read_guests([GuestText(text, "/etc/nova/nova.conf")])
    assert disk.lost_below is not None
    assert disk.lost_below.endswith("is memory (tmpfs)")


def test_a_path_is_written_for_host_image_and_flavour() -> None:
    path = "raw:preallocation=off/writeback/scsi:discard=unmap:throttle_bps=10M"
    made = configure(ExportRequest(parse_path(path)), "openstack")
    assert "image set --property hw_disk_bus=scsi --property hw_scsi_model=virtio-scsi" in made.text
    assert "flavor set --property quota:disk_total_bytes_sec=10485760 FLAVOR" in made.text
    assert "[libvirt]\nimages_type = raw\ndisk_cachemodes = file=writeback\n" in made.text
    assert made.gaps == ()
    (disk,) = read_guests([GuestText(made.text, "nova.conf")])
    assert disk.path == parse_path(path)
    with pytest.raises(NotExpressibleError, match="no format qcow2 on a device"):
        configure(ExportRequest(parse_path("lvm/qcow2/none")), "openstack")


def test_no_line_changes_one_disk() -> None:
    (root, _) = read(SERVER)
    with pytest.raises(NotChangeableError, match="disk_cachemodes"):
        change_of(root, parse_path("raw/writeback"))

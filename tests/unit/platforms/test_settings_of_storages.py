"""What a platform's storage says of the disks on it: the aio mode, `disable`, soft mounts."""

from __future__ import annotations

import re

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, durability
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, forms, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import CannotWork, OnServer, SoftMount
from vdisklab.views.durability import durability_sentence

STORAGES = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

rbd: ceph-vm
\tcontent images
\tkrbd 1
\tpool vms

rbd: ceph-lib
\tcontent images
\tpool vms

lvm: san
\tvgname vgsan
\tshared 1

lvmthin: local-lvm
\tthinpool data
\tvgname pve

nfs: nas
\texport /export/vms
\tpath /mnt/pve/nas
\tserver 10.0.0.7
\toptions vers=4.2,soft,timeo=100

nfs: firm
\texport /export/firm
\tpath /mnt/pve/firm
\tserver 10.0.0.7
\toptions soft,vers=4.2,hard

cifs: win
\tpath /srv/win
\tserver 10.0.0.8
\tshare vms

cifs: winhard
\tpath /mnt/pve/winhard
\tserver 10.0.0.8
\tshare vms
\toptions hard,noserverino

nfs: old
\tdisable
\texport /export/old
\tpath /mnt/pve/old
\tserver 10.0.0.9
"""


def proxmox(line: str, slot: str = "virtio0") -> ConfiguredDisk:
    guest = f"cores: 2\nname: erp\nmemory: 4096\n{slot}: {line},size=32G\n"
    texts = [GuestText(STORAGES, "storage.cfg"), GuestText(guest, "101.conf")]
    return next(disk for disk in read_guests(texts) if disk.target == slot)


@pytest.mark.parametrize(
    ("line", "aio"),
    [
        ("ceph-vm:vm-101-disk-0", "io_uring"),
        ("ceph-vm:vm-101-disk-0,cache=directsync", "io_uring"),
        ("ceph-vm:vm-101-disk-0,cache=writeback", "threads"),
        ("ceph-vm:vm-101-disk-0,cache=writethrough", "threads"),
        ("ceph-vm:vm-101-disk-0,cache=unsafe", "threads"),
        ("ceph-vm:vm-101-disk-0,cache=writeback,aio=io_uring", "io_uring"),
        ("san:vm-101-disk-0", "native"),
        ("san:vm-101-disk-0,cache=directsync", "native"),
        ("san:vm-101-disk-0,cache=writeback", "threads"),
        ("local-lvm:vm-101-disk-0,cache=writeback", "io_uring"),
        ("local:101/vm-101-disk-0.qcow2,cache=writeback", "io_uring"),
        ("win:101/vm-101-disk-0.qcow2,cache=writethrough", "threads"),
    ],
)
def test_the_aio_mode_is_that_of_qemu_server(line: str, aio: str) -> None:
    path = proxmox(line).path
    assert path is not None
    assert str(path.attachment.aio) == aio


def test_librbd_has_no_aio_mode() -> None:
    path = proxmox("ceph-lib:vm-101-disk-0,cache=writeback").path
    assert path is not None
    assert path.opened_by_qemu


@pytest.mark.parametrize(
    ("line", "to"),
    [
        ("ceph-vm:vm-101-disk-0", "krbd/writeback/virtio:aio=io_uring"),
        ("ceph-vm:vm-101-disk-0,cache=writeback", "krbd/writeback/virtio:aio=io_uring"),
        ("san:vm-101-disk-0", "lvm/none/virtio:aio=io_uring"),
        ("san:vm-101-disk-0,aio=threads", "lvm/none/virtio:aio=io_uring"),
    ],
)
def test_no_line_gives_a_guest_io_uring_where_it_hung(line: str, to: str) -> None:
    with pytest.raises(NotChangeableError, match="avoids aio=io_uring"):
        change_of(proxmox(line), parse_path(to))


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("krbd/writeback/scsi:aio=io_uring", "threads"),
        ("krbd/none/scsi:aio=io_uring", None),
        ("lvm/none/scsi:aio=io_uring", "native"),
        ("lvm/writeback/scsi:aio=io_uring", "threads"),
        ("smb/qcow2/none/scsi:aio=io_uring", "native"),
        ("lvmthin/raw/none/scsi:aio=io_uring", None),
        ("lvm/none/scsi:aio=threads", None),
    ],
)
def test_export_warns_where_qemu_server_avoids_io_uring(path: str, instead: str | None) -> None:
    written = forms()["proxmox"].write(ExportRequest(parse_path(path)))
    warned = [said for said in written.requirements if "guests hung" in said]
    assert [f"aio={instead} there" in said for said in warned] == [True] * (instead is not None)
    assert all(said in written.text for said in warned)


def test_io_uring_stays_where_qemu_server_uses_it() -> None:
    change = change_of(
        proxmox("ceph-vm:vm-101-disk-0,cache=unsafe"), parse_path("krbd/none/virtio:aio=io_uring")
    )
    assert "cache=none,aio=io_uring" in change.paste


@pytest.mark.parametrize("volume", ["old:101/vm-101-disk-0.qcow2", "old:101/a.raw,cache=unsafe"])
def test_a_disabled_storage_is_said_and_no_line_of_the_disk_cures_it(volume: str) -> None:
    disk = proxmox(volume)
    (risk,) = [risk for risk in risks(disk) if isinstance(risk, CannotWork)]
    assert str(risk) == (
        "It cannot work: its storage old is disabled; run `pvesm set old --disable 0`."
    )
    with pytest.raises(NotChangeableError, match="old is disabled"):
        change_of(disk, parse_path("nfs/qcow2/none/virtio:aio=io_uring"))


def cannot_work(disks: tuple[ConfiguredDisk, ...]) -> list[str]:
    return [str(risk) for disk in disks for risk in risks(disk) if isinstance(risk, CannotWork)]


@pytest.mark.parametrize(
    ("nodes", "node", "to"),
    [
        ("pve1", "pve2", "pve1,pve2"), ("pve1,pve3", "pve2", "pve1,pve3,pve2"),
        ("pve1 pve2", "pve2", ""), ("pve1", "", ""), ("", "pve2", ""),
    ],
)  # fmt: skip
def test_a_storage_that_the_guests_node_lacks_is_said(nodes: str, node: str, to: str) -> None:
    storages = "zfspool: tank\n\tpool tank\n" + (f"\tnodes {nodes}\n" if nodes else "")
    place = f"nodes/{node}/qemu-server/" if node else ""
    conf = "memory: 512\nname: a\nvirtio0: tank:vm-7-disk-0\nvirtio1: /dev/sdb\n"
    disks = read_guests([GuestText(storages, "storage.cfg"), GuestText(conf, f"/x/{place}7.conf")])
    said = cannot_work(disks)
    assert len(said) == bool(to)
    assert all("its storage tank is not on node pve2" in sentence for sentence in said)
    assert all(f"`pvesm set tank --nodes {to}`" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("content", "to"),
    [("iso,vztmpl", "images,iso,vztmpl"), ("none", "images"), ("rootdir,images", ""), ("", "")],
)
def test_a_storage_that_may_hold_no_disks_is_said(content: str, to: str) -> None:
    storages = "dir: shelf\n\tpath /srv\n" + (f"\tcontent {content}\n" if content else "")
    conf = "memory: 512\nname: a\nvirtio0: shelf:7/a.raw\n"
    disks = read_guests([GuestText(storages, "storage.cfg"), GuestText(conf, "7.conf")])
    said = cannot_work(disks)
    assert len(said) == bool(to)
    assert all(f"run `pvesm set shelf --content {to}`" in sentence for sentence in said)


@pytest.mark.parametrize("with_storages", [True, False])
def test_a_volume_to_import_from_is_no_disk(with_storages: bool) -> None:
    texts = [GuestText(STORAGES, "storage.cfg")] if with_storages else []
    script = "qm set 7 --scsi3 nas:import/old.qcow2,cache=writeback\n"
    (said,) = cannot_work(read_guests([*texts, GuestText(script, "make.sh")]))
    assert "run `qm set 7 --scsi3 STORAGE:0,import-from=nas:import/old.qcow2`" in said


def soft(disk: ConfiguredDisk) -> str:
    return "".join(str(risk) for risk in risks(disk) if isinstance(risk, SoftMount))


@pytest.mark.parametrize(
    ("volume", "said", "line"),
    [
        ("nas:101/a.qcow2", "Storage nas is nfs mounted with `soft`",
         "`pvesm set nas --options vers=4.2,timeo=100,hard`"),
        ("win:101/a.qcow2", "Storage win is cifs mounted with `soft`", "umount /srv/win"),
        ("firm:101/a.qcow2", "", ""),
        ("winhard:101/a.qcow2", "", ""),
        ("local:101/a.qcow2", "", ""),
    ],
)  # fmt: skip
def test_a_soft_mount_of_proxmox_is_said(volume: str, said: str, line: str) -> None:
    found = soft(proxmox(volume))
    assert (said in found, line in found, bool(found)) == (True, True, bool(said))


MACHINE = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: erp, namespace: prod}
spec:
  template:
    spec:
      domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}}
      volumes: [{name: root, persistentVolumeClaim: {claimName: erp-root}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: erp-root, namespace: prod}
spec: {volumeMode: Filesystem, storageClassName: nfs-fast, VOLUME}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: nfs-fast}
provisioner: nfs.csi.k8s.io
mountOptions: CLASS
"""
VOLUME = """---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-7}
spec:
  volumeMode: Filesystem
  mountOptions: OPTIONS
  claimRef: {namespace: prod, name: erp-root}
  csi: {driver: nfs.csi.k8s.io, volumeAttributes: {server: nas, share: /export, subdir: pv-7}}
"""


@pytest.mark.parametrize(
    ("of_class", "of_volume", "said"),
    [
        ("[soft, nfsvers=4.1]", None, "Volumes of StorageClass nfs-fast are mounted with `soft`"),
        ("[hard]", "[nfsvers=4.1, softerr]", "PersistentVolume pv-7 is mounted with `softerr`"),
        ("[]", "['nfsvers=4.1,soft']", "mountOptions of PersistentVolume pv-7"),
        ("[soft]", "[hard]", ""),
        ("[soft, hard]", None, ""),
        ("[nfsvers=4.1]", None, ""),
    ],
)
def test_a_soft_mount_of_a_claim_is_said(of_class: str, of_volume: str | None, said: str) -> None:
    text = MACHINE.replace("CLASS", of_class)
    text = text.replace(", VOLUME", "" if of_volume is None else ", volumeName: pv-7")
    text += "" if of_volume is None else VOLUME.replace("OPTIONS", of_volume)
    (disk,) = read_guests([GuestText(text, "erp.yaml")])
    found = soft(disk)
    assert said in found
    assert bool(found) is bool(said)


@pytest.mark.parametrize(
    ("cache", "of_disk", "of_advice"),
    [
        ("none", "with O_DIRECT a write is stable after a flush", "with cache=none is stable"),
        ("writeback", "memory may hold", "with cache=writeback what the guest has flushed is"),
        ("writethrough", "each write is flushed", "with cache=writethrough each write is flushed"),
    ],
)
def test_what_is_said_of_cephfs_is_of_the_disks_own_cache_mode(
    cache: str, of_disk: str, of_advice: str
) -> None:
    text = MACHINE.replace(", VOLUME", "").replace("CLASS", "[]")
    text = text.replace("nfs.csi.k8s.io", "rook-ceph.cephfs.csi.ceph.com")
    text = text.replace("disk: {bus: virtio}", f"cache: {cache}, disk: {{bus: virtio}}")
    (disk,) = read_guests([GuestText(text, "erp.yaml")])
    assert disk.path is not None
    (said,) = [str(risk) for risk in risks(disk) if isinstance(risk, OnServer)]
    assert of_disk in said
    assert ("O_DIRECT" in said) is (cache == "none")
    sentence = durability_sentence(str(disk.path), durability(disk.path, CrashVerdicts()))
    assert of_advice in sentence
    assert re.findall("cache=([a-z]+)", sentence) == [cache]

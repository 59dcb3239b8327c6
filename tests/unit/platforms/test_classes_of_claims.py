"""A claim's storage is known by the StorageClass in the same file before it has a volume."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk, FileVolume, risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

MANIFEST = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: ceph-rbd
provisioner: rbd.csi.ceph.com
parameters:
  clusterID: b9127830-b0cc-4e34-aa47-9d1a2e9949a8
  pool: kube
reclaimPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: nfs-csi
provisioner: nfs.csi.k8s.io
parameters:
  server: nas1.example.com
  share: /export/vms
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: root
  namespace: vms
spec:
  storageClassName: ceph-rbd
  accessModes: [ReadWriteMany]
  volumeMode: Block
  resources: {requests: {storage: 20Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: vms
spec:
  storageClassName: nfs-csi
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 100Gi}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: db
  namespace: vms
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        cpu: {cores: 4}
        memory: {guest: 8Gi}
        devices:
          disks:
            - name: root
              disk: {bus: virtio}
            - name: data
              disk: {bus: virtio}
              cache: none
      volumes:
        - name: root
          persistentVolumeClaim: {claimName: root}
        - name: data
          persistentVolumeClaim: {claimName: data}
"""


def read(text: str) -> dict[str, ConfiguredDisk]:
    return {disk.target: disk for disk in read_guests([GuestText(text, "vm.yaml")])}


def test_the_provisioner_of_a_class_says_the_storage() -> None:
    disks = read(MANIFEST)
    assert {name: str(disk.path) for name, disk in disks.items()} == {
        "root": "krbd/none/virtio:aio=native:discard=unmap",
        "data": "nfs/raw/none/virtio:discard=unmap",
    }
    assert [disk.unseen for disk in disks.values()] == [None, None]
    assert not any(isinstance(risk, FileVolume) for risk in risks(disks["data"]))


@pytest.mark.parametrize(
    ("old", "new", "target"),
    [
        ("provisioner: nfs.csi.k8s.io", "provisioner: rancher.io/local-path", "data"),
        ("  pool: kube", "  pool: kube\n  mounter: rbd-nbd", "root"),
        ("storageClassName: ceph-rbd", "storageClassName: other", "root"),
    ],
)
def test_another_class_says_nothing(old: str, new: str, target: str) -> None:
    assert old in MANIFEST
    disk = read(MANIFEST.replace(old, new))[target]
    assert disk.unseen is not None
    assert disk.path is not None
    assert not disk.path.layers


def test_rook_is_ceph_and_a_file_on_its_file_system_is_a_file() -> None:
    text = MANIFEST.replace("provisioner: rbd", "provisioner: rook-ceph.rbd")
    assert str(read(text)["root"].path).startswith("krbd/")
    file = read(text.replace("volumeMode: Block", "volumeMode: Filesystem"))["root"]
    assert str(file.path) == "raw/none/virtio:discard=unmap"
    assert any(isinstance(risk, FileVolume) for risk in risks(file))

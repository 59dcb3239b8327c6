"""A claim's storage is known by the StorageClass in the same file before it has a volume."""

from __future__ import annotations

import pytest

from vdisklab.path.segments import LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.network import spare_target
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FileVolume

BY_DEFAULT = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: files
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rook-ceph.cephfs.csi.ceph.com
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: images
  annotations: {}
provisioner: rook-ceph.rbd.csi.ceph.com
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: vms}
spec:
  dataVolumeTemplates:
    - metadata: {name: db-root}
      spec:
        storage: {resources: {requests: {storage: 20Gi}}}
  template:
    spec:
      domain:
        devices: {disks: [{name: root, disk: {bus: virtio}}]}
      volumes:
        - name: root
          dataVolume: {name: db-root}
"""
ON_CEPHFS = "cephfs/raw/none/virtio:discard=unmap"
ON_RBD = "krbd/none/virtio:aio=native:discard=unmap"
MADE_ALONE = """\
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {{name: db-root, namespace: vms}}
spec: {{{}}}
"""

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


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("", "", ON_CEPHFS),
        ("storage: {res", "storage: {storageClassName: images, res", ON_RBD),
        ("storage: {res", "pvc: {storageClassName: files, res", ON_CEPHFS),
        ("storage: {res", "pvc: {volumeMode: Block, storageClassName: images, res", ON_RBD),
        ("storage: {res", "pvc: {res", ON_CEPHFS),
        # CDI's own default comes first for `storage`, and not for `pvc`.
        ("annotations: {}", "annotations: {storageclass.kubevirt.io/is-default-virt-class: 'true'}",
         ON_RBD),
        # Of two defaults the newest counts.
        ("annotations: {}", "annotations: {storageclass.kubernetes.io/is-default-class: 'true'}\n"
         "  creationTimestamp: 2026-01-02T00:00:00Z", ON_RBD),
        ("is-default-class: \"true\"", "is-default-class: \"false\"", None),
        ("storage: {res", "storage: {storageClassName: '', res", None),
        ("storage: {res", "storage: {storageClassName: elsewhere, res", None),
    ],
)  # fmt: skip
def test_a_data_volume_has_the_class_that_it_names_or_the_default(
    old: str, new: str, path: str | None
) -> None:
    assert old in BY_DEFAULT
    disk = read(BY_DEFAULT.replace(old, new, 1))["root"]
    assert str(disk.path) == path if path else disk.path is None
    assert (disk.unseen is None) is (path is not None)
    # Neither Ceph's file system nor its images have a block device to change to.
    assert not any(isinstance(risk, FileVolume) for risk in risks(disk))


def test_kubevirts_own_default_is_not_that_of_a_plain_claim() -> None:
    marked = BY_DEFAULT.replace(
        "annotations: {}", "annotations: {storageclass.kubevirt.io/is-default-virt-class: 'true'}"
    )
    assert str(read(marked.replace("storage: {res", "pvc: {res"))["root"].path) == ON_CEPHFS
    claim = (
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\n"
        "metadata: {name: db-root, namespace: vms}\nspec: {volumeMode: Filesystem}\n"
    )
    assert str(read(marked + claim)["root"].path) == ON_CEPHFS


def test_a_data_volume_stands_alone_or_in_a_list() -> None:
    template = BY_DEFAULT.index("  dataVolumeTemplates"), BY_DEFAULT.index("  template:")
    machine = BY_DEFAULT[: template[0]] + BY_DEFAULT[template[1] :]
    alone = machine + MADE_ALONE.format("storage: {storageClassName: images}")
    assert str(read(alone)["root"].path) == ON_RBD
    items = (f"- {part.strip()}".replace("\n", "\n  ") for part in alone.split("---\n"))
    listed = "apiVersion: v1\nkind: List\nitems:\n" + "\n".join(items)
    assert str(read(listed)["root"].path) == ON_RBD
    other = machine + MADE_ALONE.format("pvc: {}").replace("vms", "elsewhere")
    assert read(other)["root"].path is None


def test_a_profile_says_the_mode_that_is_not_usual() -> None:
    profile = (
        "---\napiVersion: cdi.kubevirt.io/v1beta1\nkind: StorageProfile\n"
        "metadata: {name: images}\n"
        "status: {claimPropertySets: [{accessModes: [ReadWriteOnce], volumeMode: Filesystem}]}\n"
    )
    text = BY_DEFAULT.replace("storage: {res", "storage: {storageClassName: images, res")
    assert str(read(text + profile)["root"].path) == "raw/none/virtio:discard=unmap"


@pytest.mark.parametrize("driver", ["cephfs.csi.ceph.com", "rook-ceph.cephfs.csi.ceph.com"])
def test_a_bound_claim_on_cephs_file_system(driver: str) -> None:
    volume = (
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\n"
        "metadata: {name: db-root, namespace: vms}\n"
        "spec: {volumeMode: Filesystem, volumeName: pvc-1}\n---\n"
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pvc-1}\n"
        f"spec: {{volumeMode: Filesystem, csi: {{driver: {driver}, volumeHandle: a}}}}\n"
    )
    disk = read(BY_DEFAULT + volume)["root"]
    assert str(disk.path) == ON_CEPHFS
    assert not any(isinstance(risk, FileVolume) for risk in risks(disk))


def test_the_spare_disk_of_a_claim_without_a_volume_has_a_place() -> None:
    """A claim's name is not a place: no other disk can stand beside it."""
    assert str(spare_target(LayerKind.KRBD, "db-root", None).target) == "mykrbd=/dev/SPARE"
    beside = spare_target(LayerKind.KRBD, "/dev/rbd/kube/csi-vol-1", None).target
    assert str(beside) == "mykrbd=/dev/rbd/kube/SPARE"

"""Mount options in a platform's own files, by which no flush reaches the disk."""

from __future__ import annotations

import pytest

from vdisklab.path.mount_options import without_flushes
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow

MACHINE = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: pg, namespace: prod}
spec:
  template:
    spec:
      domain: {devices: {disks: [{name: data, disk: {bus: virtio}}]}}
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: prod}
spec: {storageClassName: quick, volumeMode: MODE}
---
"""
VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-data}
spec:
  mountOptions: OPTIONS
  local: {path: /dev/sdb, fsType: ext4}
  claimRef: {name: data, namespace: prod}
"""
CLASS = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quick}
provisioner: ebs.csi.aws.com
mountOptions: OPTIONS
"""
INCUS = """\
name: web
type: virtual-machine
devices:
  root: {path: /, pool: bt, type: disk}
---
name: bt
driver: btrfs
config: {source: /dev/sdb, btrfs.mount_options: "OPTIONS"}
"""


def disk_of(text: str, options: str, mode: str = "Filesystem") -> ConfiguredDisk:
    said = text.replace("OPTIONS", options).replace("MODE", mode)
    (disk,) = read_guests([GuestText(said, "g.yaml")])
    return disk


@pytest.mark.parametrize("of_claim", [VOLUME, CLASS])
@pytest.mark.parametrize("options", ["[nobarrier, noatime]", "['noatime,barrier=0']"])
def test_a_claim_mounted_without_barriers_loses_what_is_flushed(
    of_claim: str, options: str
) -> None:
    disk = disk_of(MACHINE + of_claim, options)
    (risk,) = (risk for risk in risks(disk) if isinstance(risk, FlushesDroppedBelow))
    option = "barrier=0" if "=0" in options else "nobarrier"
    assert f"mounted with `{option}`, so no flush reaches the disk" in risk.reason
    assert f"Leave `{option}` out of the mountOptions of " in str(risk)


@pytest.mark.parametrize("of_claim", [VOLUME, CLASS])
def test_a_claim_with_barriers_and_a_block_device_lose_nothing_so(of_claim: str) -> None:
    assert disk_of(MACHINE + of_claim, "[noatime]").lost_below is None
    assert disk_of(MACHINE + of_claim, "[nobarrier]", mode="Block").lost_below is None


def test_a_pool_of_incus_mounted_without_barriers_loses_what_is_flushed() -> None:
    disk = disk_of(INCUS, "user_subvol_rm_allowed,nobarrier")
    assert disk.lost_below == (
        "the pool bt is mounted with nobarrier, so no flush reaches the disk"
    )
    assert disk_of(INCUS, "user_subvol_rm_allowed").lost_below is None


def test_the_last_word_about_barriers_counts() -> None:
    assert without_flushes(["nobarrier", "noatime"]) == "nobarrier"
    assert without_flushes(["nobarrier", "barrier=1"]) is None
    assert without_flushes([" barrier=0 "]) == "barrier=0"

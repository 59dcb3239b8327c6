"""The commands that snapshot, clone and remove volumes and datasets of LVM and ZFS. Pure.

Volumes are named as LVM and ZFS name them: `GROUP/VOLUME`, `POOL/DATASET`.
"""

from __future__ import annotations

Argv = tuple[str, ...]

GOLDEN = "golden"
"""The snapshot of ZFS that clones are made from."""

LVM_QUIETLY: Argv = (
    "--quiet", "--config", "devices/use_devicesfile=0 backup/backup=0 backup/archive=0",
)  # fmt: skip
"""LVM also sees devices that are not in its devices file (lvmdevices(8)), and archives nothing in
/etc/lvm."""


def thin_snapshot(volume: str, name: str) -> Argv:
    """A thin snapshot that is active at once (lvmthin(7): by default a snapshot is not)."""
    command = ("lvcreate", *LVM_QUIETLY, "--snapshot", "--setactivationskip", "n")
    return (*command, "--name", name, volume)


def volume_removed(volume: str) -> Argv:
    """Removes a logical volume."""
    return ("lvremove", *LVM_QUIETLY, "--yes", volume)


def zfs_snapshot(dataset: str, name: str) -> Argv:
    """A snapshot of a dataset or volume."""
    return ("zfs", "snapshot", f"{dataset}@{name}")


def zfs_clone(dataset: str, name: str, clone: str) -> Argv:
    """A dataset or volume that shares all blocks of a snapshot."""
    return ("zfs", "clone", f"{dataset}@{name}", clone)


def zfs_destroyed(name: str) -> Argv:
    """Destroys a dataset, volume or snapshot."""
    return ("zfs", "destroy", name)


def zfs_sent(dataset: str, name: str) -> Argv:
    """Sends all of a snapshot to the standard output."""
    return ("zfs", "send", f"{dataset}@{name}")

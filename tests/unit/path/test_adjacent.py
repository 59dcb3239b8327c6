"""Which path is the simplest."""

from __future__ import annotations

from vdisklab.path.adjacent import simplicity
from vdisklab.path.disk_path import parse_path

ORDERED = [
    "raw/none", "raw/none/virtio:iothread=on", "raw/none/scsi", "raw/none/nvme", "raw/writeback",
    "raw/default", "raw/directsync", "raw/writethrough", "raw/unsafe", "none", "qcow2/none",
    "qcow2:preallocation=off/none", "vdi/none", "ext4/raw/none", "xfs/raw/none", "lvm/none",
    "lvm/ext4/raw/none",
]  # fmt: skip


def test_the_simplest_comes_first() -> None:
    assert sorted(set(ORDERED), key=lambda text: simplicity(parse_path(text))) == ORDERED

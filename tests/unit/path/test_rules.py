"""Paths that cannot exist say why, and what they propose instead can exist."""

from __future__ import annotations

import pytest

from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import impossible


@pytest.mark.parametrize(
    ("text", "reason", "instead"),
    [
        ("ext4/tmpfs/raw", "lives in memory", "put tmpfs first"),
        ("ext4/lvm/none", "lvm needs a block device below", "put lvm first"),
        ("tmpfs/xfs/raw", "tmpfs is a directory", "leave one of them out"),
        ("ext4/luks/none", "luks needs a block device below", "put luks first"),
        ("luks/lvm/luks/none", "encrypts everything twice", "leave one of them out"),
        ("luks/raw/none", "raw on luks", "leave out the format: luks/none"),
        ("luks/none/virtio:guests=2", "ends on one block device", "put volumes"),
        ("none", "not a block device", "add a format: raw/none"),
        ("virtio:queues=2", "not a block device", "raw/default/virtio:queues=2"),
        ("ext4/none/ide", "ext4 holds files", "add a format: ext4/raw/none/ide"),
        ("lvm/raw/none/scsi", "raw on lvm", "leave out the format: lvm/none/scsi"),
        ("ext4/null", "stores nothing", "write null/default"),
        ("null/none/usb", "stores nothing", "write null/default/usb"),
        ("null/virtio:aio=io_uring", "does no I/O", "leave out the aio"),
        ("raw/writeback/virtio:aio=native", "aio=native needs O_DIRECT", "choose none"),
        ("raw/virtio:aio=native", "cache mode default", "choose none"),
        ("lvm/qcow2:preallocation=falloc", "is on a block device", "preallocation=metadata"),
        ("qcow2:compat=0.10:lazy_refcounts=on", "lazy_refcounts needs", "leave out compat=0.10"),
        ("qcow2:compat=0.10:discard_no_unref=on", "discard_no_unref needs", "leave out compat"),
        ("qcow2:compat=0.10:bitmaps=1", "bitmaps needs", "leave out compat=0.10"),
        ("qcow2:extended_l2=on:cluster_size=8k", "at least 16k", "cluster_size=16k"),
        ("lvm/qcow2:backing=2/none", "backing is built beside", "put a file system below"),
        (
            "qcow2:compression=zlib:encrypt=luks",
            "clusters exclude encrypt",
            "compression or encrypt",
        ),
        ("qcow2:compat=0.10:compression=zstd", "compression=zstd needs", "leave out compat"),
        ("raw/virtio:block_size=4096:discard_granularity=512", "smaller than the block", "4096"),
        ("qcow2:overlay=20%", "images of a chain", "add backing=1"),
        ("qcow2:backing=1:encrypt=luks", "with encrypt is not built", "leave out backing"),
        ("qcow2:data_file=raw:snapshots=1", "no internal snapshots", "leave one of them out"),
        ("raw/none/virtio:iothread=on:iothreads=2", "is one thread", "leave one of them out"),
        ("raw/none/virtio:poll=0", "poll is a setting of an iothread", "add iothread=on"),
        ("raw/none/scsi:detect_zeroes=unmap", "needs discard=unmap", "add discard=unmap"),
        ("tmpfs/raw/none/virtio:cgroup_iops=5", "tmpfs shows none", "write throttle_iops"),
        ("null/virtio:cgroup_bps=5M", "null shows none", "write throttle_iops"),
    ],
)
def test_impossible(text: str, reason: str, instead: str) -> None:
    verdict = impossible(parse_path(text))
    assert verdict is not None
    assert reason in verdict.reason
    assert instead in verdict.instead


@pytest.mark.parametrize(
    "text",
    [
        "raw", "qcow2/none", "ext4/raw/none/ide", "lvm/none", "zvol", "zvol/ext4/qcow2/writeback",
        "md/lvm/xfs/raw", "lvm/qcow2/none", "tmpfs/qcow2/unsafe", "host", "ext4/host", "lvm/host",
        "luks/none", "md/luks/ext4/raw", "zram/luks/qcow2/none", "luks/lvm/none/virtio:guests=2",
        "null", "null/default/nvme", "raw/directsync/virtio:aio=native",
        "raw/writeback/virtio:aio=io_uring", "qcow2:lazy_refcounts=on", "zfs/raw/none",
        "qcow2:backing=8:extended_l2=on:cluster_size=16k/none", "raw:encrypt=luks/directunsafe",
        "qcow2:backing=1:overlay=50%", "null/virtio:throttle_iops=1",
        "lvm/none/virtio:cgroup_iops=500",
        "lvm/qcow2:preallocation=metadata", "lvm/ext4/qcow2:preallocation=falloc",
    ],
)  # fmt: skip
def test_possible(text: str) -> None:
    assert impossible(parse_path(text)) is None


@pytest.mark.parametrize("text", ["none/scsi", "xfs/unsafe", "md/raw/none/usb", "lvm/null/sata"])
def test_the_path_proposed_is_possible(text: str) -> None:
    verdict = impossible(parse_path(text))
    assert verdict is not None
    assert impossible(parse_path(verdict.instead.rsplit(" ", maxsplit=1)[-1])) is None


@pytest.mark.parametrize(
    "path",
    ["lvm/qcow2:backing=1/none", "zvol/qcow2:data_file=on/none",
     "qcow2:backing=1:encrypt=luks/none",
     "ext4/qcow2:backing=2:bitmaps=1/none"],
)  # fmt: skip
def test_what_guests_have_and_vdisklab_does_not_build_exists(path: str) -> None:
    parsed = parse_path(path)
    verdict = impossible(parsed, backing_below(parsed))
    assert verdict is not None
    assert verdict.what == "is not built here"


def test_what_cannot_exist_is_said_before_what_is_not_built() -> None:
    verdict = impossible(parse_path("qcow2:backing=1:encrypt=luks/writeback/virtio:aio=native"))
    assert verdict is not None
    assert (verdict.what, verdict.exists) == ("cannot exist", False)

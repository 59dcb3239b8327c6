"""Thin volumes: by how much they may grow, what their pool has left, and what a guest would see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.thin_pools import (
    has_zfs_quota,
    pool_of,
    quota_left,
    volumes_of,
    zfs_pool,
)
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import DiskContext, ThinPool
from vdisklab.platforms.disk_risks import risks
from vdisklab.units import GIB, MIB
from vdisklab.value import replace

POOL = ThinPool("vg/pool", may_grow=30 * GIB, free=10 * GIB, volumes=2, waits=True)


def volume(name: str, size: int, percent: str, pool: str = "", full: str = "") -> dict[str, str]:
    return {
        "lv_name": name, "vg_name": "vg", "lv_size": str(size), "data_percent": percent,
        "pool_lv": pool, "lv_when_full": full, "lv_dm_path": f"/dev/mapper/vg-{name}",
    }  # fmt: skip


VOLUMES = [
    volume("pool", 20 * GIB, "50.00", full="queue"),
    volume("web", 20 * GIB, "25.00", "pool"),
    volume("mail", 20 * GIB, "25.00", "pool"),
    volume("root", 20 * GIB, ""),
]


def test_a_report_of_lvs_tells_the_pool_of_a_thin_volume() -> None:
    volumes = volumes_of(json.dumps({"report": [{"lv": VOLUMES}]}))
    assert pool_of(volumes, volumes[1]) == POOL
    assert pool_of(volumes, volumes[3]) is None
    failing = [replace_full(each, "error") for each in volumes]
    found = pool_of(failing, failing[1])
    assert found is not None
    assert not found.waits


def replace_full(each: object, full: str) -> dict[str, str]:
    assert isinstance(each, dict)
    return {**each, "lv_when_full": full}


def test_an_inactive_volume_has_no_percentage_and_so_no_sum() -> None:
    assert pool_of([VOLUMES[0], volume("web", GIB, "", "pool")], VOLUMES[1]) is None


@pytest.mark.parametrize("text", ["", "{}", '{"report": []}'])
def test_what_lvs_did_not_write_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, IndexError)):
        volumes_of(text)


@pytest.fixture
def zfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `zfs` that prints a file, whatever it is asked."""
    program, said = tmp_path / "zfs", tmp_path / "said"
    program.write_text(f"#!/bin/sh\ncat {said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return said


def test_a_sparse_volume_of_zfs_may_outgrow_its_pool(zfs: Path) -> None:
    sizes = f"volsize\t{8 * GIB}\nreferenced\t{GIB}\navailable\t{2 * GIB}\nrefreservation\t"
    zfs.write_text(f"{sizes}none\n")
    expected = ThinPool("tank", may_grow=7 * GIB, free=2 * GIB, volumes=1, waits=False)
    assert zfs_pool(LocalHost(), "tank/vm-1") == expected
    zfs.write_text(f"{sizes}{8 * GIB}\n")
    assert zfs_pool(LocalHost(), "tank/vm-1") is None


def test_a_quota_of_zfs_is_seen(zfs: Path) -> None:
    zfs.write_text("quota\t0\nrefquota\t0\n")
    assert not has_zfs_quota(LocalHost(), "tank/guests")
    zfs.write_text("quota\t0\nrefquota\t10737418240\n")
    assert has_zfs_quota(LocalHost(), "tank/guests")


QGROUPS = """Qgroupid    Referenced    Exclusive  Max referenced  Max exclusive   Path \n\
--------    ----------    ---------  --------------  -------------   ---- \n\
0/256            16384        16384        67108864       {exclusive}   a b/c\n\
1/7              16384        20480       104857600           none   <0 member qgroups>\n"""
"""As btrfs-progs 6.2 writes it."""


@pytest.mark.parametrize(
    ("table", "left"),
    [
        (QGROUPS.format(exclusive="none"), 67108864 - 16384),
        (QGROUPS.format(exclusive="33554432"), 33554432 - 16384),
        (QGROUPS.format(exclusive="100"), 0),
        ("\n".join(QGROUPS.splitlines()[:2]), None),
    ],
)
def test_the_tightest_quota_of_btrfs_counts(table: str, left: int | None) -> None:
    assert quota_left(table) == left


@pytest.mark.parametrize("table", ["", "0/256 1 2 3", "0/256 a b c d e", "WARNING: what?"])
def test_what_btrfs_did_not_write_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match=r"quota groups|unpack|literal"):
        quota_left(table)


def said(path: str, context: DiskContext, platform: Platform = Platform.LIBVIRT) -> str:
    """All risks of a disk on one line."""
    disk = ConfiguredDisk("guest", "vda", "/srv/x", parse_path(path), platform=platform)
    return " ".join(map(str, risks(disk, context)))


@pytest.mark.parametrize(
    ("path", "platform", "sentence"),
    [
        ("none", Platform.LIBVIRT, "waits"),
        ("none/virtio:werror=report", Platform.LIBVIRT, "error_policy='enospace' in its <driver>"),
        ("none/virtio:werror=report", Platform.PROXMOX, "werror=enospc on its drive"),
        ("none/virtio:werror=report", Platform.KUBEVIRT, "errorPolicy: enospace of its disk"),
        ("none/virtio:werror=report", Platform.QEMU, "werror=enospc of its device"),
    ],
)
def test_an_overcommitted_pool_is_named_with_what_the_guest_will_see(
    path: str, platform: Platform, sentence: str
) -> None:
    text = said(f"lvmthin/{path}", DiskContext(pool=POOL), platform)
    assert (
        "The thin pool vg/pool has 10.0 GiB left. Its 2 thin volumes may grow by 30.0 GiB" in text
    )
    assert "the guest's writes wait for up to 60 s; then" in text
    paused = "this guest is paused, not damaged" in text
    assert paused == (sentence == "waits")
    assert sentence == "waits" or sentence in text
    enough = DiskContext(pool=replace(POOL, free=40 * GIB))
    assert "thin pool" not in said(f"lvmthin/{path}", enough, platform)


@pytest.mark.parametrize(
    ("platform", "setting"),
    [
        (Platform.LIBVIRT, "error_policy='stop' in its <driver>"),
        (Platform.PROXMOX, "werror=stop on its drive"),
        (Platform.KUBEVIRT, "errorPolicy: stop of its disk"),
        (Platform.QEMU, "werror=stop of its device"),
    ],
)
def test_a_quota_needs_another_policy_than_a_full_disk(platform: Platform, setting: str) -> None:
    thin, limited = "zfs/raw:preallocation=off/none", DiskContext(has_quota=True)
    assert "the error is EDQUOT" in (text := said(thin, limited, platform))
    assert setting in text
    assert "EDQUOT" not in said(f"{thin}/virtio:werror=stop", limited, platform)
    assert "EDQUOT" not in said("zfs/raw/none", limited, platform)


def test_a_guest_whose_space_ends_at_a_quota_is_not_said_to_be_paused() -> None:
    """Seen in the lab: a file system's free bytes are those of its quota (statvfs on ZFS)."""
    tight = DiskContext(has_quota=True, virtual_size=4 * GIB, allocated=0, free=256 * MIB)
    text = said("zfs/qcow2:preallocation=off/none", tight, Platform.PROXMOX)
    assert "gets I/O errors" in text
    assert "is paused" not in text
    assert "werror=enospc" not in text.replace("default (werror=enospc)", "")
    stopping = said("zfs/qcow2:preallocation=off/none/virtio:werror=stop", tight, Platform.PROXMOX)
    assert "this guest is paused" in stopping

"""The disks of new guests: each name is a path that can exist, also on host layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.adjacent import adjacent_paths
from vdisklab.path.disk_path import PathSyntaxError, parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import DURABLE, meets
from vdisklab.path.platforms import NEW_GUEST_DISKS, PLATFORMS, Platform, parse_platform
from vdisklab.path.rules import impossible
from vdisklab.plan.matrix import expand_paths


@pytest.mark.parametrize("manager", NEW_GUEST_DISKS)
def test_a_managers_name_stands_for_its_disk(manager: Platform) -> None:
    disk = NEW_GUEST_DISKS[manager]
    path = parse_path(manager.value)
    assert path == parse_path(disk.path)
    assert path.canonical == disk.path
    assert impossible(path) is None
    page = (Path(__file__).parents[3] / "docs" / "platforms.md").read_text()
    row = (f"`{manager}`", f"`{disk.path}`", disk.version, disk.source, disk.note)
    assert f"| {' | '.join(row)} |" in page


def test_a_name_may_stand_on_host_layers_and_in_braces() -> None:
    assert [str(path) for path in expand_paths(["ext4/{libvirt,raw/none}"])] == [
        "ext4/qcow2:preallocation=off/default", "ext4/raw/none",
    ]  # fmt: skip


def test_a_name_is_the_last_segment() -> None:
    with pytest.raises(PathSyntaxError):
        parse_path("proxmox/none")


@pytest.mark.parametrize("text", ["raw/unsafe", "qcow2/none", "raw/directsync/virtio:aio=native",
                                  "lvm/none/scsi:aio=io_uring", "raw/none/sata"])  # fmt: skip
def test_adjacent_paths_differ_keep_flushed_data_and_can_exist(text: str) -> None:
    path = parse_path(text)
    others = adjacent_paths(path)
    assert path not in others
    assert len(set(others)) == len(others) >= 2
    for other in others:
        assert impossible(other) is None
        assert meets(other, DURABLE, CrashVerdicts())
        assert path.offers_write_cache or not other.offers_write_cache


def test_an_unknown_platform_is_named_with_the_possible_ones() -> None:
    with pytest.raises(PlanError, match="unknown platform 'vmware'") as caught:
        parse_platform("vmware")
    assert caught.value.hint == f"possible: {PLATFORMS}"
    with pytest.raises(PlanError):
        parse_platform("qemu")

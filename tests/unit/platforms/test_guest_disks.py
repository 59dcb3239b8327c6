"""A platform's row of facts says of each disk what the platform's file says when it writes it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.unit.platforms.test_every_option import PATHS
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.platforms.guest_disks import can_have
from vdisklab.platforms.registry import configure, dialect_of
from vdisklab.platforms.request import ExportRequest

ON_STORAGE = tuple(
    map(
        parse_path,
        (
            "none", "ext4/raw/none", "lvm/none", "lvm/qcow2/none", "zvol/raw/none",
            "btrfs/raw/none", "device/none", "krbd/none", "rbd/none", "rbd/raw/none", "iscsi/none",
            "nbd/none", "nfs/raw/none", "libnfs/raw/none", "ssh/raw/none", "smb/qcow2/none",
            "null", "host", "qcow2:encrypt=luks/none", "vmdk/none", "vhdx/none",
            "raw/directunsafe",
            "ext4/virtiofs", "9p", "virtiofs", "raw/none/scsi:werror=stop:rerror=report",
        ),
    )
)  # fmt: skip
DISKS = tuple(
    request
    for path in (*PATHS, *ON_STORAGE)
    for request in (ExportRequest(path), ExportRequest(path, source="/dev/sdb"))
) + tuple(
    ExportRequest(parse_path(path), storage=place)
    for path, place in (
        ("rbd/none", "rbd:vms/ns/web"), ("rbd/none", "rbd:vms/web"), ("rbd/none", "nbd://h:1/x"),
        ("nbd/none", "nbd://h:10809/x"), ("nfs/raw/none", "/mnt/nas"), ("krbd/none", "/dev/rbd0"),
    )
)  # fmt: skip


def is_written(platform: Platform, request: ExportRequest) -> bool:
    with suppress(PlanError):
        configure(request, dialect_of(platform).forms[0].name)
        return True
    return False


@pytest.mark.parametrize("platform", Platform)
def test_a_platform_can_have_what_its_file_writes(platform: Platform) -> None:
    written = [request for request in DISKS if is_written(platform, request)]
    assert [request for request in DISKS if can_have(platform, request)] == written
    assert 0 < len(written) < len(DISKS)


@pytest.mark.parametrize("platform", Platform)
def test_a_platforms_first_form_has_the_name_of_its_file(platform: Platform) -> None:
    assert dialect_of(platform).forms[0].name == platform.module

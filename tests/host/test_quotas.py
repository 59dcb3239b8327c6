"""A quota of btrfs, as the host's kernel keeps it: `statvfs` does not show it, `audit` does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.inspection.thin_pools import btrfs_quota
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host


def test_a_thin_image_may_outgrow_a_quota_of_btrfs(tmp_path: Path) -> None:
    host, path = LocalHost(), "btrfs/raw:preallocation=off/writeback"
    with (
        open_ledger() as ledger,
        open_site(host, ledger, tmp_path) as site,
        build_stack(site, parse_path(path).layers, 256 * MIB, "s") as target,
    ):
        image = target.on_host / "disk.raw"
        with image.open("wb") as file:
            file.truncate(64 * MIB)
        disk = ConfiguredDisk(
            "guest", "vda", str(image), parse_path(path.removeprefix("btrfs/")),
            platform=Platform.LIBVIRT,
        )  # fmt: skip
        assert btrfs_quota(host, target.on_host) is None
        (free,) = read_contexts([disk])
        assert not free.has_quota
        assert free.free is not None
        assert free.free > 64 * MIB
        host.run("btrfs", "quota", "enable", str(target.on_host))
        host.run("btrfs", "qgroup", "limit", "32M", str(target.on_host))
        (tight,) = read_contexts([disk])
        assert tight.has_quota
        assert tight.free is not None
        assert 30 * MIB < tight.free <= 32 * MIB
        said = " ".join(map(str, risks(disk, tight)))
        assert "gets I/O errors" in said
        assert "is paused" not in said
        with pytest.raises(OSError, match="quota") as refused:
            image.write_bytes(b"\1" * (64 * MIB))
        assert refused.value.errno == errno.EDQUOT

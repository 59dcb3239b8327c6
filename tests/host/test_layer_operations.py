"""Snapshots, shared copies and scrubs of layers of the real kernel, below an image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vdisklab.campaign.measure_during import on_host
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.waiting import wait_until
from vdisklab.operations.operation import DiskAccess, OpenDisk, RunningOperation
from vdisklab.operations.registry import parse_operation
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host


class NoMonitor:
    """For operations that ask QEMU nothing."""

    def execute(self, command: str, *_: object, **__: object) -> Any:  # noqa: ANN401
        raise AssertionError(command)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger() as ledger, open_site(LocalHost(), ledger, tmp_path) as made:
        yield made


def on(site: Site, order: str, path: str, image: Path) -> RunningOperation:
    disk = OpenDisk("d", 16 * MIB, "raw", "d-node", (), image)
    kinds = tuple(layer.kind for layer in parse_path(path).layers)
    access = DiskAccess(
        NoMonitor(), lambda _size: None, on_host=partial(on_host, site), layers=kinds
    )
    return parse_operation(order).on(disk, access)


def test_btrfs_makes_a_snapshot_and_is_scrubbed(site: Site) -> None:
    path = "btrfs/raw/none"
    with build_stack(site, parse_path(path).layers, 64 * MIB, "s") as target:
        directory = target.on_host
        image = directory / "disk.raw"
        image.write_bytes(bytes(16 * MIB))
        snapshot = on(site, "host-snapshot", path, image)
        snapshot.finish()
        assert (directory / "during" / "disk.raw").stat().st_size == 16 * MIB
        image.write_bytes(b"\1" * MIB)
        assert (directory / "during" / "disk.raw").read_bytes()[:1] == b"\0"
        snapshot.undo()
        assert list(directory.iterdir()) == [image]
        removal = on(site, "host-snapshot:delete", path, image)
        removal.prepare()
        assert (directory / "during").exists()
        removal.finish()
        assert list(directory.iterdir()) == [image]
        scrub = on(site, "scrub", path, image)
        scrub.start()
        wait_until(scrub.ready, timeout=60, what="end of the scrub")
        scrub.finish()
        again = on(site, "scrub", path, image)
        again.start()
        again.undo()


@pytest.mark.parametrize("path", ["xfs/raw/none", "btrfs/raw/none"])
def test_a_copy_shares_its_blocks(site: Site, path: str) -> None:
    with build_stack(site, parse_path(path).layers, 64 * MIB, "s") as target:
        image = target.on_host / "disk.raw"
        image.write_bytes(bytes(16 * MIB))
        copying = on(site, "reflink", path, image)
        copying.finish()
        (copy,) = copying.left_files
        assert copy.read_bytes() == image.read_bytes()


def test_a_file_system_without_shared_blocks_says_so(site: Site) -> None:
    with build_stack(site, parse_path("ext4/raw/none").layers, 64 * MIB, "s") as target:
        image = target.on_host / "disk.raw"
        image.write_bytes(bytes(MIB))
        with pytest.raises(HostError, match="Operation not supported"):
            on(site, "reflink", "ext4/raw/none", image).finish()

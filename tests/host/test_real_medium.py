"""What the real kernel says of a loop device, and what O_DIRECT really does there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.host.blockdevice import device_of, medium_of
from vdisklab.host.command import LocalHost
from vdisklab.host.pagecache import try_o_direct

pytestmark = pytest.mark.host


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small ext4 on a loop device."""
    host, image, point = LocalHost(), tmp_path / "image", tmp_path / "mnt"
    image.touch()
    os.truncate(image, 16 << 20)
    point.mkdir()
    device = host.run("losetup", "--find", "--show", image).stdout.strip()
    try:
        host.run("mkfs.ext4", "-q", device)
        host.run("mount", device, point)
        yield point
        host.run("umount", point)
    finally:
        host.run("losetup", "--detach", device)


def test_a_loop_device_is_over_what_its_file_is_on(mounted: Path) -> None:
    device, below = device_of(mounted), device_of(mounted.parent)
    assert device is not None
    assert device.name.startswith("loop")
    # Where tests run on a memory file system or an overlay there is nothing below.
    if below is not None:
        assert list(device.leaves()) == list(below.leaves())
        assert medium_of(mounted) == f"{device.name} over {below.describe()}"


def test_a_transfer_with_o_direct_works_on_ext4(mounted: Path) -> None:
    assert try_o_direct(mounted) is None

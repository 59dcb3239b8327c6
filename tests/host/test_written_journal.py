"""A guest's mkfs leaves its disk written, as the disk of a guest that has been in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.guest.hotplug import make_commands
from vdisklab.host.command import LocalHost
from vdisklab.units import MIB

pytestmark = pytest.mark.host


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "disk"
    file.write_bytes(os.urandom(64 * MIB))
    return file


@pytest.fixture
def device(written: Path) -> Iterator[str]:
    host = LocalHost()
    device = host.run("losetup", "--find", "--show", written).stdout.strip()
    yield device
    host.run("losetup", "--detach", device)


def unwritten(file: Path) -> bool:
    """True if a part of the file takes place that was never written, as ext4 and xfs note it."""
    os.sync()
    return "unwritten" in LocalHost().run("filefrag", "-v", file).stdout


@pytest.mark.parametrize("kind", ["ext3", "ext4"])
def test_the_journal_is_written(written: Path, device: str, kind: str) -> None:
    mkfs = make_commands(device, kind)[0]
    LocalHost().run(*mkfs)
    assert not unwritten(written)
    # The control: without the setting its zeroes are asked for.
    LocalHost().run(*mkfs[mkfs.index(f"mkfs.{kind}") :])
    if not unwritten(written):
        pytest.skip("this directory's file system does not note what was never written")

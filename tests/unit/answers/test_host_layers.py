"""A host layer that drops flushes is seen where the kernel, or ZFS itself, says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.answers import disks as room
from vdisklab.answers.disks import read_contexts
from vdisklab.host.mounts import Mount
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import (
    ConfiguredDisk,
    FlushesDroppedBelow,
    disk_path,
    risks,
    unknown_layers,
)


@pytest.fixture
def image(tmp_path: Path) -> str:
    (tmp_path / "a.raw").write_bytes(bytes(4096))
    return str(tmp_path / "a.raw")


def mounted(monkeypatch: pytest.MonkeyPatch, kind: str, options: str) -> None:
    mount = Mount(Path("/"), kind, "tank/vm", frozenset(options.split(",")))
    monkeypatch.setattr(room, "mount_of", lambda _source: mount)


def zfs(monkeypatch: pytest.MonkeyPatch, directory: Path, answer: str, status: int = 0) -> None:
    """A program that answers for the data set tank/vm and the volume tank/vm-1 alone."""
    program = directory / "bin" / "zfs"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$*" = "get -H -o value sync tank/vm" ] || [ "$6" = tank/vm-1 ] || exit 1\n'
        f"echo {answer}; exit {status}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.parametrize(
    ("kind", "options", "path"),
    [
        ("ext4", "rw,relatime,nobarrier", "ext4:barrier=off/raw/none"),
        ("ext4", "rw,barrier=0", "ext4:barrier=off/raw/none"),
        ("btrfs", "rw,nobarrier", "btrfs:barrier=off/raw/none"),
        ("ext4", "rw,relatime", "ext4/raw/none"),
        ("xfs", "rw,relatime", "xfs/raw/none"),
    ],
)
def test_barriers_that_are_off_drop_flushes(
    monkeypatch: pytest.MonkeyPatch, image: str, kind: str, options: str, path: str
) -> None:
    mounted(monkeypatch, kind, options)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw:preallocation=off/none"))
    (context,) = read_contexts([disk])
    found = disk_path(disk, context)
    assert found is not None
    assert str(found).replace(":preallocation=off", "") == path
    dropped = any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))
    assert dropped is ("barrier=off" in path)


@pytest.mark.parametrize(
    ("answer", "layer"),
    [("disabled", "zfs:sync=disabled"), ("always", "zfs:sync=always"), ("standard", "zfs")],
)
def test_what_zfs_does_at_a_flush_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: str, answer: str, layer: str
) -> None:
    mounted(monkeypatch, "zfs", "rw,xattr")
    zfs(monkeypatch, tmp_path, answer)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw/none"))
    (context,) = read_contexts([disk])
    assert [str(each) for each in context.layers or ()] == [layer]
    dropped = any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))
    assert dropped is (answer == "disabled")


def test_a_volume_of_zfs_is_asked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    zfs(monkeypatch, tmp_path, "disabled")
    disk = ConfiguredDisk("g", "vda", "/dev/zvol/tank/vm-1", parse_path("zvol/none"))
    (context,) = read_contexts([disk])
    assert str(disk_path(disk, context)) == "zvol:sync=disabled/none"
    assert any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))


def test_a_zfs_that_does_not_answer_is_not_taken_for_a_safe_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: str
) -> None:
    mounted(monkeypatch, "zfs", "rw")
    zfs(monkeypatch, tmp_path, "no", status=1)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw/none"))
    (context,) = read_contexts([disk])
    assert context.layers is None
    assert unknown_layers(disk, context) == f"the host layers of {image} are unknown"

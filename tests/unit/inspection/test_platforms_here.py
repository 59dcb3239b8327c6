"""Which platforms run guests on a host: their directories and programs say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.inspection.platforms_here import platforms_here
from vdisklab.path.platforms import Platform


@pytest.mark.parametrize(
    ("directories", "programs", "platforms"),
    [
        ((), (), ()),
        (("etc/pve/qemu-server",), (), (Platform.PROXMOX,)),
        (("etc/libvirt/qemu",), (), (Platform.LIBVIRT,)),
        ((), ("virsh",), (Platform.LIBVIRT,)),
        (("etc/pve/qemu-server",), ("incus", "virsh"),
         (Platform.PROXMOX, Platform.LIBVIRT, Platform.INCUS)),
    ],
)  # fmt: skip
def test_directories_and_programs_tell_the_platforms(
    directories: tuple[str, ...],
    programs: tuple[str, ...],
    platforms: tuple[Platform, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = tmp_path / "bin"
    found.mkdir()
    for name in programs:
        (found / name).write_text("#!/bin/sh\nexit 1\n")  # nobody starts it
        (found / name).chmod(0o755)
    for name in directories:
        (tmp_path / "root" / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(found))
    assert tuple(platforms_here(LocalHost(), tmp_path / "root")) == platforms

"""The `zfs` layer for real: by zfs-fuse where the kernel has no ZFS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.host.test_preview import compare
from vdisklab.errors import HostError
from vdisklab.host.blockdevice import record_devices, signatures
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry
from vdisklab.host.mounts import mount_at
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Directory
from vdisklab.storage.zfs import POOL

from .conftest import MIB, Attach

pytestmark = pytest.mark.host


def pools(host: LocalHost) -> list[str]:
    return host.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout.split()


def test_raidz1_of_four_slices_with_options(site: Site, zfs: LocalHost) -> None:
    text = "zfs:raid=raidz1:recordsize=64k:primarycache=metadata:compression=gzip/host"
    layers = parse_path(text).layers
    with build_stack(
        site, layers, 64 * MIB, "a", backing=BackingDevices(disks=4), allocate=False
    ) as top:
        assert mount_at(top.on_host) is not None
        assert isinstance(top, Directory)
        (top.on_host / "file").write_bytes(b"x" * MIB)
        seen = top.properties
        assert seen["zfs.raid"] == "raidz1"
        assert seen["zfs.recordsize"] == "64k"
        assert seen["zfs.primarycache"] == "metadata"
        assert seen["zfs.compression"] == "gzip"
        assert seen["zfs.o_direct"] in ("refused", "direct", "accepted, served from a cache")
        assert [name for name in pools(zfs) if site.ledger.run_id in name]
    assert not [name for name in pools(zfs) if site.ledger.run_id in name]
    assert mount_at(top.on_host) is None


@pytest.mark.parametrize("stack", ["zfs", "zfs:raid=mirror", "zfs:ashift=9"])
def test_defaults_are_read_back(site: Site, zfs: LocalHost, stack: str) -> None:
    with build_stack(site, parse_path(f"{stack}/host").layers, 32 * MIB, "a") as top:
        assert top.properties["zfs.compression"] == "off"
        assert (top.properties["zfs.raid"] == "mirror") == ("mirror" in stack)


def test_an_option_that_the_version_does_not_know(site: Site, zfs: LocalHost) -> None:
    layers = parse_path("zfs:compression=zstd/host").layers
    with pytest.raises(HostError, match="compression"), build_stack(site, layers, MIB, "a"):
        pytest.fail("zfs-fuse has no zstd")
    assert not [name for name in pools(zfs) if site.ledger.run_id in name]


def test_a_volume_is_refused_where_only_zfs_fuse_answers(site: Site, zfs: LocalHost) -> None:
    if Path("/sys/module/zfs").exists():
        pytest.skip("this kernel has ZFS, and with it volumes")
    layers = parse_path("zvol/host").layers
    with (
        pytest.raises(HostError, match="volumes need ZFS in the kernel") as refused,
        build_stack(site, layers, MIB, "a"),
    ):
        pytest.fail("zfs-fuse has no volumes")
    assert "lab" in str(refused.value.hint)
    assert not [name for name in pools(zfs) if site.ledger.run_id in name]  # and it still answers


def test_a_pool_of_a_similar_name_is_not_touched(
    site: Site, zfs: LocalHost, attach: Attach
) -> None:
    mine, other = attach(128 * MIB), attach(128 * MIB)
    name = site.unique("precious")
    zfs.run("zpool", "create", "-o", "cachefile=none", "-O", "mountpoint=none", name, other)
    try:
        # the same name even, on devices that the ledger does not name
        POOL.undo(zfs, Entry(0, POOL.kind, name, {"devices": record_devices([mine])}))
        POOL.undo(zfs, Entry(0, POOL.kind, name[:-1], {"devices": record_devices([other])}))
        assert name in pools(zfs)
        assert signatures(zfs, other)
    finally:
        POOL.undo(zfs, Entry(0, POOL.kind, name, {"devices": record_devices([other])}))
    assert name not in pools(zfs)
    assert signatures(zfs, other) == ()


def test_a_taken_name_is_refused_and_kept(site: Site, zfs: LocalHost, attach: Attach) -> None:
    other, name = attach(128 * MIB), site.unique("a-0")
    zfs.run("zpool", "create", "-o", "cachefile=none", "-O", "mountpoint=none", name, other)
    try:
        layers = parse_path("zfs/host").layers
        with pytest.raises(HostError, match="the pool"), build_stack(site, layers, MIB, "a"):
            pytest.fail("the name is taken")
        assert name in pools(zfs)
    finally:
        POOL.undo(zfs, Entry(0, POOL.kind, name, {"devices": record_devices([other])}))


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("The ZFS modules are not loaded.", "or try it in the lab"),
        ("Please make sure that the zfs-fuse daemon is running.", "service zfs-fuse start"),
    ],
)
def test_without_zfs_one_sentence(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, hint: str
) -> None:
    for program in ("zpool", "zfs"):
        fake = tmp_path / program
        fake.write_text(f"#!/bin/sh\necho {printed} >&2\nexit 1\n")
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    layers = parse_path("zfs/host").layers
    with (
        pytest.raises(HostError, match=f"ZFS does not run here: {re.escape(printed)}") as refused,
        build_stack(site, layers, MIB, "a", allocate=False),
    ):
        pytest.fail("there is no ZFS")
    assert hint in str(refused.value.hint)


@pytest.mark.usefixtures("zfs")
def test_the_commands_of_a_plan_are_those_of_a_run(tmp_path: Path) -> None:
    compare("zfs:recordsize=64k/raw:preallocation=off/writeback", tmp_path)

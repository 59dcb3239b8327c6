"""Whole devices: what is refused, what is taken, and how they are left. On real loop devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.errors import DirtyHostError, HostError, PlanError
from vdisklab.host.blockdevice import identity, open_device, signatures
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.device import DEVICE, require_usable, whole_devices
from vdisklab.storage.image import image_file, random_source
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Device

from .conftest import MIB, Attach

pytestmark = pytest.mark.host


@pytest.fixture
def mounted(host: LocalHost, attach: Attach, tmp_path: Path) -> Iterator[Path]:
    device, point = attach(), tmp_path / "mnt"
    point.mkdir()
    host.run("mkfs.ext4", "-q", device)
    host.run("mount", device, point)
    yield device
    host.run("umount", point)


def test_an_idle_empty_device_is_taken(host: LocalHost, attach: Attach) -> None:
    require_usable(host, BackingDevices((attach(),)), 64 * MIB)


def test_no_block_device(host: LocalHost, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(HostError, match="is not a block device"):
        require_usable(host, BackingDevices((file,)))
    with pytest.raises(HostError, match="No such file"):
        require_usable(host, BackingDevices((tmp_path / "absent",)))


def test_mounted_even_with_destroy(host: LocalHost, mounted: Path) -> None:
    with pytest.raises(HostError, match="in use: it is mounted on"):
        require_usable(host, BackingDevices((mounted,), (mounted,)))


def test_claimed_by_the_kernel(host: LocalHost, attach: Attach) -> None:
    device = attach()
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(HostError, match="in use"):
            require_usable(host, BackingDevices((device,)))
    finally:
        os.close(descriptor)


def test_open_in_another_program(host: LocalHost, attach: Attach) -> None:
    device = attach()
    with device.open("rb"), pytest.raises(HostError, match=r"has it open"):
        require_usable(host, BackingDevices((device,)))


def test_below_another_loop_device(host: LocalHost, attach: Attach) -> None:
    device = attach()
    above = host.run("losetup", "--find", "--show", device).stdout.strip()
    try:
        with pytest.raises(HostError, match=rf"in use: {Path(above).name} uses it"):
            require_usable(host, BackingDevices((device,), (device,)))
    finally:
        host.run("losetup", "--detach", above)
    require_usable(host, BackingDevices((device,)))


def test_read_only(host: LocalHost, attach: Attach) -> None:
    with pytest.raises(HostError, match="is read-only"):
        require_usable(host, BackingDevices((attach(8 * MIB, "--read-only"),)))


def test_too_small(host: LocalHost, attach: Attach) -> None:
    with pytest.raises(HostError, match=r"has 64.0 MiB, but needs 65.0 MiB"):
        require_usable(host, BackingDevices((attach(),)), 65 * MIB)


def test_listed_twice_also_by_another_name(host: LocalHost, attach: Attach, tmp_path: Path) -> None:
    device = attach()
    with pytest.raises(PlanError, match="is listed twice"):
        require_usable(host, BackingDevices((device, device)))
    alias = tmp_path / "alias"
    alias.symlink_to(device)
    with pytest.raises(PlanError, match="are one device"):
        require_usable(host, BackingDevices((device, alias)))


@pytest.mark.parametrize("maker", ["mkfs.ext4 -q", "mkfs.btrfs -q -f", "mkswap -q"])
def test_any_signature_is_refused_unless_spelled_out(
    host: LocalHost, attach: Attach, maker: str
) -> None:
    device, other = attach(128 * MIB), attach(128 * MIB)
    host.run(*maker.split(), device)
    with pytest.raises(HostError, match=r"has .*would destroy") as refused:
        require_usable(host, BackingDevices((device,)))
    assert f"--destroy {device}" in str(refused.value.hint)
    with pytest.raises(HostError, match="and its use would destroy the contents"):
        require_usable(host, BackingDevices((other, device), (other,)))
    with pytest.raises(PlanError, match="not used"):
        require_usable(host, BackingDevices((other,), (device,)))
    require_usable(host, BackingDevices((device,), (device,)))
    assert signatures(host, device), "looking must not change the device"


def test_a_partition_table_is_a_signature(host: LocalHost, attach: Attach) -> None:
    device = attach()
    with device.open("r+b") as opened:
        opened.seek(446)
        opened.write(bytes([0, 0, 2, 0, 0x83, 1, 1, 0, 0, 8, 0, 0, 0, 0, 1, 0]))
        opened.seek(510)
        opened.write(b"\x55\xaa")
    with pytest.raises(HostError, match="has dos, and its use would destroy"):
        require_usable(host, BackingDevices((device,)))


def test_taken_wiped_and_left_empty(site: Site, attach: Attach) -> None:
    device = attach()
    site.host.run("mkfs.ext4", "-q", device)
    with whole_devices(site, BackingDevices((device,), (device,)), 1, MIB) as target:
        assert target.on_host == device
        assert signatures(site.host, device) == ()
        site.host.run("mkfs.ext4", "-q", device)  # what a guest may do
    assert signatures(site.host, device) == ()


@pytest.mark.parametrize("stack", ["ext4", "xfs", "btrfs"])
def test_file_systems_stand_on_it(site: Site, attach: Attach, stack: str) -> None:
    device = attach(768 * MIB)
    layers = parse_path(f"{stack}/host").layers
    with build_stack(site, layers, 16 * MIB, "a", backing=BackingDevices((device,))) as target:
        (target.on_host / "file").write_bytes(b"x")
        (found,) = signatures(site.host, device)
        assert (found.kind, found.label) == (stack, site.label)
    assert signatures(site.host, device) == ()


def test_clean_wipes_only_what_is_ours(host: LocalHost, attach: Attach) -> None:
    device = attach()
    noted = identity(open_device(device)) | {"label": "vdl-01234567"}
    entry = Entry(0, DEVICE.kind, str(device), noted)
    host.run("mkfs.ext4", "-q", "-L", "precious", device)
    with pytest.raises(DirtyHostError, match=r"has ext4 'precious', which vdisklab did not write"):
        DEVICE.undo(host, entry)
    host.run("mkfs.ext4", "-q", "-F", "-L", "vdl-01234567", device)
    stranger = Entry(0, DEVICE.kind, str(device), noted | {"size": "1"})
    DEVICE.undo(host, stranger)
    after_boot = Entry(0, DEVICE.kind, str(device), noted | {"boot": "another"})
    DEVICE.undo(host, after_boot)
    assert signatures(host, device), "a device that may be another one is left alone"
    DEVICE.undo(host, entry)
    DEVICE.undo(host, entry)
    assert signatures(host, device) == ()


@pytest.mark.parametrize("text", ["qcow2/none", "raw/none", "none"])
def test_an_image_fills_a_device(site: Site, attach: Attach, text: str) -> None:
    """qemu-img refuses `full` preallocation on what is no regular file."""
    image, size = parse_path(f"lvm/{text}").image, 8 * MIB
    below = Device(attach(32 * MIB))
    with (
        random_source(site, size) as source,
        image_file(site, below, image, size=size, name="a", source=source) as made,
    ):
        assert isinstance(made.target, Device)
        if text == "qcow2/none":
            assert made.properties["image.mapped"] == str(size)
        else:
            assert made.on_host.read_bytes()[:size] == source.read_bytes()

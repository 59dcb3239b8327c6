"""Proxmox VE's chains of snapshot volumes, its storage `local`, and settings that no path has."""

from __future__ import annotations

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, HostDisk
from vdisklab.path.needs import meets, parse_need
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import CannotWork

CHAINED = GuestText(
    "lvm: san\n\tvgname vgsan\n\tsnapshot-as-volume-chain 1\n\n"
    "dir: shelf\n\tpath /shelf\n\tsnapshot-as-volume-chain yes\n\n"
    "dir: plain\n\tpath /plain\n\n",
    "storage.cfg",
)


def read(text: str) -> dict[str, ConfiguredDisk]:
    disks = read_guests([CHAINED, GuestText(text, "8.conf")])
    return {disk.target: disk for disk in disks}


def snapshots(volume: str, *names: str, lost: str = "") -> str:
    """A guest with these snapshots, the oldest first; `lost` does not have the disk."""
    parts = [f"memory: 512\nvirtio0: {volume},size=8G\nparent: {names[-1]}\n"]
    for name, before in zip(names, ("", *names), strict=False):
        disk = "" if name == lost else f"virtio0: file={volume},size=8G\n"
        parent = f"parent: {before}\n" if before else ""
        parts.append(f"[{name}]\nmemory: 512\n{disk}{parent}snaptime: 1\n")
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (snapshots("san:vm-8-disk-0.qcow2", "a"), 1),
        (snapshots("shelf:8/vm-8-disk-0.qcow2", "a", "b", "c"), 3),
        (snapshots("shelf:8/vm-8-disk-0.qcow2", "a", "b", lost="a"), 1),
        (snapshots("shelf:9/base-9-disk-0.qcow2/8/vm-8-disk-0.qcow2", "a"), 2),
        (snapshots("plain:8/vm-8-disk-0.qcow2", "a", "b"), 0),
        (snapshots("shelf:8/vm-8-disk-0.raw", "a"), 0),
        (snapshots("san:vm-8-disk-0.qcow2", "a", "b").replace("parent: b", "parent: gone"), 0),
        (snapshots("san:vm-8-disk-0.qcow2", "a").replace("[a]", "[a]\nparent: a"), 1),
        (snapshots("san:vm-8-disk-0.qcow2", "a").replace("file=san:vm-8-disk-0", "san:other"), 0),
    ],
)
def test_each_snapshot_is_an_image_below(text: str, depth: int) -> None:
    disk = read(text)["virtio0"]
    assert disk.path is not None
    assert disk.path.image is not None
    assert disk.path.image.backing == depth
    assert not any(isinstance(risk, CannotWork) for risk in risks(disk))


@pytest.mark.parametrize(
    ("volume", "path"),
    [
        ("/srv/a.qcow2", "raw"),
        ("/srv/a.qcow2,format=qcow2", "qcow2"),
        ("shelf:8/vm-8-disk-0.qcow2", "qcow2"),
    ],
)
def test_a_file_outside_the_storages_is_raw_without_a_format(volume: str, path: str) -> None:
    """Whatever its name is: get_path_and_format of qemu-server's Drive.pm."""
    disk = read(f"memory: 512\nvirtio0: {volume}\n")["virtio0"]
    assert disk.path is not None
    assert str(disk.path.image) == path


def test_a_word_that_qemu_server_no_longer_has_is_refused() -> None:
    disk = read("memory: 512\nvirtio0: /srv/a.raw,format=cow\n")["virtio0"]
    assert any("Proxmox VE refuses format cow" in str(risk) for risk in risks(disk))


def test_a_chain_of_volumes_does_not_keep_what_was_not_flushed() -> None:
    verdicts, need = CrashVerdicts(disk=HostDisk.PLP), parse_need("no-flush-safe")
    text = snapshots("san:vm-8-disk-0.qcow2", "a")
    chain, alone = read(text)["virtio0"].path, read(text.replace("parent: a", ""))["virtio0"].path
    assert chain is not None
    assert alone == parse_path("lvm/qcow2/none/virtio:aio=native:detect_zeroes=on")
    assert (meets(chain, need, verdicts), meets(alone, need, verdicts)) == (False, True)


@pytest.mark.parametrize(
    ("volume", "path", "source"),
    [
        ("local:8/vm-8-disk-0.raw", "raw", "/var/lib/vz/images/8/vm-8-disk-0.raw"),
        ("local:8/vm-8-disk-1.qcow2,cache=unsafe", "qcow2",
         "/var/lib/vz/images/8/vm-8-disk-1.qcow2"),
    ],
)  # fmt: skip
def test_local_is_a_storage_of_every_node(volume: str, path: str, source: str) -> None:
    disk = read(f"memory: 512\nsata0: {volume}\n")["sata0"]
    assert disk.path is not None
    assert (str(disk.path.image), disk.source) == (path, source)
    moved = GuestText("dir: local\n\tpath /elsewhere\n", "storage.cfg")
    (other,) = read_guests([moved, GuestText(f"memory: 512\nsata0: {volume}\n", "8.conf")])
    assert (other.source or "").startswith("/elsewhere/images/")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("virtiofs0: media,direct-io=1", ("direct-io=1",)),
        ("virtiofs2: dirid=media,cache=never,expose-acl=1", ("expose-acl=1",)),
        ("virtiofs1: dirid=media,cache=auto,direct-io=0", ()),
    ],
)
def test_settings_of_a_share_are_named(line: str, named: tuple[str, ...]) -> None:
    (disk,) = read(f"memory: 512\n{line}\n").values()
    assert disk.limits == named

"""Directories and devices that the user names as targets. On real loop devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.path.named_target import NamedTarget, parse_target, require_targets
from vdisklab.path.segments import LayerKind
from vdisklab.storage.given import given_target, unanswered, with_kinds
from vdisklab.storage.remote import secret_of
from vdisklab.storage.site import Site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Device, Directory

from .conftest import MIB, Attach

pytestmark = pytest.mark.host


def kinds(host: LocalHost, *texts: str) -> tuple[NamedTarget, ...]:
    return with_kinds(host, [parse_target(text) for text in texts])


def test_the_host_says_what_a_place_is(host: LocalHost, attach: Attach, tmp_path: Path) -> None:
    device = attach()
    here, disk = kinds(host, f"here={tmp_path}", f"disk={device}")
    assert (here.kind, here.place) == (LayerKind.DIR, str(tmp_path))
    assert (disk.kind, disk.place) == (LayerKind.DEVICE, str(device))


def test_two_names_for_one_place_are_refused(
    host: LocalHost, attach: Attach, tmp_path: Path
) -> None:
    device, shelf = attach(), tmp_path / "shelf"
    shelf.mkdir()
    for name, place in (("link", shelf), ("disk", device)):
        (tmp_path / name).symlink_to(place)
    for first, second in (
        (shelf, tmp_path / "link"), (device, tmp_path / "disk"), ("nbd://h", "nbd://h:10809"),
        ("iscsi://h/iqn.x:t/1", "iscsi://h:3260/iqn.x:t/1"), ("nbds://h/e", "nbds://h/e/"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match="a and b are two names"):
            require_targets(kinds(host, f"a={first}", f"b={second}"))
    assert len(kinds(host, f"a={shelf}", f"b={tmp_path}", "c=nbd://h/e", "d=nbd://h/f")) == 4


@pytest.mark.parametrize(
    ("place", "message"),
    [("missing", "No such file or directory"), ("file", "neither a directory nor a block device")],
)
def test_another_place_is_refused(
    host: LocalHost, tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match=message) as caught:
        kinds(host, f"here={tmp_path / place}")
    assert "name " in str(caught.value.hint)


@pytest.mark.parametrize(
    ("goes", "said"), [("its node", "No such file or directory"), ("its server", "become empty")]
)
def test_what_was_there_is_to_be_connected_again(
    host: LocalHost, attach: Attach, tmp_path: Path, goes: str, said: str
) -> None:
    """It has its name, so another one is not what is missing."""
    node, device = tmp_path / "disk", attach()
    node.symlink_to(device)
    (target,) = kinds(host, f"here={node}")
    assert unanswered(host, target) is None
    if goes == "its node":
        node.unlink()
    else:
        host.run("losetup", "--detach", device)
    gone = unanswered(host, target)
    assert gone is not None
    assert gone.message.startswith(f"target here: {node} cannot be used: ")
    assert said in gone.message
    assert "connect it again" in str(gone.hint)
    if goes == "its node":
        node.symlink_to(device)
    else:
        host.run("losetup", device, tmp_path / "disk1")
    assert unanswered(host, target) is None


def test_a_directory_keeps_what_was_in_it(host: LocalHost, site: Site, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "disk.raw").write_text("mine")
    (target,) = kinds(host, f"here={shelf}")
    with given_target(site, target, BackingDevices(targets=(target,)), MIB) as made:
        assert isinstance(made, Directory)
        assert made.path.parent == shelf
        assert made.properties["target.filesystem"]
        (made.path / "image").write_text("ours")
    assert [file.name for file in shelf.iterdir()] == ["disk.raw"]
    assert (shelf / "disk.raw").read_text() == "mine"


def test_the_work_directory_can_be_a_target(host: LocalHost, site: Site) -> None:
    (target,) = kinds(host, f"here={site.directory.parent}")
    with given_target(site, target, BackingDevices(targets=(target,)), MIB) as made:
        assert made.on_host != site.directory
        assert site.directory.is_dir()
    assert site.directory.is_dir()


def test_what_another_campaign_uses_is_refused(host: LocalHost, site: Site, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "vdisklab-0123abcd.nas").mkdir(parents=True)
    (target,) = kinds(host, f"nas={shelf}")
    context = given_target(site, target, BackingDevices(targets=(target,)), MIB)
    with (
        pytest.raises(HostError, match=r"another campaign uses .*vdisklab-0123abcd") as caught,
        context,
    ):
        pass
    assert "vdisklab clean" in str(caught.value.hint)


def test_no_room_on_the_target_is_said(host: LocalHost, site: Site, tmp_path: Path) -> None:
    (target,) = kinds(host, f"here={tmp_path}")
    with (
        pytest.raises(HostError, match="target here needs"),
        given_target(site, target, BackingDevices(targets=(target,)), 1 << 60),
    ):
        pass


def test_a_device_with_data_needs_its_name_in_destroy(
    host: LocalHost, site: Site, attach: Attach
) -> None:
    device = attach()
    host.run("mkfs.ext4", "-q", device)
    targets = kinds(host, f"disk={device}")
    refused = BackingDevices(targets=targets)
    with (
        pytest.raises(HostError, match="would destroy"),
        given_target(site, targets[0], refused, MIB),
    ):
        pass
    allowed = BackingDevices(targets=targets, spendable=frozenset(["disk"]))
    with given_target(site, targets[0], allowed, MIB) as made:
        assert isinstance(made, Device)
        assert made.properties["device.transport"] == "loop"


def test_layers_can_be_on_a_device(host: LocalHost, site: Site, attach: Attach) -> None:
    backing = BackingDevices(targets=kinds(host, f"disk={attach(128 * MIB)}"))
    layers = parse_path("device:at=disk/ext4/raw").layers
    with build_stack(site, layers, 8 * MIB, "s", backing=backing) as top:
        assert isinstance(top, Directory)
        assert "ext4.mount" in top.properties


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_password_ends_before_the_end_of_its_line(
    host: LocalHost, site: Site, tmp_path: Path, ending: str
) -> None:
    """`echo password > file` writes one more byte."""
    file = tmp_path / "chap"
    file.write_text(f"hunter2{ending}")
    target = parse_target("san=iscsi://joe@10.0.0.5/iqn.x/1")
    backing = BackingDevices(targets=(target,), secrets=(("san", file),))
    file.chmod(0o644)
    with (
        pytest.raises(HostError, match="can be read by other users"),
        secret_of(site, target, backing),
    ):
        pass
    file.chmod(0o600)
    with secret_of(site, target, backing) as held:
        assert held is not None
        assert held.read_text() == "hunter2"
        assert held.stat().st_mode & 0o077 == 0
    assert file.read_text() == f"hunter2{ending}"
    assert not (site.directory / "san.secret").exists()

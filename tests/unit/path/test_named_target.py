"""Targets that the user names: their grammar, and the paths on them."""

from pathlib import Path

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.backing import BackingDevices
from vdisklab.path.cell import page_cache_states
from vdisklab.path.disk_path import PathSyntaxError, parse_path
from vdisklab.path.named_target import (
    NamedTarget,
    as_typed,
    parse_secret,
    parse_target,
    require_targets,
    with_targets,
)
from vdisklab.path.rules import impossible, unnamed_target
from vdisklab.path.segments import LayerKind, PageCache

SAN = parse_target("san=iscsi://10.0.0.5/iqn.2001-04.com.example:disk/1")
NAS = NamedTarget("nas", "/mnt/nas/images", LayerKind.NFS)
DISK = NamedTarget("disk", "/dev/sdz", LayerKind.DEVICE)
ALL = BackingDevices(targets=(SAN, NAS, DISK))


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("nbd://10.0.0.5", LayerKind.NBD),
        ("nbd+unix:///vol?socket=/run/n.sock", LayerKind.NBD),
        ("nbds://host:10810/x", LayerKind.NBD),
        ("iscsi://user@host:3261/iqn.x:y/0", LayerKind.ISCSI),
        ("nfs://nas/export/images", LayerKind.LIBNFS),
        ("rbd:pool/image@/etc/ceph/other.conf", LayerKind.RBD),
        ("ssh://root@[::1]:2222/srv", LayerKind.SSH),
        ("/srv/images", None),
        ("./here:there", None),
        ("images", None),
    ],
)
def test_the_kind_is_told_by_the_scheme_or_by_the_host(place: str, kind: LayerKind | None) -> None:
    target = parse_target(f"a={place}")
    assert (target.place, target.kind) == (place, kind)
    assert str(target) == f"a={place}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("san", "names no target"),
        ("san=", "names no target"),
        ("=/srv", "cannot be the name"),
        ("a b=/srv", "cannot be the name"),
        ("ext4=/srv", "disk paths use that word"),
        ("none=/srv", "disk paths use that word"),
        ("san=http://host/x", "measures no http:"),
        ("san=nbd://host:port/x", "is no URL"),
        ("san=nbd://[::1/x", "is no URL"),
        ("san=/srv/\x1b[2J", "control character"),
        ("san=iscsi://user:hunter2@host/iqn.x/1", "holds a password"),
        ("san=iscsi://user%hunter2@host/iqn.x/1", "holds a password"),
        ("san=nbds://host/x?psk=hunter2", "holds a password"),
        ("san=ssh://root:hunter2@host/srv", "holds a password"),
    ],
)
def test_what_is_no_target_is_refused_without_its_password(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_target(text)
    assert caught.value.hint
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_a_name_in_a_path_becomes_the_kind_and_the_name() -> None:
    assert with_targets("san/raw/none", ALL.targets) == "iscsi:at=san/raw/none"
    assert with_targets("nas/qcow2/writeback", ALL.targets) == "nfs:at=nas/qcow2/writeback"
    assert with_targets("disk/raw/none", ALL.targets) == "device:at=disk/none"  # it is the disk
    assert with_targets("disk/raw", ALL.targets) == "device:at=disk"
    assert with_targets("disk/ext4/raw/none", ALL.targets) == "device:at=disk/ext4/raw/none"
    assert with_targets("ext4/raw/none", ALL.targets) == "ext4/raw/none"


def test_two_names_of_one_place_and_one_name_twice() -> None:
    other = NamedTarget("other", "/mnt/nas/images/", LayerKind.NFS)
    with pytest.raises(PlanError, match="nas and other are two names for one target"):
        require_targets((NAS, other))
    with pytest.raises(PlanError, match="nas is given twice"):
        require_targets((NAS, NamedTarget("nas", "/elsewhere")))
    require_targets(ALL.targets)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("iscsi:at=san/host", "nothing on the host can measure it"),
        ("iscsi:at=san/ext4/raw/none", "no host layer can be on it"),
        ("iscsi:at=san/raw/none/virtio:aio=native", "has a driver of its own"),
        ("libnfs:at=nas/virtiofs", "QEMU opens libnfs:at=nas itself"),
        ("libnfs:at=nas/qcow2:backing=1/none", "backing needs files on the host"),
        ("libnfs:at=nas/raw:preallocation=falloc/none", "preallocation=falloc needs files"),
        ("iscsi:at=san/none", "may hold any format"),
        ("rbd:at=ceph/raw/none", "no image format on rbd:at=ceph but its own"),
        ("nfs:at=nas/none", "nfs holds files"),
        ("ext4/nfs:at=nas/raw/none", "nfs is storage that you name, not a layer on ext4"),
        ("nbd:at=fast/raw/none/virtio:guests=2", "a disk for each guest"),
        ("nbd:at=fast/raw/none/virtio:cgroup_iops=100", "shows none to the kernel"),
    ],
)
def test_what_a_target_cannot_have(path: str, reason: str) -> None:
    verdict = impossible(parse_path(path), ALL)
    assert verdict is not None
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "path",
    [
        "iscsi:at=san/raw/none", "nbd:at=fast/qcow2/writeback", "rbd:at=ceph/none",
        "device:at=disk/none", "device:at=disk/ext4/qcow2/none", "nfs:at=nas/raw/none",
        "nfs:at=nas/virtiofs", "device:at=disk/host", "libnfs:at=nas/raw/none/virtio:guests=3",
    ],
)  # fmt: skip
def test_what_a_target_can_have(path: str) -> None:
    assert impossible(parse_path(path), ALL) is None
    assert parse_path(parse_path(path).canonical) == parse_path(path)


def test_a_target_that_nobody_named_says_how() -> None:
    for path, example in (
        ("nfs/raw/none", "--target mynfs=/mnt/nas/images, and mynfs instead of nfs"),
        ("smb/raw/none", "--target mysmb=/mnt/share"),
        ("iscsi/raw/none", "--target myiscsi=iscsi://"),
        ("nbd:at=other/raw/none", "--target other=nbd://"),
    ):
        verdict = unnamed_target(parse_path(path), ALL)
        assert verdict is not None
        assert example in verdict.instead
    assert unnamed_target(parse_path("iscsi:at=san/raw/none"), ALL) is None
    assert unnamed_target(parse_path("ext4/raw/none"), ALL) is None


@pytest.mark.parametrize(
    "path",
    [
        "ceph/raw/none", "cifs/raw/none", "gluster/none", "nvmeof/none", "drbd/none", "multipath/",
        "ceph/", "nfs/", "nfs/…", "nfs/export/images/raw/none", "iscsi/", "smb/share/qcow2/none",
        "nvme-tcp/none",
    ],
)  # fmt: skip
def test_words_that_people_try_say_how_to_name_a_target(path: str) -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path(path)
    word = path.partition("/")[0]
    assert f"{word} is storage that you have" in str(caught.value.hint)
    assert f"--target my{word}=" in str(caught.value.hint)


def test_a_wrong_word_after_a_named_target_is_said_as_such() -> None:
    with pytest.raises(PathSyntaxError, match="unknown segment 'rwa'") as caught:
        parse_path("nfs:at=nas/rwa/none")
    assert "did you mean raw?" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("nas=nas:/export", "nfs://nas/export"),
        ("nas=smb://nas/share", "--target nas=/mnt/nas"),
        ("fast=NBD://nas/disk", "nbd://10.0.0.5/export"),
        ("web=http://nas/disk", "nbd://10.0.0.5/export"),
    ],
)
def test_a_place_of_another_kind_says_what_to_write(text: str, way: str) -> None:
    with pytest.raises(PlanError, match="vdisklab measures no") as caught:
        parse_target(text)
    assert way in str(caught.value.hint)


def test_an_unknown_first_word_may_be_meant_as_a_target() -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path("backup/raw/none")
    assert "--target backup=PLACE" in str(caught.value.hint)


def test_what_qemu_opens_is_in_no_page_cache() -> None:
    assert page_cache_states(parse_path("nbd:at=a/raw/writeback")) == (PageCache.BYPASSED,)
    assert PageCache.WARM in page_cache_states(parse_path("nfs:at=a/raw/writeback"))


def test_a_secret_that_no_target_takes_is_refused() -> None:
    key = Path("/root/chap")
    require_targets(ALL.targets, [("san", key)])
    with pytest.raises(PlanError, match="--secret far names no target"):
        require_targets(ALL.targets, [("far", key)])
    with pytest.raises(PlanError, match="nas is a directory or device"):
        require_targets(ALL.targets, [("nas", key)])


def test_a_secret_is_a_name_and_a_file() -> None:
    assert parse_secret("san=/root/chap")[0] == "san"
    for text in ("san", "san=", "=/root/chap", "san=/a\nb"):
        with pytest.raises(PlanError):
            parse_secret(text)


@pytest.mark.parametrize(
    ("stored", "typed"),
    [
        ("nbd:at=mynbd/raw/none", "mynbd/raw/none"),
        ("Use dir:at=fast/qcow2/none (cold): it leads.", "Use fast/qcow2/none (cold): it leads."),
        (
            "`vdisklab run {iscsi:at=san/raw/none,ext4/raw/none}`",
            "`vdisklab run {san/raw/none,ext4/raw/none}`",
        ),
        ("ext4/raw/none, device:at=disk/none", "ext4/raw/none, disk/none"),
        ("driver=host_device:at=x/y", "driver=host_device:at=x/y"),
        ("a/nbd:at=x/raw", "a/nbd:at=x/raw"),
    ],
)
def test_a_path_on_a_target_is_shown_as_it_was_typed(stored: str, typed: str) -> None:
    assert as_typed(stored) == typed


@pytest.mark.parametrize("target", [SAN, NAS, DISK])
def test_what_is_shown_is_the_path_that_is_stored(target: NamedTarget) -> None:
    stored = parse_path(with_targets(f"{target.name}/none", [target])).canonical
    assert parse_path(with_targets(as_typed(stored), [target])).canonical == stored

"""Stacks are built from the bottom and taken down from the top, half-built ones too."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host.ledger import Kind, open_ledger, pending
from vdisklab.host.mounts import Mount
from vdisklab.path.backing import size_for
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.storage import filesystem
from vdisklab.storage import site as site_module
from vdisklab.storage.filesystem import mkfs_command, mount_command
from vdisklab.storage.image_commands import create_command, fill_command
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

from .scripted_host import ScriptedHost


def layers(text: str) -> tuple[Layer, ...]:
    return parse_path(f"{text}/host").layers


def build(host: ScriptedHost, work: Path, text: str) -> None:
    with (
        open_ledger(work / "state") as ledger,
        open_site(host, ledger, work) as site,
        build_stack(site, layers(text), 8 * MIB, "s", allocate=False),
    ):
        host.lines.append("measure")
        kinds = [entry.kind for entry in pending(ledger.path)]
        assert kinds[:3] == [Kind.PROCESS, Kind.MOUNT, Kind.DIRECTORY]


@pytest.fixture
def _mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """mountinfo says that xfs is mounted everywhere."""

    def mount_at(where: Path) -> Mount:
        return Mount(where, "xfs", "/dev/loop0", frozenset({"rw"}))

    monkeypatch.setattr(filesystem, "mount_at", mount_at)


@pytest.mark.usefixtures("_mounted")
def test_built_from_the_bottom_taken_down_from_the_top(tmp_path: Path) -> None:
    host = ScriptedHost()
    build(host, tmp_path, "xfs")
    assert host.verbs() == [
        "losetup", "mkfs.xfs", "mount", "xfs_info", "measure", "losetup --detach",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert not list((tmp_path / "state/ledger").glob("*.jsonl"))


@pytest.mark.usefixtures("_mounted")
@pytest.mark.parametrize(
    ("fails", "verbs"),
    [
        ("losetup --find", ["losetup"]),
        ("mkfs.xfs", ["losetup", "mkfs.xfs", "losetup --detach"]),
        ("mount", ["losetup", "mkfs.xfs", "mount", "losetup --detach"]),
        ("xfs_info", ["losetup", "mkfs.xfs", "mount", "xfs_info", "losetup --detach"]),
    ],
)
def test_half_a_stack_is_taken_down(tmp_path: Path, fails: str, verbs: list[str]) -> None:
    host = ScriptedHost(fail_on=fails)
    with pytest.raises(CommandError, match="no space left"):
        build(host, tmp_path, "xfs")
    assert host.verbs() == verbs
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.usefixtures("_mounted")
def test_what_cannot_be_detached_stays_in_the_ledger(tmp_path: Path) -> None:
    host = ScriptedHost(fail_on="--detach")
    with pytest.raises(DirtyHostError, match=r"loop device on .*s\.slice cannot be detached"):
        build(host, tmp_path, "xfs")
    (ledger,) = (tmp_path / "state/ledger").glob("*.jsonl")
    kinds = [entry.kind for entry in pending(ledger)]
    assert Kind.LOOP in kinds
    assert Kind.MOUNT not in kinds


@pytest.mark.usefixtures("_mounted")
def test_a_layer_whose_programs_fail(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="ZFS does not run here"):
        build(ScriptedHost(fail_on="zpool"), tmp_path, "zfs")


def test_another_file_system_than_asked_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "mount_at", lambda where: None)
    with pytest.raises(HostError, match="not mounted as xfs"):
        build(ScriptedHost(), tmp_path, "xfs")


def test_tmpfs_needs_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "available_memory", lambda: 1 * MIB)
    with pytest.raises(HostError, match=r"needs .* of memory .*, but 1\.0 MiB is available"):
        build(ScriptedHost(), tmp_path, "tmpfs")


def test_a_stack_larger_than_the_free_space_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "free_bytes", lambda directory: 100 * MIB)
    host = ScriptedHost()
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(host, ledger, tmp_path) as site,
        pytest.raises(HostError, match="has 100 MiB free") as caught,
        build_stack(site, layers("xfs"), 8 * MIB, "s"),
    ):
        pytest.fail("not reached")
    assert "--size" in str(caught.value.hint)
    assert host.lines == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_the_slice_is_larger_than_what_it_must_hold(kind: str) -> None:
    sizes = [size_for(layers(kind), capacity) for capacity in (0, MIB, 1 << 30, 1 << 40)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 64 * MIB
    assert sizes[-1] > 1.01 * (1 << 40)


@pytest.mark.parametrize(
    ("text", "mkfs", "mount"),
    [
        (
            "ext4",
            "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard /dev/x",
            "",
        ),
        ("ext4:barrier=off:data=journal", "mkfs.ext4 ", "-o nobarrier,data=journal "),
        ("xfs", "mkfs.xfs -q -K -m reflink=1 /dev/x", ""),
        ("xfs:reflink=off", "mkfs.xfs -q -K -m reflink=0 /dev/x", ""),
        ("btrfs", "mkfs.btrfs -q -K /dev/x", ""),
        ("btrfs:datacow=off", "mkfs.btrfs -q -K /dev/x", "-o nodatacow "),
        ("btrfs:compress=zstd", "mkfs.btrfs -q -K /dev/x", "-o compress=zstd "),
    ],
)
def test_every_option_reaches_mkfs_or_mount(text: str, mkfs: str, mount: str) -> None:
    (layer,) = layers(text)
    command = " ".join(mkfs_command(layer, Path("/dev/x"), "vdl-1"))
    assert "-1 " in command
    assert command.replace(" -L vdl-1", "").startswith(mkfs)
    printed = " ".join(mount_command(layer, Path("/dev/x"), Path("/m")))
    assert printed == f"mount -t {layer.kind} {mount}/dev/x /m"


@pytest.mark.parametrize(("text", "force"), [("ext4", "-F"), ("xfs", "-f"), ("btrfs", "-f")])
def test_what_shows_through_a_device_of_ours_may_be_overwritten(text: str, force: str) -> None:
    """mkfs.xfs refused an array that was made on the disks of one whose builder was killed."""
    (layer,) = layers(text)
    assert force in mkfs_command(layer, Path("/dev/md/x"), "vdl-1", just_created=True)
    assert force not in mkfs_command(layer, Path("/dev/sdx"), "vdl-1")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("raw", "preallocation=full"),
        ("raw:preallocation=off", "preallocation=off"),
        (
            "qcow2",
            "cluster_size=65536,compat=1.1,lazy_refcounts=off,preallocation=full",
        ),
    ],
)
def test_image_options_are_spelled_out(text: str, options: str) -> None:
    made = parse_path(f"{text}/none").image
    assert made is not None
    command = create_command(made, Path("/i"), 1 << 20)
    found = dict(word.split("=") for word in command[command.index("-o") + 1].split(","))
    wanted = dict(word.split("=") for word in options.split(","))
    assert found.keys() == wanted.keys()
    assert found["preallocation"] == wanted["preallocation"]
    assert command[-2:] == ("/i", "1048576")


def test_on_a_device_the_format_maps_what_is_there() -> None:
    image = parse_path("lvm/qcow2/none").image
    assert image is not None
    assert "preallocation=full" in " ".join(create_command(image, Path("f"), MIB))
    on_device = " ".join(create_command(image, Path("/dev/x"), MIB, on_device=True))
    assert "preallocation=metadata" in on_device


def test_an_image_is_filled_through_its_format() -> None:
    command = fill_command("qcow2", Path("/source"), Path("/i"))
    assert command[:3] == ("qemu-img", "convert", "-q")
    assert "-n" in command
    assert command[-4:] == ("-O", "qcow2", "/source", "/i")
    assert fill_command("raw", Path("/s"), Path("/i"))[-3] == "raw"

"""Operations in the middle of a load: what is planned, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.loads.loads import load
from vdisklab.campaign.named_here import named_here
from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode
from vdisklab.operations.registry import as_platforms_do
from vdisklab.path.disk_path import parse_path
from vdisklab.path.named_target import NamedTarget, parse_target, require_targets
from vdisklab.path.platforms import Platform
from vdisklab.path.rules import impossible
from vdisklab.path.segments import ImageFormat, LayerKind
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.destination import destination_of
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.units import GIB
from vdisklab.value import replace
from vdisklab.workload.profile_files import requested_profile


def plan_of(
    *paths: str,
    during: tuple[str, ...],
    to: str | None = None,
    target: tuple[NamedTarget, ...] = (),
) -> CampaignPlan:
    request = Request(paths=paths, during=during, to=to, target=target)
    return build_plan(request, Capabilities(), requested_profile(request))


def test_each_path_has_a_cell_for_each_operation() -> None:
    plan = plan_of("qcow2/none", "lvm/none", during=("backup:workers=1", "snapshot"))
    assert [cell.path.attachment.during for cell in plan.cells] == [
        "backup:workers=1", "snapshot", "backup:workers=1",
    ]  # fmt: skip
    (dropped,) = plan.dropped
    assert dropped.path == "lvm/none/virtio:during=snapshot"
    assert "lies in no file" in dropped.reason
    assert plan.profile.name == "during"
    assert not any(cell.path.on_host for cell in plan.cells)


def test_a_path_with_an_operation_is_read_as_it_is_written() -> None:
    path = parse_path("raw/none/virtio:during=backup+workers=16+speed=10M")
    assert path.attachment.during == "backup:workers=16:speed=10M"
    assert parse_path(path.canonical) == path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("raw/none/virtio:during=backup:guests=2", "in one guest alone"),
        ("raw/none/vhostuser:during=backup", "qemu-storage-daemon has this disk"),
        ("null/virtio:during=backup", "holds nothing"),
    ],
)
def test_where_no_operation_is_possible(path: str, reason: str) -> None:
    verdict = impossible(parse_path(path))
    assert verdict is not None
    assert reason in verdict.reason


def test_a_path_that_names_an_operation_is_planned_as_by_during() -> None:
    written = plan_of("qcow2/none/virtio:during=nothing", during=())
    ordered = plan_of("qcow2/none", during=("nothing",))
    assert written.cells == ordered.cells
    assert (written.profile.name, written.baseline) == ("during", ordered.baseline)
    (dropped,) = plan_of("qcow2/none/virtio:during=nothing", "raw/none", during=()).dropped
    assert dropped.path == "raw/none"
    assert "names no operation, and other paths do" in dropped.reason


def test_an_operation_that_does_not_exist_is_no_path() -> None:
    with pytest.raises(PlanError, match="'defragment' is no operation"):
        plan_of("raw/none/virtio:during=defragment", during=())


TRIMMED = "raw/none/virtio:discard=unmap"


@pytest.mark.parametrize("size", ["10G", "128M", "100M"])
def test_a_trim_of_more_than_the_disk_has_is_refused(size: str) -> None:
    request = Request(paths=(TRIMMED,), during=(f"trim:size={size}",), size_bytes=GIB // 8)
    with pytest.raises(PlanError, match="its disk of 128M has room for 70M beside the load") as no:
        build_plan(request, Capabilities(), requested_profile(request))
    assert "a larger --size" in str(no.value.hint)


@pytest.mark.parametrize("order", ["trim", "trim:size=64M"])
def test_a_trim_that_fits_is_planned(order: str) -> None:
    request = Request(paths=(TRIMMED,), during=(order,), size_bytes=GIB // 8)
    assert build_plan(request, Capabilities(), requested_profile(request)).cells


def test_disks_are_made_or_changed_but_not_both_in_a_run() -> None:
    request = Request(paths=("raw/none",), during=("backup",), made=("cp",))
    with pytest.raises(PlanError, match="they are two runs"):
        requested_profile(request)


def test_operations_do_not_race() -> None:
    during = ("backup", "snapshot")
    request = RunRequest(paths=("{raw,qcow2}/none",), during=during, find=SearchFor.BEST)
    with pytest.raises(PlanError, match="--during compares what operations cost"):
        request.campaigns()


def test_a_database_is_no_load_beside_an_operation() -> None:
    request = Request(paths=("raw/none",), during=("backup",), profile="postgresql")
    with pytest.raises(PlanError, match="beside random requests of fio"):
        requested_profile(request)


class TestBesideARecordedLoad:
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        place = tmp_path / "web.load"
        place.write_bytes(encode(load((0, IoKind.WRITE, 0, 4096, 90), disk_bytes=GIB)))
        return str(place)

    def test_it_is_timed_as_it_was(self, file: str) -> None:
        request = Request(paths=("raw/none",), during=("backup",), profile=file)
        plan = build_plan(request, Capabilities(), requested_profile(request))
        (measurement,) = plan.profile.measurements
        assert measurement.settings["mode"] == "timed"

    def test_its_rate_is_the_recordings(self, file: str) -> None:
        request = Request(paths=("raw/none",), during=("backup",), profile=file, load=50)
        with pytest.raises(PlanError, match="has the recording's"):
            requested_profile(request)

    def test_a_file_system_on_the_disk_leaves_it_no_room(self, file: str) -> None:
        request = Request(paths=("raw/none",), during=("trim",), profile=file)
        with pytest.raises(PlanError, match="trim needs a file system on it"):
            build_plan(request, Capabilities(), requested_profile(request))


@pytest.mark.parametrize(
    ("to", "shown", "chosen"),
    [
        ("ext4/qcow2", "ext4/qcow2/default", True),
        ("nas", "nbd:at=nas/raw/default", False),
        ("lvm", "lvm/default", True),
        ("store", "dir:at=store/raw/default", False),
        ("/mnt/backup", "dir:at=to/raw/default", False),
        ("ext4", "ext4/raw/default", False),
    ],
)
def test_a_copy_goes_where_a_path_leads(to: str, shown: str, chosen: bool) -> None:
    targets = (
        NamedTarget("nas", "nbd://10.0.0.5/disk", LayerKind.NBD),
        NamedTarget("store", "/srv/store", LayerKind.DIR),
    )
    destination = destination_of(to, targets)
    assert destination is not None
    assert (destination.path.canonical, destination.chosen) == (shown, chosen)
    image = destination.image(ImageFormat.QCOW2)
    wanted = None if to == "lvm" else "qcow2:preallocation=off"
    assert (image and str(image)) == wanted


@pytest.mark.parametrize("to", ["", " "])
def test_an_empty_place_is_refused(to: str) -> None:
    with pytest.raises(PlanError, match="--to names no place"):
        plan_of("raw/none", during=("backup",), to=to)


def test_the_name_of_a_copys_directory_is_taken() -> None:
    with pytest.raises(PlanError, match="a target cannot be called 'to'"):
        require_targets([NamedTarget("to", "/srv/to")])
    assert NamedTarget("to", "/mnt").called == "the target of --to"
    assert NamedTarget("nas", "/mnt").called == "target nas"


def test_a_directory_without_a_dot_gets_the_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tgt").mkdir()
    (tmp_path / "ext4").mkdir()
    monkeypatch.chdir(tmp_path)
    request = Request(paths=("raw/none",), during=("backup",), to="tgt")
    with pytest.raises(PlanError) as refused:
        named_here(LocalHost(), request)
    assert refused.value.hint == "for the directory write --to ./tgt"
    named_here(LocalHost(), replace(request, to="ext4"))
    named_here(LocalHost(), replace(request, to="other"))
    (tmp_path / "disks").mkdir()
    named_here(LocalHost(), replace(request, target=(parse_target(f"tgt={tmp_path}/disks"),)))


def test_a_directory_of_a_copy_is_a_target_of_the_campaign() -> None:
    plan = plan_of("raw/none", during=("backup",), to="/mnt/backup")
    assert [str(target) for target in plan.backing.targets] == ["to=/mnt/backup"]
    assert plan.destination is not None
    assert plan.fingerprint != plan_of("raw/none", during=("backup",)).fingerprint


@pytest.mark.parametrize(
    ("to", "during", "message"),
    [
        ("ext4", "snapshot", "no operation makes one"),
        ("null", "backup", "no disk to copy to"),
        ("qcow2:backing=1", "mirror", "no disk to copy to"),
        ("tmpfs/tmpfs/raw", "backup", "tmpfs"),
        ("ext4/raw", "backup:compress=on", "only a qcow2 copy is compressed"),
    ],
)
def test_a_place_that_cannot_hold_a_copy_is_refused(to: str, during: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_of("qcow2/none", during=(during,), to=to)


def test_a_device_cannot_be_the_disk_and_its_copy() -> None:
    target = NamedTarget("nas", "nbd://10.0.0.5/disk", LayerKind.NBD)
    with pytest.raises(PlanError, match="both need the whole device"):
        plan_of("nas/raw/none", during=("mirror",), to="nas", target=(target,))


def test_a_platform_does_an_operation_with_its_own_settings() -> None:
    proxmox, libvirt = Platform.PROXMOX, Platform.LIBVIRT
    assert as_platforms_do("backup", ()) == ("backup",)
    assert as_platforms_do("backup", (proxmox, libvirt)) == ("backup:workers=16", "backup")
    assert as_platforms_do("backup:workers=2", (proxmox,)) == ("backup:workers=2",)
    assert as_platforms_do("snapshot", (proxmox, libvirt)) == ("snapshot",)
    request = Request(paths=("raw/none",), during=("backup",), platform=(proxmox,))
    plan = build_plan(request, Capabilities(), requested_profile(request))
    assert {cell.path.attachment.during for cell in plan.cells} == {"backup:workers=16"}
    assert len(plan.cells) == 2


def test_the_host_has_no_guest_that_an_operation_could_change() -> None:
    plan = plan_of("raw/none", "host", during=("backup",))
    (dropped,) = plan.dropped
    assert (dropped.path, len(plan.cells)) == ("host", 1)
    assert "no guest runs there" in dropped.reason


@pytest.mark.parametrize(
    ("name", "problem", "way"),
    [
        ("file", "is not a directory", "name its directory"),
        ("nowhere", "does not exist", "mkdir -p"),
        ("full/nowhere", "does not exist", "mkdir -p"),
    ],
)
def test_a_place_of_a_copy_that_is_no_directory_is_refused_when_planned(
    name: str, problem: str, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    to = tmp_path / name
    command = ["plan", "qcow2/none", "--during", "backup", "--dir", str(tmp_path)]
    assert main([*command, "--to", str(to)]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"error: --to {to} {problem}" in said
    assert f"hint: {way}" in said
    assert "trying" not in said

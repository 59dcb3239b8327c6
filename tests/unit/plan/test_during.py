"""Operations in the middle of a load: what is planned, and what is refused."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import impossible
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.settings import Request
from vdisklab.workload.requested_profile import requested_profile


def plan_of(*paths: str, during: tuple[str, ...]) -> CampaignPlan:
    request = Request(paths=paths, during=during)
    return build_plan(request, Capabilities(), requested_profile(request))


def test_each_path_has_a_cell_for_each_operation() -> None:
    plan = plan_of("qcow2/none", "raw/none", during=("backup:workers=1", "snapshot"))
    assert [cell.path.attachment.during for cell in plan.cells] == [
        "backup:workers=1", "snapshot", "backup:workers=1",
    ]  # fmt: skip
    (dropped,) = plan.dropped
    assert dropped.path == "raw/none/virtio:during=snapshot"
    assert "no format that stands above another image" in dropped.reason
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


def test_an_operation_that_does_not_exist_is_no_path() -> None:
    with pytest.raises(PlanError, match="'defragment' is no operation"):
        plan_of("raw/none/virtio:during=defragment", during=())


def test_a_database_is_no_load_beside_an_operation() -> None:
    request = Request(paths=("raw/none",), during=("backup",), profile="postgresql")
    with pytest.raises(PlanError, match="beside random requests of fio"):
        requested_profile(request)

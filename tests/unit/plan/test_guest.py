"""Several QEMUs as an axis: their names, the paths with each, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdisklab.errors import HostError, PlanError
from vdisklab.path.bus_options import with_each, without_qemu
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Aio, Bus
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, Missing, QemuLimits
from vdisklab.plan.guest import Qemu, RequestedQemu, parse_qemu, require_distinct
from vdisklab.plan.plan_file import parse_plan_file
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request
from vdisklab.value import replace

PROFILE = Profile("tiny", "Tiny", (MeasurementPlan("one", "fio", {"rw": "read"}),))
OLD = Qemu("7.2.22", Path("/usr/bin/qemu-system-x86_64"), "7.2.22 (Debian 1:7.2)")
NEW = Qemu("10.0.2", Path("/opt/qemu-10"), "10.0.2")
BOTH = Capabilities(qemus={OLD.name: QemuLimits(), NEW.name: QemuLimits()})


def build(
    *paths: str, capabilities: Capabilities = BOTH, qemus: tuple[Qemu, ...] = (OLD, NEW)
) -> CampaignPlan:
    return build_plan(Request(paths=paths, directory=Path("/srv")), capabilities, PROFILE, qemus)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("/opt/qemu-10", RequestedQemu(None, "/opt/qemu-10")),
        ("new=/opt/qemu-10", RequestedQemu("new", "/opt/qemu-10")),
        ("./qemu", RequestedQemu(None, "./qemu")),
        ("new=./qemu", RequestedQemu("new", "./qemu")),
        ("./a=b/qemu", RequestedQemu(None, "./a=b/qemu")),
        ("qemu-10", RequestedQemu(None, "qemu-10")),
        ("/opt/a=b/qemu", RequestedQemu(None, "/opt/a=b/qemu")),
    ],
)
def test_what_a_user_writes(text: str, asked: RequestedQemu) -> None:
    assert parse_qemu(text) == asked
    assert str(asked) == text


@pytest.mark.parametrize("text", ["", "new=", "a b=/opt/q", "a:b=/opt/q", "=q"])
def test_what_names_no_qemu(text: str) -> None:
    with pytest.raises(PlanError, match="QEMU"):
        parse_qemu(text)


def test_each_path_with_a_guest_is_measured_with_each() -> None:
    plan = build("raw/none", "qcow2/writeback/scsi:queues=2", "host")
    assert [cell.path.canonical for cell in plan.cells if cell.page_cache != "warm"] == [
        "raw/none/virtio:qemu=7.2.22",
        "raw/none/virtio:qemu=10.0.2",
        "qcow2/writeback/scsi:qemu=7.2.22:queues=2",
        "qcow2/writeback/scsi:qemu=10.0.2:queues=2",
        "host",
    ]
    assert plan.baseline.canonical == "host"
    assert plan.as_json()["qemu"]["10.0.2"] == {"binary": "/opt/qemu-10", "version": "10.0.2"}
    assert plan.qemu("10.0.2") == NEW
    assert plan.qemu(None) is None


def test_a_path_may_name_its_qemu() -> None:
    plan = build("raw/none/virtio:qemu=10.0.2", "host")
    assert [cell.path.attachment.qemu for cell in plan.cells] == ["10.0.2", None]


def test_a_name_that_no_qemu_has() -> None:
    with pytest.raises(HostError, match=r"no QEMU is called 9\.9") as caught:
        build("raw/none/virtio:qemu=9.9")
    assert "--qemu 9.9=BIN" in str(caught.value.hint)


def test_what_one_of_them_lacks_is_dropped_for_it_alone() -> None:
    lacking = QemuLimits(
        buses={Bus.NVME: Missing("QEMU 7.2.22 has no device nvme", "choose another bus")},
        aio={Aio.IO_URING: Missing("QEMU 7.2.22 was built without it", "choose aio=threads")},
    )
    able = replace(BOTH, qemus={OLD.name: lacking, NEW.name: QemuLimits()})
    plan = build("raw/none/{virtio:aio=io_uring,nvme}", "host", capabilities=able)
    assert [row.path for row in plan.dropped] == [
        "raw/none/virtio:aio=io_uring:qemu=7.2.22",
        "raw/none/nvme:qemu=7.2.22",
    ]
    assert len(plan.cells) == 3


def test_what_the_kernel_refuses_is_dropped_for_all() -> None:
    able = replace(BOTH, aio={Aio.IO_URING: Missing("a filter forbids it", "choose threads")})
    plan = build("raw/none/virtio:aio={threads,io_uring}", capabilities=able)
    assert len(plan.dropped) == 2


def test_a_program_that_was_replaced_is_another_plan() -> None:
    newer = replace(NEW, version="10.0.3")
    assert build("raw/none").fingerprint != build("raw/none", qemus=(OLD, newer)).fingerprint


def test_without_the_option_a_plan_is_as_it_was() -> None:
    plan = build("raw/none", capabilities=Capabilities(), qemus=())
    assert "qemu" not in plan.as_json()
    assert [cell.label for cell in plan.cells] == ["host", "raw/none"]


def test_two_of_one_name_are_refused_with_the_way_out() -> None:
    with pytest.raises(PlanError, match=r"2 QEMUs are called 7\.2\.22") as caught:
        require_distinct((OLD, replace(OLD, binary=Path("/opt/own"))))
    assert "--qemu 7.2.22-a=BIN" in str(caught.value.hint)


def test_a_baseline_has_to_be_one_path() -> None:
    request = Request(paths=("host",), directory=Path("/srv"), baseline="raw/none")
    with pytest.raises(PlanError, match="expands to 2 paths") as caught:
        build_plan(request, BOTH, PROFILE, (OLD, NEW))
    assert "raw/none/virtio:qemu=7.2.22" in str(caught.value.hint)


def test_in_a_plan_file() -> None:
    found = parse_plan_file('qemu = ["/usr/bin/q", "new=/opt/q"]', "plan.toml", Request)
    assert found.qemu == (
        RequestedQemu(None, "/usr/bin/q"),
        RequestedQemu("new", "/opt/q"),
    )


@given(st.sampled_from(["raw/none", "qcow2/writeback/scsi:queues=4", "null", "ext4/host"]))
def test_taking_the_name_off_gives_the_path_back(text: str) -> None:
    path = parse_path(text)
    for each in with_each(path, "qemu", ("a", "b")):
        assert without_qemu(each) == path
        assert parse_path(each.canonical) == each
